"""train.py on a machine whose disk fails: `python broken_data.py BATCH FLAG...` can't read the batch of that number."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import train
from data import loader

_whole = loader._Batches.__getitem__


def _broken(batches, step: int):
    if step == int(sys.argv[1]):
        raise OSError(f"the disk failed at batch {step}")
    return _whole(batches, step)


loader._Batches.__getitem__ = _broken
sys.exit(train.main(sys.argv[2:]))
