"""The next batch is made, and put on the devices, while they compute the current one."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import jax
import numpy as np

from training.step import Batch

# Seconds between two looks at whether the devices are still busy, while a batch is late.
_TICK = 1e-3


class Prefetch:
    """An iterator over batches on the devices, one ahead of the step. Close it, or use it as a context.

    Which batch is which depends on its place alone, so a batch made ahead and never used changes no later run. What goes
    wrong with a batch is raised where it would have been used.

    Args:
      rows: batches on the host, such as a Loader.
      put: places one on the devices; called by another thread.
      busy: whether the devices have steps to do still. A batch that comes while they do has kept nothing waiting.

    Attributes:
      waited: seconds, so far, in which there was nothing to do but to wait for a batch.
    """

    def __init__(
        self,
        rows: Iterator[dict[str, np.ndarray]],
        put: Callable[[dict[str, np.ndarray]], Batch],
        busy: Callable[[], bool] = lambda: False,
    ):
        self._rows, self._put, self._busy = rows, put, busy
        self.waited = 0.0
        self._ready: queue.SimpleQueue = queue.SimpleQueue()
        # One permit: no more than one batch is ahead.
        self._wanted, self._closed = threading.Semaphore(1), False
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closed:
                return
            try:
                # Not there before it is there: a copy under way would be waited for by the step, unseen.
                self._ready.put((jax.block_until_ready(self._put(next(self._rows))), None))
            except BaseException as error:  # noqa: BLE001  Raised again by __next__: the end of the data, or a fault.
                self._ready.put((None, error))
                return

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch, error = self._take()
        if error is not None:
            self._ready.put((None, error))  # It is over: every later call says the same.
            raise error
        self._wanted.release()
        return batch

    def _take(self) -> tuple[Batch | None, BaseException | None]:
        try:
            return self._ready.get_nowait()
        except queue.Empty:
            pass
        while self._busy():
            try:
                return self._ready.get(timeout=_TICK)
            except queue.Empty:
                pass
        began = time.perf_counter()
        try:
            return self._ready.get()
        finally:
            self.waited += time.perf_counter() - began

    def close(self) -> None:
        """Ends the thread, once it has made the batch that it is at."""
        self._closed = True
        self._wanted.release()
        self._thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()
