"""The command line of train.py: read strictly, before anything is imported that takes long."""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Iterable

from mistake import Mistake, nearest

_USAGE = "Usage: python train.py --gin_file=configs/runs/NAME.gin [--gin.X=VALUE ...] --workdir=DIR [--mode=MODE]. All: --help."


@dataclasses.dataclass(frozen=True)
class Flags:
    """gin_files and bindings ('X=VALUE') in order, later ones win; simulated_devices: None when not given."""

    gin_files: list[str]
    bindings: list[str]
    mode: str
    workdir: pathlib.Path | None
    simulated_devices: int | None
    allow_config_change: bool
    command: str

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
        "--simulated_devices", type=int, metavar="N", help="use N simulated CPU devices, whatever the machine has"
    )
    parser.add_argument(
        "--allow_config_change", action="store_true", help="go on in a workdir whose run had another configuration"
    )
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
        found.gin_file, bindings, found.mode, found.workdir, found.simulated_devices, found.allow_config_change, command
    )


def _may_be_a_folder(workdir: pathlib.Path) -> bool:
    """Whether nothing is in the way of a folder there; that it can be written, who writes it finds out."""
    if str(workdir) == "." or "\0" in str(workdir):
        return False
    return not any(os.path.exists(place) and not os.path.isdir(place) for place in (workdir, *workdir.parents))
