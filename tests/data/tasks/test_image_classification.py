"""Images with their class, varied in training as the seed says."""

import numpy as np
import pytest

from data.images import png
from data.loader import Loader
from data.tasks import ImageClassificationData
from mistake import Mistake
from tests.data.words import Records

PIXELS = np.random.default_rng(0).integers(1, 256, (7, 4, 6, 1), np.uint8)
RECORDS = [{"image": png(PIXELS[n]), "label": n % 3} for n in range(7)]
SOURCE = Records(train=RECORDS, validation=RECORDS)


def task(records=None, **kwargs):
    source = SOURCE if records is None else Records(validation=records)
    return ImageClassificationData(source, **({"height": 4, "width": 6, "channels": 1, "num_classes": 3} | kwargs))


def test_evaluation_has_each_image_as_it_is_and_padding_weighs_nothing():
    with Loader(task(crop_padding=2, flip=True), "eval", 4, 0, end="stop") as loader:
        first, second = loader
    np.testing.assert_allclose(first["image"], PIXELS[:4] / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(second["label"], [1, 2, 0, 0])
    np.testing.assert_array_equal(second["weight"], [1, 1, 1, 0])
    assert {name: (value.shape[1:], str(value.dtype)) for name, value in first.items()} == {
        name: (feature.shape, feature.dtype) for name, feature in task().features().items()
    }


def test_training_keeps_image_and_label_together():
    with Loader(task(), "train", 7, 2) as loader:
        batch = next(loader)
    pixels = np.rint((batch["image"] + 1) * 127.5).astype(np.uint8)
    numbers = [[known.tobytes() for known in PIXELS].index(image.tobytes()) for image in pixels]
    assert sorted(numbers) == list(range(7))
    np.testing.assert_array_equal(batch["label"], [n % 3 for n in numbers])


def images_of(epoch, seed, **kwargs):
    examples = task(**kwargs).examples("train", seed)
    return [examples[epoch * 7 + n]["image"].tobytes() for n in range(7)]


def test_variation_is_the_same_for_a_seed_and_new_in_each_epoch():
    varied = {"crop_padding": 2, "flip": True}
    assert images_of(0, 1, **varied) == images_of(0, 1, **varied)
    assert images_of(3, 1, **varied) == images_of(3, 1, **varied)
    assert len(set(images_of(0, 1, **varied)) & set(images_of(1, 1, **varied))) < 4
    assert len(set(images_of(0, 1, **varied)) & set(images_of(0, 2, **varied))) < 4
    # Without it epochs hold the same images.
    assert set(images_of(0, 1)) == set(images_of(1, 1))


def test_a_varied_image_is_one_of_those_that_can_be():
    possible = set()
    for mirrored in (PIXELS, PIXELS[:, :, ::-1]):
        bordered = np.pad(mirrored, ((0, 0), (1, 1), (1, 1), (0, 0)))
        for top in range(3):
            for left in range(3):
                possible |= {image.tobytes() for image in bordered[:, top : top + 4, left : left + 6]}
    with Loader(task(crop_padding=1, flip=True), "train", 16, 0) as loader:
        batch = next(loader)
    for image in batch["image"]:
        assert np.rint((image + 1) * 127.5).astype(np.uint8).tobytes() in possible


def test_images_are_resized_when_that_is_asked_for():
    with Loader(task(height=8, width=3, channels=3, resize=True), "eval", 2, 0, end="stop") as loader:
        batch = next(loader)
    assert batch["image"].shape == (2, 8, 3, 3)
    np.testing.assert_array_equal(batch["image"][..., 0], batch["image"][..., 2])


def test_labels_may_be_names():
    named = [{"image": RECORDS[0]["image"], "label": "dog"}]
    with Loader(task(named, num_classes=2, labels=("cat", "dog")), "eval", 1, 0, end="stop") as loader:
        np.testing.assert_array_equal(next(loader)["label"], [1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 2}, "num_classes: 2, and a record's label is 2"),
        ({"num_classes": 1}, "num_classes: 1"),
        ({"height": 0}, "height: 0 is no size"),
        ({"height": 5}, "height: 5, with a width of 6, and a record's image is 4 high and 6 wide"),
        ({"crop_padding": -1}, "crop_padding: -1 is no number of pixels"),
        ({"image": "picture"}, "image: the records have no field 'picture'"),
        ({"eval_split": "test"}, "eval_split: records: there is no split 'test'"),
        ({"records": []}, "eval_split: 'validation' holds no example"),
    ],
)
def test_mistakes_name_their_binding(arguments, message):
    with pytest.raises(Mistake, match=f"^image_classification_data.{message}"):
        task(**arguments).examples("eval", 0)[2]
