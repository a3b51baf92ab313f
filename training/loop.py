"""The loop of a training run: resume, step, log, evaluate, checkpoint, and end well however it ends."""

import collections
import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable

import jax
import numpy as np
import orbax.checkpoint as ocp

from data.loader import Loader
from mistake import Mistake
from parallel.sums import Sums, add
from training import faults, hosts
from training.checkpoint import CheckpointPolicy, Checkpoints
from training.clock import Clock
from training.config import Config
from training.console import Moment, TrainingConsole
from training.evaluate import OTHER_DATA, evaluate
from training.faults import RunFault, StopRequest
from training.initial import initial
from training.metrics import fetch, finish
from training.prefetch import Prefetch
from training.program import Program
from training.sinks import Sinks
from training.state import TrainState
from training.step import Batch

# How far the host runs ahead of the devices: enough that they never wait for it, little enough that a queue doesn't
# pile up.
_STEPS_AHEAD = 2
# Of these the last step's value is shown, not the window's mean.
_LAST = ("learning_rate",)


@dataclasses.dataclass
class Outcome:
    """How training ended: exit status, steps done, and the last evaluation.

    fresh: parameters that did not come from init_from. skipped: steps that were not finite, in this process.
      seconds_before: what
    earlier processes spent on this run, up to the checkpoint that this one resumed from.
    """

    status: int
    step: int
    state: TrainState
    evaluation: dict[str, float]
    compile_seconds: float | None
    fresh: list[str]
    skipped: int
    seconds_before: float


def train(
    program: Program,
    policy: CheckpointPolicy,
    workdir: pathlib.Path,
    configuration: Config,
    console: TrainingConsole,
    begin: Callable[[], None],
) -> Outcome:
    """Trains to experiment.steps from the newest checkpoint in `workdir`, or from the start.

    begin: called before the first step is taken, when nothing can be refused any more. Until then the files in
      `workdir` are as they were.
    """
    with Checkpoints(workdir, policy) as checkpoints, StopRequest() as stop, contextlib.ExitStack() as opened:
        _check_same_folder(checkpoints)
        state, run = initial(program, checkpoints, configuration.values(), console)
        start = int(run["step"])

        def open_sinks() -> Sinks:
            begin()
            return opened.enter_context(Sinks(workdir, start_step=start, enabled=jax.process_index() == 0))

        with console:
            loop = _Loop(program, policy, checkpoints, open_sinks, console, configuration.operative(), run, workdir)
            status = loop.run(state, start, stop)
        return Outcome(
            status,
            loop.step,
            loop.state,
            loop.evaluation,
            loop.compile_seconds,
            run["fresh"],
            loop.skipped,
            run["seconds"],
        )


def _check_same_folder(checkpoints: Checkpoints) -> None:
    """Raises Mistake when processes see different folders."""
    found = f"checkpoints {checkpoints.steps}" if checkpoints.folder.is_dir() else "no folder"
    hosts.same("what is seen of --workdir", found, "It must be one folder that all processes share.")


