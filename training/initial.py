"""Where a run's first state comes from, the newest checkpoint, pretrained weights or a seed, and its last weights as a pretrained model."""

import ast
import dataclasses
import pathlib
from collections.abc import Mapping

import jax
import numpy as np

from data.packages import locate
from mistake import Mistake
from models.pretrained import folder, import_checkpoint, load_for_init
from models.pretrained.checkpoint import FAMILIES, Checkpoint, write_ours
from models.pretrained.table import problems
from training import hosts
from training.checkpoint import Checkpoints
from training.config import name_of
from training.console import TrainingConsole
from training.precision import exact, replaced
from training.program import Program
from training.state import TrainState

# Bindings of a model that say how it is drawn, trained or computed: a checkpoint has no say in them.
_NOT_OF_THE_WEIGHTS = ("dtype", "initializer_stddev")
_OF_TRAINING = ("dropout", "attention_dropout", "pooler", "max_length", "vocab_size")


def initial(
    program: Program, checkpoints: Checkpoints, bound: Mapping[str, str], console: TrainingConsole
) -> tuple[TrainState, dict]:
    """The state to start from, and the record of the run so far.

    The record: step, seconds spent, window (sums not yet logged), evaluation (the last), fresh (parameters that `init_from` did not
    give). bound: every binding of the configuration, as gin text.
    Raises Mistake when the checkpoint is past experiment.steps, or the pretrained model is another one than the run's.
    """
    restored = checkpoints.restore(program.abstract_state, program.state_sharding)
    if restored is None:
        state, fresh = _started(program, bound, console)
        return state, {"step": 0, "seconds": 0.0, "window": {}, "evaluation": {}, "fresh": fresh}
    state, run = restored
    steps = program.experiment.steps
    if run["step"] > steps:
        raise Mistake(
            f"experiment.steps: {steps}, and the checkpoint is at step {run['step']} already. "
            "Give more steps, or another workdir."
        )
    console.note(f"resumed from the checkpoint at step {run['step']:,}")
    if run["step"] == steps:
        console.note(f"experiment.steps is {steps:,}: nothing is left to train")
    return state, run


def _started(program: Program, bound: Mapping[str, str], console: TrainingConsole) -> tuple[TrainState, list[str]]:
    experiment, state = program.experiment, program.fresh_state()
    if experiment.init_from is None:
        return state, []
    source = str(locate(experiment.init_from, "experiment.init_from"))
    loaded, fresh, unused = load_for_init(source, program.declared, fresh=experiment.fresh)
    _check_same_model(import_checkpoint(source)[1], bound)
    # Each process gives its devices their pieces; device_put would compare all of it between processes first.
    placed = {
        path: jax.make_array_from_callback(
            np.shape(value), program.state_sharding.params[path], np.asarray(value).__getitem__
        )
        for path, value in loaded.items()
    }
    # The average starts from the same weights: a copy of its own, since the step gives up each buffer.
    ema = None if state.ema is None else state.ema | jax.tree.map(lambda x: x.copy(), placed)
    console.note(
        f"{len(loaded)} parameters from {experiment.init_from}; "
        f"fresh: {', '.join(fresh) or 'none'}; not used: {', '.join(unused) or 'none'}"
    )
    params, opt_state = replaced(state.params, state.opt_state, placed)
    started = dataclasses.replace(state, params=params, opt_state=opt_state, ema=ema)
    # A master copy and an average may be shared out otherwise than the weights.
    return jax.device_put(started, program.state_sharding), fresh


def _check_same_model(settings: Mapping[str, object], bound: Mapping[str, str]) -> None:
    """Shapes were compared already; an activation or an epsilon has none."""
    faults = []
    for name, value in settings.items():
        if name.rpartition(".")[2] not in _OF_TRAINING and name in bound and ast.literal_eval(bound[name]) != value:
            faults.append(
                f"{name}: {bound[name]}, and the weights of experiment.init_from were trained with {value!r}."
            )
    if faults:
        raise Mistake("\n".join(faults))


def check_model_to_write(program: Program, bound: Mapping[str, str], target: pathlib.Path) -> None:
    """Raises Mistake, before a run that is to end as a pretrained model, for one that no checkpoint has a place for, and
    where `write_model` couldn't write.
    """
    encoder = name_of(getattr(program.experiment.model, "encoder", None))
    if encoder not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise Mistake(f"experiment.write_model: the model is no encoder of a family that can be written: {known}.")
    family, head = FAMILIES[encoder], _head(program)
    shapes = {path: tuple(declared.shape) for path, declared in program.declared.items()}
    classes = getattr(program.experiment.model, "num_classes", 0)
    try:
        faults = problems(shapes, family.shapes(_settings(bound), head, classes))
        folder.check(target, overwrite=True)
    except Mistake as mistake:
        raise Mistake(f"experiment.write_model: {mistake}") from None
    if faults:
        raise Mistake(
            "\n  ".join([f"experiment.write_model: a checkpoint of {encoder} has other parameters than this.", *faults])
        )


def write_model(program: Program, state: TrainState, bound: Mapping[str, str], target: pathlib.Path) -> None:
    """The weights (the average, where one is kept) and bindings of the model, as `python -m models.pretrained export` reads them.

    Every process must call it, since each holds a part of the weights; process 0 writes.
    """
    weights = exact(state.params, state.opt_state) if state.ema is None else state.ema
    params = {}
    for path, value in weights.items():
        gathered = hosts.whole(value)
        if hosts.index() == 0:
            params[path] = gathered
    if hosts.index() != 0:
        return
    checkpoint = Checkpoint(params, _settings(bound), _head(program))
    with folder.writing(target, overwrite=True) as partial:
        write_ours(checkpoint, partial, "model.gin -- the model that this run ended with.")
        if hasattr(program.experiment.data, "tokenizer"):
            program.experiment.data.tokenizer.save(partial)


def _head(program: Program) -> str | None:
    """The head of the run's objective, by the name that checkpoints give it."""
    return FAMILIES[name_of(program.experiment.model.encoder)].objective_head(program.experiment.model)


def _settings(bound: Mapping[str, str]) -> dict[str, object]:
    """The bindings that decide the model. Parameters of the encoder are under its own name, 'bert', in a configuration."""
    return {
        name: ast.literal_eval(value)
        for name, value in bound.items()
        if name.startswith("bert.") and name.rpartition(".")[2] not in _NOT_OF_THE_WEIGHTS
    }
