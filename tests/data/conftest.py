"""A cache of its own for each test, and small sources and tokenizers."""

import pytest

from data.sources import PydocTopics
from data.tokenizer import wordpiece


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("shared_cache")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Each test starts with an empty cache."""
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def warm_cache(shared_cache, monkeypatch):
    """What one test of this session learned or tokenised, the next finds."""
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(shared_cache))


@pytest.fixture
def small_wordpiece(warm_cache):
    return wordpiece(1024, PydocTopics(), "validation")
