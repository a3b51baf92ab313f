"""Images of records as arrays of one size, and how training varies them."""

import dataclasses
import io
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from data.features import Feature
from data.records import field
from data.sources.source import Record
from mistake import Mistake

_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def png(image_HWC: np.ndarray) -> bytes:
    """uint8 [H, W, 1 or 3] -> a PNG file. TFDS needs TensorFlow to make one."""
    file = io.BytesIO()
    _picture(image_HWC).save(file, format="png")
    return file.getvalue()


def decode(value: Any, what: str) -> np.ndarray:
    """A PNG, JPEG or the like as bytes, or uint8 [H, W] or [H, W, C] -> uint8 [H, W, C].

    Files are grey or become RGB; transparency is left out. Raises Mistake, beginning with `what`, for anything else.
    """
    if isinstance(value, bytes):
        try:
            with Image.open(io.BytesIO(value)) as picture:
                if picture.mode not in _EIGHT_BIT:
                    raise Mistake(f"{what} is an image of Pillow's mode {picture.mode}, not one of 8 bits a channel.")
                value = np.asarray(picture if picture.mode in ("L", "RGB") else picture.convert("RGB"))
        except UnidentifiedImageError:
            raise Mistake(f"{what} is bytes that are no image Pillow knows.") from None
    value = np.asarray(value)
    if value.dtype != np.uint8 or value.ndim not in (2, 3):
        shape = list(value.shape)
        raise Mistake(f"{what} is {value.dtype} {shape}, not an image: uint8 [H, W, C], or a file's bytes.")
    return value if value.ndim == 3 else value[..., None]


@dataclasses.dataclass(frozen=True)
class ImageReader:
    """Reads the field `name`, which `binding`.image says, as uint8 [height, width, channels].

    Args:
      height, width: of every image. With `resize` images of another size are stretched to it (Pillow's bilinear filter,
        which takes in every pixel when it makes smaller); without it they are mistakes.
      channels: 1 grey, 3 colour; images of the other kind are converted.

    Raises Mistake, beginning with `binding`, for sizes that mean nothing.
    """

    binding: str
    name: str
    height: int
    width: int
    channels: int
    resize: bool

    def __post_init__(self):
        for name in ("height", "width"):
            if getattr(self, name) < 1:
                raise Mistake(f"{self.binding}.{name}: {getattr(self, name)} is no size. It must be at least 1.")
        if self.channels not in (1, 3):
            raise Mistake(f"{self.binding}.channels: {self.channels}. It is 1 (grey) or 3 (colour).")

    def feature(self) -> Feature:
        return Feature((self.height, self.width, self.channels), "float32", ("height", "width", "channels"))

    def read(self, record: Record) -> np.ndarray:
        """The image of a record."""
        binding = f"{self.binding}.image"
        image_HWC = decode(field(record, self.name, binding), f"{binding}: field {self.name!r}")
        *size, channels = image_HWC.shape
        if channels != self.channels:
            if channels not in (1, 3):
                raise Mistake(f"{binding}: a record's image has {channels} channels. It must have 1 or 3.")
            image_HWC = _array(_picture(image_HWC).convert("L" if self.channels == 1 else "RGB"))
        if size != [self.height, self.width]:
            if not self.resize:
                raise Mistake(
                    f"{self.binding}.height: {self.height}, with a width of {self.width}, and a record's image is "
                    f"{size[0]} high and {size[1]} wide. Set {self.binding}.resize = True, or these to that."
                )
            smooth = Image.Resampling.BILINEAR
            image_HWC = _array(_picture(image_HWC).resize((self.width, self.height), smooth))
        return image_HWC


def crop(image_HWC: np.ndarray, padding: int, rng: np.random.Generator) -> np.ndarray:
    """A stretch of the image's own size out of it with a black border of `padding` pixels (He et al. 2015, section 4.2)."""
    if not padding:
        return image_HWC
    height, width, _ = image_HWC.shape
    top, left = rng.integers(0, 2 * padding + 1, 2)
    bordered = np.pad(image_HWC, ((padding, padding), (padding, padding), (0, 0)))
    return bordered[top : top + height, left : left + width]


def flip(image_HWC: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Left and right exchanged, in half of the cases."""
    return image_HWC[:, ::-1] if rng.integers(2) else image_HWC


def scaled(image_HWC: np.ndarray) -> np.ndarray:
    """uint8, 0 to 255 -> float32, -1 to 1."""
    return image_HWC.astype(np.float32) / 127.5 - 1


def _picture(image_HWC: np.ndarray) -> Image.Image:
    return Image.fromarray(image_HWC[..., 0] if image_HWC.shape[-1] == 1 else image_HWC)


def _array(picture: Image.Image) -> np.ndarray:
    array = np.asarray(picture)
    return array if array.ndim == 3 else array[..., None]
