"""The fields of a batch that an objective reads: one that the data doesn't give is a mistake, and it says who does."""

from collections.abc import Mapping
from typing import Any

from mistake import Mistake

# Which tasks give a field, where only some do.
GIVEN_BY = {
    "tokens": ("masked_lm_data", "causal_lm_data", "classification_data", "token_classification_data"),
    "token_types": ("masked_lm_data", "classification_data", "token_classification_data"),
    "masked_positions": ("masked_lm_data", "synthetic_masked_lm_data"),
    "masked_labels": ("masked_lm_data", "synthetic_masked_lm_data"),
    "targets": ("causal_lm_data", "synthetic_causal_lm_data"),
    "label": ("classification_data", "image_classification_data", "image_audio_data"),
    "labels": ("token_classification_data",),
    "pair_tokens": ("sentence_pairs_data",),
    "image": ("image_classification_data", "image_audio_data", "synthetic_images_data"),
    "audio": ("image_audio_data", "synthetic_image_audio_data"),
}


class Fields(dict):
    """A batch, for the objective called `objective`, of the data called `data`: reading a field that isn't there raises
    Mistake.
    """

    def __init__(self, fields: Mapping[str, Any], objective: str, data: str):
        super().__init__(fields)
        self._objective, self._data = objective, data

    def __missing__(self, name: str):
        givers = [f"@{task}()" for task in GIVEN_BY.get(name, ())]
        mend = f"These give it: {', '.join(givers)}." if givers else "Take data made for this objective."
        raise Mistake(
            f"experiment.data: {self._objective} reads {name!r}, and a batch of {self._data} has only "
            f"{', '.join(self)}. {mend}"
        )
