"""BERT checkpoints as Hugging Face's transformers saves them: the table, and config.json <-> bert.* bindings."""

import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping

from flax import nnx

from mistake import Mistake, nearest
from models.bert import Bert
from models.objectives.classification import SequenceClassification, TokenClassification
from models.objectives.masked_lm import MaskedLM
from models.objectives.sentence_embedding import SentenceEmbedding
from models.pretrained.table import Family, Kernel, Row, Same, Settings, Shape, Vector
from parallel.parameters import declared

MASKED_LM, SEQUENCE, TOKEN = "BertForMaskedLM", "BertForSequenceClassification", "BertForTokenClassification"
_HEADS = {"BertForMaskedLM": MASKED_LM, "BertForPreTraining": MASKED_LM, SEQUENCE: SEQUENCE, TOKEN: TOKEN}
_POOLED = ("BertForPreTraining", SEQUENCE)

_LAYER = "encoder.layer.{layer}"


def _dense(ours: str, theirs: str, inputs: int = 1) -> tuple[Row, Row]:
    return Row(f"{ours}.kernel", f"{theirs}.weight", Kernel(inputs)), Row(f"{ours}.bias", f"{theirs}.bias", Vector())


def _norm(ours: str, theirs: str) -> tuple[Row, Row]:
    return Row(f"{ours}.scale", f"{theirs}.weight", Vector()), Row(f"{ours}.bias", f"{theirs}.bias", Vector())


ROWS = (
    Row("encoder.embeddings.token.table", "embeddings.word_embeddings.weight", Same()),
    Row("encoder.embeddings.position.table", "embeddings.position_embeddings.weight", Same()),
    Row("encoder.embeddings.token_type.table", "embeddings.token_type_embeddings.weight", Same()),
    *_norm("encoder.embeddings.norm", "embeddings.LayerNorm"),
    *_dense("encoder.blocks.attention.query", f"{_LAYER}.attention.self.query"),
    *_dense("encoder.blocks.attention.key", f"{_LAYER}.attention.self.key"),
    *_dense("encoder.blocks.attention.value", f"{_LAYER}.attention.self.value"),
    *_dense("encoder.blocks.attention.out", f"{_LAYER}.attention.output.dense", inputs=2),
    *_norm("encoder.blocks.attention_norm", f"{_LAYER}.attention.output.LayerNorm"),
    *_dense("encoder.blocks.mlp.up", f"{_LAYER}.intermediate.dense"),
    *_dense("encoder.blocks.mlp.down", f"{_LAYER}.output.dense"),
    *_norm("encoder.blocks.mlp_norm", f"{_LAYER}.output.LayerNorm"),
    *_dense("encoder.pooler", "pooler.dense"),
)
_CLASSIFIER = _dense("head", "classifier")
HEAD_ROWS = {
    None: (),
    MASKED_LM: (
        *_dense("head.transform", "cls.predictions.transform.dense"),
        *_norm("head.norm", "cls.predictions.transform.LayerNorm"),
        Row("head.bias", "cls.predictions.bias", Vector()),
    ),
    SEQUENCE: _CLASSIFIER,
    TOKEN: _CLASSIFIER,
}

IGNORED = {
    "embeddings.position_ids": "the numbers 0, 1, 2 ..., which older versions saved",
    "cls.seq_relationship.weight": "the next-sentence head, which no objective here has",
    "cls.seq_relationship.bias": "the next-sentence head, which no objective here has",
}
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}

