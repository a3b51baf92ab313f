"""IDX files as their author describes them."""

import gzip

import numpy as np
import pytest

from data import idx


def written(path, content):
    path.write_bytes(gzip.compress(content))
    return path


def test_values_are_read_row_by_row(tmp_path):
    # Magic 0x00000803: unsigned bytes, three dimensions, here 2, 1 and 3.
    content = bytes.fromhex("00000803 00000002 00000001 00000003") + bytes([1, 2, 3, 4, 5, 255])
    array = idx.read(written(tmp_path / "x.gz", content))
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, [[[1, 2, 3]], [[4, 5, 255]]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes.fromhex("00000d01 00000001 3f800000"), "not an IDX file of unsigned bytes"),
        (bytes.fromhex("00000801 00000003") + b"ab", r"holds 2 values, and its shape is \(3,\)"),
        (b"<html>", "not an IDX file"),
    ],
)
def test_another_file_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        idx.read(written(tmp_path / "x.gz", content))
