"""Synthetic images and sounds have the shape of real ones, and classes that can be told apart."""

import numpy as np
import pytest

from data.loader import Loader
from data.tasks import ImageAudioData, ImageClassificationData, SyntheticImageAudioData, SyntheticImagesData
from mistake import Mistake


def test_the_fields_are_those_of_the_real_tasks():
    real = ImageClassificationData(None, 6, 4, 3, 5).features()
    assert SyntheticImagesData(6, 4, 3, 5).features() == real
    real = ImageAudioData(None, None, 6, 4, 3, 10, 8, 5).features()
    assert SyntheticImageAudioData(6, 4, 3, 10, 8, 5).features() == real


def nearest_mean(train, test, field):
    """How many of `test` are nearest to the mean of their own class in `train`."""
    means = np.stack([train[field][train["label"] == label].mean(0).ravel() for label in range(5)])
    distances = np.linalg.norm(test[field].reshape(len(test["label"]), 1, -1) - means, axis=-1)
    return (distances.argmin(1) == test["label"]).mean()


def test_classes_can_be_told_apart_across_seeds_and_splits():
    tasks = [
        (SyntheticImagesData(6, 4, 3, 5), ["image"]),
        (SyntheticImageAudioData(6, 4, 3, 10, 8, 5), ["image", "audio"]),
    ]
    for task, fields in tasks:
        with Loader(task, "train", 64, 0) as train, Loader(task, "eval", 64, 1) as test:
            batches = next(train), next(test)
        assert sorted(np.unique(batches[0]["label"])) == list(range(5))
        for field in fields:
            assert nearest_mean(*batches, field) > 0.95
            assert len(np.unique(batches[0][field].reshape(64, -1), axis=0)) == 64
        assert np.abs(batches[0]["image"]).max() <= 1
        assert batches[0]["image"].dtype == np.float32


def test_frames_after_the_sound_are_zeros():
    with Loader(SyntheticImageAudioData(6, 4, 3, 10, 8, 5), "train", 64, 0) as loader:
        batch = next(loader)
    assert sorted(np.unique(batch["audio_frames"])) == list(range(5, 11))
    for audio, frames in zip(batch["audio"], batch["audio_frames"], strict=True):
        assert not audio[frames:].any()
        assert audio[:frames].all()


@pytest.mark.parametrize("task", [SyntheticImagesData(6, 4, 3, 5), SyntheticImageAudioData(6, 4, 3, 10, 8, 5)])
def test_an_example_is_a_function_of_seed_and_number(task):
    one, same, other = (task.examples("train", seed) for seed in (1, 1, 2))
    for name, value in one[70000].items():
        np.testing.assert_array_equal(value, same[70000][name])
    assert (one[7]["image"] != other[7]["image"]).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SyntheticImagesData(0, 4, 3, 5), "images_data.height: 0 is no size"),
        (lambda: SyntheticImagesData(6, 4, 3, 1), "images_data.num_classes: 1 leaves nothing"),
        (lambda: SyntheticImagesData(6, 4, 3, 5, 0), "images_data.train_examples: 0"),
        (lambda: SyntheticImageAudioData(6, 4, 3, 0, 8, 5), "image_audio_data.frames: 0"),
        (lambda: SyntheticImageAudioData(6, 4, 3, 9, 8, 5, 1, 0), "image_audio_data.eval_examples: 0"),
    ],
)
def test_sizes_that_mean_nothing_are_mistakes(make, message):
    with pytest.raises(Mistake, match=f"^synthetic_{message}"):
        make()
