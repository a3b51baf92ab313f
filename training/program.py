"""An experiment lowered onto a layout: where every piece of state goes, and the compiled functions that a run calls."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from mistake import Mistake
from parallel.annotate import ActiveLayout, activate
from parallel.layout import Layout, Resolved
from parallel.parameters import Params, bind, declared
from parallel.pipeline import one_f_one_b
from parallel.randomness import Randomness
from training.config import name_of
from training.experiment import Experiment
from training.fields import Fields
from training.precision import Precision, with_master
from training.slots import slot_names, slot_path
from training.state import TrainState, fresh_state
from training.step import Batch, Placement, differentiate, make_step


class Program:
    """The experiment's functions under a layout. Building it resolves and checks every tensor, and allocates nothing.

    Attributes:
      declared: the model's parameters. abstract_state: shapes and dtypes of the TrainState.
      parameters, slots, activations, inputs: what each tensor resolved to.
      metrics: names of the values that an evaluation gives.
    """

    def __init__(self, experiment: Experiment, layout: Layout, precision: Precision | None = None):
        self.experiment, self.layout = experiment, layout
        self.precision = precision or Precision()
        self.declared = declared(experiment.model)
        self.optimizer = experiment.optimizer.build(self.declared)
        if self.precision.weights != "float32":
            self.optimizer = with_master(self.optimizer)
        make = functools.partial(
            fresh_state,
            self.declared,
            self.optimizer,
            experiment.seed,
            ema=experiment.ema_decay is not None,
            dtype=self.precision.dtype,
        )
        self._fresh = make
        self.abstract_state: TrainState = jax.eval_shape(make)
        self.features = experiment.data.features()

        self.parameters = [
            layout.resolve("weights", path, d.shape, d.names, self.precision.dtype) for path, d in self.declared.items()
        ]
        self._slots = self._resolve_slots()
        self._ema = None
        if self.abstract_state.ema is not None:
            self._ema = {
                path: layout.resolve("optimizer", f"ema:{path}", d.shape, d.names, d.dtype)
                for path, d in self.declared.items()
            }
        self.slots = jax.tree.leaves((self._slots, self._ema))
        self._check_batches()
        self.inputs = self._resolve_batch(experiment.batch.size)
        with layout.recording() as activations:
            self.metrics = self._trace_abstractly()
        self.activations = activations
        layout.remat.check({activation.path.rpartition(".")[2] for activation in activations})
        layout.check_used()

    # Where things go.

    def _resolve_slots(self):
        def resolve(key_path, slot, names):
            return self.layout.resolve("optimizer", slot_path(key_path), slot.shape, names, slot.dtype)

        opt_state = self.abstract_state.opt_state
        return jax.tree_util.tree_map_with_path(resolve, opt_state, slot_names(opt_state, self.declared))

    def _check_batches(self) -> None:
        """Raises Mistake, beginning with the binding of its size, for a batch that the rules can't split."""
        batch = self.experiment.batch
        sizes = {batch.given[0]: batch.size, "experiment.eval_batch_size": self.experiment.eval_batch_size}
        if batch.accumulation > 1:
            said = "batch.accumulation" if "batch.accumulation" in batch.given else "batch.microbatch_size"
            sizes[said] = batch.microbatch_size
        for binding, size in sizes.items():
            for name, feature in self.features.items():
                try:
                    self.layout.resolve("activations", f"batch.{name}", (size,), ("batch",), feature.dtype)
                except Mistake as mistake:
                    raise Mistake(f"{binding}: {mistake}") from None
            self._resolve_batch(size)

    def _resolve_batch(self, batch_size: int) -> list[Resolved]:
        return [
            self.layout.resolve("activations", f"batch.{name}", (batch_size, *f.shape), ("batch", *f.names), f.dtype)
            for name, f in self.features.items()
        ]

    def abstract_batch(self, batch_size: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of a global batch."""
        return {name: jax.ShapeDtypeStruct((batch_size, *f.shape), f.dtype) for name, f in self.features.items()}

    @functools.cached_property
    def state_sharding(self) -> TrainState:
        """A TrainState of NamedShardings."""
        place, whole = self.layout.sharding, self.layout.replicated()
        params = {resolved.path: place(resolved) for resolved in self.parameters}
        slots, ema = jax.tree.map(place, (self._slots, self._ema))
        return TrainState(step=whole, params=params, opt_state=slots, ema=ema, skipped=whole, halted=whole)

    @functools.lru_cache  # noqa: B019  A Program lives as long as its run.
    def batch_sharding(self, batch_size: int) -> dict[str, NamedSharding]:
        """Of each feature of a global batch. Where a rule may fall back, one size may be split and another not."""
        resolved = self._resolve_batch(batch_size)
        return {each.path.removeprefix("batch."): self.layout.sharding(each) for each in resolved}

    @functools.lru_cache  # noqa: B019  A Program lives as long as its run.
    def rows(self, batch_size: int) -> tuple[int, ...]:
        """The rows of a global batch that this process's devices hold, in order; they need not lie together."""
        held: set[int] = set()
        for name, sharding in self.batch_sharding(batch_size).items():
            shape = (batch_size, *self.features[name].shape)
            for index in sharding.addressable_devices_indices_map(shape).values():
                held.update(range(batch_size)[index[0]])
        if not held:
            raise Mistake(
                f"mesh.num_devices: the mesh leaves process {jax.process_index()} without a device. Take devices of every process, "
                "or start fewer processes."
            )
        return tuple(sorted(held))

    def global_batch(self, rows: dict[str, np.ndarray], batch_size: int) -> Batch:
        """Global arrays of `batch_size` examples from the rows that this process holds."""
        here = np.searchsorted(self.rows(batch_size), np.arange(batch_size + 1))  # Where each row is, of those held.

        def place(name: str, value: np.ndarray) -> jax.Array:
            def piece(index: tuple[slice, ...]) -> np.ndarray:
                start, stop, _ = index[0].indices(batch_size)
                return value[(slice(here[start], here[stop]), *index[1:])]

            shape, sharding = (batch_size, *value.shape[1:]), self.batch_sharding(batch_size)[name]
            return jax.make_array_from_callback(shape, sharding, piece)

        return {name: place(name, value) for name, value in rows.items()}

    # What runs.

    def losses(self, params: Params, batch: Batch, randomness: Randomness | None, layout: ActiveLayout | None = None):
        """The objective's sums under this layout, or under one that stands in for it."""
        # Stacked layers are gathered one at a time, where they run.
        used = {
            path: value if self.declared[path].names[:1] == ("layers",) else self._use(path, value)
            for path, value in params.items()
        }
        model, data = self.experiment.model, self.experiment.data
        with activate(layout or self.layout):
            return bind(model, used).losses(Fields(batch, name_of(model), name_of(data)), randomness)

    def _use(self, path: str, value: jax.Array) -> jax.Array:
        return self.layout.use(value, self.declared[path], path)

    def _trace_abstractly(self) -> list[str]:
        """Traces the losses of a microbatch; the names of the values that `finish` makes of their sums."""
        batch = self.abstract_batch(self.experiment.batch.microbatch_size)
        random = jax.eval_shape(lambda: Randomness.for_step(0, np.int32(0), self.experiment.batch.microbatch_size))
        sums = jax.eval_shape(self.losses, self.abstract_state.params, batch, random)
        scalars = [name for name, pair in sums.items() if not any(each.ndim for each in pair)]
        arrays = [name for name in sums if name not in scalars]
        return scalars + [f"{name}_{end}" for name in arrays for end in ("least", "greatest")]

    def fresh_state(self) -> TrainState:
        """A new state, each piece made on the devices that hold it."""
        return jax.jit(self._fresh, out_shardings=self.state_sharding)()

    def _placement(self) -> Placement:
        """Gradients are placed where ZeRO shares them out, and updates where it shares the optimizer state; else both go
        as the weights do, which the partitioner sees.
        """
        shared = {
            kind: any(part.zero.shares(kind) for part in self.layout.parts) for kind in ("gradients", "optimizer")
        }
        return Placement(
            self._place("gradients") if shared["gradients"] else lambda grads: grads,
            self._place("optimizer") if shared["optimizer"] else lambda updates: updates,
        )

    def _place(self, kind: str) -> Callable[[Params], Params]:
        """Puts a dict of arrays shaped like the parameters where tensors of `kind` go."""
        resolved = [self.layout.resolve(kind, path, d.shape, d.names, d.dtype) for path, d in self.declared.items()]
        shardings = {r.path: self.layout.sharding(r) for r in resolved}
        return lambda tree: {path: jax.lax.with_sharding_constraint(x, shardings[path]) for path, x in tree.items()}

    def step_function(self) -> Callable[[TrainState, Batch], tuple[TrainState, Any, Params]]:
        """(state, batch) -> (state, sums, gradients), not yet compiled."""
        e = self.experiment
        place = self._placement()
        if any(part.pipeline.schedule == "1f1b" for part in self.layout.parts):
            differentiated = one_f_one_b(self.losses, self.layout, place.gradients)
        else:
            differentiated = differentiate(self.losses)
        return make_step(
            differentiated,
            self.optimizer,
            minimized=e.model.minimized,
            weights=e.model.weights,
            seed=e.seed,
            accumulation=e.batch.accumulation,
            clip_norm=e.clip_norm,
            ema_decay=e.ema_decay,
            non_finite=e.non_finite,
            rate=e.optimizer.rate,
            place=place,
        )

    @functools.cached_property
    def train_step(self):
        """(state, batch) -> (state, sums), compiled at the first call; the old state is given up to the new one."""
        step = self.step_function()
        return self._jit_step(
            lambda state, batch: step(state, batch)[:2], (self.state_sharding, self.layout.replicated())
        )

    @functools.cached_property
    def proving_step(self):
        """(state, batch) -> (state, sums, gradients): the train step, with the gradients that it applied, before
        clipping.
        """
        return self._jit_step(
            self.step_function(), (self.state_sharding, self.layout.replicated(), self.state_sharding.params)
        )

    def _jit_step(self, step, out_shardings):
        in_shardings = (self.state_sharding, self.batch_sharding(self.experiment.batch.size))
        return jax.jit(step, in_shardings=in_shardings, out_shardings=out_shardings, donate_argnums=0)

    def lower_train_step(self) -> jax.stages.Lowered:
        """The step for abstract arguments: nothing is allocated, and the devices may be described ones."""
        return self.train_step.lower(self.abstract_state, self.abstract_batch(self.experiment.batch.size))

    def compile_train_step(self, state: TrainState, batch: Batch) -> None:
        """Compiles the step ahead of its first call; from then on `train_step` is the compiled one."""
        self.__dict__["train_step"] = self.train_step.lower(state, batch).compile()

    @functools.cached_property
    def eval_step(self):
        """(params, batch) -> sums, without noise."""
        in_shardings = (self.state_sharding.params, self.batch_sharding(self.experiment.eval_batch_size))
        return jax.jit(
            lambda params, batch: self.losses(params, batch, None),
            in_shardings=in_shardings,
            out_shardings=self.layout.replicated(),
        )

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(d.size for d in self.declared.values())

    @property
    def tokens_per_step(self) -> int:
        """Positions of a global batch, padding included (examples, where there is no length)."""
        longest = max((math.prod(f.shape) for f in self.features.values() if "length" in f.names), default=1)
        return self.experiment.batch.size * longest
