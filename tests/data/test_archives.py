"""Archives that strangers made are unpacked safely."""

import io
import tarfile
import zipfile
from pathlib import PurePosixPath

import pytest

from data.archives import UnsafeArchive, unpack


def _tar(path, *entries):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in entries:
            entry = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def _link(name, target, kind):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry, b""


def _everything(name):
    return PurePosixPath(name)


def test_wanted_files_are_unpacked_and_others_left(tmp_path):
    archive = _tar(tmp_path / "a.tgz", ("package/data/x.txt", b"x"), ("package/run.sh", b"no"), ("other", b"no"))
    unpack(
        archive, tmp_path / "out", lambda name: PurePosixPath(name[8:]) if name.startswith("package/data/") else None
    )
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files == [tmp_path / "out/data/x.txt"]
    assert files[0].read_bytes() == b"x"
    assert not files[0].stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "a\\..\\evil"])
def test_a_path_out_of_the_folder_is_refused(tmp_path, name):
    with pytest.raises(UnsafeArchive, match="outside"):
        unpack(_tar(tmp_path / "a.tgz", (name, b"x")), tmp_path / "out", _everything)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr(name, b"x")
    with pytest.raises(UnsafeArchive, match="outside"):
        unpack(tmp_path / "a.zip", tmp_path / "out", _everything)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    with pytest.raises(UnsafeArchive, match="link"):
        unpack(_tar(tmp_path / "a.tgz", _link("in/side", "/etc/passwd", kind)), tmp_path / "out", _everything)
    assert not (tmp_path / "out").exists()


def test_a_file_can_not_be_written_through_an_earlier_link(tmp_path):
    archive = _tar(tmp_path / "a.tgz", _link("door", str(tmp_path), tarfile.SYMTYPE), ("door/evil", b"x"))
    with pytest.raises(UnsafeArchive):
        unpack(archive, tmp_path / "out", _everything)
    assert not (tmp_path / "evil").exists()


def test_a_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr(entry, "/etc/passwd")
    with pytest.raises(UnsafeArchive, match="link"):
        unpack(tmp_path / "a.zip", tmp_path / "out", _everything)


def test_a_name_that_comes_twice_does_not_replace_the_first(tmp_path):
    with pytest.raises(FileExistsError):
        unpack(_tar(tmp_path / "a.tgz", ("x", b"1"), ("x", b"2")), tmp_path / "out", _everything)
