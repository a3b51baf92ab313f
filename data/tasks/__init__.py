"""Tasks: what a batch holds, made from a source. One file each; importing this registers them with gin."""

from data.tasks.masked_lm import MaskedLMData
from data.tasks.synthetic_masked_lm import SyntheticMaskedLMData

__all__ = ["MaskedLMData", "SyntheticMaskedLMData"]
