"""Images with classes that can be told apart, and sounds to them: no file and no network is touched."""

import functools
from collections.abc import Sequence

import gin
import grain
import numpy as np

from data.features import Feature
from data.tasks.image_audio import fields
from data.tasks.task import Example, Split, check_at_least, check_epochs, stream


@gin.configurable("synthetic_images_data")
class SyntheticImagesData:
    """Each class has a pattern of its own, the same for every seed; an image is that under noise, from -1 to 1.

    Args:
      height, width, channels: of the images.
      num_classes: labels are 0 to num_classes - 1, drawn at random.
      train_examples, eval_examples: examples of an epoch.
    """

    def __init__(
        self,
        height: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        channels: int = gin.REQUIRED,
        num_classes: int = gin.REQUIRED,
        train_examples: int = 65536,
        eval_examples: int = 256,
    ):
        binding = "synthetic_images_data"
        _check_sizes(binding, height=height, width=width, channels=channels)
        check_at_least(f"{binding}.num_classes", num_classes, 2, "leaves nothing to tell apart")
        check_epochs(binding, train_examples, eval_examples)
        self.num_classes = num_classes
        self._image = Feature((height, width, channels), "float32", ("height", "width", "channels"))
        self._examples = {"train": train_examples, "eval": eval_examples}

    def features(self) -> dict[str, Feature]:
        alone = {"label": Feature((), "int32", ()), "weight": Feature((), "float32", ())}
        return {"image": self._image} | alone

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        numbers: Sequence[int] = range(self._examples[split])
        return grain.MapDataset.source(numbers).random_map(self._draw, seed=stream(seed, f"{split} images"))

    def _draw(self, number: int, rng: np.random.Generator) -> Example:
        label = int(rng.integers(self.num_classes))
        return {
            "image": _noisy(label, self._image.shape, rng),
            "label": np.int32(label),
            "weight": np.float32(1),
        }


@gin.configurable("synthetic_image_audio_data")
class SyntheticImageAudioData:
    """Images as above, each with a spectrogram that shows its class in the same way for a part of its frames.

    Args:
      height, width, channels, num_classes, train_examples, eval_examples: as for synthetic_images_data.
      frames, mels: of the spectrograms; at least half of the frames are sound, and zeros follow.
    """

    def __init__(
        self,
        height: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        channels: int = gin.REQUIRED,
        frames: int = gin.REQUIRED,
        mels: int = gin.REQUIRED,
        num_classes: int = gin.REQUIRED,
        train_examples: int = 65536,
        eval_examples: int = 256,
    ):
        binding = "synthetic_image_audio_data"
        _check_sizes(binding, height=height, width=width, channels=channels, frames=frames, mels=mels)
        check_at_least(f"{binding}.num_classes", num_classes, 2, "leaves nothing to tell apart")
        check_epochs(binding, train_examples, eval_examples)
        self.num_classes = num_classes
        self._image = Feature((height, width, channels), "float32", ("height", "width", "channels"))
        self._frames, self._mels = frames, mels
        self._examples = {"train": train_examples, "eval": eval_examples}

    def features(self) -> dict[str, Feature]:
        return fields(self._image, self._frames, self._mels)

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        numbers: Sequence[int] = range(self._examples[split])
        return grain.MapDataset.source(numbers).random_map(self._draw, seed=stream(seed, f"{split} images"))

    def _draw(self, number: int, rng: np.random.Generator) -> Example:
        label = int(rng.integers(self.num_classes))
        frames = int(rng.integers((self._frames + 1) // 2, self._frames + 1))
        audio_TM1 = _noisy(label, (self._frames, self._mels, 1), rng)
        audio_TM1[frames:] = 0
        return {
            "image": _noisy(label, self._image.shape, rng),
            "audio": audio_TM1,
            "audio_frames": np.int32(frames),
            "label": np.int32(label),
            "weight": np.float32(1),
        }


def _noisy(label: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The pattern of a class, from -0.75 to 0.75, with noise of -0.25 to 0.25. float32."""
    return _pattern(label, shape) + _uniform(rng, 0.25, shape)


@functools.lru_cache(maxsize=64)
def _pattern(label: int, shape: tuple[int, ...]) -> np.ndarray:
    return _uniform(np.random.default_rng(label), 0.75, shape)


def _uniform(rng: np.random.Generator, limit: float, shape: tuple[int, ...]) -> np.ndarray:
    return np.float32(2 * limit) * (rng.random(shape, np.float32) - np.float32(0.5))


def _check_sizes(binding: str, **sizes: int) -> None:
    for name, size in sizes.items():
        check_at_least(f"{binding}.{name}", size, 1, "is no size")
