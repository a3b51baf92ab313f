"""Digits spoken in many languages, from the stamps of Tux Paint, as a TFDS data set."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

from data import audio

SAMPLE_RATE = 16_000
# '3.ogg' is English; '3_fr.ogg' and '3_desc_fr.ogg' are two recordings in French, '3_en_GB.ogg' is English again.
_FILE = re.compile(r"(?P<digit>\d)(_desc)?(_(?P<language>[a-z]{2})(_\w+)?)?\.ogg")
_HELD_OUT = 3


class SpokenDigits(tfds.core.GeneratorBasedBuilder):
    """{'audio', 'label', 'language', 'file'}: 240 recordings of the digits 0 to 9 in 21 languages, int16 at 16 kHz.

    A language is wholly in one split: the three whose names have the smallest hashes are 'test', the next three
    'validation'. Recordings have 11 to 48 kHz and one or two channels; they are mixed to one and resampled.
    """

    # TFDS would look for it with a package (importlib_resources) that it fails to require.
    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = "python -m data.fetch spoken_digits"

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    # tfds.features.Audio needs TensorFlow.
                    "audio": tfds.features.Tensor(shape=(None,), dtype=np.int16),
                    "label": tfds.features.ClassLabel(num_classes=10),
                    "language": tfds.features.Text(),
                    "file": tfds.features.Text(),
                }
            ),
            supervised_keys=("audio", "label"),
            homepage="https://tuxpaint.org/stamps/",
            description=self.__doc__,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        files = sorted(Path(dl_manager.manual_dir).glob("*.ogg"))
        languages = splits(parse(file.name)[1] for file in files)
        return {split: self._generate_examples(files, held) for split, held in languages.items()}

    def _generate_examples(self, files: list[Path], languages: list[str]) -> Iterator[tuple[str, dict]]:
        for file in files:
            digit, language = parse(file.name)
            if language in languages:
                samples = audio.to_int16(audio.resample(*audio.read(file), SAMPLE_RATE))
                yield file.name, {"audio": samples, "label": digit, "language": language, "file": file.name}


def parse(name: str) -> tuple[int, str]:
    """The digit and the language, two letters, of a recording."""
    found = _FILE.fullmatch(name)
    assert found, name
    return int(found["digit"]), found["language"] or "en"


def splits(languages: Iterable[str]) -> dict[str, list[str]]:
    """The languages of each split."""
    by_hash = sorted(set(languages), key=lambda language: hashlib.sha256(language.encode()).digest())
    parts: dict[str, list[str]] = defaultdict(list)
    for place, language in enumerate(by_hash):
        parts["test" if place < _HELD_OUT else "validation" if place < 2 * _HELD_OUT else "train"].append(language)
    return {split: sorted(parts[split]) for split in ("train", "validation", "test")}
