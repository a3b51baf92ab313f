"""Images become arrays of the size that was asked for, or a mistake."""

import io

import numpy as np
import pytest
from PIL import Image

from data import images
from data.features import Feature
from data.images import ImageReader
from mistake import Mistake

GREY = np.arange(24, dtype=np.uint8).reshape(4, 6, 1) * 10
COLOUR = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)


def reader(height=4, width=6, channels=1, resize=False):
    return ImageReader("x", "picture", height, width, channels, resize)


def file(image, kind, mode=None):
    out = io.BytesIO()
    (Image.fromarray(image) if mode is None else Image.fromarray(image).convert(mode)).save(out, format=kind)
    return out.getvalue()


@pytest.mark.parametrize("image", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_png_is_read_back_exactly(image):
    content = images.png(image)
    assert content.startswith(b"\x89PNG")
    np.testing.assert_array_equal(images.decode(content, "x"), image)


def test_what_is_an_image_is_read(tmp_path):
    for value in (GREY, GREY[..., 0], images.png(GREY), file(GREY[..., 0], "bmp")):
        np.testing.assert_array_equal(reader().read({"picture": value}), GREY)
    transparent = np.concatenate([COLOUR, np.full((4, 6, 1), 7, np.uint8)], axis=-1)
    np.testing.assert_array_equal(images.decode(file(transparent, "png"), "x"), COLOUR)
    jpeg = images.decode(file(np.full((8, 8, 3), 100, np.uint8), "jpeg"), "x")
    assert np.abs(jpeg.astype(int) - 100).max() <= 2


def test_grey_becomes_colour_and_colour_grey():
    colour = reader(channels=3).read({"picture": GREY})
    np.testing.assert_array_equal(colour, np.repeat(GREY, 3, axis=-1))
    # Pillow's documented weights (ITU-R 601-2 luma).
    luma = COLOUR @ np.asarray([299, 587, 114]) / 1000
    assert np.abs(reader().read({"picture": COLOUR})[..., 0] - luma).max() < 1


def test_resizing_down_averages_all_pixels():
    wide = np.zeros((4, 8, 1), np.uint8)
    wide[:, 4:] = 200
    small = reader(2, 2, resize=True).read({"picture": wide})
    # A triangle of half-width 4 around columns 2 and 6, cut at the edges: of its weight a share is across the middle.
    weights = [np.maximum(0, 1 - np.abs(np.arange(8) + 0.5 - centre) / 4) for centre in (2, 6)]
    expected = [200 * w[4:].sum() / w.sum() for w in weights]
    np.testing.assert_allclose(small[..., 0], [expected] * 2, atol=1)


def test_a_flat_image_stays_flat_when_it_is_made_larger():
    large = reader(9, 13, channels=3, resize=True).read({"picture": np.full((4, 6, 3), 77, np.uint8)})
    assert large.shape == (9, 13, 3)
    assert (large == 77).all()


def test_a_crop_is_a_stretch_of_the_bordered_image_and_all_are_drawn():
    bordered = np.pad(COLOUR, ((2, 2), (2, 2), (0, 0)))
    every = {bordered[top : top + 4, left : left + 6].tobytes() for top in range(5) for left in range(5)}
    rng = np.random.default_rng(0)
    drawn = {images.crop(COLOUR, 2, rng).tobytes() for _ in range(500)}
    assert drawn == every


def test_half_of_the_images_are_mirrored():
    rng = np.random.default_rng(0)
    flipped = [images.flip(COLOUR, rng) for _ in range(400)]
    mirrored = [(image == COLOUR[:, ::-1]).all() for image in flipped]
    assert all(mirrored[i] or (flipped[i] == COLOUR).all() for i in range(400))
    assert 150 < sum(mirrored) < 250


def test_values_go_from_minus_one_to_one():
    np.testing.assert_allclose(images.scaled(np.asarray([0, 51, 255], np.uint8)), [-1, -0.6, 1], atol=1e-6)
    assert images.scaled(GREY).dtype == np.float32


def test_the_feature_says_the_axes():
    assert reader(channels=3).feature() == Feature((4, 6, 3), "float32", ("height", "width", "channels"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: reader(height=0), "height: 0 is no size"),
        (lambda: reader(channels=2), r"channels: 2. It is 1 \(grey\) or 3"),
        (lambda: reader(5, 6).read({"picture": GREY}), "height: 5, .* 4 high and 6 wide. Set x.resize = True"),
        (lambda: reader().read({"image": GREY}), "image: the records have no field 'picture'"),
        (lambda: reader().read({"picture": b"no"}), "image: field 'picture' is bytes that are no image"),
        (lambda: reader().read({"picture": GREY / 255}), r"image: field 'picture' is float64 \[4, 6, 1\], not"),
        (lambda: reader().read({"picture": "cat.png"}), "image: field 'picture' is"),
        (lambda: reader().read({"picture": np.zeros((4, 6, 5), np.uint8)}), "image: a record's image has 5 channels"),
        (
            lambda: reader().read({"picture": file(np.full((4, 6), 4000, np.uint16), "png")}),
            "image: field 'picture' is an image of Pillow's mode I;16, not",
        ),
    ],
)
def test_mistakes_name_their_binding(make, message):
    with pytest.raises(Mistake, match=f"^x.{message}"):
        make()
