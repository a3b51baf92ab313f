"""Batches are put on the devices one ahead of the step, and only what a step waited for counts as waiting."""

import threading
import time

import jax
import numpy as np
import pytest

from training.prefetch import Prefetch


class Slow:
    """Batches 0, 1, ... of `count`, each made only once it is let go; `made` are those begun."""

    def __init__(self, count: int):
        self.count, self.made = count, []
        self.gate = threading.Semaphore(0)

    def __iter__(self):
        return self

    def __next__(self):
        self.gate.acquire()
        if len(self.made) == self.count:
            raise StopIteration
        self.made.append(len(self.made))
        return {"x": np.full(3, self.made[-1])}


def put(rows):
    return {name: jax.device_put(value) for name, value in rows.items()}


def until(true):
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_batches_come_in_order_on_the_devices_and_end_with_the_rows():
    with Prefetch(iter([{"x": np.full(3, n)} for n in range(5)]), put) as batches:
        found = list(batches)
        with pytest.raises(StopIteration):
            next(batches)
    assert all(isinstance(batch["x"], jax.Array) for batch in found)
    assert [int(batch["x"][0]) for batch in found] == [0, 1, 2, 3, 4]


def test_one_batch_is_made_ahead_while_the_step_runs_and_no_more():
    rows = Slow(10)
    rows.gate.release(10)
    with Prefetch(rows, put) as batches:
        next(batches)
        until(lambda: len(rows.made) == 2)  # The step on batch 0 runs; batch 1 is made.
        time.sleep(0.05)
        assert rows.made == [0, 1]
        next(batches)
        until(lambda: len(rows.made) == 3)


def test_an_error_is_raised_where_its_batch_would_have_been_used():
    def rows():
        yield {"x": np.zeros(3)}
        raise OSError("the disk failed")

    with Prefetch(rows(), put) as batches:
        next(batches)
        for _ in range(2):
            with pytest.raises(OSError, match="the disk failed"):
                next(batches)


def test_a_batch_that_is_late_is_waited_for_only_once_the_devices_are_idle():
    rows, began = Slow(2), time.perf_counter()
    idle_at, there_at = 0.2, 0.35
    threading.Timer(there_at, rows.gate.release).start()
    with Prefetch(rows, put, busy=lambda: time.perf_counter() - began < idle_at) as batches:
        next(batches)
        whole = time.perf_counter() - began
        rows.gate.release()
    # Of the seconds until the batch came, those before the devices were idle were theirs.
    assert whole - idle_at - 0.1 <= batches.waited <= whole - idle_at + 0.001


def test_a_batch_that_comes_while_the_devices_are_busy_kept_nothing_waiting():
    rows = Slow(2)
    threading.Timer(0.05, rows.gate.release).start()
    with Prefetch(rows, put, busy=lambda: True) as batches:
        next(batches)
        assert batches.waited == 0
        rows.gate.release()


def test_closing_ends_the_thread_with_batches_left():
    rows = Slow(100)
    rows.gate.release(100)
    before = threading.active_count()
    with Prefetch(rows, put) as batches:
        next(batches)
    assert threading.active_count() == before
