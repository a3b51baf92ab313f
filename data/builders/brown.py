"""The Brown corpus as a TFDS data set: documents, passages with their genre, sentences with their tags."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import tensorflow_datasets as tfds
from etils import epath

from data.builders.brown_tags import TAGS, reduce

GENRES = (
    "adventure",
    "belles_lettres",
    "editorial",
    "fiction",
    "government",
    "hobbies",
    "humor",
    "learned",
    "lore",
    "mystery",
    "news",
    "religion",
    "reviews",
    "romance",
    "science_fiction",
)
_PASSAGE_WORDS = 100

Sentence = list[tuple[str, str]]  # (word, Brown tag)


class Brown(tfds.core.GeneratorBasedBuilder):
    """500 American texts of 1961, 2,000 words each, in 15 genres, each word with its tag (Francis and Kucera 1964).

    A text is wholly in one split. Of each genre the tenth whose names have the smallest hashes is 'test', the next
    tenth 'validation', at least one text each, so every genre is in every split.
    """

    # TFDS would look for it with a package (importlib_resources) that it fails to require.
    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="documents", description="A record a text: {'text', 'genre', 'file'}."),
        tfds.core.BuilderConfig(
            name="passages", description="100 words or a few more, to a sentence's end: {'text', 'genre', 'file'}."
        ),
        tfds.core.BuilderConfig(
            name="sentences", description="{'words', 'tags', 'genre', 'file'}: tags are 12 parts of speech."
        ),
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = "python -m data.fetch brown"

    def _info(self) -> tfds.core.DatasetInfo:
        if self.builder_config.name == "sentences":
            fields = {
                "words": tfds.features.Sequence(tfds.features.Text()),
                "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=TAGS)),
            }
        else:
            fields = {"text": tfds.features.Text()}
        genre = tfds.features.ClassLabel(names=GENRES)
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(fields | {"genre": genre, "file": tfds.features.Text()}),
            homepage="http://icame.uib.no/brown/bcm.html",
            description=self.__doc__,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        folder = Path(dl_manager.manual_dir)
        genres = dict(
            line.split(maxsplit=1) for line in (folder / "cats.txt").read_text(encoding="utf-8").splitlines() if line
        )
        return {split: self._generate_examples(folder, files, genres) for split, files in splits(genres).items()}

    def _generate_examples(
        self, folder: Path, files: list[str], genres: Mapping[str, str]
    ) -> Iterator[tuple[str, dict]]:
        for file in files:
            sentences = parse((folder / file).read_text(encoding="utf-8"))
            for number, fields in enumerate(_CUTS[self.builder_config.name](sentences)):
                yield f"{file}-{number}", fields | {"genre": genres[file].strip(), "file": file}


def splits(genres: Mapping[str, str]) -> dict[str, list[str]]:
    """The files {name: genre} of each split."""
    by_genre: dict[str, list[str]] = defaultdict(list)
    for file in sorted(genres, key=lambda name: hashlib.sha256(name.encode()).digest()):
        by_genre[genres[file]].append(file)
    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for files in by_genre.values():
        tenth = max(1, round(len(files) / 10))
        parts["test"] += files[:tenth]
        parts["validation"] += files[tenth : 2 * tenth]
        parts["train"] += files[2 * tenth :]
    return {split: sorted(files) for split, files in parts.items()}


def parse(text: str) -> list[Sentence]:
    """The sentences of a file: a line each, of 'word/tag' between spaces."""
    return [[tuple(pair.rsplit("/", 1)) for pair in line.split()] for line in text.splitlines() if line.strip()]


def as_text(sentence: Sentence) -> str:
    """The words between spaces, but none before closing and after opening punctuation; `` and '' are quotes."""
    words = " ".join(word for word, _ in sentence)
    words = re.sub(r" ([.,;:?!)]|'')", r"\1", re.sub(r"(``|\() ", r"\1", words))
    return words.replace("``", '"').replace("''", '"')


def _documents(sentences: list[Sentence]) -> Iterator[dict]:
    yield {"text": "\n".join(map(as_text, sentences))}


def _passages(sentences: list[Sentence]) -> Iterator[dict]:
    passage: list[Sentence] = []
    for sentence in sentences:
        passage.append(sentence)
        if sum(map(len, passage)) >= _PASSAGE_WORDS:
            yield {"text": " ".join(map(as_text, passage))}
            passage = []
    # What is left at the end of a text is too short to tell its genre.


def _sentences(sentences: list[Sentence]) -> Iterator[dict]:
    for sentence in sentences:
        yield {"words": [word for word, _ in sentence], "tags": [reduce(tag) for _, tag in sentence]}


_CUTS = {"documents": _documents, "passages": _passages, "sentences": _sentences}
