"""The IDX files that MNIST and its successors come in."""

import gzip
import math
from pathlib import Path

import numpy as np

_UNSIGNED_BYTE = 8


def read(path: Path) -> np.ndarray:
    """The uint8 array in a gzipped IDX file: two zero bytes, the type (8: unsigned byte), the number of dimensions, each
    dimension as a big-endian int32, and the values, the last dimension fastest.

    Raises ValueError for a file that is not so.
    """
    content = gzip.decompress(path.read_bytes())
    if content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise ValueError(f"{path.name} is not an IDX file of unsigned bytes: it begins with {content[:4].hex(' ')}")
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], ">i4").tolist())
    if len(content) - start != math.prod(shape):
        raise ValueError(f"{path.name} holds {len(content) - start} values, and its shape is {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
