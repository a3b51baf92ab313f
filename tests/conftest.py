"""Eight simulated CPU devices for every test, and compiled programs kept between runs and shared by all workers.

Settled on import, since JAX's backend takes the number of devices when it is first used.
"""

import os
import pathlib

import gin
import jax
import pytest

from training import devices

# Tests compile much and compute little.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
devices.simulate(8, force=True)

_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "meshwright" / "compiled"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

# What must hold on every Python and JAX that is supported: `pytest -m core`.
_CORE = ("parallel", "models", "training/test_step.py", "training/test_checkpoint.py", "end_to_end/test_train.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    here = pathlib.Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(_CORE):
            item.add_marker(pytest.mark.core)


@pytest.fixture(autouse=True)
def no_configuration():
    """Each test begins with no gin bindings: one that an earlier test left would bind what this one constructs directly."""
    gin.clear_config()
