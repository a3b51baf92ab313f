"""Small configurables, and a folder of gin files to load into a gin that is empty before and after each test."""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gin
import pytest

from mistake import Mistake
from training import config


@gin.configurable("toy_encoder")
class Encoder:
    def __init__(
        self,
        width: int = gin.REQUIRED,
        num_heads: int = gin.REQUIRED,
        rate: float = 0.1,
        pre_norm: bool = False,
        kind: Literal["learned", "rotary"] = "learned",
        label: str | None = None,
        sizes: tuple[int, ...] = (),
        pair: tuple[int, float] = (1, 2.0),
        names: Sequence[str] = (),
        table: Mapping[str, int] = types.MappingProxyType({}),
        schedule: float | Callable = 0.0,
        oddly: int = "auto",
        anything=None,
    ):
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})


@gin.configurable("toy_rules")
class Rules:
    def __init__(self, weights: dict = gin.REQUIRED, activations: dict | None = None):
        self.weights, self.activations = weights, activations


@gin.configurable("toy_rate")
def rate(peak: float = gin.REQUIRED, steps: int = gin.REQUIRED, warmup: int = 0):
    return peak, steps, warmup


@gin.configurable("toy_run")
class Run:
    def __init__(self, encoder: Any = gin.REQUIRED, other: Any = None, rate: Any = None, steps: int = 1):
        self.encoder, self.other, self.rate, self.steps = encoder, other, rate, steps


@gin.configurable("toy_box")
def box(value=None, more=None):
    return value


@gin.configurable("toy_ranking", denylist=["hidden"])
def ranking(shown: int = 1, hidden: int = 2, **rest):
    return shown, hidden, rest


@pytest.fixture(scope="session")
def toys():
    return types.SimpleNamespace(Encoder=Encoder, Rules=Rules, rate=rate, Run=Run, box=box, ranking=ranking)


@pytest.fixture(autouse=True)
def empty_gin():
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """write('configs/x.gin', text), below the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return write


@pytest.fixture
def mistake_of():
    """The message with which loading is refused."""

    def mistake_of(gin_files=(), bindings=(), **options):
        with pytest.raises(Mistake) as caught:
            config.load(gin_files, bindings, **options)
        return str(caught.value)

    return mistake_of
