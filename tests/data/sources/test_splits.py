"""Splits mean what they mean in TFDS."""

import pytest
import tensorflow_datasets as tfds
from hypothesis import assume, given
from hypothesis import strategies as st

from data.sources.splits import SplitMistake, naming, select
from mistake import Mistake


def expected(count, split):
    """TFDS's own reading of a split of `count` records."""
    info = tfds.core.SplitInfo(name="train", shard_lengths=[count], num_bytes=0)
    (read,) = tfds.core.ReadInstruction.from_spec(split).to_absolute({"train": info})
    return list(range(count))[read.from_ : read.to]


percent = st.one_of(st.none(), st.integers(-100, 100).map(lambda n: f"{n}%"))
number = st.one_of(st.none(), st.integers(-9, 9).map(str))


@given(count=st.integers(9, 300), ends=st.one_of(st.tuples(percent, percent), st.tuples(number, number)))
def test_slices_are_those_of_tfds(count, ends):
    start, stop = ends
    # TFDS takes a negative share that rounds to no record for the very start; here it is the end.
    for end in ends:
        assume(end is None or end[0] != "-" or end[-1] != "%" or round(int(end[:-1]) * count / 100) != 0)
    split = f"train[{start or ''}:{stop or ''}]"
    try:
        wanted = expected(count, split)
    except (ValueError, AssertionError):
        return
    try:
        assert list(select({"train": range(count)}, split, "source")) == wanted
    except SplitMistake:
        # Where the ends are the wrong way round TFDS gives nothing; here that is an error.
        assert not wanted


@pytest.mark.parametrize(
    ("split", "wanted"),
    [
        ("train", range(10)),
        ("train[:90%]", range(9)),
        ("train[90%:]", [9]),
        ("train[3:5]", [3, 4]),
        ("train[-20%:]", [8, 9]),
        ("train[:-1%]", range(10)),
    ],
)
def test_slices_by_hand(split, wanted):
    assert list(select({"train": list(range(10))}, split, "source")) == list(wanted)


def test_complementary_percentages_share_no_record():
    for count in range(1, 40):
        parts = [list(select({"train": range(count)}, split, "source")) for split in ("train[:85%]", "train[85%:]")]
        assert parts[0] + parts[1] == list(range(count))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("trian", r"no split 'trian'. Splits: 'train', 'test'. Nearest: 'train'"),
        ("train[5:", "not a split"),
        ("train[0:200]", "records 0 to 200 of 10"),
        ("train[8:2]", "records 8 to 2 of 10"),
        ("train[10%:5]", "mixes percentages"),
    ],
)
def test_another_split_is_a_mistake(split, message):
    with pytest.raises(SplitMistake, match=f"^source: .*{message}"):
        select({"train": range(10), "test": range(5)}, split, "source")


def test_the_binding_that_names_the_split_comes_first():
    with (
        pytest.raises(Mistake, match="^task.eval_split: source: there is no split 'validation'"),
        naming("task.eval_split"),
    ):
        select({"train": range(3)}, "validation", "source")
