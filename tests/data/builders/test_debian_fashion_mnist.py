"""Fashion-MNIST's files become its two published splits."""

import gzip

import numpy as np

from data.images import decode
from data.sources import TFDS
from tests.data.builders.prepare import prepared


def write(folder, prefix, images, labels):
    magic = {"images-idx3": (0x803, images), "labels-idx1": (0x801, labels)}
    for name, (number, array) in magic.items():
        header = np.asarray([number, *array.shape], ">i4").tobytes()
        (folder / f"{prefix}-{name}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


def test_the_set_is_read_back(tmp_path):
    rng = np.random.default_rng(0)
    parts = {"train": ("train", 6), "test": ("t10k", 4)}
    written = {}
    for split, (prefix, count) in parts.items():
        images, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), np.arange(count, dtype=np.uint8) % 10
        write(tmp_path, prefix, images, labels)
        written[split] = {(image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)}
    data_dir = prepared("debian_fashion_mnist", tmp_path)
    for split, expected in written.items():
        records = TFDS("debian_fashion_mnist", data_dir=data_dir).open(split)
        read = [records[n] for n in range(len(records))]
        assert all(decode(record["image"], "x").shape == (28, 28, 1) for record in read)
        assert {(decode(record["image"], "x").tobytes(), int(record["label"])) for record in read} == expected
