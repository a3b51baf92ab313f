"""Tasks: what a batch holds, made from a source. One file each; importing this registers them with gin."""

from data.tasks.causal_lm import CausalLMData
from data.tasks.classification import ClassificationData
from data.tasks.image_audio import ImageAudioData
from data.tasks.image_classification import ImageClassificationData
from data.tasks.masked_lm import MaskedLMData
from data.tasks.sentence_pairs import SentencePairsData
from data.tasks.synthetic_causal_lm import SyntheticCausalLMData
from data.tasks.synthetic_images import SyntheticImageAudioData, SyntheticImagesData
from data.tasks.synthetic_masked_lm import SyntheticMaskedLMData
from data.tasks.token_classification import TokenClassificationData

__all__ = [
    "CausalLMData",
    "ClassificationData",
    "ImageAudioData",
    "ImageClassificationData",
    "MaskedLMData",
    "SentencePairsData",
    "SyntheticCausalLMData",
    "SyntheticImageAudioData",
    "SyntheticImagesData",
    "SyntheticMaskedLMData",
    "TokenClassificationData",
]
