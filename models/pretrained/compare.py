"""Compares two checkpoints: by their outputs, where torch and transformers run the first, or else tensor by tensor."""

import dataclasses
import importlib.util
from pathlib import Path

import jax
import numpy as np

from models.pretrained.bert import MASKED_LM, build
from models.pretrained.checkpoint import Checkpoint, is_ours, read
from parallel.parameters import bind

TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The largest absolute difference of each thing compared, what was compared, and where nothing could be."""

    by: str
    differences: dict[str, float]
    faults: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        return not self.faults and all(value <= TOLERANCE for value in self.differences.values())


def compare(src: Path, other: Path, family: str) -> Comparison:
    """Of a checkpoint (theirs, or ours) and another; Mistake for one that can't be read."""
    first, second = read(src, family), read(other, family)
    can_run = (
        src.is_dir() and not is_ours(src) and all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    )
    return by_outputs(src, first, second) if can_run else by_tensors(first, second)


def by_tensors(first: Checkpoint, second: Checkpoint) -> Comparison:
    """Every parameter of one against that of the other."""
    a, b = first.params, second.params
    faults = [f"only one has {path}" for path in sorted(a.keys() ^ b.keys())]
    both = sorted(a.keys() & b.keys())
    faults += [
        f"{path} is {list(a[path].shape)} and {list(b[path].shape)}" for path in both if a[path].shape != b[path].shape
    ]
    differences = {path: _largest(a[path] - b[path]) for path in both if a[path].shape == b[path].shape}
    return Comparison("tensors, not outputs", differences, tuple(faults))


def by_outputs(src: Path, first: Checkpoint, second: Checkpoint) -> Comparison:
    """What transformers computes of `src`, which is `first`, against what our model does with `second`."""
    inputs = random_inputs(first, second)
    theirs, ours = their_outputs(src, first, inputs), outputs(second, inputs)
    real_BS = inputs["segment_ids"] != 0
    differences, faults = {}, [f"only one has {name}" for name in sorted(theirs.keys() ^ ours.keys())]
    for name in sorted(theirs.keys() & ours.keys()):
        a, b = theirs[name], ours[name]
        if name == "masked_lm_logits":
            # A resized vocabulary is compared on the tokens that both have.
            shared = min(a.shape[-1], b.shape[-1])
            a, b = a[..., :shared], b[..., :shared]
        if a.shape != b.shape:
            faults.append(f"{name} is {list(a.shape)} and {list(b.shape)}")
            continue
        # A padded position means nothing in either.
        differences[name] = _largest((a - b)[real_BS] if a.shape[:2] == real_BS.shape else a - b)
    return Comparison("outputs, on random inputs", differences, tuple(faults))


def random_inputs(*checkpoints: Checkpoint, seed: int = 0) -> dict[str, np.ndarray]:
    """tokens, segment_ids, positions, token_types int32 [4, S] that every checkpoint takes; rows 1 to 3 are padded."""
    vocab, length, types = (
        min(each.settings[f"bert.{name}"] for each in checkpoints)
        for name in ("vocab_size", "max_length", "token_types")
    )
    length = min(length, 64)
    draw = np.random.default_rng(seed)
    lengths = np.maximum(1, [length, length * 3 // 4, length // 2, 1])
    real_BS = np.arange(length) < lengths[:, None]
    tokens_BS = draw.integers(0, vocab, (4, length))
    types_BS = np.minimum(np.arange(length) // max(1, length // 3), types - 1) * np.ones((4, 1))
    fields = {"tokens": tokens_BS, "segment_ids": 1, "positions": np.arange(length), "token_types": types_BS}
    return {name: np.where(real_BS, value, 0).astype(np.int32) for name, value in fields.items()}


def outputs(checkpoint: Checkpoint, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What our model computes, float32: hidden_states [B, S, D], and where it has them pooled [B, D] and logits."""
    model = bind(build(checkpoint.settings, checkpoint.head, checkpoint.num_classes), checkpoint.params)

    @jax.jit
    def run(inputs):
        x_BSD = model.encoder(inputs["tokens"], inputs["segment_ids"], inputs["positions"], inputs["token_types"])
        found = {"hidden_states": x_BSD}
        if model.encoder.pooler is not None:
            found["pooled"] = model.encoder.pool(x_BSD)
        if checkpoint.head == MASKED_LM:
            found["masked_lm_logits"] = model.logits(x_BSD)
        elif checkpoint.head is not None:
            found["class_logits"] = model.logits(inputs)
        return found

    # An accelerator multiplies float32 in less than float32 unless it is told.
    with jax.default_matmul_precision("highest"):
        return {name: np.asarray(value) for name, value in run(inputs).items()}


def their_outputs(src: Path, checkpoint: Checkpoint, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What transformers computes of a folder, which was read as `checkpoint`: the names of `outputs`."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = {
        "local_files_only": True,
        "use_safetensors": True,
        "dtype": torch.float32,
        "attn_implementation": "eager",
    }
    pooler = checkpoint.settings["bert.pooler"]
    encoder = transformers.BertModel.from_pretrained(src, add_pooling_layer=pooler, **options).eval()
    call = {
        "input_ids": torch.from_numpy(inputs["tokens"]).long(),
        "attention_mask": torch.from_numpy((inputs["segment_ids"] != 0).astype(np.int64)),
        "token_type_ids": torch.from_numpy(inputs["token_types"]).long(),
    }
    with torch.no_grad():
        encoded = encoder(**call)
        found = {"hidden_states": encoded.last_hidden_state}
        if pooler:
            found["pooled"] = encoded.pooler_output
        if checkpoint.head is not None:
            model = getattr(transformers, checkpoint.head).from_pretrained(src, **options).eval()
            found["masked_lm_logits" if checkpoint.head == MASKED_LM else "class_logits"] = model(**call).logits
    return {name: value.numpy() for name, value in found.items()}


def _largest(difference: np.ndarray) -> float:
    """NaN, which is never within a tolerance, if any is NaN."""
    return float(np.abs(difference).max(initial=0.0))
