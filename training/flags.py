"""The command line of train.py: read strictly, before anything is imported that takes long."""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Iterable

from mistake import Mistake, nearest

_USAGE = "Usage: python train.py --gin_file=configs/runs/NAME.gin [--gin.X=VALUE ...] --workdir=DIR [--mode=MODE]. All: --help."

# What says which processes belong together, and all flags about them.
_TOLD = ("coordinator_address", "num_processes", "process_id")
_HOSTS = ("multi_host", *_TOLD, "host_timeout")


@dataclasses.dataclass(frozen=True)
class Hosts:
    """What the command line says of the processes; None is left to be detected (TPU pods, SLURM, Open MPI, Kubernetes).

    patience: seconds that processes wait for one another.
    """

    coordinator_address: str | None
    num_processes: int | None
    process_id: int | None
    patience: float = 300.0


@dataclasses.dataclass(frozen=True)
class Flags:
    """gin_files and bindings ('X=VALUE') in order, later ones win; simulated_devices, of this process: None when not given.
    hosts: the processes to join; None is a run of one.
    """

    gin_files: list[str]
    bindings: list[str]
    mode: str
    workdir: pathlib.Path | None
    simulated_devices: int | None
    allow_config_change: bool
    command: str
    hosts: Hosts | None = None

    def require_workdir(self) -> pathlib.Path:
        """The workdir, or a Mistake."""
        if self.workdir is None:
            raise Mistake(
                f"--workdir: --mode={self.mode} needs a folder for checkpoints, metrics and the report. Add --workdir=DIR."
            )
        return self.workdir


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise Mistake(f"command line: {message}. {_USAGE}")


def parse(argv: list[str], modes: Iterable[str]) -> Flags:
    """The flags in `argv`. Raises Mistake for any that is not known."""
    modes = list(modes)
    parser = _Parser(
        prog="train.py", allow_abbrev=False, description="Trains, evaluates and explains what a gin file describes."
    )
    parser.add_argument(
        "--gin_file",
        action="append",
        default=[],
        metavar="FILE",
        help="a configuration; may be repeated, later ones win",
    )
    parser.add_argument(
        "--workdir",
        type=pathlib.Path,
        help="where checkpoints, metrics and the report go; a run found there is resumed",
    )
    parser.add_argument("--mode", default="train", help=f"one of {', '.join(modes)}")
    parser.add_argument(
        "--simulated_devices",
        type=int,
        metavar="N",
        help="use N simulated CPU devices (in each process), whatever the machine has",
    )
    parser.add_argument(
        "--allow_config_change", action="store_true", help="go on in a workdir whose run had another configuration"
    )
    _add_hosts(parser)
    parser.add_argument(
        "--gin.X", dest="unused", metavar="VALUE", help="binds X to VALUE, such as --gin.batch.size=64; wins over files"
    )
    plain, bindings = [], []
    for argument in argv:
        if argument.startswith("--gin.") and argument != "--gin.X":
            if "=" not in argument:
                raise Mistake(f"{argument}: a binding is --gin.NAME=VALUE, such as --gin.batch.size=64.")
            bindings.append(argument.removeprefix("--gin."))
        else:
            plain.append(argument)
    found, unknown = parser.parse_known_args(plain)
    if unknown:
        known = [
            "--gin_file",
            "--workdir",
            "--mode",
            "--simulated_devices",
            "--allow_config_change",
            *(f"--{name}" for name in _HOSTS),
            "--gin.NAME=VALUE",
        ]
        raise Mistake(
            f"{unknown[0]}: no such flag. {nearest(unknown[0].split('=')[0], known)} All: {', '.join(known)}."
        )
    if not found.gin_file:
        raise Mistake(f"--gin_file: none is given. {_USAGE}")
    if found.mode not in modes:
        raise Mistake(f"--mode: {found.mode!r} is not a mode. {nearest(found.mode, modes)} All: {', '.join(modes)}.")
    if found.simulated_devices is not None and found.simulated_devices < 1:
        raise Mistake(f"--simulated_devices: {found.simulated_devices} is not a number of devices.")
    if found.workdir is not None and not _may_be_a_folder(found.workdir):
        raise Mistake(
            f"--workdir: {str(found.workdir)!r} is not a folder for a run. Name one, such as --workdir=/tmp/run."
        )
    command = " ".join(["python train.py", *argv])
    return Flags(
        found.gin_file,
        bindings,
        found.mode,
        found.workdir,
        found.simulated_devices,
        found.allow_config_change,
        command,
        _hosts(found),
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several processes (docs/hosts.md)")
    group.add_argument(
        "--multi_host",
        action="store_true",
        help="join the other processes of this TPU pod, SLURM, Open MPI or Kubernetes job",
    )
    group.add_argument(
        "--coordinator_address",
        metavar="HOST:PORT",
        help="where process 0 listens; or JAX_COORDINATOR_ADDRESS",
    )
    group.add_argument("--num_processes", metavar="N", help="of the run; or JAX_NUM_PROCESSES")
    group.add_argument("--process_id", metavar="I", help="of this one, 0 to N - 1; or JAX_PROCESS_ID")
    group.add_argument("--host_timeout", metavar="SECONDS", help="how long processes wait for one another: 300")


def _hosts(found: argparse.Namespace) -> Hosts | None:
    """The processes that the flags, or the environment, ask for. Raises Mistake for a part of what it takes."""
    given = {name: getattr(found, name) or os.environ.get(f"JAX_{name.upper()}") for name in _TOLD}
    timeout = None if found.host_timeout is None else _number("host_timeout", found.host_timeout)
    if timeout == 0:
        raise Mistake("--host_timeout: 0 seconds is no time to wait. The default is 300.")
    if not found.multi_host and not any(given.values()):
        if timeout is not None:
            raise Mistake("--host_timeout: has no effect in a run of one process. Leave it out.")
        return None
    missing = [name for name, value in given.items() if not value]
    if missing and not found.multi_host:
        raise Mistake(
            f"--{missing[0]}: missing. A run of several processes takes --coordinator_address=HOST:PORT --num_processes=N "
            "--process_id=I, or --multi_host, which finds them on TPU pods, SLURM, Open MPI and Kubernetes."
        )
    address = given["coordinator_address"]
    if address and not (address.rpartition(":")[0] and address.rpartition(":")[2].isdecimal()):
        raise Mistake(f"--coordinator_address: {address!r} is not HOST:PORT, such as 10.0.0.1:8476.")
    count, process = (_number(name, given[name]) if given[name] else None for name in ("num_processes", "process_id"))
    if count == 0:
        raise Mistake("--num_processes: 0 is not a number of processes.")
    if None not in (count, process) and process >= count:
        raise Mistake(f"--process_id: {process}, and the {count} processes are 0 to {count - 1}.")
    return Hosts(address or None, count, process, float(timeout or 300))


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise Mistake(f"--{name}: {text!r} is not a whole number.")
    return int(text)


def _may_be_a_folder(workdir: pathlib.Path) -> bool:
    """Whether nothing is in the way of a folder there; that it can be written, who writes it finds out."""
    if str(workdir) == "." or "\0" in str(workdir):
        return False
    return not any(os.path.exists(place) and not os.path.isdir(place) for place in (workdir, *workdir.parents))
