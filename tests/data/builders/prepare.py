"""A builder of the project's own, run over files that a test made."""

import importlib

import tensorflow_datasets as tfds


def prepared(name, folder):
    """The data_dir, below `folder`, of the set that data/builders/NAME.py makes from the files in `folder`."""
    importlib.import_module(f"data.builders.{name}")
    data_dir = folder / "prepared"
    builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir=folder))
    return str(data_dir)
