"""Batches are functions of their step, whoever makes them."""

import threading
import time

import grain
import numpy as np
import pytest

from data.features import Feature
from data.loader import Loader


class Numbers:
    """A task whose example n holds n + 1; with noise in training."""

    vocab_size = 1

    def __init__(self, count=10, fail_at=None, seconds=0.0):
        self.count, self.fail_at, self.seconds = count, fail_at, seconds
        self.made = 0

    def features(self):
        return {"number": Feature((), "int32", ()), "noise": Feature((2,), "float32", ("length",))}

    def examples(self, split, seed):
        dataset = grain.MapDataset.range(1, self.count + 1)
        if split == "train":
            dataset = dataset.shuffle(seed=seed)
        return dataset.random_map(self._example, seed=seed)

    def _example(self, number, rng):
        time.sleep(self.seconds)
        if number == self.fail_at:
            raise OSError("the disk is gone")
        self.made += 1
        return {"number": np.int32(number), "noise": rng.random(2, np.float32)}


def batches(count, *args, **kwargs):
    with Loader(*args, **kwargs) as loader:
        return [next(loader) for _ in range(count)]


def assert_same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_resuming_at_any_step_continues_the_run():
    whole = batches(12, Numbers(), "train", 4, 7)
    for start in (0, 1, 5, 11):
        assert_same(batches(12 - start, Numbers(), "train", 4, 7, start_step=start), whole[start:])


def test_resuming_far_on_costs_nothing():
    task = Numbers(seconds=0.001)
    with Loader(task, "train", 4, 7, start_step=10**12) as loader:
        assert next(loader)["number"].shape == (4,)


@pytest.mark.parametrize("splits", [[slice(0, 3), slice(3, 6)], [slice(0, 1), slice(1, 6)], [[0, 2, 4], [1, 3, 5]]])
def test_the_rows_of_processes_make_up_the_global_batch(splits):
    whole = batches(5, Numbers(), "train", 6, 3)
    parts = [batches(5, Numbers(), "train", 6, 3, rows=rows) for rows in splits]
    for step, batch in enumerate(whole):
        together = {name: np.zeros_like(value) for name, value in batch.items()}
        for rows, part in zip(splits, parts, strict=True):
            for name, value in together.items():
                value[rows] = part[step][name]
        assert_same([together], [batch])


def test_each_epoch_has_every_example_once_in_an_order_of_its_own():
    numbers = np.concatenate([batch["number"] for batch in batches(15, Numbers(), "train", 4, 1)])
    epochs = numbers.reshape(6, 10)
    assert all(sorted(epoch) == list(range(1, 11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6


def test_noise_differs_between_epochs_and_seeds():
    noise = {
        seed: np.concatenate([batch["noise"] for batch in batches(5, Numbers(), "train", 4, seed)]) for seed in (1, 2)
    }
    assert len(np.unique(np.concatenate(list(noise.values())), axis=0)) == 40


def test_evaluation_covers_each_example_once_and_fills_up_with_zeros():
    with Loader(Numbers(), "eval", 4, 0, end="stop") as loader:
        assert loader.num_batches == 3
        seen = list(loader)
    np.testing.assert_array_equal([batch["number"] for batch in seen], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]])
    assert not seen[2]["noise"][2:].any()


def test_processes_agree_on_the_end_even_without_rows_of_their_own():
    with Loader(Numbers(9), "eval", 4, 0, rows=slice(2, 4), end="stop") as loader:
        assert loader.num_batches == 3
        np.testing.assert_array_equal([batch["number"] for batch in loader], [[3, 4], [7, 8], [0, 0]])


@pytest.mark.parametrize(
    ("count", "remainder", "expected"), [(10, "drop", 2), (8, "drop", 2), (8, "pad", 2), (3, "drop", 0), (3, "pad", 1)]
)
def test_an_uneven_last_batch_is_filled_or_dropped(count, remainder, expected):
    with Loader(Numbers(count), "eval", 4, 0, end="stop", remainder=remainder) as loader:
        assert loader.num_batches == len(list(loader)) == expected


def test_resuming_at_the_end_ends_at_once():
    with Loader(Numbers(), "train", 4, 0, start_step=3, end="stop") as loader:
        assert list(loader) == []


@pytest.mark.parametrize("threads", [0, 1, 8])
def test_threads_change_nothing(threads):
    assert_same(batches(6, Numbers(), "train", 4, 5, threads=threads), batches(6, Numbers(), "train", 4, 5))


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_in_the_background_reaches_the_consumer(threads):
    with Loader(Numbers(fail_at=6), "eval", 4, 0, end="stop", threads=threads) as loader:
        next(loader)
        with pytest.raises(OSError, match="the disk is gone"):
            next(loader)


def test_waiting_is_counted():
    with Loader(Numbers(seconds=0.02), "eval", 5, 0, end="stop", threads=0) as loader:
        assert loader.waited == 0
        next(loader)
        assert 0.1 <= loader.waited < 1


def test_batches_are_made_before_they_are_asked_for():
    task = Numbers()
    with Loader(task, "train", 5, 0, threads=2, prefetch=2):
        deadline = time.monotonic() + 10
        while task.made < 10 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert task.made == 10


def test_closing_stops_the_threads():
    before = threading.active_count()
    with Loader(Numbers(), "train", 4, 0, threads=4) as loader:
        next(loader)
        assert threading.active_count() > before
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_fingerprint_tells_other_data():
    prints = []
    for numbers in (Numbers(9), Numbers(9), Numbers(8)):
        with Loader(numbers, "eval", 4, 0, end="stop") as loader:
            prints.append(loader.fingerprint())
    assert prints[0] == prints[1] != prints[2]
    assert prints[0].startswith("9 examples, checksum of the first ")
