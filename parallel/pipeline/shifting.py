"""GPipe and the circular schedule as one shifting buffer (Xu et al. 2021, section 3.3): a pipeline without any device's code.

L stages side by side hold a buffer [L, b, ...] whose first dimension is on the stages' mesh axis. A tick runs every stage
on its entry and shifts the buffer by one, which the partitioner sends as a collective-permute. The backward pass is the
derivative of that.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from parallel.pipeline.schedule import Pipeline
from parallel.pipeline.stages import Stages, at, choose, microbatches, together, zeros
from parallel.sums import Sums


def pipelined(
    body: Callable,
    x: Any,
    per_example: Any,
    layers: Any,
    pipeline: Pipeline,
    mesh: Mesh | None,
    sizes: dict[str, int],
    num_layers: int,
) -> tuple[Any, Sums]:
    """annotate.run_blocks as a pipeline: (x, sums) as if the layers ran one after another.

    At tick t stage l has item u = t - l, which is microbatch u mod M at its visit u div M; R M + L - 1 ticks in all. What
    leaves the last stage is kept in a buffer a microbatch, from which the first takes it for its next visit: it comes
    back after M ticks, and takes L to go round.
    """
    num_stages = sizes[pipeline.axis]
    stages = Stages(body, pipeline.arrangement(num_layers, num_stages), pipeline.axis, mesh)
    M, R, L = pipeline.microbatches, pipeline.repeats, num_stages
    pipeline.microbatch_size(jax.tree.leaves(x)[0].shape[0])
    x_M, per_example_M = microbatches(x, M), microbatches(per_example, M)
    layers_RL = stages.arrange(layers)
    stage_L = jnp.arange(L)
    first_L = stage_L == 0

    def tick(carry, t):
        buffer_L, done_LM = carry
        item_L = t - stage_L
        valid_L = (item_L >= 0) & (item_L < R * M)
        safe_L = jnp.clip(item_L, 0, R * M - 1)
        micro_L, visit_L = safe_L % M, safe_L // M
        # The first stage takes a new microbatch, or one that has come round. Zeros fill the other rows, since the gradient
        # of a broadcast over stages would be a sum over them.
        new = at(x_M, jnp.minimum(t, M - 1))
        if R > 1:
            back = jax.tree.map(lambda done: done[0, t % M], done_LM)
            new = jax.tree.map(lambda n, b: jnp.where(t < M, n, b), new, back)
        entering_L = jax.tree.map(lambda n: jnp.zeros((L, *n.shape), n.dtype).at[0].set(n), new)
        in_L = stages.pin(choose(first_L, entering_L, buffer_L))
        # What a stage computes in the bubble is of no use, and may be NaN: it must reach no weight and no input, and a
        # zero cotangent is not enough for that.
        in_L = choose(valid_L, in_L, jax.lax.stop_gradient(in_L))
        own_L = stages.visit(layers_RL, visit_L)
        own_L = choose(valid_L, own_L, jax.tree.map(jax.lax.stop_gradient, own_L))
        out_L, sums_L = stages.run(own_L, in_L, stages_inputs(stages, per_example_M, micro_L), visit_L)
        sums = jax.tree.map(lambda s: s.sum(0), choose(valid_L, sums_L, zeros(sums_L)))
        shifted_L = stages.pin(jax.tree.map(lambda y: jnp.roll(y, 1, axis=0), stages.pin(out_L)))
        # Row 0 is what left the last stage, item t - (L - 1); before there is one, its slot is written again later.
        slot = (t - (L - 1)) % M
        done_LM = jax.tree.map(lambda done, y: done.at[:, slot].set(y), done_LM, shifted_L)
        return (shifted_L, stages.pin(done_LM)), sums

    buffer_L = jax.tree.map(lambda leaf: jnp.zeros((L, *leaf.shape[1:]), leaf.dtype), x_M)
    done_LM = jax.tree.map(lambda leaf: jnp.zeros((L, *leaf.shape), leaf.dtype), x_M)
    carry = (stages.pin(buffer_L), stages.pin(done_LM))
    (_, done_LM), sums_T = jax.lax.scan(tick, carry, jnp.arange(R * M + L - 1))
    return together(jax.tree.map(lambda done: done[0], done_LM)), jax.tree.map(lambda s: s.sum(0), sums_T)


def stages_inputs(stages: Stages, per_example_M: Any, micro_L: jax.Array) -> Any:
    """What each stage gets beside x: that of the microbatch it works on. Leaves [L, b, ...]; those of no dimension stay."""
    picked = at(per_example_M, micro_L)
    return jax.tree.map(lambda x: stages.pin(x) if jnp.ndim(x) else x, picked)
