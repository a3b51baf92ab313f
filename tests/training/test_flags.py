"""The flags that join several processes: whole, or a mistake that says what is missing; the environment may give them."""

import pytest

from mistake import Mistake
from training.flags import Hosts, parse

PLAIN = ["--gin_file=a.gin"]
ADDRESS, COUNT, ID = "--coordinator_address=10.0.0.1:8476", "--num_processes=4", "--process_id=3"


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.delenv(f"JAX_{name}", raising=False)


def hosts(*flags):
    return parse([*PLAIN, *flags], ["train"]).hosts


def test_a_run_is_of_one_process_unless_flags_or_the_environment_ask_for_more(monkeypatch):
    assert hosts() is None
    assert hosts(ADDRESS, COUNT, ID) == Hosts("10.0.0.1:8476", 4, 3, 300.0)
    assert hosts("--multi_host", "--host_timeout=20") == Hosts(None, None, None, 20.0)
    assert hosts("--multi_host", ID) == Hosts(None, None, 3)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "[::1]:99")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    assert hosts() == Hosts("[::1]:99", 2, 0)
    assert hosts("--process_id=1") == Hosts("[::1]:99", 2, 1)


MISTAKES = {
    "no count": ([ADDRESS, ID], "--num_processes: missing. A run of several processes takes --coordinator_address="),
    "no id": ([ADDRESS, COUNT], "--process_id: missing."),
    "no address": ([COUNT, ID], "--coordinator_address: missing."),
    "no port": (["--coordinator_address=there", COUNT, ID], "--coordinator_address: 'there' is not HOST:PORT"),
    "word for a number": ([ADDRESS, "--num_processes=two", ID], "--num_processes: 'two' is not a whole number."),
    "negative": ([ADDRESS, COUNT, "--process_id=-1"], "--process_id: '-1' is not a whole number."),
    "none": ([ADDRESS, "--num_processes=0", "--process_id=0"], "--num_processes: 0 is not a number of processes."),
    "past the last": ([ADDRESS, "--num_processes=3", ID], "--process_id: 3, and the 3 processes are 0 to 2."),
    "no time": ([ADDRESS, COUNT, ID, "--host_timeout=0"], "--host_timeout: 0 seconds is no time to wait."),
    "time for nobody": (["--host_timeout=9"], "--host_timeout: has no effect in a run of one process."),
    "misspelt": (["--multihost"], "--multihost: no such flag. Nearest: '--multi_host'"),
}


@pytest.mark.parametrize(("flags", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_part_of_what_it_takes_is_a_mistake_that_says_what_is_missing(flags, message):
    with pytest.raises(Mistake) as caught:
        hosts(*flags)
    assert str(caught.value).startswith(message)
