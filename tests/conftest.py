"""Eight simulated CPU devices for every test, and compiled programs kept between runs and shared by all workers.

Settled on import, since JAX's backend takes the number of devices when it is first used.
"""

import os
import pathlib

import jax

from training import devices

devices.simulate(8, force=True)

_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "meshwright" / "compiled"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
