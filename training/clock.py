"""How long training steps take, and how much of it only data was waited for."""

import contextlib
import time

from training.prefetch import Prefetch


class Clock:
    """Seconds a step, and of them those in which only data was waited for, since the last lap; what `paused` covers is left out."""

    def __init__(self, batches: Prefetch, step: int):
        self.batches, self.step = batches, step
        self.began, self.waited = time.perf_counter(), batches.waited

    @contextlib.contextmanager
    def paused(self):
        """Time that is not training's: compiling, evaluation."""
        paused = time.perf_counter()
        yield
        self.began += time.perf_counter() - paused

    def lap(self, step: int) -> tuple[float, float]:
        """(seconds a step, seconds of data wait a step)."""
        now, waited = time.perf_counter(), self.batches.waited
        steps = max(step - self.step, 1)
        seconds, wait = (now - self.began) / steps, (waited - self.waited) / steps
        self.began, self.waited, self.step = now, waited, step
        return seconds, wait
