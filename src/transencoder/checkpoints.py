"""Checkpoints inside a fit: each holds the best weights so far, and counts only if its marker says it is complete."""

import logging
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
from transencoder.metrics import defined
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
"""Prefix of the encoder's parameters in the state of every loss of sentence-transformers."""
_FOLLOWER = "follower."
"""Prefix, in our losses, of a copy of the encoder that has no gradient but changes, as it follows the encoder."""

_LEAST_SECONDS = 60.0
_TIMES_ITS_SECONDS = 50.0
"""Minimum time between two checkpoints: a minute, and 50 times the duration of the last one. For a base-size model on a
fast GPU, a checkpoint takes as long as 200 steps."""

_STEPS_BETWEEN_QUESTIONS = 10
"""Number of steps after which several processes ask the first one whether a checkpoint is due."""


_FORMAT = 3
"""Format of markers. Checkpoints of another format are from a version whose training gives other bytes."""


class _Marker(TypedDict):
    """Fields of a marker that are relied on."""

    format: int
    best: int | float | None
    best_step: int
    curve: list[Any]
    others: list[Any]
    files: dict[str, Checksum]


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the last complete checkpoint in `folder`, and delete all others, damaged ones with a warning."""
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
    """A callback that keeps the weights with the highest dev metric, and says when a checkpoint is due.

    The weights are kept in memory and in every checkpoint.

    Args:
        model: The encoder that is trained.
        folder: Folder to which the trainer writes its checkpoints.
        loss: The loss. Its own state, such as a projector's, is saved here, as the trainer would not save it;
            `loss.model` is the encoder.
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
        """Encoders whose weights may be kept: the model, and candidates that its loss trains."""
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
        """Duration of the last checkpoint."""
        self._save_began = self._saved_at

    def restore(self, checkpoint: Path | None) -> None:
        """Restore the state from a checkpoint, if there is one."""
        if checkpoint is None:
            return
        record = read_checked_json(checkpoint / _MARKER)
        self.best, self.best_step = record["best"], record["best_step"]
        self.curve = [(step, value) for step, value in record["curve"]]
        self.others = [(step, values) for step, values in record["others"]]
        if (checkpoint / _BEST).exists():
            loaded = load_file(checkpoint / _BEST)
            self._weights = {name: tensor.clone() for name, tensor in loaded.items()}  # NFS cannot remove a mapped file
        if self.loss is not None and (checkpoint / _LOSS).exists():
            _load_own_state(self.loss, checkpoint / _LOSS)

    def load_best(self) -> None:
        """Load the best weights into the model. Without a dev metric the last weights stay."""
        if self._weights is not None:
            self.model.load_state_dict(self._weights)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Request checkpoints when they are due, and an evaluation at each epoch's end (paper, section 4) before that.

        The latter is not in `on_epoch_end`, because a run that resumed from that checkpoint would skip the evaluation.
        """
        if args.save_strategy == SaveStrategy.NO:
            control.should_save = self._is_due(state.global_step)
        self._save_began = time.monotonic()
        if args.eval_strategy != "no" and state.global_step % _epoch_steps(state) == 0:
            control.should_evaluate = True

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Replace the best weights by strictly better ones (released code); an undefined metric is never better."""
        self._save_began = time.monotonic()
        metrics = defined(kwargs["metrics"])
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
            control.should_save = False  # a run resumed from here would train one step more

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Complete the checkpoint that was just written, then delete the one before."""
        distributed.barrier()  # every rank writes its part: the state of its random numbers
        self._complete(state)
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - self._save_began

    def _is_over(self, state: TrainerState) -> bool:
        """Check whether patience has run out; without a defined metric it never does."""
        if self.best is None or self.patience_epochs is None or state.global_step == state.max_steps:
            return False
        return state.global_step - self.best_step >= self.patience_epochs * _epoch_steps(state)

    def _is_due(self, step: int) -> bool:
        """Check whether a checkpoint is due; the first process decides for all."""
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
    """Yield the parameters that a loss trains besides those of its encoder."""
    for name, parameter in loss.named_parameters():
        if not name.startswith(_ENCODER) and parameter.requires_grad:
            yield parameter


def own_state(loss: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a loss's own parameters and buffers.

    Left out are those of its encoder, those tied to the encoder's, and those that are frozen for good. Tensors are not
    copied, because queues can take a gigabyte, unless two share memory, which safetensors does not save.
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
    """Copy saved tensors into the loss's own, one at a time."""
    state = loss.state_dict()
    with safe_open(path, "pt") as saved:
        for name in saved.keys():  # noqa: SIM118, it is no dict
            state[name].copy_(saved.get_tensor(name))
