"""Sources of records, by number. Importing this registers them with gin."""

from data.sources.pydoc_topics import PydocTopics

__all__ = ["PydocTopics"]
