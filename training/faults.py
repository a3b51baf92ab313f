"""How a run ends early: asked to (SIGTERM), or because something went wrong. Exit statuses are part of the command's
contract.
"""

import signal
import threading
from typing import Self

import jax
from jax.experimental import multihost_utils

DONE, FAULT, MISTAKE, STOPPED = 0, 1, 2, 143


class RunFault(Exception):
    """The run itself failed (not the user's writing): exit status 1 with this message."""


class StopRequest:
    """Whether SIGTERM has come. All processes agree after which step they stop, since a step needs them all.

    Of several processes, JAX's preemption service hears the signal, since each was joined, and agrees on the step without
    waiting for devices. A second SIGTERM ends a process at once.
    """

    def __init__(self):
        self._asked = threading.Event()
        self._previous = None

    def __enter__(self) -> Self:
        if jax.process_count() > 1:
            return self
        self._previous = signal.signal(signal.SIGTERM, lambda *_: self._asked.set())
        return self

    def __exit__(self, *exc) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def agreed(self, step: int) -> bool:
        """True, on every process after the same step, once any of them was asked. To be called after every step."""
        if jax.process_count() == 1:
            return self._asked.is_set()
        return multihost_utils.reached_preemption_sync_point(step)
