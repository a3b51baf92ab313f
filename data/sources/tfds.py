"""Any data set of TensorFlow Datasets, read without TensorFlow."""

import importlib
from collections.abc import Sequence
from typing import Any

import gin
import numpy as np

from data import builders, fetch
from data.sources.source import Record
from data.sources.splits import parse, select
from mistake import Mistake, nearest


@gin.configurable("tfds")
class TFDS:
    """Records as a TFDS data set has them (text is UTF-8 bytes, a class its number); images are the bytes of a file.

    Args:
      name: as TFDS writes it: 'ag_news_subset', 'glue/sst2', 'mnist:3.0.1'; or one of this project's own:
        'spam_assassin', 'brown/documents', 'brown/passages', 'brown/sentences', 'debian_fashion_mnist', 'digits',
        'spoken_digits'.
      data_dir: where it is prepared; None is the cache for our own, else TFDS's default ($TFDS_DATA_DIR or
        ~/tensorflow_datasets).
      download: whether to download and prepare a data set that isn't there. Without it no network is used.
    """

    def __init__(self, name: str = gin.REQUIRED, data_dir: str | None = None, download: bool = False):
        self._name, self._data_dir, self._download = name, data_dir, download

    def check(self, split: str) -> None:
        parse(split, None, f"tfds {self._name}")  # Which splits there are only its files say.

    def open(self, split: str) -> Sequence[Record]:
        builder = self._builder()
        name, *_ = parse(split, list(builder.info.splits), f"tfds {self._name}")
        try:
            records = builder.as_data_source(split=name, decoders=_undecoded_images(builder))
        except NotImplementedError:
            raise Mistake(
                f"tfds.name: {self._name!r} in {builder.data_path} is in a format that can't be read by number. "
                f"Set tfds.data_dir to another folder, and prepare it there with: {_prepare_command(self._name)}"
            ) from None
        return select({name: records}, split, f"tfds {self._name}")

    def identity(self, split: str) -> str:
        info = self._builder().info
        counts = {name: [part.num_examples, int(part.num_bytes)] for name, part in sorted(info.splits.items())}
        return f"tfds {info.full_name} {counts} {split}"

    def _builder(self) -> Any:
        """The builder of a data set that is prepared."""
        import tensorflow_datasets as tfds  # a second to import, so only when wanted
        from tensorflow_datasets.core import naming

        try:
            package, _ = naming.parse_builder_name_kwargs(self._name)
        except ValueError as error:
            raise Mistake(f"tfds.name: {self._name!r}: {error}") from None
        ours = str(package) in builders.NAMES
        if ours:
            importlib.import_module(f"data.builders.{package}")
        elif package.namespace and not self._download:
            raise Mistake(
                f"tfds.name: {self._name!r} is not TFDS's own: TFDS asks the network about it. "
                "Set tfds.download = True."
            )
        elif not package.namespace and str(package) not in tfds.list_builders(with_community_datasets=False):
            known = [*builders.NAMES, *tfds.list_builders(with_community_datasets=False)]
            raise Mistake(f"tfds.name: TFDS has no data set {self._name!r}. {nearest(str(package), known)}".rstrip())
        data_dir = self._data_dir or (fetch.data_dir() if ours else None)
        try:
            builder = tfds.builder(self._name, data_dir=data_dir, file_format="array_record")
        except (ValueError, AssertionError) as error:  # a configuration or a version that the data set hasn't
            raise Mistake(f"tfds.name: {self._name!r}: {error}") from None
        if (builder.data_path / "dataset_info.json").exists():
            return builder
        if not self._download:
            mend = f"python -m data.fetch {package}" if ours else _prepare_command(self._name)
            raise Mistake(
                f"tfds.name: {self._name!r} is not in {builder.data_path}. "
                f"Set tfds.download = True, or prepare it with: {mend}"
            )
        if ours:
            fetch.prepare(str(package), builder.builder_config and builder.builder_config.name, data_dir)
        else:
            builder.download_and_prepare()
        return self._builder()


def _undecoded_images(builder: Any) -> dict[str, Any]:
    """Decoders that leave images as they are stored: who looks only at the labels of records does not wait for them."""
    import tensorflow_datasets as tfds

    def left(feature: Any) -> bool:
        return isinstance(feature, tfds.features.Image) and feature.np_dtype == np.uint8

    return {name: tfds.decode.SkipDecoding() for name, feature in builder.info.features.items() if left(feature)}


def _prepare_command(name: str) -> str:
    """TFDS's own `tfds build` needs TensorFlow; this does not."""
    prepare = f"tfds.builder('{name}', file_format='array_record').download_and_prepare()"
    return f'python -c "import tensorflow_datasets as tfds; {prepare}"'
