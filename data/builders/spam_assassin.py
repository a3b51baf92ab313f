"""SpamAssassin's public mail corpus as a TFDS data set: the text of each mail's body, spam or not."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds
from etils import epath

from data.mail import body_text


class SpamAssassin(tfds.core.GeneratorBasedBuilder):
    """{'text', 'label'}: 6,046 mails in five groups, those of 'spam' and those of 'ham' ('hard-ham' looks like spam).

    Headers are left out, for they say how a mail came into the corpus. A mail's split follows from the hash of its
    text, so copies of one text are never on both sides: about 80% train, 10% validation, 10% test. Mails without text
    are left out.
    """

    # TFDS would look for it with a package (importlib_resources) that it fails to require.
    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = "python -m data.fetch spam_assassin"

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(names=["ham", "spam"])}
            ),
            supervised_keys=("text", "label"),
            homepage="https://spamassassin.apache.org/old/publiccorpus/",
            description=self.__doc__,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        parts: dict[str, list] = {"train": [], "validation": [], "test": []}
        for key, example in self._generate_examples(Path(dl_manager.manual_dir)):
            parts[split_of(example["text"])].append((key, example))
        return parts

    def _generate_examples(self, folder: Path) -> Iterator[tuple[str, dict]]:
        for file in sorted(folder.glob("data/*/*.json")):
            mail = json.loads(file.read_text(encoding="utf-8"))
            text = body_text(mail["text"])
            if text:
                yield (
                    f"{mail['group']}/{file.stem}",
                    {"text": text, "label": "spam" if mail["group"].startswith("spam") else "ham"},
                )


def split_of(text: str) -> str:
    """The split of a text, which is the same for texts that differ in case and white space only."""
    tenth = int.from_bytes(hashlib.sha256(" ".join(text.lower().split()).encode()).digest()[:8], "big") % 10
    return {0: "test", 1: "validation"}.get(tenth, "train")
