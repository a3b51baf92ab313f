"""The help texts of the running CPython: 465 kB of English, always there: the corpus for trying things out."""

import hashlib
from collections.abc import Sequence

import gin

from data.sources.source import Record
from data.sources.splits import parse, select


@gin.configurable("pydoc_topics")
class PydocTopics:
    """Records {'topic', 'text'}, one a help topic, of the standard library's `pydoc_data.topics`.

    Splits 'train' and 'validation': about a tenth is held out, chosen by the hash of the topic's name.
    """

    def check(self, split: str) -> None:
        parse(split, ("train", "validation"), "pydoc_topics")

    def open(self, split: str) -> Sequence[Record]:
        from pydoc_data.topics import topics  # 465 kB of source, so only when wanted

        splits: dict[str, list[Record]] = {"train": [], "validation": []}
        for topic in sorted(topics):
            held_out = hashlib.sha256(topic.encode()).digest()[0] % 8 == 0
            splits["validation" if held_out else "train"].append({"topic": topic, "text": topics[topic]})
        return select(splits, split, "pydoc_topics")

    def identity(self, split: str) -> str:
        """Of the texts themselves: they change with Python's version."""
        digest = hashlib.sha256()
        for record in self.open(split):
            digest.update(record["text"].encode() + b"\0")
        return f"pydoc_topics {digest.hexdigest()}"
