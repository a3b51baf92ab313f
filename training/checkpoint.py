"""Checkpoints: the whole TrainState and what it takes to go on from it, written in the background and never half there
(Orbax).
"""

import importlib.metadata
import pathlib
from collections.abc import Sequence
from typing import Any, Self

import gin
import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as managers

from mistake import Mistake, nearest
from training import hosts
from training.state import TrainState

_VERSIONED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")


@gin.configurable("checkpoint")
class CheckpointPolicy:
    """When checkpoints are written, and which are kept.

    Args:
      every: steps from one to the next; 0 writes only the last.
      keep_last: how many of the newest are kept.
      keep_every: those at multiples of it are kept for good; 0 keeps none so.
      best: an evaluation's metric, such as 'loss'; a checkpoint follows each evaluation, and the `keep_best` best ones
        are kept.
      best_mode: 'min' or 'max' of it is best.
      skip_damaged: whether a run may go back over checkpoints that can't be read to the newest whole one.
    """

    def __init__(
        self,
        every: int = 1000,
        keep_last: int = 3,
        keep_every: int = 0,
        best: str | None = None,
        best_mode: str = "min",
        keep_best: int = 1,
        skip_damaged: bool = False,
    ):
        if best_mode not in ("min", "max"):
            raise Mistake(f"checkpoint.best_mode: {best_mode!r} is neither 'min' nor 'max'.")
        if keep_last < 1:
            raise Mistake(
                f"checkpoint.keep_last: {keep_last}; at least one checkpoint is kept, or nothing could be resumed."
            )
        for name, value in {"every": every, "keep_every": keep_every}.items():
            if value < 0:
                raise Mistake(f"checkpoint.{name}: {value} is not a number of steps.")
        if keep_best < 1:
            raise Mistake(f"checkpoint.keep_best: {keep_best}; to keep none by a metric, leave checkpoint.best out.")
        if best == "":
            raise Mistake("checkpoint.best: '' is not the name of a metric. Name one, such as 'loss', or leave it out.")
        for name, value, default in (("best_mode", best_mode, "min"), ("keep_best", keep_best, 1)):
            if best is None and value != default:
                raise Mistake(
                    f"checkpoint.{name}: {value!r} has no effect without checkpoint.best. Name a metric there, or leave "
                    "this out."
                )
        self.every, self.best, self.skip_damaged = every, best, skip_damaged
        policies: list[Any] = [managers.LatestN(keep_last)]
        if keep_every:
            policies.append(managers.EveryNSteps(keep_every))
        if best:
            policies.append(
                managers.BestN(
                    get_metric_fn=lambda metrics: metrics[best],
                    reverse=best_mode == "min",
                    n=keep_best,
                    keep_checkpoints_without_metrics=False,
                )
            )
        self.preservation = managers.AnyPreservationPolicy(policies)

    def check(self, metrics: Sequence[str]) -> None:
        """Raises Mistake when evaluation, which gives `metrics`, has none called `best`."""
        if self.best is not None and self.best not in metrics:
            hint = " ".join(filter(None, (nearest(self.best, metrics), f"It has: {', '.join(metrics)}.")))
            raise Mistake(f"checkpoint.best: evaluation has no metric {self.best!r}. {hint}")


class DamagedCheckpoint(Exception):
    """A checkpoint that is there but can't be read. The message names it and says how to go on."""


