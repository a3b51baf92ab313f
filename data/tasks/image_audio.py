"""An image and a sound of the same class."""

from collections.abc import Sequence

import gin
import grain
import numpy as np

from data import images
from data.audio import as_float
from data.features import Feature
from data.images import ImageReader
from data.records import field
from data.sources.source import Record, Source
from data.sources.splits import naming
from data.spectrogram import LogMel
from data.tasks.labels import Labels
from data.tasks.task import Example, Split, check_at_least, check_share, check_splits, require_rows, stream
from mistake import Mistake

_LEAST_RATE = 1000


@gin.configurable("image_audio_data")
class ImageAudioData:
    """Each sound with an image of its class.

    In training the image is drawn anew each time, from the seed and the example's number; at evaluation each sound comes
    once, always with the same image. Images go from -1 (black) to 1. A sound is its log-mel spectrogram (see LogMel) with
    mean 0 and variance 1, cut after `frames` frames, or followed by zeros.

    Args:
      images, sounds: two sources, such as `@images/tfds()` and `@sounds/tfds()`: records with an image, and records with
        samples [N], float or int16, at `sample_rate`.
      height, width, channels, resize: see ImageReader.
      frames, mels: of the spectrograms.
      num_classes: labels are 0 to num_classes - 1, in both sources.
      sample_rate: of the sounds, Hz. There are 100 frames a second.
      crop_padding: in training each image is cut at random out of itself with so many black pixels around.
      mute: the share of examples that have no sound in training (zeros, and 0 frames). Few sounds are soon known by heart,
        and then a model no longer looks at the images.
      train_split, eval_split: of the sounds.
      image_train_split, image_eval_split: of the images.
      image, audio, label: the records' fields.
    """

    def __init__(
        self,
        images: Source = gin.REQUIRED,
        sounds: Source = gin.REQUIRED,
        height: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        channels: int = gin.REQUIRED,
        frames: int = gin.REQUIRED,
        mels: int = gin.REQUIRED,
        num_classes: int = gin.REQUIRED,
        sample_rate: int = 16_000,
        resize: bool = False,
        crop_padding: int = 0,
        mute: float = 0.0,
        train_split: str = "train",
        eval_split: str = "validation",
        image_train_split: str = "train",
        image_eval_split: str = "validation",
        image: str = "image",
        audio: str = "audio",
        label: str = "label",
    ):
        binding = "image_audio_data"
        check_at_least(f"{binding}.frames", frames, 1, "holds no sound")
        check_at_least(f"{binding}.mels", mels, 1, "tells no pitches apart")
        check_at_least(f"{binding}.sample_rate", sample_rate, _LEAST_RATE, "Hz hold no speech")
        check_at_least(f"{binding}.crop_padding", crop_padding, 0, "is no number of pixels")
        check_share(f"{binding}.mute", mute)
        self._image_source, self._sound_source, self.num_classes = images, sounds, num_classes
        self._images = ImageReader(binding, image, height, width, channels, resize)
        self._labels = Labels(binding, label, num_classes, None)
        self._log_mel = LogMel(sample_rate, mels)
        self._frames, self._mels, self._audio, self._crop_padding, self._mute = frames, mels, audio, crop_padding, mute
        self._splits = {"train": train_split, "eval": eval_split}
        self._image_splits = {"train": image_train_split, "eval": image_eval_split}
        check_splits(sounds, self._splits, "image_audio_data.{}_split")
        check_splits(images, self._image_splits, "image_audio_data.image_{}_split")

    def features(self) -> dict[str, Feature]:
        return fields(self._images.feature(), self._frames, self._mels)

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        pictures, by_class = self._pictures(split)
        binding, name = f"image_audio_data.{split}_split", self._splits[split]
        with naming(binding):
            sounds = self._sound_source.open(name)
        require_rows(binding, name, len(sounds))
        if split == "eval":
            return grain.MapDataset.range(len(sounds)).map(
                lambda number: self._example(sounds[number], pictures, by_class, lambda count: number % count)
            )

        def drawn(sound: Record, rng: np.random.Generator) -> Example:
            return self._example(sound, pictures, by_class, rng.integers, rng)

        dataset = grain.MapDataset.source(sounds).shuffle(seed=stream(seed, "order"))
        return dataset.random_map(drawn, seed=stream(seed, "images of sounds"))

    def _pictures(self, split: Split) -> tuple[Sequence[Record], list[list[int]]]:
        """The images of a split, and the numbers of those of each class."""
        binding, name = f"image_audio_data.image_{split}_split", self._image_splits[split]
        with naming(binding):
            pictures = self._image_source.open(name)
        require_rows(binding, name, len(pictures))
        by_class: list[list[int]] = [[] for _ in range(self.num_classes)]
        for number in range(len(pictures)):
            by_class[self._labels.number(pictures[number])].append(number)
        missing = [label for label, numbers in enumerate(by_class) if not numbers]
        if missing:
            raise Mistake(f"{binding}: {name!r} holds no image of class {', '.join(map(str, missing))}.")
        return pictures, by_class

    def _example(self, sound: Record, pictures, by_class, choose, rng: np.random.Generator | None = None) -> Example:
        label = self._labels.number(sound)
        numbers = by_class[label]
        image_HWC = self._images.read(pictures[numbers[int(choose(len(numbers)))]])
        audio_TM1, frames = self._spectrogram(sound)
        if rng is not None:
            image_HWC = images.crop(image_HWC, self._crop_padding, rng)
            if rng.random() < self._mute:
                audio_TM1, frames = np.zeros_like(audio_TM1), 0
        return {
            "image": images.scaled(image_HWC),
            "audio": audio_TM1,
            "audio_frames": np.int32(frames),
            "label": np.int32(label),
            "weight": np.float32(1),
        }

    def _spectrogram(self, sound: Record) -> tuple[np.ndarray, int]:
        """Of a record: float32 [frames, mels, 1], and how many frames are sound."""
        binding = "image_audio_data.audio"
        samples_N = as_float(field(sound, self._audio, binding), binding)
        seen_TM = self._log_mel(samples_N[: self._log_mel.samples(self._frames)])
        out = np.zeros((self._frames, self._mels, 1), np.float32)
        # A sound that is the same throughout has no variance.
        out[: len(seen_TM), :, 0] = (seen_TM - seen_TM.mean()) / max(seen_TM.std(), 1e-3)
        return out, len(seen_TM)


def fields(image: Feature, frames: int, mels: int) -> dict[str, Feature]:
    """The fields of an example."""
    return {
        "image": image,
        "audio": Feature((frames, mels, 1), "float32", ("frames", "mels", "channels")),
        "audio_frames": Feature((), "int32", ()),
        "label": Feature((), "int32", ()),
        "weight": Feature((), "float32", ()),
    }
