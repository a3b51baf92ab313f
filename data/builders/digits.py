"""The handwritten digits that scikit-learn ships, as a TFDS data set."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

from data import images

_INK = 16  # the darkest value in the file
_SIZE = 8


class Digits(tfds.core.GeneratorBasedBuilder):
    """{'image', 'label'}: 1,797 grey images of 8x8, the digits 0 to 9 as 13 people wrote them (Alpaydin and Kaynak 1998).

    An image's split follows from the hash of its pixels: about 80% train, 10% validation, 10% test.
    """

    # TFDS would look for it with a package (importlib_resources) that it fails to require.
    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = "python -m data.fetch digits"

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(_SIZE, _SIZE, 1), encoding_format="png"),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            description=self.__doc__,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        parts: dict[str, list] = {"train": [], "validation": [], "test": []}
        for key, example in self._generate_examples(Path(dl_manager.manual_dir)):
            parts[split_of(example["image"])].append((key, {**example, "image": images.png(example["image"])}))
        return parts

    def _generate_examples(self, folder: Path) -> Iterator[tuple[int, dict]]:
        with gzip.open(folder / "digits.csv.gz", "rt", encoding="ascii") as lines:
            for number, line in enumerate(lines):
                image_HWC, label = parse(line)
                yield number, {"image": image_HWC, "label": label}


def parse(line: str) -> tuple[np.ndarray, int]:
    """A line, 64 values of 0 to 16 in rows and the digit -> uint8 [8, 8, 1] from 0 to 255, and the digit."""
    *values, label = (round(float(value)) for value in line.split(","))
    image = np.rint(np.asarray(values, np.float64) * 255 / _INK).astype(np.uint8)
    return image.reshape(_SIZE, _SIZE, 1), label


def split_of(image: np.ndarray) -> str:
    """The split of an image, the same for equal ones."""
    tenth = int.from_bytes(hashlib.sha256(image.tobytes()).digest()[:8], "big") % 10
    return {0: "test", 1: "validation"}.get(tenth, "train")
