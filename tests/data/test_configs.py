"""The gin files of configs/data describe tasks that are there, and nothing is read to know their shape."""

from pathlib import Path

import gin
import pytest

import data.sources
import data.tasks
import data.tokenizer  # noqa: F401
from data.features import Feature
from data.loader import Loader

CONFIGS = sorted(Path("configs/data").glob("*.gin"))
# What a file leaves to the user.
REQUIRED = {
    "synthetic_causal_lm": ["synthetic_causal_lm_data.vocab_size = 4096"],
    "synthetic_masked_lm": ["synthetic_masked_lm_data.vocab_size = 30522"],
    "text_files": ["text_files.paths = 'README.md'"],
}


@gin.configurable("stand_in")
def stand_in(data=gin.REQUIRED):
    """Stands for `experiment`, of which these files bind this one argument."""
    return data


@pytest.fixture
def task_of():
    def read(config, *bindings):
        gin.clear_config()
        text = config.read_text(encoding="utf-8").replace("experiment.data", "stand_in.data")
        gin.parse_config([*text.splitlines(), *REQUIRED.get(config.stem, []), *bindings])
        return stand_in()

    yield read
    gin.clear_config()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_config_says_its_fields_and_its_vocabulary_or_classes(config, task_of):
    task = task_of(config)
    fields = task.features()
    if "tokens" in fields:
        assert task.vocab_size > 1000
        assert fields["tokens"] == Feature(fields["tokens"].shape, "int32", ("length",))
    else:
        assert task.num_classes >= 10
        assert fields["image"] == Feature(fields["image"].shape, "float32", ("height", "width", "channels"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_config_opens_with_what_it_is_and_what_it_needs(config):
    text = config.read_text(encoding="utf-8")
    assert text.startswith(f"# configs/data/{config.name} -- ")
    assert "# Required to be set: " in text
    assert "# Commonly overridden: " in text


@pytest.mark.parametrize(
    "name",
    [
        "pydoc_causal_lm",
        "pydoc_masked_lm",
        "pydoc_sentence_pairs",
        "synthetic_causal_lm",
        "synthetic_image_audio",
        "synthetic_images",
        "synthetic_masked_lm",
    ],
)
def test_what_needs_no_fetching_makes_batches(name, task_of, warm_cache):
    for split in ("train", "eval"):
        task = task_of(Path(f"configs/data/{name}.gin"))
        with Loader(task, split, 4, 0) as loader:
            batch = next(loader)
        assert {field: value.shape[1:] for field, value in batch.items()} == {
            field: feature.shape for field, feature in task.features().items()
        }
        if "tokens" in batch:
            assert 0 < batch["tokens"].max() < task.vocab_size


def test_text_files_of_a_user_make_batches(task_of, tmp_path):
    (tmp_path / "mine.txt").write_text("\n\n".join(f"This is paragraph number {n}." for n in range(40)))
    task = task_of(Path("configs/data/text_files.gin"), f"text_files.paths = '{tmp_path}/*.txt'")
    with Loader(task, "eval", 2, 0, end="stop") as loader:
        (batch,) = loader
    assert batch["segment_ids"].max() == 2
