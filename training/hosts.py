"""The processes (hosts) of one run: joined before any device is looked at, met with by name, and stopped together.

What they tell each other goes through the key-value store of JAX's distributed service, on process 0: it works while devices
are busy, or hang. A run of one process needs none of it, and every function here is then free.
"""

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time

import jax
import numpy as np
from jax._src import distributed  # The client has no public name; Orbax takes it from here too.
from jax.experimental import multihost_utils

from mistake import Mistake
from training.faults import FAULT, RunFault
from training.flags import Hosts

# These look at no device, so one process does all there is to do.
_ALONE = ("explain", "plan")
_ROOT = "meshwright"
_FAULT = f"{_ROOT}/fault"
# Seconds: between two looks for a fault of another process; for a process to end by its own fault before it is ended by
# another's; for process 0, which serves the store, to see the others go; above which a wait is worth a line.
_LOOK, _GRACE, _GOING, _LONG = 0.5, 3.0, 10.0, 30.0
# The last meeting waits for what process 0 alone does: the report, the model's files.
_CLOSING = 20

_numbers = itertools.count()
_ending = threading.Lock()
_patience = 300.0


def several() -> bool:
    """Whether this process has joined others. Looks at no device."""
    return distributed.global_state.client is not None and distributed.global_state.num_processes > 1


def index() -> int:
    """Number of this process; 0 writes and shows. Looks at no device."""
    return distributed.global_state.process_id


def join(hosts: Hosts | None, mode: str) -> None:
    """Joins the other processes; None is a run of one process. Must come before the first look at the devices.

    Raises Mistake where nothing says who the others are, and for a mode that has no use for them.
    """
    global _patience
    if hosts is None:
        return
    if mode in _ALONE:
        raise Mistake(
            f"--mode: {mode} looks at no device and needs no other process. Leave out the flags that join them "
            "(--multi_host, --coordinator_address, --num_processes, --process_id; JAX_COORDINATOR_ADDRESS)."
        )
    _patience = hosts.patience
    address = hosts.coordinator_address
    told = None not in (address, hosts.num_processes, hosts.process_id)
    # A laptop's processes need not be seen from outside.
    local = address is not None and address.rpartition(":")[0] in ("localhost", "127.0.0.1")
    with _watched_start(hosts):
        try:
            jax.distributed.initialize(
                address,
                hosts.num_processes,
                hosts.process_id,
                cluster_detection_method="deactivate" if told else None,
                coordinator_bind_address=address if local else None,
                # Past it JAX aborts the process; ours comes first, and says what to look at.
                initialization_timeout=int(hosts.patience) + 60,
            )
        except ValueError as error:
            raise Mistake(
                f"--multi_host: nothing here says which processes belong together ({error}) "
                "Known are TPU pods, SLURM, Open MPI and Kubernetes. Elsewhere start each process with "
                "--coordinator_address=HOST:PORT --num_processes=N --process_id=I."
            ) from None
        except jax.errors.JaxRuntimeError as error:
            raise Mistake(f"--coordinator_address: {address} can't be used: {str(error).splitlines()[0]}") from None
    if several():
        threading.Thread(target=_watch, daemon=True).start()


def check_joined() -> None:
    """Raises Mistake where the devices show other processes that this one has not joined, as those of a TPU pod do."""
    if jax.process_count() > 1 and not several():
        raise Mistake(
            f"--multi_host: this process is {jax.process_index()} of {jax.process_count()}, and none has joined the others. "
            "Start each with --multi_host."
        )


