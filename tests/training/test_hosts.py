"""Processes meet by name, bring each other what they have, and name who is late."""

import pathlib
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from mistake import Mistake
from training import hosts
from training.flags import Hosts


def test_a_run_of_one_meets_nobody_and_agrees_with_itself():
    assert not hosts.several()
    assert hosts.meet("anything", "mine") == ["mine"]
    hosts.same("anything", "mine", "Mend.")
    hosts.part()
    assert hosts.index() == 0


def test_an_array_is_whole_wherever_its_pieces_lie():
    mesh = jax.make_mesh((8,), ("data",))
    values = np.arange(16.0).reshape(8, 2)
    for spec in (PartitionSpec("data"), PartitionSpec()):
        np.testing.assert_array_equal(hosts.whole(jax.device_put(values, NamedSharding(mesh, spec))), values)


@pytest.mark.parametrize("mode", ["explain", "plan"])
def test_a_mode_that_looks_at_no_device_joins_nobody(mode):
    with pytest.raises(Mistake, match=f"^--mode: {mode} looks at no device and needs no other process"):
        hosts.join(Hosts("localhost:1", 2, 0), mode)


@pytest.fixture(scope="module")
def met():
    """(exit status, stdout, stderr) of two processes that meet."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    script = pathlib.Path(__file__).parent / "meeting.py"
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(port), str(process)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    texts = [process.communicate(timeout=120) for process in processes]
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def test_each_gets_what_all_have_brought(met):
    for _, out, err in met:
        assert "brought ['what 0 has', 'what 1 has']" in out, err


def test_what_should_be_the_same_and_is_not_is_refused_with_the_first_line_that_differs(met):
    for _, out, err in met:
        assert "refused the text of process 1 is not that of process 0 (process 0: 0; process 1: 1). Mend." in out, err


def test_who_waits_in_vain_names_the_meeting_and_who_is_late_and_all_end(met):
    (status, _, err), (other, _, other_err) = met
    assert (status, other) == (1, 1)
    # The seconds are those that passed: its patience of 1 at least, more on a busy machine.
    said = re.match(r"process 0 waited (\d+) s at 'the last' for process 1, of 2\.", err.splitlines()[-1])
    assert said is not None and int(said[1]) >= 1
    assert other_err.splitlines()[-1].startswith(f"process 0: {said[0]}")
