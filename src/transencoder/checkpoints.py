"""Checkpoints inside a fit: each holds the best weights so far, and counts only when its marker says it is complete."""

import logging
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from transencoder import distributed
from transencoder.files import sync
from transencoder.runs.files import (
    Checksum,
    DamagedError,
    check_files,
    files_under,
    read_checked_json,
    sync_files,
    write_checked_json,
)

logger = logging.getLogger(__name__)

_MARKER = "complete.json"
_BEST = "best.safetensors"
_LOSS = "loss.safetensors"
_ENCODER = "model."
"""How names of the encoder begin in the state of every loss of sentence-transformers."""
_FOLLOWER = "follower."
"""And of a copy in ours that has no gradient but moves: it follows the encoder."""

_LEAST_SECONDS = 60.0
_TIMES_ITS_SECONDS = 50.0
"""Between two checkpoints lies a minute, and fifty times what the last one took: of a base-size model on a fast GPU one
takes as long as two hundred steps."""

_STEPS_BETWEEN_QUESTIONS = 10
"""Several processes ask the first one whether it is time as often as this."""


_FORMAT = 3
"""Of markers. Checkpoints of another are those of a version that trains with other bytes."""


class _Marker(TypedDict):
    """What is relied on of a marker."""

    format: int
    best: int | float | None
    best_step: int
    curve: list[Any]
    others: list[Any]
    files: dict[str, Checksum]


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint in `folder` that is whole; all others are deleted, damaged ones with a warning."""
    newest = next(filter(_is_whole, sorted(folder.glob("checkpoint-*"), key=_step, reverse=True)), None)
    _delete_all_but(newest, folder)
    return newest


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _is_whole(checkpoint: Path) -> bool:
    try:
        record = read_checked_json(checkpoint / _MARKER, _Marker)
        if record["format"] != _FORMAT:
            logger.warning("%s is of another version and goes, training begins anew", checkpoint)
            return False
        check_files(checkpoint, record["files"])
    except FileNotFoundError:
        return False  # the process was killed while it was being written
    except DamagedError as error:
        logger.warning("a checkpoint is damaged and not used, training goes on from before it: %s", error)
        return False
    return True


def _delete_all_but(kept: Path | None, folder: Path) -> None:
    for path in folder.glob("checkpoint-*"):
        if path != kept:
            shutil.rmtree(path)


class KeepBest(TrainerCallback):
    """Keeps the weights with the highest dev metric in memory, and in every checkpoint, and says when one is due.

    Args:
        model: The encoder that is trained.
        folder: Where the trainer writes its checkpoints.
        loss: The loss, whose own state, such as a projector's, the trainer would not save; `loss.model` is the encoder.
        patience_epochs: The training ends once the best weights are this many epochs old. None: it runs to its end.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        folder: Path,
        loss: torch.nn.Module | None = None,
        *,
        patience_epochs: int | None = None,
    ) -> None:
        self.model = model
        self.candidates = [model]
        """What may be kept: the model, and candidates that its loss trains."""
        self.folder = folder
        self.loss = loss
        self.patience_epochs = patience_epochs
        self.best: float | None = None
        self.best_step = 0
        self.curve: list[tuple[int, float | None]] = []
        self.others: list[tuple[int, dict[str, float | None]]] = []
        self._weights: dict[str, torch.Tensor] | None = None
        self._saved_at = time.monotonic()
        self._save_seconds = 0.0
        """What the last checkpoint took."""
        self._save_began = self._saved_at

    def restore(self, checkpoint: Path | None) -> None:
        """Take up what a checkpoint says."""
        if checkpoint is None:
            return
        record = read_checked_json(checkpoint / _MARKER)
        self.best, self.best_step = record["best"], record["best_step"]
        self.curve = [(step, value) for step, value in record["curve"]]
        self.others = [(step, values) for step, values in record["others"]]
        if (checkpoint / _BEST).exists():
            self._weights = load_file(checkpoint / _BEST)
        if self.loss is not None and (checkpoint / _LOSS).exists():
            _load_own_state(self.loss, checkpoint / _LOSS)

    def load_best(self) -> None:
        """Put the best weights into the model; the last ones stay when there was no dev metric."""
        if self._weights is not None:
            self.model.load_state_dict(self._weights)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Add an evaluation at each epoch's end (paper, section 4), before the checkpoint of the same step.

        Not in `on_epoch_end`: a run that resumed from that checkpoint would never make it up.
        """
        if args.save_strategy == SaveStrategy.NO:
            control.should_save = self._is_due(state.global_step)
        self._save_began = time.monotonic()
        if args.eval_strategy != "no" and state.global_step % _epoch_steps(state) == 0:
            control.should_evaluate = True

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Replace the best weights by strictly better ones (released code); an undefined metric is never better."""
        self._save_began = time.monotonic()
        metrics = {name: None if math.isnan(value) else value for name, value in kwargs["metrics"].items()}
        value = metrics["eval_dev"]
        self.curve.append((state.global_step, value))
        others = {name[5:]: v for name, v in metrics.items() if name.startswith(("eval_test_", "eval_criterion_"))}
        if others:
            self.others.append((state.global_step, others))
        if value is not None and (self.best is None or value > self.best):
            self.best, self.best_step = value, state.global_step
            best = self.candidates[int(metrics.get("eval_candidate") or 0)]
            self._weights = {name: tensor.detach().cpu().clone() for name, tensor in best.state_dict().items()}
        if self._is_over(state):
            logger.info(
                "training ends at step %d of %d: no better evaluation since step %d",
                *(state.global_step, state.max_steps, self.best_step),
            )
            control.should_training_stop = True
            control.should_save = False  # resumed from here it would train one step more

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Complete the checkpoint that was just written, then drop the one before."""
        distributed.barrier()  # every rank writes its part: the state of its random numbers
        self._complete(state)
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - self._save_began

    def _is_over(self, state: TrainerState) -> bool:
        """Tell whether patience is at an end; without a defined metric it never is."""
        if self.best is None or self.patience_epochs is None or state.global_step == state.max_steps:
            return False
        return state.global_step - self.best_step >= self.patience_epochs * _epoch_steps(state)

    def _is_due(self, step: int) -> bool:
        """Tell whether it is time for a checkpoint; the first process decides for all."""
        is_due = time.monotonic() - self._saved_at > max(_LEAST_SECONDS, _TIMES_ITS_SECONDS * self._save_seconds)
        if distributed.world_size() == 1:
            return is_due
        return step % _STEPS_BETWEEN_QUESTIONS == 0 and distributed.broadcast(is_due)

    def _complete(self, state: TrainerState) -> None:
        if not state.is_world_process_zero:
            return
        checkpoint = self.folder / f"checkpoint-{state.global_step}"
        if self._weights is not None:
            save_file(self._weights, checkpoint / _BEST)
        if self.loss is not None and (own := own_state(self.loss)):
            save_file(own, checkpoint / _LOSS)
        record = {
            "format": _FORMAT,
            "best": self.best,
            "best_step": self.best_step,
            "curve": self.curve,
            "others": self.others,
            "files": sync_files(
                checkpoint, (path.relative_to(checkpoint).as_posix() for path in files_under(checkpoint))
            ),
        }
        write_checked_json(checkpoint / _MARKER, record)
        sync(self.folder)
        _delete_all_but(checkpoint, self.folder)


def _epoch_steps(state: TrainerState) -> int:
    return state.max_steps // state.num_train_epochs


def own_parameters(loss: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Return what a loss trains besides its encoder."""
    for name, parameter in loss.named_parameters():
        if not name.startswith(_ENCODER) and parameter.requires_grad:
            yield parameter


def own_state(loss: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers of a loss that are neither its encoder's, tied to it or not, nor frozen for good.

    They are not copied, a gigabyte of queues least of all, unless two share memory, which safetensors does not save.
    """
    parameters = dict(loss.named_parameters(remove_duplicate=False))  # tied weights have two names in the state
    encoders = {id(parameter) for name, parameter in parameters.items() if name.startswith(_ENCODER)}
    frozen = {name for name, each in parameters.items() if not (each.requires_grad or name.startswith(_FOLLOWER))}
    others = frozen | {name for name, value in parameters.items() if id(value) in encoders}
    own, places = {}, set()
    for name, value in loss.state_dict().items():
        if not name.startswith(_ENCODER) and name not in others:
            place = value.untyped_storage().data_ptr()
            own[name] = value.clone() if place in places else value
            places.add(place)
    return own


def _load_own_state(loss: torch.nn.Module, path: Path) -> None:
    """Put saved tensors in the place of the loss's, one at a time."""
    state = loss.state_dict()
    with safe_open(path, "pt") as saved:
        for name in saved.keys():  # noqa: SIM118, it is no dict
            state[name].copy_(saved.get_tensor(name))
