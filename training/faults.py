"""How a run ends early: asked to (SIGTERM), or because something went wrong. Exit statuses are part of the command's
contract.
"""

import signal
import threading
from typing import Self

import jax
import numpy as np

DONE, FAULT, MISTAKE, STOPPED = 0, 1, 2, 143


class RunFault(Exception):
    """The run itself failed (not the user's writing): exit status 1 with this message."""


class StopRequest:
    """Whether SIGTERM has come. All processes agree before any of them stops, since a step needs them all."""

    def __init__(self):
        self._asked = threading.Event()
        self._previous = None

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGTERM, lambda *_: self._asked.set())
        return self

    def __exit__(self, *exc) -> None:
        signal.signal(signal.SIGTERM, self._previous)

    def agreed(self) -> bool:
        """True, on every process at the same call, once any of them was asked."""
        if jax.process_count() == 1:
            return self._asked.is_set()
        from jax.experimental import multihost_utils

        return bool(np.any(multihost_utils.process_allgather(np.array(self._asked.is_set()))))