class Checkpoints:
    """The checkpoints of one workdir. Use as a context manager: leaving it waits for what is still being written.

    read_only: changes nothing there; a run may be writing.
    """

    def __init__(self, workdir: pathlib.Path, policy: CheckpointPolicy, read_only: bool = False):
        self._read_only = read_only
        self.folder, self.policy = pathlib.Path(workdir).absolute() / "checkpoints", policy
        # Every save is this class's own decision; a policy of Orbax's would let it skip one.
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policy.preservation,
            save_decision_policy=managers.FixedIntervalPolicy(1),
            # What is half written may be another process's.
            cleanup_tmp_directories=not read_only,
            create=not read_only,
            read_only=read_only,
            enable_async_checkpointing=True,
        )
        # Named ahead, so that a checkpoint can be asked for its shapes before it is read.
        handlers = {"state": ocp.StandardCheckpointHandler(), "run": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self._manager.close()

    @property
    def steps(self) -> list[int]:
        """Of the checkpoints that are there, oldest first."""
        return sorted(self._manager.all_steps())

    def save(self, step: int, state: TrainState, run: dict, metrics: dict[str, float] | None = None) -> None:
        """Starts writing; returns when the state may be given up. `run`: JSON that `restore` gives back. Does nothing
        if `step` is there.
        """
        if step in self.steps:
            return
        run = run | {"versions": {name: importlib.metadata.version(name) for name in _VERSIONED}}
        items = ocp.args.Composite(state=ocp.args.StandardSave(state), run=ocp.args.JsonSave(run))
        self._manager.save(step, args=items, metrics=metrics, force=True)

    def wait(self) -> None:
        """Returns when all that was started is on disk."""
        self._manager.wait_until_finished()

    def restore(
        self, abstract: TrainState, sharding: TrainState, step: int | None = None
    ) -> tuple[TrainState, dict] | None:
        """The newest checkpoint (or that of `step`) onto any mesh, with its `run`; None when there is none.

        Raises DamagedCheckpoint for one that can't be read, unless the policy goes back over it.
        """
        target = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), abstract, sharding)
        damaged: list[int] = []
        for candidate in self.steps[::-1] if step is None else [step]:
            damage = ""
            try:
                self._check_same_state(candidate, abstract)
                items = ocp.args.Composite(state=ocp.args.StandardRestore(target), run=ocp.args.JsonRestore())
                restored = self._manager.restore(candidate, args=items)
            except Mistake:
                raise
            except Exception as error:  # Whatever a damaged file makes a reader raise.
                place = self.folder / str(candidate)
                if not self.policy.skip_damaged:
                    raise DamagedCheckpoint(
                        f"checkpoint {place} can't be read: {_first_line(error)}\n"
                        f"It was left as it is. To go back to an earlier one: --gin.checkpoint.skip_damaged=True "
                        f"(there are: {', '.join(map(str, self.steps))})."
                    ) from error
                damage = _first_line(error)
                print(f"checkpoint {place} can't be read ({damage}); going back to an earlier one.")
            # Each process reads its own part; what one can't read, none goes on from.
            if any(hosts.meet(f"reading checkpoint {candidate}", damage)):
                damaged.append(candidate)
                continue
            self._put_aside(damaged)
            return restored.state, restored.run
        if damaged:
            raise DamagedCheckpoint(f"none of the checkpoints in {self.folder} can be read.")
        return None

    def _check_same_state(self, step: int, abstract: TrainState) -> None:
        """Raises Mistake, listing every path, when the checkpoint is of another model or optimizer."""
        stored, wanted = _shapes(self._manager.item_metadata(step).state.tree), _shapes(abstract)
        faults = [f"missing: {path} {list(shape)}" for path, shape in wanted.items() if path not in stored]
        faults += [f"unused: {path} {list(shape)}" for path, shape in stored.items() if path not in wanted]
        faults += [
            f"mis-shaped: {path} is {list(stored[path])}, not {list(shape)}"
            for path, shape in wanted.items()
            if stored.get(path, shape) != shape
        ]
        if faults:
            raise Mistake(
                "\n  ".join(
                    [f"--workdir: the checkpoint {self.folder / str(step)} is of another model or optimizer.", *faults]
                )
            )

    def _put_aside(self, steps: list[int]) -> None:
        """Damaged checkpoints make way for those that will be written at the same steps; nothing is deleted."""
        if not steps or self._read_only:
            return
        for step in steps if hosts.index() == 0 else ():
            aside = self.folder.parent / "damaged_checkpoints" / str(step)
            aside.parent.mkdir(exist_ok=True)
            (self.folder / str(step)).rename(aside)
        hosts.meet("the damaged checkpoints' making way")
        self._manager.reload()


def _shapes(tree) -> dict[str, tuple[int, ...]]:
    """Shape of each leaf by path: the same for a state and for what its checkpoint says of itself."""

    def name(key) -> str:
        return str(next(getattr(key, field) for field in ("name", "key", "idx") if hasattr(key, field)))

    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda leaf: hasattr(leaf, "shape"))[0]
    return {"/".join(map(name, path)): tuple(leaf.shape) for path, leaf in leaves}


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
