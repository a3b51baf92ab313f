"""1F1B: forward and backward of different microbatches in one tick, so that only the few that are under way are in memory.

A microbatch's backward pass needs its loss, so the whole step is cut at its stack of blocks. What a model's `losses` does
up to `run_blocks` comes before the first stage, and what it does with the result after the last. In a tick each stage runs
one microbatch forward and an earlier one back; activations shift up a buffer [L, b, ...] whose first dimension is on the
stages' mesh axis, cotangents down another. With M microbatches, stage l of L has at tick t

    forward    microbatch t - l
    backward   microbatch t - 2 (L - 1) + l,  computed again from its input, which a ring of 2 L - 1 a stage has kept.

Ticks before L - 1 have no backward pass, ticks from M + L - 1 on no forward one, and are loops of their own: the time is
(M + L - 1) (forward + backward), the bubble that of the schedule as published (Narayanan et al. 2019; 2021, section 2.2).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from parallel.parameters import Params
from parallel.pipeline.schedule import Pipeline
from parallel.pipeline.shifting import stages_inputs
from parallel.pipeline.stages import Stages, at, choose, microbatches, zeros
from parallel.sums import Sums, add

# (params, batch, randomness, layout) -> sums: a model's losses while `layout` is the active one.
LossesUnder = Callable[[Params, Any, Any, Any], Sums]


class _Reached(Exception):
    """Not an error: it carries out what run_blocks was called with."""

    def __init__(self, call: "_Call"):
        self.call = call


@dataclasses.dataclass(frozen=True)
class _Call:
    """What run_blocks was called with."""

    body: Callable
    x: Any
    per_example: Any
    layers: Any
    num_layers: int
    part: str


class _Cut:
    """The active layout, but for the one stack that is pipelined: there it stops, or gives what it was made with.

    given: (x, sums) to return from run_blocks; None raises _Reached.
    """

    def __init__(self, layout, given: tuple[Any, Sums] | None = None):
        self._layout, self._given, self.calls = layout, given, 0

    def __getattr__(self, name: str):
        return getattr(self._layout, name)

    def run_blocks(self, body, x, per_example, layers, num_layers, part):
        if self._layout.pipeline_of(part).schedule != "1f1b":
            return self._layout.run_blocks(body, x, per_example, layers, num_layers, part)
        if self._given is None:
            body = self._layout.rematerialized(body, layers, part)
            raise _Reached(_Call(body, x, per_example, layers, num_layers, part))
        self.calls += 1
        if self.calls > 1:
            raise Mistake(
                "pipeline.schedule: '1f1b' cuts a step at its one stack of blocks, and this model runs several in that part. "
                "Give all but one to parts of their own (scope/pipeline.schedule), or take 'gpipe'."
            )
        return self._given


def one_f_one_b(losses: LossesUnder, layout: Any, constrain: Callable[[Params], Params] = lambda grads: grads):
    """(params, batch, randomness, seeds) -> (gradients of sum_k seed_k * sum_k, float32, and all sums), as
    training.step.differentiate gives them, computed by 1F1B under `layout`.

    What the model makes of the blocks' own sums must be linear (they pass through, or are added up). `constrain` places
    the accumulators of the gradients on the mesh. Raises Mistake for a model that has not exactly one pipelined stack.
    """

    def differentiated(params: Params, batch: Any, randomness: Any, seeds: dict[str, jax.Array]):
        return _Step(losses, layout, constrain, params, batch, randomness, seeds).run()

    return differentiated


class _Step:
    """One such computation. Letters: M microbatches, L stages, T ticks; `outer` are the parameters outside of the stack."""

    def __init__(self, losses, layout, constrain, params, batch, randomness, seeds):
        self.losses, self.layout, self.constrain, self.seeds = losses, layout, constrain, seeds
        call = self._reach(params, batch, randomness)
        self.pipeline: Pipeline = layout.pipeline_of(call.part)
        self.M, self.L = self.pipeline.microbatches, layout.sizes[self.pipeline.axis]
        self.pipeline.microbatch_size(jax.tree.leaves(batch)[0].shape[0])
        self.micro_M = microbatches((batch, randomness), self.M)
        arrangement = self.pipeline.arrangement(call.num_layers, self.L)
        self.stages = Stages(call.body, arrangement, self.pipeline.axis, layout.mesh)
        self.no_visit_L = jnp.zeros(self.L, jnp.int32)
        (state, index) = call.layers
        self.paths = {path: f"{call.part}.{'.'.join(map(str, path))}" for path, _ in nnx.to_flat_state(state)}
        self.part = call.part
        missing = set(self.paths.values()) - set(params)
        assert not missing, missing
        inner = set(self.paths.values())
        self.outer = {path: value for path, value in params.items() if path not in inner}
        self.inner = {path: value for path, value in params.items() if path in inner}
        self.layers_L, self.index_L = self._arrange(state), self._arrange(index)
        # Gradients of what is held in bfloat16 are added up in float32.
        in_float32 = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), state)
        self._unarrange = jax.linear_transpose(self._arrange, in_float32)
        per_example_M = jax.lax.map(lambda m: self._reach(params, *m).per_example, self._numbered())
        self._require_integers(per_example_M)
        self.per_example_M = self._as_inputs(per_example_M, self._reach(params, *at(self.micro_M, jnp.int32(0))))
        self.x_shape = jax.eval_shape(lambda m: self._reach(params, *m).x, at(self.micro_M, jnp.int32(0)))

    # The model's three pieces, for one microbatch.

    def _reach(self, params, batch, randomness) -> _Call:
        """The call of run_blocks that `losses` makes."""
        try:
            self.losses(params, batch, randomness, _Cut(self.layout))
        except _Reached as reached:
            return reached.call
        raise Mistake("pipeline.schedule: '1f1b' is set, and the model runs no stack of blocks in that part.")

    def before(self, outer: Params, m: jax.Array) -> Any:
        """x [b, ...] that enters the first stage."""
        return self._reach(outer | self.inner, *at(self.micro_M, m)).x

    def after(self, outer: Params, x: Any, sums: Sums, m: jax.Array) -> Sums:
        """The losses' sums from what leaves the last stage; `sums` are the blocks' own."""
        cut = _Cut(self.layout, (x, sums))
        return self.losses(outer | self.inner, *at(self.micro_M, m), cut)

    def stage(self, layers_L, x_L, micro_L) -> tuple[Any, Sums]:
        """Each stage on its own microbatch."""
        inputs_L = stages_inputs(self.stages, self.per_example_M, micro_L)
        return self.stages.run((layers_L, self.index_L), x_L, inputs_L, self.no_visit_L)

    # The schedule.

    def run(self) -> tuple[Params, Sums]:
        """(gradients, sums)."""
        M, L = self.M, self.L
        x_L = jax.tree.map(lambda s: jnp.zeros((L, *s.shape), s.dtype), self.x_shape)
        blocks = jax.eval_shape(lambda x: self.stage(self.layers_L, x, self.no_visit_L)[1], x_L)
        self.no_sums = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), blocks)
        first = jnp.int32(0)
        x_shape = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self.x_shape)
        sums = jax.eval_shape(lambda x: self.after(self.outer, x, self.no_sums, first), x_shape)
        # The sums of the blocks only pass through what comes after, so their cotangents are the same for every microbatch.
        _, pull = jax.vjp(lambda s: self.after(self.outer, x_shape, s, first), self.no_sums)
        self.block_seeds = pull(self._seed(sums))[0]

        ring_L = jax.tree.map(lambda x: jnp.zeros((L, 2 * L - 1, *x.shape[1:]), x.dtype), x_L)
        state = {
            "forward": self.stages.pin(x_L),
            "backward": self.stages.pin(x_L),
            "ring": self.stages.pin(ring_L),
            "outer": self._accumulator(self.outer),
            "layers": self.stages.pin(jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), self.layers_L)),
            "sums": zeros(sums),
            "blocks": self.no_sums,
        }
        ticks = jnp.arange(M + 2 * (L - 1))
        fill, steady, drain = ticks[: L - 1], ticks[L - 1 : M + L - 1], ticks[M + L - 1 :]
        state = jax.lax.scan(lambda s, t: (self._forward(s, t)[0], None), state, fill)[0]
        state = jax.lax.scan(lambda s, t: (self._both(s, t), None), state, steady)[0]
        state = jax.lax.scan(lambda s, t: (self._backward(s, t, None), None), state, drain)[0]

        through = lambda s: self.after(self.outer, x_shape, s, first)
        _, of_blocks = jax.jvp(through, (self.no_sums,), (state["blocks"],))
        grads = state["outer"] | self._by_path(state["layers"])
        return grads, add(state["sums"], of_blocks)

    def _forward(self, state: dict, t: jax.Array) -> tuple[dict, Any]:
        """One stage forward for each; the state, and what left the last stage."""
        stage_L = jnp.arange(self.L)
        micro_L, valid_L = self._microbatch(t - stage_L)
        new = self.before(self.outer, jnp.clip(t, 0, self.M - 1))
        entering_L = jax.tree.map(lambda n: jnp.zeros((self.L, *n.shape), n.dtype).at[0].set(n), new)
        in_L = self.stages.pin(choose(stage_L == 0, entering_L, state["forward"]))
        out_L, sums_L = self.stage(self.layers_L, in_L, micro_L)
        blocks = jax.tree.map(lambda s: s.sum(0), choose(valid_L, sums_L, zeros(sums_L)))
        out_L = self.stages.pin(out_L)
        # A row that holds no microbatch may hold NaN, which must not come to the head, nor into the ring.
        ring = jax.vmap(lambda ring, slot, x: ring.at[slot].set(x), in_axes=(0, 0, 0))
        slot_L = micro_L % (2 * self.L - 1)
        kept_L = choose(valid_L, jax.tree.map(lambda r, x: ring(r, slot_L, x), state["ring"], in_L), state["ring"])
        last = jax.tree.map(lambda y: y[-1], out_L)
        shifted_L = self.stages.pin(jax.tree.map(lambda y: jnp.roll(y, 1, axis=0), out_L))
        state = state | {
            "forward": shifted_L,
            "ring": self.stages.pin(kept_L),
            "blocks": jax.tree.map(jnp.add, state["blocks"], blocks),
        }
        return state, last

    def _both(self, state: dict, t: jax.Array) -> dict:
        """Forward, the loss of the microbatch that leaves the last stage, and backward."""
        state, last = self._forward(state, t)
        m = t - (self.L - 1)
        sums, pull = jax.vjp(lambda outer, x: self.after(outer, x, self.no_sums, m), self.outer, last)
        outer, cotangent = pull(self._seed(sums))
        state = state | {"sums": jax.tree.map(jnp.add, state["sums"], sums), "outer": self._add(state["outer"], outer)}
        return self._backward(state, t, cotangent)

    def _backward(self, state: dict, t: jax.Array, cotangent: Any) -> dict:
        """One stage back for each. cotangent: of what left the last stage in this tick; None when nothing does any more."""
        stage_L = jnp.arange(self.L)
        micro_L, valid_L = self._microbatch(t - 2 * (self.L - 1) + stage_L)
        coming_L = state["backward"]
        if cotangent is not None:
            entering_L = jax.tree.map(lambda c: jnp.zeros((self.L, *c.shape), c.dtype).at[-1].set(c), cotangent)
            coming_L = choose(stage_L == self.L - 1, entering_L, coming_L)
        slot_L = micro_L % (2 * self.L - 1)
        x_L = self.stages.pin(jax.tree.map(lambda r: jax.vmap(lambda row, slot: row[slot])(r, slot_L), state["ring"]))
        (_, sums_L), pull = jax.vjp(lambda w, x: self.stage(w, x, micro_L), self.layers_L, x_L)
        seeds_L = jax.tree.map(lambda s, c: jnp.broadcast_to(c, s.shape), sums_L, self.block_seeds)
        layers_L, back_L = pull((self.stages.pin(coming_L), seeds_L))
        layers_L = choose(valid_L, layers_L, zeros(layers_L))
        back_L = self.stages.pin(choose(valid_L, back_L, zeros(back_L)))
        # What comes out of the first stage goes back through what came before it: microbatch t - 2 (L - 1).
        m = jnp.clip(t - 2 * (self.L - 1), 0, self.M - 1)
        _, pull = jax.vjp(lambda outer: self.before(outer, m), self.outer)
        (outer,) = pull(jax.tree.map(lambda b: b[0], back_L))
        add_up = lambda total, new: total + new.astype(total.dtype)
        return state | {
            "backward": self.stages.pin(jax.tree.map(lambda b: jnp.roll(b, -1, axis=0), back_L)),
            "layers": self.stages.pin(jax.tree.map(add_up, state["layers"], layers_L)),
            "outer": self._add(state["outer"], outer),
        }

    # Small things.

    def _arrange(self, layers: Any) -> Any:
        """Leaves [num_layers, ...] -> [L, K, ...]."""
        return jax.tree.map(lambda x: x[0], self.stages.arrange(layers))

    def _microbatch(self, index_L: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(index within range, whether it was) of each stage's microbatch."""
        return jnp.clip(index_L, 0, self.M - 1), (index_L >= 0) & (index_L < self.M)

    def _seed(self, sums: Sums) -> Sums:
        """The cotangent of `sums`: what is minimized is sum_k seed_k * sum_k."""
        seeds = zeros(sums)
        return seeds | {
            name: (jnp.asarray(seed, sums[name][0].dtype), seeds[name][1]) for name, seed in self.seeds.items()
        }

    def _accumulator(self, params: Params) -> Params:
        return self.constrain({path: jnp.zeros(x.shape, jnp.float32) for path, x in params.items()})

    def _add(self, total: Params, new: Params) -> Params:
        return self.constrain({path: value + new[path].astype(jnp.float32) for path, value in total.items()})

    def _by_path(self, layers_L: Any) -> Params:
        """Gradients [num_layers, ...] by path, from those of the stages [L, K, ...]."""
        (state,) = self._unarrange(layers_L)
        return {self.paths[path]: variable.get_value() for path, variable in nnx.to_flat_state(state)}

    def _numbered(self):
        """The microbatches as a loop counts them: leaves of no dimension repeated."""
        repeat = lambda x: x if jnp.ndim(x) else jnp.broadcast_to(x, (self.M,))
        return jax.tree.map(repeat, self.micro_M)

    @staticmethod
    def _as_inputs(per_example_M: Any, call: _Call) -> Any:
        """Leaves that no microbatch has its own of are those of any."""
        return jax.tree.map(lambda many, one: many if jnp.ndim(one) else one, per_example_M, call.per_example)

    @staticmethod
    def _require_integers(per_example_M: Any) -> None:
        for leaf in jax.tree.leaves(per_example_M):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                raise Mistake(
                    "pipeline.schedule: '1f1b' takes no gradient of what blocks get beside x, and this model gives them "
                    f"an array of {leaf.dtype}. Take 'gpipe'."
                )
