"""One class for each image."""

from collections.abc import Sequence

import gin
import grain
import numpy as np

from data import images
from data.features import Feature
from data.images import ImageReader
from data.sources.source import Record, Source
from data.sources.splits import naming
from data.tasks.labels import Labels
from data.tasks.task import Example, Split, check_at_least, check_splits, require_rows, stream


@gin.configurable("image_classification_data")
class ImageClassificationData:
    """Images, from -1 (black) to 1, with their label.

    Args:
      source: such as `@tfds()`: records with an image as uint8 [H, W, C], or as the bytes of a PNG or JPEG file.
      height, width, channels, resize: see ImageReader.
      num_classes: labels are 0 to num_classes - 1.
      labels: names of the classes, in order, where the records' label is text; None where it is a number.
      crop_padding: in training each image is cut at random out of itself with so many black pixels around.
      flip: in training half of the images are mirrored, left to right.
      train_split, eval_split: of the source.
      image, label: the records' fields.

    How an image is varied is drawn anew in each epoch, from the seed and the example's number.
    """

    def __init__(
        self,
        source: Source = gin.REQUIRED,
        height: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        channels: int = gin.REQUIRED,
        num_classes: int = gin.REQUIRED,
        labels: Sequence[str] | None = None,
        resize: bool = False,
        crop_padding: int = 0,
        flip: bool = False,
        train_split: str = "train",
        eval_split: str = "validation",
        image: str = "image",
        label: str = "label",
    ):
        binding = "image_classification_data"
        check_at_least(f"{binding}.crop_padding", crop_padding, 0, "is no number of pixels")
        self._source, self.num_classes = source, num_classes
        self._images = ImageReader(binding, image, height, width, channels, resize)
        self._labels = Labels(binding, label, num_classes, labels)
        self._crop_padding, self._flip = crop_padding, flip
        self._splits = {"train": train_split, "eval": eval_split}
        check_splits(source, self._splits, "image_classification_data.{}_split")

    def features(self) -> dict[str, Feature]:
        alone = {"label": Feature((), "int32", ()), "weight": Feature((), "float32", ())}
        return {"image": self._images.feature()} | alone

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        binding, name = f"image_classification_data.{split}_split", self._splits[split]
        with naming(binding):
            records = self._source.open(name)
        require_rows(binding, name, len(records))
        dataset = grain.MapDataset.source(records)
        if split == "train":
            dataset = dataset.shuffle(seed=stream(seed, "order"))
            return dataset.random_map(self._varied, seed=stream(seed, "image variation"))
        return dataset.map(lambda record: self._example(record, self._images.read(record)))

    def _varied(self, record: Record, rng: np.random.Generator) -> Example:
        image_HWC = images.crop(self._images.read(record), self._crop_padding, rng)
        return self._example(record, images.flip(image_HWC, rng) if self._flip else image_HWC)

    def _example(self, record: Record, image_HWC: np.ndarray) -> Example:
        return {
            "image": images.scaled(image_HWC),
            "label": np.int32(self._labels.number(record)),
            "weight": np.float32(1),
        }
