"""Strict gin: every value in a configuration is understood, used, and known by the file and line that it came from.

    files and flags --reading--> bindings as written --checks--> gin --(the run)--> reads --> Config.operative()

gin alone lets a misspelt scope, a macro that nobody reads and a binding that nobody uses pass in silence.
"""

from training.config.difference import difference
from training.config.loaded import Config, load
from training.config.registered import clean, name_of

__all__ = ["Config", "clean", "difference", "load", "name_of"]
