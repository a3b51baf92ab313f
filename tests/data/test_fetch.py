"""Fetching with clients of our own making: what goes wrong is said, and nothing half-done is kept."""

import hashlib
import io
import os
import tarfile

import pytest

from data import fetch, packages
from mistake import Mistake


@pytest.fixture
def client(tmp_path, monkeypatch):
    """client(script) puts an 'npm' before all others that does what the script says; returns the log of its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "calls"

    def install(script):
        (folder / "npm").write_text(f'#!/bin/sh\necho "$@" >> {log}\n{script}\n')
        (folder / "npm").chmod(0o755)
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
