"""The digits' format and splits."""

import gzip

import numpy as np

from data.builders import digits
from data.images import decode
from data.sources import TFDS
from tests.data.builders.prepare import prepared

# The first image of the file, as scikit-learn's documentation prints it.
FIRST = """0,0,5,13,9,1,0,0,0,0,13,15,10,15,5,0,0,3,15,2,0,11,8,0,0,4,12,0,0,8,8,0,0,5,8,0,0,9,8,0,0,4,11,0,1,12,7,0,
0,2,14,5,10,12,0,0,0,0,6,13,10,0,0,0,0""".replace("\n", "")


def test_a_line_is_an_image_and_its_digit():
    image, label = digits.parse(FIRST)
    assert (image.shape, image.dtype, label) == ((8, 8, 1), np.uint8, 0)
    # 5, 13, 9 and 1 of 16.
    np.testing.assert_array_equal(image[0, :, 0], [0, 0, 80, 207, 143, 16, 0, 0])
    assert digits.parse("16.0," * 64 + "7")[0].max() == 255


def test_equal_images_are_in_one_split_and_a_tenth_each_is_held_out():
    drawn = np.random.default_rng(0).integers(0, 256, (4000, 8, 8, 1), np.uint8)
    splits = [digits.split_of(image) for image in drawn]
    assert splits == [digits.split_of(image.copy()) for image in drawn]
    for split in ("validation", "test"):
        assert abs(splits.count(split) - 400) < 5 * (4000 * 0.1 * 0.9) ** 0.5


def test_the_set_is_read_back(tmp_path):
    drawn = np.random.default_rng(1).integers(0, 17, (60, 64))
    lines = [FIRST, FIRST, *(",".join(map(str, [*values, n % 10])) for n, values in enumerate(drawn))]
    with gzip.open(tmp_path / "digits.csv.gz", "wt") as out:
        out.write("\n".join(lines) + "\n")
    data_dir, seen = prepared("digits", tmp_path), []
    for split in ("train", "validation", "test"):
        records = TFDS("digits", data_dir=data_dir).open(split)
        part = [(decode(records[n]["image"], "x"), int(records[n]["label"])) for n in range(len(records))]
        assert all(digits.split_of(image) == split for image, _ in part)
        seen += [(image.tobytes(), label) for image, label in part]
    assert sorted(seen) == sorted((image.tobytes(), label) for image, label in map(digits.parse, lines))
