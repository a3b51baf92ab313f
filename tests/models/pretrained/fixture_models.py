"""Where the saved transformers models lie, and what they computed."""

import pathlib

import safetensors.numpy

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
NAMES = ("encoder", "masked_lm", "pretraining", "sequence", "token")


def tensors(name: str) -> dict:
    """Their tensors by their names."""
    return safetensors.numpy.load_file(FIXTURES / name / "model.safetensors")


def saved(name: str) -> tuple[dict, dict]:
    """(inputs, expected outputs)."""
    arrays = safetensors.numpy.load_file(FIXTURES / name / "outputs.safetensors")
    inputs = {key.removeprefix("inputs."): x for key, x in arrays.items() if key.startswith("inputs.")}
    expected = {key.removeprefix("expected."): x for key, x in arrays.items() if key.startswith("expected.")}
    return inputs, expected
