"""Cross-entropy and accuracy as (sum, weight) pairs, in float32, with logits that may be sharded over classes."""

import jax
import jax.numpy as jnp


def cross_entropy(
    logits: jax.Array, labels: jax.Array, weights: jax.Array, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """(sum of weighted losses, sum of weights), both float32 scalars.

    logits float32 [..., V]; labels int32 and weights float32 [...]. With smoothing e the target is (1 - e) on the label
    plus e/V everywhere (Szegedy et al. 2016). No gather runs over V: a logit is picked by comparison, so V can stay
    sharded.
    """
    log_total = jax.nn.logsumexp(logits, axis=-1)
    label_logit = _pick(logits, labels)
    loss = log_total - (1.0 - label_smoothing) * label_logit
    if label_smoothing:
        loss -= label_smoothing * logits.mean(-1)
    return jnp.sum(loss * weights), jnp.sum(weights)


def accuracy(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(weight of the positions whose label has the highest logit, sum of weights); ties count as right."""
    right = _pick(logits, labels) >= logits.max(-1)
    return jnp.sum(right * weights), jnp.sum(weights)


def _pick(logits: jax.Array, labels: jax.Array) -> jax.Array:
    is_label = jnp.arange(logits.shape[-1]) == labels[..., None]
    return jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
