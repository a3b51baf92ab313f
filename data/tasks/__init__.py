"""Tasks: what a batch holds, made from a source. One file each; importing this registers them with gin."""

from data.tasks.classification import ClassificationData
from data.tasks.masked_lm import MaskedLMData
from data.tasks.sentence_pairs import SentencePairsData
from data.tasks.synthetic_masked_lm import SyntheticMaskedLMData
from data.tasks.token_classification import TokenClassificationData

__all__ = [
    "ClassificationData",
    "MaskedLMData",
    "SentencePairsData",
    "SyntheticMaskedLMData",
    "TokenClassificationData",
]
