"""The catalogue of logical axis names: a name that is not listed here does not exist."""

from mistake import Mistake, nearest

AXES: dict[str, str] = {
    # Activations and batches.
    "batch": "examples of the global batch",
    "length": "positions of a sequence, on the query side",
    "key_length": "positions of a sequence, on the key and value side of attention",
    "predictions": "the positions of a sequence at which a masked LM predicts",
    "height": "rows of an image or a feature map",
    "width": "columns of an image or a feature map",
    "channels": "channels of an image or a feature map, and of what a convolution's kernel gives",
    "frames": "frames of audio",
    "mels": "mel bins of a spectrogram",
    # Dimensions that weights and activations share.
    "embed": "the model dimension (residual width)",
    "mlp": "the hidden dimension of a feed-forward block",
    "heads": "attention heads, on the query side",
    "kv_heads": "attention heads, on the key and value side (1 for multi-query, fewer than heads for grouped-query)",
    "head_dim": "the dimension of one attention head",
    "vocab": "tokens of the vocabulary",
    # Mixture of experts.
    "group": "groups of tokens that are routed together, where they come from; without a rule it follows 'batch'",
    "expert_group": "the same groups where their experts are; without a rule it has what 'expert' leaves of 'group'",
    "expert": "experts of a mixture",
    "expert_embed": "the model dimension of an expert's weights",
    "expert_mlp": "the hidden dimension of an expert",
    "whole_expert": "experts of a mixture that is not cut by expert: of a dropless one, and what a router chooses between",
    # Dimensions of weights alone.
    "layers": "equal layers, stacked on a leading dimension and run as a scan",
    "position": "rows of a learned position table",
    "bottleneck": "tokens through which the towers of a multimodal model exchange",
    "relative_buckets": "buckets of a relative position bias",
    "token_type": "rows of a segment (token type) table",
    "pooled": "output of the pooler over the first token",
    "transformed": "output of the masked LM head's dense layer, before its norm",
    "classes": "classes of a classifier",
    "kernel_height": "rows of a convolution's kernel",
    "kernel_width": "columns of a convolution's kernel",
    "in_channels": "channels that a convolution's kernel takes",
}


def require(name: str, binding: str) -> None:
    """Raises Mistake, beginning with `binding`, when `name` is not in the catalogue."""
    if name not in AXES:
        known = ", ".join(AXES)
        raise Mistake(
            f"{binding}: {name!r} is not a logical axis. {nearest(name, AXES)} All: {known}.".replace("  ", " ")
        )
