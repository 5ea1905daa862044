"""Training of a student on pairs: sentence-transformers' trainers on length-bucketed, pre-tokenised batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, Trainer

from transencoder import configs, distributed
from transencoder.batching import BiCollator, CrossCollator, training_rows
from transencoder.checkpoints import KeepBest, own_parameters, own_state
from transencoder.cpu import computed
from transencoder.encoders import backbone
from transencoder.errors import InputError
from transencoder.fit.trainers import (
    TRAINERS,
    GoldAnnealing,
    Session,
    pair_tables,
    run_trainer,
    set_dropout,
    trainer_arguments,
)
from transencoder.fit.used_rows import only_used_rows
from transencoder.losses import Annealing
from transencoder.models import OWN_PROMPTS, Prompts, default_prompt
from transencoder.tokens import Encoder, TokenCache, padded

DevMetrics = Callable[[Any], dict[str, float]]
"""Function from an encoder to its metrics. `dev` chooses the best weights; the others are only recorded."""
_STEPS_A_LOSS = 20
"""Maximum number of steps between two losses that the progress shows."""


@dataclass(frozen=True)
class Fitted:
    """Record of a fit; the student itself holds the best weights."""

    best: float | None
    """Best dev metric; None without a dev set, or if the metric was never defined."""
    best_step: int
    """Step of the weights that were kept."""
    curve: list[tuple[int, float | None]]
    """(step, dev metric) of every evaluation; the metric is None where all scores were equal."""
    others: list[tuple[int, dict[str, float | None]]]
    """(step, other metrics) of every evaluation that had any."""
    n_steps: int
    """Total number of optimiser steps."""
    seconds: float
    """Wall time of the steps and evaluations in this process; interrupted attempts before it do not count."""
    n_planned: int | None = None
    """Number of steps of the whole training, if `patience_epochs` ended it early; None: it ran to its end."""


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Training data of a student: n pairs and their targets."""

    pairs: Dataset
    """n rows with `sentence1` and `sentence2`."""
    targets: np.ndarray
    """Targets, float32 (n,): one per pair, such as pseudo-labels; zeros for losses that take none. Or (n, m): several
    labels per pair, for losses that take them, such as gold labels beside a teacher's."""
    rows: np.ndarray | None = None
    """Numbers of the pairs to train on, int; None: all."""
    both_orders: bool = False
    """Whether to train a cross-encoder on (b, a) too, besides (a, b)."""
    prompts: Prompts = OWN_PROMPTS
    """Prompts that a bi-encoder reads before the texts of a pair."""
    teacher_embeddings: np.ndarray | None = None
    """A teacher's embeddings, float32 (distinct sentences, dim), in the order of `TokenCache.sentences`. A bi-encoder's
    labels are then the embeddings of all sides, and the targets are not used."""


def fit(
    student: Encoder,
    loss: Callable[[Any], nn.Module],
    training_data: TrainingData,
    dev: DevMetrics | None,
    config: configs.FitConfig,
    session: Session,
    *,
    candidates: Callable[[nn.Module], Sequence[Encoder]] | None = None,
) -> Fitted:
    """Train a bi-encoder or a cross-encoder on pairs, in place, and keep its best weights.

    Args:
        student: The encoder to train, in place.
        loss: Function that builds the loss module from the student.
        training_data: Pairs and targets.
        dev: Function that returns the student's metrics; the weights with the highest `dev` are kept. None: the last
            weights are kept.
        config: Training settings; no required field may be None.
        session: How and where the training runs.
        candidates: Function that returns further encoders that the loss trains. Of these and the student, the one that
            is best on dev is kept.

    Returns:
        The record of the fit, with the dev curve and the step that was kept.
    """
    student.max_seq_length = config.max_length
    set_dropout(student, config.dropout)
    mix = _Mix(student, config.trained_share or 0.0) if config.keeps_part else None
    adapters = None if config.lora_rank is None else _add_adapters(student, config, session.seed)
    if config.gradient_checkpointing:
        student.gradient_checkpointing_enable()
    collator, data, lengths = _batched(student, training_data, session.cache or TokenCache())
    loss_module = loss(student).to(student.device).train()
    distributed.average_gradients(own_parameters(loss_module))
    keep = KeepBest(student, session.folder, loss_module, patience_epochs=config.patience_epochs)
    keep.candidates += candidates(loss_module) if candidates else ()
    evaluator = None if dev is None else _DevEvaluator(dev, keep, mix)
    trainer = _trainer(student, loss_module, (data, collator), evaluator, config, session)
    with (
        only_used_rows(loss_module, collator.token_ids),
        _in_mini_batches(student, loss_module, config.mini_batch_size),
    ):
        seconds = run_trainer(
            trainer, keep, lengths, config, session, _groups(loss_module, collator, training_data.rows)
        )
    n_steps = trainer.state.global_step
    keep.load_best()
    if mix is not None:
        mix.apply(student)
    if adapters is not None:
        adapters.merge_and_unload().requires_grad_(True)  # a plain encoder again, all of it trainable
    student.eval()
    return Fitted(
        keep.best,
        keep.best_step or n_steps,
        keep.curve,
        keep.others,
        n_steps,
        seconds,
        trainer.state.max_steps if n_steps < trainer.state.max_steps else None,
    )


