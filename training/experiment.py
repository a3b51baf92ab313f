"""What a gin file describes: an Experiment. Everything a run is made of, as plain values; nothing is allocated yet."""

from typing import Any, Literal

import gin

from data.packages import locate
from mistake import Mistake
from models.pretrained.tensors import tensor_files
from training.batch import Batch
from training.config import name_of

FRESH = ("head.*", "encoder.pooler.*")


@gin.configurable("experiment")
class Experiment:
    """One run.

    Args:
      model: an objective with its encoder, such as `@masked_lm()`.
      data: a task, such as `@masked_lm_data()`.
      optimizer: such as `@adamw()`.
      steps: updates of the whole run.
      seed: of parameters, data order and noise.
      clip_norm: gradients are scaled down to this global norm; None leaves them.
      ema_decay: an exponential moving average of the weights is kept, and evaluated; None keeps none.
      non_finite: at a loss or gradient that is not finite, 'stop' keeps the state of that step for inspection and ends
        with 1; 'skip' leaves the weights as they were, counts it, and goes on.
      init_from: a pretrained checkpoint (a folder as `python -m models.pretrained import` makes, or a Hugging Face
        one).
      fresh: path patterns of the parameters that may start fresh although `init_from` is given.
      write_model: at the end the weights are written as WORKDIR/model, which `python -m models.pretrained export` reads.
      log_every, eval_every: in steps; 0 evaluates at the end only.
      eval_batch_size: None is the batch's.
      stop_at_end_of_data: False repeats the data, shuffled anew each time; True ends the run with it.
    """

    def __init__(
        self,
        model: Any = gin.REQUIRED,
        data: Any = gin.REQUIRED,
        optimizer: Any = gin.REQUIRED,
        steps: int = gin.REQUIRED,
        seed: int = 0,
        clip_norm: float | None = 1.0,
        ema_decay: float | None = None,
        non_finite: Literal["stop", "skip"] = "stop",
        init_from: str | None = None,
        fresh: tuple[str, ...] = FRESH,
        write_model: bool = False,
        log_every: int = 10,
        eval_every: int = 0,
        eval_batch_size: int | None = None,
        stop_at_end_of_data: bool = False,
    ):
        if steps < 1:
            raise Mistake(f"experiment.steps: {steps}; a run has at least one.")
        _require_methods("model", model, ("losses",), "an objective, such as @masked_lm()")
        _require_methods("data", data, ("features", "examples"), "a task, such as @masked_lm_data()")
        _require_methods("optimizer", optimizer, ("build", "rate"), "an optimizer, such as @adamw()")
        for name, value in {"eval_every": eval_every, "seed": seed}.items():
            if not 0 <= value < 2**32:
                raise Mistake(f"experiment.{name}: {value} is not between 0 and 2^32 - 1.")
        if eval_batch_size is not None and eval_batch_size < 1:
            raise Mistake(f"experiment.eval_batch_size: {eval_batch_size} is not a positive number of examples.")
        if log_every < 1:
            raise Mistake(f"experiment.log_every: {log_every}; it must be at least 1.")
        self.batch = Batch()
        if clip_norm is not None and not clip_norm > 0:
            raise Mistake(f"experiment.clip_norm: {clip_norm} is not a positive norm. None clips nothing.")
        if ema_decay is not None and not 0 < ema_decay < 1:
            raise Mistake(f"experiment.ema_decay: {ema_decay} is not between 0 and 1. None keeps no average.")
        if self.batch.accumulation > 1 and getattr(model, "whole_batch", False):
            raise Mistake(
                "batch.accumulation: this objective compares every example of a batch with every other, so a batch can't be split. Use 1."
            )
        self.model, self.data, self.optimizer = model, data, optimizer
        self.steps, self.seed, self.clip_norm, self.ema_decay, self.non_finite = (
            steps,
            seed,
            clip_norm,
            ema_decay,
            non_finite,
        )
        if init_from == "":
            raise Mistake("experiment.init_from: '' is no folder. Name one, or leave it out.")
        if init_from is not None:
            _check_there(init_from)
        elif tuple(fresh) != FRESH:
            raise Mistake(f"experiment.fresh: {fresh} has no effect without experiment.init_from. Leave it out.")
        self.init_from, self.fresh = init_from, tuple(fresh)
        self.write_model = write_model
        self.log_every, self.eval_every = log_every, eval_every
        self.eval_batch_size = eval_batch_size or self.batch.size
        self.stop_at_end_of_data = stop_at_end_of_data
        _check_vocabulary(model, data)
        classes = getattr(model, "num_classes", None)
        if classes is not None and classes != getattr(data, "num_classes", classes):
            raise Mistake(
                f"experiment.data: it has {data.num_classes} classes, and the model's head has {classes}. Set both num_classes to the same."
            )


def _require_methods(name: str, value: Any, methods: tuple[str, ...], meant: str) -> None:
    if isinstance(value, type):
        raise Mistake(f"experiment.{name}: this is the class {value.__name__} itself. Write it with (): {meant}.")
    if not all(hasattr(value, method) for method in methods):
        raise Mistake(f"experiment.{name}: {name_of(value)} is not {meant}.")


def _check_there(init_from: str) -> None:
    """Raises Mistake unless there are files of tensors where `init_from` says."""
    found = locate(init_from, "experiment.init_from")
    try:
        tensor_files(found)
    except Mistake as mistake:
        raise Mistake(f"experiment.init_from: {found}: {mistake}") from None


def _check_vocabulary(model: Any, data: Any) -> None:
    """Raises Mistake for a model of tokens whose data has none, or more of them than the model."""
    for part in ("encoder", "decoder"):
        reader = getattr(model, part, None)
        vocabulary = getattr(reader, "vocab_size", None)
        if vocabulary is None:
            continue
        if not hasattr(data, "vocab_size"):
            fields = ", ".join(data.features())
            raise Mistake(f"experiment.data: {name_of(reader)} reads tokens, and a batch of this has none: {fields}.")
        if data.vocab_size > vocabulary:
            raise Mistake(
                f"{name_of(reader)}.vocab_size: {vocabulary}, and the data's tokenizer has {data.vocab_size} tokens. "
                "It must be at least that."
            )
