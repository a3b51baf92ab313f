"""Sources of records, by number. Importing this registers them with gin."""

from data.sources.json_lines import JsonLines
from data.sources.pydoc_topics import PydocTopics
from data.sources.text_files import TextFiles
from data.sources.tfds import TFDS

__all__ = ["TFDS", "JsonLines", "PydocTopics", "TextFiles"]
