"""Images with sounds of their class."""

import collections

import numpy as np
import pytest

from data.loader import Loader
from data.spectrogram import LogMel
from data.tasks import ImageAudioData
from mistake import Mistake
from tests.data.words import Records

RATE = 4000
# Images of one colour each: image n has pixels of n + 1, and class n % 3.
IMAGES = [{"image": np.full((2, 2, 1), n + 1, np.uint8), "label": n % 3} for n in range(30)]
# Sound n is noise of 60 * (n + 1) samples, and of class n % 3.
SOUNDS = [
    {"audio": np.random.default_rng(n).integers(-9999, 9999, 60 * (n + 1)).astype(np.int16), "label": n % 3}
    for n in range(9)
]


def task(images=IMAGES, sounds=SOUNDS, **kwargs):
    both = {"train": images, "validation": images}, {"train": sounds, "validation": sounds}
    sizes = {"height": 2, "width": 2, "channels": 1, "frames": 8, "mels": 6, "num_classes": 3, "sample_rate": RATE}
    return ImageAudioData(Records(**both[0]), Records(**both[1]), **(sizes | kwargs))


def image_numbers(batch):
    return np.rint((batch["image"][:, 0, 0, 0] + 1) * 127.5).astype(int) - 1


def test_features_are_known_without_any_data():
    features = ImageAudioData(None, None, 2, 3, 1, 8, 6, 3).features()
    assert {name: (feature.shape, feature.dtype, feature.names) for name, feature in features.items()} == {
        "image": ((2, 3, 1), "float32", ("height", "width", "channels")),
        "audio": ((8, 6, 1), "float32", ("frames", "mels", "channels")),
        "audio_frames": ((), "int32", ()),
        "label": ((), "int32", ()),
        "weight": ((), "float32", ()),
    }


def test_evaluation_has_each_sound_once_with_the_same_image():
    runs = []
    for seed in (0, 1):
        with Loader(task(crop_padding=1), "eval", 5, seed, end="stop") as loader:
            runs.append(list(loader))
    first = {name: np.concatenate([batch[name] for batch in runs[0]]) for name in runs[0][0]}
    np.testing.assert_array_equal(first["label"], [n % 3 for n in range(9)] + [0])
    np.testing.assert_array_equal(first["weight"], [1] * 9 + [0])
    np.testing.assert_array_equal(image_numbers(first)[:9] % 3, first["label"][:9])
    for one, other in zip(*runs, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_training_pairs_within_the_class_anew_in_each_epoch():
    examples = task().examples("train", 4)
    pairs = collections.defaultdict(set)
    for epoch in range(40):
        heard = []
        for n in range(9):
            example = examples[epoch * 9 + n]
            number = int(image_numbers({"image": example["image"][None]})[0])
            assert number % 3 == example["label"]
            pairs[example["audio"].tobytes()].add(number)
            heard.append(example["audio"].tobytes())
        assert len(set(heard)) == 9
    assert len(pairs) == 9
    # Each of the ten images of its class comes to a sound sooner or later: 9 of 10, to be safe.
    assert all(len(numbers) >= 9 for numbers in pairs.values())
    again = task().examples("train", 4)
    for n in (0, 17, 300):
        for name, value in examples[n].items():
            np.testing.assert_array_equal(again[n][name], value)


def test_a_sound_is_its_standardised_spectrogram_then_zeros():
    with Loader(task(), "eval", 9, 0, end="stop") as loader:
        (batch,) = loader
    for n, sound in enumerate(SOUNDS):
        # A window is 100 samples, a hop 40.
        frames = min(8, 1 + max(0, len(sound["audio"]) - 100) // 40)
        assert batch["audio_frames"][n] == frames
        real, padding = batch["audio"][n, :frames, :, 0], batch["audio"][n, frames:]
        assert not padding.any()
        np.testing.assert_allclose([real.mean(), real.std()], [0, 1], atol=1e-5)
        raw = LogMel(RATE, 6)(sound["audio"].astype(np.float32) / 32768)[:8]
        np.testing.assert_allclose(np.corrcoef(raw.ravel(), real.ravel())[0, 1], 1, atol=1e-5)


def test_silence_is_zeros_and_no_division_by_zero():
    silent = [{"audio": np.zeros(500, np.int16), "label": 0}]
    with Loader(task(sounds=silent), "eval", 1, 0, end="stop") as loader:
        assert not next(loader)["audio"].any()


def test_a_share_of_the_sounds_is_silent_in_training_only():
    with Loader(task(mute=0.3), "train", 2000, 0) as loader:
        batch = next(loader)
    silent = batch["audio_frames"] == 0
    assert abs(silent.mean() - 0.3) < 0.05
    assert not batch["audio"][silent].any()
    assert batch["audio"][~silent].any(axis=(1, 2, 3)).all()
    assert batch["weight"].all()
    with Loader(task(mute=1.0), "eval", 9, 0, end="stop") as loader:
        assert next(loader)["audio_frames"].all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mute": 2}, "mute: 2 is not a share"),
        ({"frames": 0}, "frames: 0 holds no sound"),
        ({"mels": 0}, "mels: 0"),
        ({"sample_rate": 16}, "sample_rate: 16"),
        ({"num_classes": 2}, "num_classes: 2, and a record's label is 2"),
        ({"num_classes": 4}, "image_eval_split: 'validation' holds no image of class 3"),
        ({"eval_split": "dev"}, "eval_split: records: there is no split 'dev'"),
        ({"image_eval_split": "dev"}, "image_eval_split: records: there is no split 'dev'"),
        ({"audio": "sound"}, "audio: the records have no field 'sound'"),
        ({"sounds": [{"audio": np.zeros((9, 2), np.int16), "label": 0}]}, "audio: a record's field is int16"),
        ({"height": 3}, "height: 3"),
        ({"images": []}, "image_eval_split: 'validation' holds no example"),
        ({"sounds": []}, "eval_split: 'validation' holds no example"),
    ],
)
def test_mistakes_name_their_binding(arguments, message):
    with pytest.raises(Mistake, match=f"^image_audio_data.{message}"):
        task(**arguments).examples("eval", 0)[0]
