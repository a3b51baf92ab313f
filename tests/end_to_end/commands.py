"""Runs train.py as a user does: a process of its own, whose exit status and output are looked at."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import jax

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = "tests/end_to_end/tiny.gin"


def start(*flags: str, gin_file: str = TINY, script: Sequence[str] = ("train.py",)) -> subprocess.Popen:
    """The process of `train.py` with `flags`, or of what a `script` and its first arguments make of it."""
    command = [sys.executable, *script, f"--gin_file={gin_file}", *map(str, flags)]
    # Programs compiled by one command serve the next: these tests start many.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    environment = os.environ | cache | {"COLUMNS": "120"}
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(*flags: str, gin_file: str = TINY) -> subprocess.CompletedProcess:
    """`train.py` with `flags`, to its end."""
    process = start(*flags, gin_file=gin_file)
    out, err = process.communicate(timeout=540)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def stop_when(process: subprocess.Popen, ready: Callable[[], bool], how: signal.Signals) -> int:
    """Sends the signal `how` as soon as `ready` says so; the exit status. A process that ends before is an error of the
    test.
    """
    deadline = time.monotonic() + 300
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate(timeout=120)
    return process.returncode


def num_lines(path: pathlib.Path) -> int:
    """Lines of a file that may not be there yet."""
    return len(path.read_text().splitlines()) if path.exists() else 0