def _trainer(
    student: Encoder,
    loss: nn.Module,
    batched: tuple[Any, Any],
    evaluator: BaseEvaluator | None,
    config: configs.FitConfig,
    session: Session,
) -> Trainer:
    """Return the trainer of an encoder with a loss; `batched` holds the training rows and their collator."""
    trainer_class, arguments_class = TRAINERS[type(student)]
    arguments = trainer_arguments(
        arguments_class,
        config,
        session,
        device=str(student.device),
        has_dev=evaluator is not None,
        logging_steps=min(config.eval_steps, _STEPS_A_LOSS),
        heads=() if config.head_learning_rate is None else _heads(loss, config.head_learning_rate),
    )
    data, collator = batched
    trainer: Trainer = trainer_class(
        model=student,
        args=arguments,
        train_dataset=data,
        loss=_at_all_widths(student, loss, config.matryoshka_dims) if config.matryoshka_dims else loss,
        evaluator=evaluator,
        data_collator=collator,
    )
    if isinstance(loss, Annealing):
        trainer.add_callback(GoldAnnealing(loss))
    _autocast_helpers(trainer, loss)
    return trainer


def _at_all_widths(student: Encoder, loss: nn.Module, widths: Sequence[int]) -> nn.Module:
    """Return the sum of a loss over whole embeddings and ones cut to these widths (Kusupati et al., NeurIPS 2022)."""
    assert isinstance(student, SentenceTransformer), "configs refuse it for cross-encoders"
    if not getattr(loss, "is_of_cosines", False) or own_state(loss):
        raise InputError(
            f"matryoshka_dims is {list(widths)}, and the loss is not of cosines alone, or has a projector or a queue; "
            "leave it out, or the projector"
        )
    if max(widths) >= (whole := configs.width_of(student)):
        raise InputError(f"matryoshka_dims is {list(widths)}, and an embedding has {whole} numbers; give fewer")
    return MatryoshkaLoss(student, loss, [whole, *sorted(widths, reverse=True)])


@contextmanager
def _in_mini_batches(student: Encoder, loss: nn.Module, size: int | None) -> Iterator[None]:
    """Embed `size` texts at a time in training, and again in the backward pass (Gao et al., RepL4NLP 2021)."""
    if size is None:
        yield
        return
    assert isinstance(student, SentenceTransformer), "configs refuse it for cross-encoders"
    parts = [each for name, part in loss.named_children() if name != "model" for each in part.modules()]
    encoders = [each for each in parts if isinstance(each, SentenceTransformer | PreTrainedModel)]
    if any(parameter.requires_grad for each in encoders for parameter in each.parameters()):
        raise InputError(
            f"mini_batch_size is {size}, and the loss trains another encoder too, which would take whole batches; "
            "leave it out"
        )
    forward = student.forward

    def in_mini_batches(_: nn.Module, features: dict[str, Any], **more: Any) -> dict[str, Any]:
        if not torch.is_grad_enabled():
            return forward(features, **more)
        parts = [
            features | {name: features[name][i : i + size] for name in _tensors(features)}
            for i in range(0, len(features["input_ids"]), size)
        ]
        outputs: list[dict[str, Any]] = [
            checkpoint(lambda each: forward(dict(each), **more), part, use_reentrant=False) for part in parts
        ]
        joined = {name: torch.cat([each[name] for each in outputs]) for name in _tensors(outputs[0])}
        return outputs[0] | joined

    with computed([student], in_mini_batches), padded(student):  # mini-batches are cut from the rows
        yield


def _tensors(features: dict[str, Any]) -> list[str]:
    return [name for name, value in features.items() if isinstance(value, torch.Tensor)]


def check_lora() -> None:
    """Check that the package that LoRA needs is installed (Hu et al., ICLR 2022)."""
    if find_spec("peft") is None:
        raise InputError("lora_rank needs the package peft: pip install 'transencoder[lora]', or leave it out")