# (ours, theirs, type, their default; None where config.json must say)
_SIZES = (
    ("num_layers", "num_hidden_layers", int, None),
    ("width", "hidden_size", int, None),
    ("num_heads", "num_attention_heads", int, None),
    ("mlp_width", "intermediate_size", int, None),
    ("vocab_size", "vocab_size", int, None),
    ("max_length", "max_position_embeddings", int, 512),
    ("token_types", "type_vocab_size", int, 2),
    ("norm_epsilon", "layer_norm_eps", float, 1e-12),
    ("dropout", "hidden_dropout_prob", float, 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", float, 0.1),
)
# What makes an encoder BERT. It is bound too, so that model.gin alone decides the model.
_PUBLISHED = {
    "positions": "learned",
    "pre_norm": False,
    "gated_mlp": False,
    "attention_bias": True,
    "mlp_bias": True,
    "norm_bias": True,
    "per_dim_scale": False,
    "logit_cap": None,
    "num_kv_heads": None,
    "head_dim": None,
    "parts": None,
}
# Of these, what came later: a model.gin that doesn't say it is older, and means this.
_LATER = {"bert.parts": None}


def settings(config: dict, names: Iterable[str]) -> Settings:
    """The bert.* bindings of a config.json and the canonical names of its tensors.

    Raises Mistake, beginning with 'config.json:', for what isn't a BERT encoder.
    """
    names = list(names)
    for key, wanted in (("position_embedding_type", "absolute"), ("is_decoder", False), ("add_cross_attention", False)):
        if (config.get(key) or wanted) != wanted:
            raise Mistake(f"config.json: {key} is {config[key]!r}; only {wanted!r} is a BERT encoder here.")
    act = config.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        raise Mistake(
            f"config.json: hidden_act is {act!r}, which is not supported. Supported: {', '.join(_ACTIVATIONS)}."
        )
    if config.get("tie_word_embeddings") is False and any(name.startswith("cls.predictions.") for name in names):
        raise Mistake(
            "config.json: tie_word_embeddings is False, and here a masked LM's output is its token table. "
            "Import the encoder alone: save it with BertModel.from_pretrained(SRC).save_pretrained(DIR)."
        )
    if absent := [theirs for _, theirs, _, default in _SIZES if default is None and theirs not in config]:
        raise Mistake(f"config.json: it doesn't say {', '.join(absent)}.")
    sizes = {ours: _number(theirs, config.get(theirs, default), kind) for ours, theirs, kind, default in _SIZES}
    pooler = any(name.startswith("pooler.") for name in names) or _architecture(config) in _POOLED
    values = {**sizes, "pooler": pooler, "activation": _ACTIVATIONS[act], **_PUBLISHED}
    return {f"bert.{name}": value for name, value in values.items()}


def config(bindings: Settings, which: str | None, num_classes: int) -> dict:
    """config.json of our bindings; Mistake for a model that isn't BERT as published."""
    values = {name.removeprefix("bert."): value for name, value in bindings.items()}
    for name, wanted in _PUBLISHED.items():
        if values.get(name, wanted) != wanted:
            raise Mistake(f"bert.{name}: {values[name]!r} can't be exported: a BERT checkpoint has {wanted!r} only.")
    act = values["activation"]
    if act not in _THEIR_ACTIVATIONS:
        raise Mistake(f"bert.activation: {act!r} can't be exported. Those that can: {', '.join(_THEIR_ACTIVATIONS)}.")
    written = {
        "architectures": [which or "BertModel"],
        "model_type": "bert",
        **{theirs: values[ours] for ours, theirs, _, _ in _SIZES},
        "hidden_act": _THEIR_ACTIVATIONS[act],
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    if which in (SEQUENCE, TOKEN):
        labels = {str(i): f"LABEL_{i}" for i in range(num_classes)}
        written |= {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
    return written


def build(bindings: Settings, which: str | None, num_classes: int) -> nnx.Module:
    """The encoder of our bindings in the objective that has its head; no memory is taken until parameters are bound."""
    encoder = Bert(**{name.removeprefix("bert."): value for name, value in bindings.items()}, dtype="float32")
    if which == MASKED_LM:
        return MaskedLM(encoder, transform=True, bias=True)
    if which == SEQUENCE:
        return SequenceClassification(encoder, num_classes)
    if which == TOKEN:
        return TokenClassification(encoder, num_classes)
    return SentenceEmbedding(encoder)


def shapes(bindings: Settings, which: str | None, num_classes: int) -> dict[str, Shape]:
    """The shape of each parameter of `build`; Mistake for bindings that are not all of BERT's and no others, or of
    another type.
    """
    bindings = _LATER | dict(bindings)
    known = {f"bert.{name}" for name in (*(ours for ours, *_ in _SIZES), "pooler", "activation", *_PUBLISHED)}
    if lacking := sorted(known - bindings.keys()):
        raise Mistake(f"{lacking[0]}: it is not bound. A checkpoint's bindings are: {', '.join(sorted(known))}.")
    if strange := sorted(bindings.keys() - known):
        raise Mistake(f"{strange[0]}: it is not a binding of a checkpoint. {nearest(strange[0], known)}")
    hints = typing.get_type_hints(inspect.unwrap(Bert.__init__))
    for name, value in bindings.items():
        if not _fits(value, hint := hints[name.removeprefix("bert.")]):
            raise Mistake(f"{name}: {value!r} is not {inspect.formatannotation(hint).replace('typing.', '')}.")
    return {path: record.shape for path, record in declared(build(bindings, which, num_classes)).items()}


def head(config: dict, tensors: Mapping[str, Shape]) -> tuple[str | None, int]:
    """(head, number of classes) of a checkpoint: as config.json's architecture says, or else as its tensors tell."""
    return _head_of(config, tensors), _rows_of(tensors, "classifier.weight", "classifier.bias")


def objective_head(objective: nnx.Module) -> str | None:
    """The head that an objective of ours has; None where a checkpoint has no place for it."""
    heads = {MaskedLM: MASKED_LM, SequenceClassification: SEQUENCE, TokenClassification: TOKEN}
    return heads.get(type(objective))


def own_head(params: Mapping[str, Shape]) -> tuple[str | None, int]:
    """(head, number of classes) of our own parameters."""
    if "head.transform.kernel" in params:
        return MASKED_LM, 0
    if "head.kernel" in params:
        return SEQUENCE if "encoder.pooler.kernel" in params else TOKEN, _rows_of(params, "head.bias")
    return None, 0


def canonical(name: str) -> str:
    """Without the prefix of a model with a head, and with today's names of a norm's two vectors."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def prefixed(name: str, which: str | None) -> str:
    """The name to export: an encoder within a model with a head is called 'bert'."""
    return name if which is None or name.startswith(("cls.", "classifier.")) else f"bert.{name}"


def _head_of(config: dict, names: Iterable[str]) -> str | None:
    architecture = _architecture(config)
    if architecture in _HEADS:
        return _HEADS[architecture]
    names = list(names)
    if any(name.startswith("cls.predictions.") for name in names):
        return MASKED_LM
    if any(name.startswith("classifier.") for name in names):
        return SEQUENCE if any(name.startswith("pooler.") for name in names) else TOKEN
    return None


def _rows_of(shapes: Mapping[str, Shape], *names: str) -> int:
    """The rows of the first that is there; 0 if none is."""
    return next((shapes[name][0] for name in names if shapes.get(name)), 0)


def _architecture(config: dict) -> str | None:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _fits(value: object, hint: object) -> bool:
    """Whether a plain value is of an annotated type. An int is a float, but True is no int."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, member) for member in typing.get_args(hint))
    return type(value) in ((int, float) if hint is float else (typing.get_origin(hint) or hint,))


def _number(name: str, value, kind: type):
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise Mistake(f"config.json: {name} is {value!r}, which is not a number of type {kind.__name__}.")
    if not (math.isfinite(value) and value >= 0):
        raise Mistake(f"config.json: {name} is {value!r}; it must be finite and not negative.")
    return kind(value)


BERT = Family(
    name="bert",
    rows=ROWS,
    head_rows=HEAD_ROWS,
    ignored=IGNORED,
    tied=TIED,
    canonical=canonical,
    settings=settings,
    shapes=shapes,
    head=head,
    own_head=own_head,
    objective_head=objective_head,
    config=config,
    prefixed=prefixed,
)
