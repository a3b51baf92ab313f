"""Checkpoints of other libraries: import, export and comparison, from one two-way table a family.

A family's table and settings are one file (bert.py); table.py moves arrays, checkpoint.py reads and writes folders.
"""

from models.pretrained.checkpoint import import_checkpoint
from models.pretrained.init_from import load_for_init

__all__ = ["import_checkpoint", "load_for_init"]