@contextlib.contextmanager
def _watched_start(hosts: Hosts):
    def give_up():
        with contextlib.suppress(Exception):
            print(f"waited {hosts.patience:g} s at 'the start'. {_missing(hosts)}", file=sys.stderr, flush=True)
        os._exit(FAULT)

    timer = threading.Timer(hosts.patience, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _missing(hosts: Hosts) -> str:
    state = distributed.global_state
    address = state.coordinator_address or hosts.coordinator_address
    mend = (
        f"Each of the {hosts.num_processes or 'N'} processes needs this --coordinator_address, the same --num_processes and a "
        "--process_id of its own, from 0 on. --host_timeout=SECONDS waits longer."
    )
    if address is None:
        return f"Nothing was found that says which processes belong together. {mend}"
    if hosts.process_id != 0:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as error:
            return f"Process 0 is late: nothing answers at {address} ({error.strerror or error}). {mend}"
    return f"Process 0 listens at {address}, and not all the others have come. {mend}"


def meet(name: str, value: str = "", patience: float | None = None) -> list[str]:
    """Waits until every process is here; what each brought, by process.

    Raises RunFault, naming who is late, when some are not here within `patience` seconds (--host_timeout, by default). Who
    was waited for long is said in a line. All processes meet in the same order.
    """
    if not several():
        return [value]
    client, count = distributed.global_state.client, distributed.global_state.num_processes
    patience = _patience if patience is None else patience
    number = next(_numbers)
    here = f"{_ROOT}/{number}"
    began = time.monotonic()
    client.key_value_set(f"{here}/{index()}", f"{client.key_value_increment(f'{_ROOT}/order/{number}', 1)} {value}")
    try:
        client.wait_at_barrier(f"{here}: {name}", int(1000 * patience))
    except jax.errors.JaxRuntimeError as error:
        there = {int(key.rpartition("/")[2]) for key, _ in client.key_value_dir_get(f"{here}/")}
        late = [process for process in range(count) if process not in there]
        if not late:
            raise RunFault(f"the meeting at {name!r} failed: {str(error).splitlines()[0]}") from error
        raise RunFault(
            f"process {index()} waited {time.monotonic() - began:.0f} s at {name!r} for {_named(late)}, of {count}. "
            "Look at what that is doing; --host_timeout=SECONDS waits longer."
        ) from None
    came = {int(key.rpartition("/")[2]): text.split(" ", 1) for key, text in client.key_value_dir_get(f"{here}/")}
    seconds = time.monotonic() - began
    if index() == 0:
        if seconds > _LONG:
            last = max(came, key=lambda process: int(came[process][0]))
            print(f"waited {seconds:.0f} s at {name!r} for process {last}", file=sys.stderr)
        if number:  # All have read what was brought to the meeting before this one.
            client.key_value_delete(f"{_ROOT}/{number - 1}/")
            client.key_value_delete(f"{_ROOT}/order/{number - 1}")
    return [came[process][1] for process in range(count)]


def _named(processes: list[int]) -> str:
    return f"process{'es' if len(processes) > 1 else ''} {', '.join(map(str, processes))}"


def same(name: str, value: str, otherwise: str) -> None:
    """Raises Mistake, on every process, unless all bring the same value. otherwise: what it means, and the mend."""
    values = meet(name, value)
    others = [process for process, brought in enumerate(values) if brought != values[0]]
    if others:
        lines = itertools.zip_longest(values[0].splitlines(), values[others[0]].splitlines(), fillvalue="nothing")
        ours, theirs = next(((a, b) for a, b in lines if a != b), ("", ""))
        raise Mistake(
            f"{name} of {_named(others)} is not that of process 0 (process 0: {ours.strip()}; "
            f"process {others[0]}: {theirs.strip()}). {otherwise}"
        )


def whole(value: jax.Array | np.ndarray) -> np.ndarray:
    """All of an array, on every process, wherever its pieces lie. Every process must call it: they send each other theirs."""
    if not isinstance(value, jax.Array) or value.is_fully_addressable or value.is_fully_replicated:
        return np.asarray(value)
    return multihost_utils.process_allgather(value, tiled=True)


def part() -> None:
    """The end of a run that went well: nobody leaves before all are done."""
    if not several():
        return
    meet("the end", patience=_CLOSING * _patience)
    if _ending.acquire(blocking=False):
        jax.distributed.shutdown()


def stop_all(status: int, shown: str, told: str | None = None) -> int:
    """Shows what went wrong, and ends every process with it. Returns `status` in a run of one.

    told: what the others show, where it isn't the same. Then what went wrong here may only be that another process has
    gone, and if one has said why, that is shown.
    """
    if not several():
        print(shown, file=sys.stderr)
        return status
    fault = None if told is None else _fault_within(_GRACE)
    if not _ending.acquire(blocking=False):
        threading.Event().wait()  # Another thread is ending this process.
    if fault is not None and fault["process"] != index():
        _leave(fault["status"], _said(fault))
    own = {"process": index(), "status": status, "message": told or shown}
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # The first to say so is heard.
        distributed.global_state.client.key_value_set(_FAULT, json.dumps(own))
    _leave(status, shown)


def _watch() -> None:
    """Ends this process, whatever it waits for, soon after another one has failed."""
    while not _ending.locked():
        fault = _fault_within(0)
        if fault is None:
            time.sleep(_LOOK)
            continue
        time.sleep(_GRACE)  # A mistake that all of them find, each says by itself.
        if _ending.acquire(blocking=False):
            _leave(fault["status"], _said(fault))


def _said(fault: dict) -> str:
    return f"process {fault['process']}: {fault['message']}"


def _fault_within(seconds: float) -> dict | None:
    """The fault that was told first, if there is one within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        client = distributed.global_state.client
        with contextlib.suppress(jax.errors.JaxRuntimeError, AttributeError):
            return json.loads(client.key_value_try_get(_FAULT))
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK)


def _leave(status: int, message: str):
    """Ends the process at once: what waits for devices can't be interrupted, and JAX's own farewell waits for all."""
    with contextlib.suppress(Exception):
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[?25h")  # The cursor, which a live line hides.
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        client, count = distributed.global_state.client, distributed.global_state.num_processes
        client.key_value_set(f"{_ROOT}/left/{index()}", "")
        deadline = time.monotonic() + _GRACE + _GOING
        while index() == 0 and time.monotonic() < deadline:
            if len(client.key_value_dir_get(f"{_ROOT}/left/")) == count:
                time.sleep(_LOOK)
                break
            time.sleep(_LOOK / 10)
    os._exit(status)
