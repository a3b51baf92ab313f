"""Fashion-MNIST as a TFDS data set, from Debian's copy of its files. TFDS has one called fashion_mnist, which downloads."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

from data import idx, images

CLASSES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle_boot",
)
# The published split, by the beginning of its files' names.
SPLITS = {"train": "train", "test": "t10k"}


class DebianFashionMnist(tfds.core.GeneratorBasedBuilder):
    """{'image', 'label'}: 60,000 and 10,000 ('test') grey images of 28x28, 10 kinds of clothing (Xiao et al. 2017)."""

    # TFDS would look for it with a package (importlib_resources) that it fails to require.
    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = "python -m data.fetch debian_fashion_mnist"

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(28, 28, 1), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=CLASSES),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://github.com/zalandoresearch/fashion-mnist",
            description=self.__doc__,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        folder = Path(dl_manager.manual_dir)
        return {split: self._generate_examples(folder, prefix) for split, prefix in SPLITS.items()}

    def _generate_examples(self, folder: Path, prefix: str) -> Iterator[tuple[int, dict]]:
        images_NHW = idx.read(folder / f"{prefix}-images-idx3-ubyte.gz")
        labels_N = idx.read(folder / f"{prefix}-labels-idx1-ubyte.gz")
        for number, (image_HW, label) in enumerate(zip(images_NHW, labels_N, strict=True)):
            yield number, {"image": images.png(np.expand_dims(image_HW, -1)), "label": int(label)}