def _add_adapters(student: Encoder, config: configs.FitConfig, seed: int) -> Any:
    """Add adapters to every linear layer of an encoder and freeze its own weights; heads are trained as they are.

    W becomes W + alpha/rank B A, with A (rank, in) random and B (out, rank) zero at first, so that training starts from
    the encoder itself (Hu et al., section 4.1).
    """
    check_lora()
    from peft import LoraConfig
    from peft.tuners.lora import LoraModel

    encoder, rank = backbone(student), config.lora_rank or 0
    layers = [name for name, part in encoder.named_modules() if isinstance(part, nn.Linear) and not _is_of_pooler(name)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        lora = LoraConfig(r=rank, lora_alpha=config.lora_alpha or 2.0 * rank, target_modules=layers)  # type: ignore[arg-type]
        adapters = LoraModel(encoder, lora, "default")
    if isinstance(student, CrossEncoder):
        for name, parameter in encoder.named_parameters():
            if _is_of_pooler(name):  # part of the head
                parameter.requires_grad_(True)
    return adapters


def _heads(loss: nn.Module, rate: float) -> list[str]:
    """Return the names of a loss's trained parameters that are outside of pretrained transformers."""
    transformers = [part.base_model for part in loss.modules() if isinstance(part, PreTrainedModel)]
    inside = {id(parameter) for each in transformers for parameter in each.parameters()}
    named = loss.named_parameters()
    heads = [name for name, parameter in named if parameter.requires_grad and id(parameter) not in inside]
    if not heads:
        raise InputError(
            f"fit.head_learning_rate is {rate}, and nothing is trained here but a pretrained transformer; leave it out"
        )
    return heads


def _is_of_pooler(name: str) -> bool:
    return "pooler" in name.split(".")


def _batched(student: Encoder, training_data: TrainingData, cache: TokenCache) -> tuple[Any, Dataset, np.ndarray]:
    """Return the collator, the training rows, and the number of tokens of each row."""
    collator: Any
    if isinstance(student, SentenceTransformer):
        sides = cache.sides(student, training_data.pairs, *training_data.prompts.sides(default_prompt(student)))
        collator, lengths = (
            BiCollator(sides, training_data.teacher_embeddings),
            np.max([side.lengths for side in sides], axis=0),
        )
    else:
        tables = pair_tables(cache, student, training_data.pairs, training_data.both_orders)
        collator, lengths = CrossCollator(tables), np.concatenate([table.lengths for table in tables])
    rows = training_data.rows
    if rows is not None:  # also in the pairs in swapped order, if there are any
        rows = np.concatenate([rows + first for first in range(0, len(lengths), len(training_data.pairs))])
    data = training_rows(len(lengths), np.asarray(training_data.targets, np.float32), rows)
    return collator, data, lengths if rows is None else lengths[rows]


def _groups(loss: nn.Module, collator: Any, rows: np.ndarray | None) -> np.ndarray | None:
    """Return the longer sentence of each row, to group rows by; None if the loss compares the rows of a batch.

    For such a loss two rows with one sentence would be false negatives.
    """
    is_of_pairs = isinstance(collator, BiCollator) and len(collator.sides) == 1
    if not is_of_pairs or not getattr(loss, "is_mean_of_rows", False):
        return None
    longest: np.ndarray = collator.sides[0].longest
    return longest if rows is None else longest[rows]


def _autocast_helpers(trainer: Any, loss: nn.Module) -> None:
    """Run a loss's own encoders in the trainer's precision; the trainer itself sets it for the student only."""
    for name, part in loss.named_children():
        if name != "model" and isinstance(part, SentenceTransformer | PreTrainedModel):
            trainer.accelerator.prepare_model(part, device_placement=False, evaluation_mode=True)


class _Mix:
    """Interpolation between the weights before and after a training."""

    def __init__(self, student: Encoder, trained_share: float) -> None:
        if isinstance(student, CrossEncoder):
            raise InputError(
                f"trained_share is {trained_share}, and a cross-encoder's head starts from random weights; leave it out"
            )
        self.start = {name: tensor.detach().clone() for name, tensor in student.state_dict().items()}
        self.trained_share = trained_share

    def apply(self, encoder: Any) -> None:
        """Load the interpolated weights into an encoder that was trained from the saved ones."""
        between = {
            name: torch.lerp(self.start[name], tensor, self.trained_share) if tensor.is_floating_point() else tensor
            for name, tensor in encoder.state_dict().items()
        }
        encoder.load_state_dict(between)

    @contextmanager
    def applied(self, encoder: Any) -> Iterator[None]:
        """Apply the interpolated weights inside the block, then restore the encoder's own."""
        own = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
        self.apply(encoder)
        try:
            yield
        finally:
            encoder.load_state_dict(own)


class _DevEvaluator(BaseEvaluator):
    """An evaluator that returns the metrics of the candidate that is best on dev, and its number."""

    def __init__(self, metrics: DevMetrics, keep: KeepBest, mix: _Mix | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.metrics = metrics
        self.keep = keep
        self.mix = mix

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        found = []
        for encoder in self.keep.candidates:
            with nullcontext() if self.mix is None else self.mix.applied(encoder):
                found.append(self.metrics(encoder))
        best = max(range(len(found)), key=lambda i: -math.inf if math.isnan(found[i]["dev"]) else found[i]["dev"])
        return found[best] | ({"candidate": float(best)} if len(found) > 1 else {})