class _Loop:
    """One pass from a step to the end; see `train`."""

    def __init__(self, program, policy, checkpoints, open_sinks, console, config_text, run: dict, workdir):
        self.program, self.policy, self.checkpoints = program, policy, checkpoints
        self.open_sinks, self.console, self.config_text, self.workdir = open_sinks, console, config_text, workdir
        self.seconds_before, self.began = run["seconds"], time.monotonic()
        self.window: Sums = {name: tuple(pair) for name, pair in run["window"].items()}
        # Steps whose sums are not on the host yet.
        self.pending: collections.deque[tuple[int, Sums]] = collections.deque()
        self.evaluation: dict[str, float] = run["evaluation"]
        self.evaluated_at: int | None = None
        self.fresh: list[str] = run["fresh"]
        self.compile_seconds: float | None = None
        self.skipped = 0

    def run(self, state: TrainState, start: int, stop: StopRequest) -> int:
        """Returns the exit status."""
        experiment = self.program.experiment
        self.state, self.step = state, start
        size = experiment.batch.size
        end = "stop" if experiment.stop_at_end_of_data else "repeat"
        if start == experiment.steps:
            return faults.DONE
        loader = Loader(
            experiment.data,
            "train",
            size,
            experiment.seed,
            start_step=start,
            rows=self.program.rows(size),
            end=end,
            remainder="drop",
        )
        if loader.num_batches == 0:
            raise Mistake(
                f"batch.size: {size}, and an epoch of the training split has no whole batch of it left to train on."
            )
        hosts.same("the training split", loader.fingerprint() if hosts.several() else "", OTHER_DATA)
        with loader, Prefetch(loader, lambda rows: self.program.global_batch(rows, size), self._busy) as batches:
            self.clock = Clock(batches, start)
            self.console.status("compiling the training step")
            for batch in batches:
                self._compile(batch)
                if self.step == start:
                    hosts.meet("the first step")
                    self.sinks = self.open_sinks()
                self.state, sums = self.program.train_step(self.state, batch)
                self.step += 1
                self.pending.append((self.step, sums))
                self._keep_pace()
                if self.step == experiment.steps:
                    break
                if self._due(experiment.eval_every):
                    self._evaluate()
                if self._due(self.policy.every) or (self.policy.best and self._due(experiment.eval_every)):
                    self._checkpoint()
                if stop.agreed(self.step):
                    self._checkpoint()
                    self.checkpoints.wait()
                    self.console.note(f"stopped by SIGTERM; the checkpoint of step {self.step:,} is written")
                    return faults.STOPPED
            else:
                self.console.note(f"end of the data at step {self.step:,}")
        if self.step == start:
            return faults.DONE  # The data had ended already, and that checkpoint was evaluated.
        self._drain()
        if self.window:
            self._log(self.step)
        self._evaluate()
        self._checkpoint()
        return faults.DONE

    def _busy(self) -> bool:
        """Whether the devices are still at a step."""
        return bool(self.pending) and not self.pending[-1][1]["finite"][0].is_ready()

    def _due(self, every: int) -> bool:
        return bool(every) and self.step % every == 0

    def _compile(self, batch: Batch) -> None:
        if self.compile_seconds is None:
            began = time.perf_counter()
            with self.clock.paused():
                self.program.compile_train_step(self.state, batch)
            self.compile_seconds = time.perf_counter() - began

    def _keep_pace(self) -> None:
        """Waits until the devices are at most a few steps behind, and reads the sums of a finished window once the next
        step is under way.
        """
        if len(self.pending) > _STEPS_AHEAD:
            jax.block_until_ready(self.pending[-1 - _STEPS_AHEAD][1])
        every = self.program.experiment.log_every
        boundary = (self.step - 1) // every * every
        if self.pending[0][0] <= boundary:
            self._read(boundary)

    def _drain(self) -> None:
        """Reads all sums: nothing is pending afterwards."""
        self._read(self.step)

    def _read(self, until: int) -> None:
        """Moves the sums of steps up to `until` into the window, which is written at each multiple of log_every, and at
        the last step.
        """
        experiment = self.program.experiment
        while self.pending and self.pending[0][0] <= until:
            step, sums = self.pending.popleft()
            sums = fetch(sums)
            if sums.pop("finite")[0] == 0:
                self._not_finite(step)
                sums = {}
            self.window = add(self.window, {name: pair for name, pair in sums.items() if name not in _LAST})
            self.window |= {name: sums[name] for name in _LAST if name in sums}
            if step % experiment.log_every == 0 or step == experiment.steps:
                self._log(step)

    def _log(self, step: int) -> None:
        values = finish(self.window)
        self.window = {}
        if "loss" not in values:
            return
        seconds, wait = self.clock.lap(step)
        rate = self.program.tokens_per_step / seconds
        self.sinks.write(step, "train", values)
        self.sinks.write_timings(step, {"step_seconds": seconds, "data_wait_seconds": wait, "tokens_per_second": rate})
        self.console.train(
            Moment(step, values["loss"], values["learning_rate"], rate, seconds, min(wait / seconds, 1.0))
        )

    def _not_finite(self, step: int) -> None:
        self.skipped += 1
        if self.program.experiment.non_finite == "skip":
            self.console.warn(
                f"step {step:,}: loss or gradients are not finite; the step was skipped ({self.skipped} so far)"
            )
            return
        # The state halted itself: it is still the one that this step began with.
        folder = self.workdir / f"fault_at_step_{step}"
        with ocp.StandardCheckpointer() as writer:
            writer.save(folder.absolute() / "state", self.state, force=True)
        if hosts.index() == 0:
            np.savez(folder / "batch.npz", **self._batch_of(step))
        raise RunFault(
            f"step {step}: loss or gradients are not finite. The state that the step began with and its batch are in {folder}.\n"
            "To leave such steps out and go on: --gin.experiment.non_finite=\"'skip'\"."
        )

    def _batch_of(self, step: int) -> dict[str, np.ndarray]:
        """The whole batch that `step` took, made again: it depends on the step alone, so none need be kept."""
        experiment = self.program.experiment
        with Loader(experiment.data, "train", experiment.batch.size, experiment.seed, start_step=step - 1) as loader:
            return next(loader)

    def _evaluate(self) -> None:
        self._drain()
        params = self.state.params if self.state.ema is None else self.state.ema
        with self.clock.paused():
            self.evaluation = evaluate(self.program, params)
        self.evaluated_at = self.step
        # A metric that the objective has may still have no value here: nothing of the split has a weight.
        self.policy.check(list(self.evaluation))
        self.sinks.write(self.step, "eval", self.evaluation)
        self.console.evaluation(self.step, "eval", self.evaluation)

    def _checkpoint(self) -> None:
        self._drain()
        run = {
            "step": self.step,
            "seconds": self.seconds_before + time.monotonic() - self.began,
            "window": self.window,
            "evaluation": self.evaluation,
            "fresh": self.fresh,
            "mesh": self.program.layout.sizes,
            "config": self.config_text,
        }
        # Weights are ranked by their own evaluation, never by that of an earlier step.
        measured = self.evaluation if self.evaluated_at == self.step else None
        self.checkpoints.save(self.step, self.state, run, measured)
