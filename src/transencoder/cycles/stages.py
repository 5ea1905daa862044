"""Stages of Trans-Encoder: criteria, pretraining, scores of teachers, labels made from them, students."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import WordWeights
from transformers import AutoModel

from transencoder import losses
from transencoder.configs import BiLabels, BiLoss, Criterion, CrossLoss, FitConfig, Head, LabelPolicy, Precision
from transencoder.context import (
    GivenScores,
    Model,
    Rows,
    Scored,
    Training,
    Work,
    metrics_of,
    operations,
)
from transencoder.encoders import (
    add_weights,
    as_logits,
    load_cross,
    token_weights,
    transplant,
    weighted,
)
from transencoder.fit import DevMetrics, Fitted, Pretrained, TrainingData, fit, pretrain
from transencoder.labels import combine
from transencoder.metrics import defined
from transencoder.runs import Cost, Stage, StageRecord, implied, made_of, setting
from transencoder.selection import HeldOut
from transencoder.sharded import score_sharded
from transencoder.token_scores import TokenScorer
from transencoder.tokens import Encoder

_CROSS_EQUATIONS: dict[CrossLoss, losses.Equation] = {
    "bce": losses.soft_cross_entropy,
    "mse": losses.logit_regression,
}

_BI_EQUATIONS: dict[BiLoss, losses.Equation] = {
    "mse": losses.cosine_regression,
    "log_cosh": losses.log_cosh,
    "bce": losses.cosine_cross_entropy,
    "bce_clipped": losses.clipped_cosine_cross_entropy,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Criteria(Stage[Work]):
    """Criteria of a base model, computed on held-out pairs without labels."""

    pairs: Rows = made_of()
    model: Model = made_of(reading=True)
    held_out: HeldOut = setting(lambda held_out: held_out.about)
    max_length: int | None
    precision: Precision

    def compute(self, work: Work) -> dict[str, float]:
        """Score the held-out pairs."""
        scorer = work.scorer_of(self.model, self.max_length, self.precision)
        return self.held_out.criteria(scorer, {})

    def write(self, work: Work, computed: dict[str, float]) -> dict[str, Any]:
        """Return the criteria."""
        return defined(computed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pretraining(Training):
    """Masked language modelling over the pairs, which makes the encoder that a cross-encoder starts from."""

    version = 2
    pairs: Rows = made_of()
    base: Model = made_of()
    fit: FitConfig = setting(lambda fit: fit.key_settings | {"eval_steps": None})
    mask_ratio: float
    both_orders: bool

    def compute(self, work: Work) -> tuple[Any, Pretrained]:
        """Train."""
        return pretrain(
            self.base.folder,
            self.pairs.data,
            self.fit,
            self.mask_ratio,
            self.session(work),
            device=work.device,
            both_orders=self.both_orders,
        )

    def write(self, work: Work, computed: tuple[Any, Pretrained]) -> dict[str, Any]:
        """Save the model."""
        model, record = computed
        model.save_pretrained(work.folder / "model")
        return asdict(record)

    @property
    def n_trained(self) -> int:
        """Number of pairs; a pair in both orders counts twice."""
        return len(self.pairs.data) * (2 if self.both_orders else 1)

    def cost(self) -> Cost:
        """Return the training's cost."""
        return self.training_cost(self.base.n_parameters)


_EMBEDDED_BYTES = 2 * 2 * 4 * 768
"""Bytes of scratch space for each pair while a bi-encoder labels: two float32 embeddings of width 768, stored twice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherScores(Stage[Work]):
    """A teacher's raw scores of the training pairs, computed once for all policies, weights and cycles."""

    version = 5
    pairs: Rows = made_of()
    model: Model = made_of(reading=True)
    both_orders: bool
    max_length: int | None
    precision: Precision
    bi_labels: BiLabels = setting(default="cosine")
    """Method by which a bi-encoder compares the two texts of a pair."""

    def compute(self, work: Work) -> np.ndarray:
        """Score the pairs in shards, so that an interrupted stage can resume."""
        if self.bi_labels == "tokens":
            model, prompts = work.load(self.model, self.max_length), self.model.prompts
            assert isinstance(model, SentenceTransformer), "only bi-encoders are read so"
            options: Any = {"prompt": prompts.query, "document_prompt": prompts.document}
            return TokenScorer(model, precision=self.precision, cache=work.cache, **options).score(self.pairs.data)
        scorer = work.scorer_of(self.model, self.max_length, self.precision, both_orders=self.both_orders)
        return score_sharded(scorer, self.pairs.data, work.folder / "checkpoints")

    def write(self, work: Work, computed: np.ndarray) -> dict[str, Any]:
        """Write `scores.npy`, float32 (n,)."""
        np.save(work.folder / "scores.npy", computed)
        return {}

    def cost(self) -> Cost:
        """Return the cost of scoring all pairs."""
        n_pairs = len(self.pairs.data)
        n_scored = n_pairs * (2 if self.both_orders else 1)
        return Cost(
            operations=operations(self.model.n_parameters, 0, n_scored),
            disk_bytes=4 * n_pairs,
            scratch_bytes=_EMBEDDED_BYTES * n_pairs if self.model.form == "bi" else 0,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptScores(Stage[Work]):
    """Scores of a teacher that the user gave, or that mining computed, saved in the same form as computed scores."""

    given: GivenScores = made_of()

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write `scores.npy`, float32 (n,)."""
        np.save(work.folder / "scores.npy", self.given.scores)
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels(Stage[Work]):
    """The labels that teachers make together: the weighted mean of their targets (section 2.4)."""

    version = 5
    scores: tuple[StageRecord, ...] = made_of()
    policy: tuple[LabelPolicy, ...] = setting(lambda each: each[0] if len(set(each)) == 1 else each)
    """Label policy of each teacher: how its raw scores become targets."""
    weights: tuple[float, ...]
    """Weight of each teacher."""
    teachers: tuple[tuple[str, str], ...] = implied()
    """Name and key of each teacher; a base model that is a teacher and also has `start_weight` is listed twice."""
    pairs: Rows = implied()

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write `labels.parquet`, which any sentence-transformers trainer can read, and the raw scores."""
        names = [name for name, _ in self.teachers]
        shares = dict.fromkeys(names, 0.0)
        for name, weight in zip(names, self.weights, strict=True):
            shares[name] += weight
        labels = combine(
            {name: np.load(each.folder / "scores.npy") for name, each in zip(names, self.scores, strict=True)},
            dict(zip(names, self.policy, strict=True)),
            shares,
            dict(self.teachers),
        )
        labels.write(work.folder / "labels.parquet", self.pairs.data)
        labels.write_raw(work.folder / "raw.parquet")
        low, high = np.percentile(labels.targets, [5, 95])
        return {"teachers": labels.provenance, "middle": [float(low), float(high)]}

    def cost(self) -> Cost:
        """Return the disk space of the labels and of the texts that are stored with them."""
        return Cost(disk_bytes=100 * len(self.pairs.data))


@dataclass(frozen=True, kw_only=True, eq=False)
class Student(Training):
    """A member's bi- or cross-encoder, trained on teachers' labels of the pairs."""

    version = 6
    labels: StageRecord = made_of()
    dev: Scored | None = made_of(absent="")
    analysis: tuple[Scored, ...] = made_of()
    """Tests that are scored at each evaluation, but never used to choose a checkpoint."""
    base: Model = made_of()
    pretrained: StageRecord | None = made_of()
    """Stage that made the encoder that the student starts from, if `base` is pretrained further."""
    teacher: Model | None = made_of()
    """Teacher whose encoder the student starts from (initialisation sequential, section 5.2)."""
    gold: GivenScores | None = made_of()
    other_teachers: tuple[Model, ...] = made_of()
    """Teachers that criteria compare the student with, but that do not contribute to the labels."""
    other_references: tuple[StageRecord, ...] = made_of()
    """Stages with scores that criteria compare the student's with, and that nothing else here is made from."""
    initialisation: str
    allow_outside: bool
    """Whether targets may lie outside [0, 1], as the released code's do."""
    held_out: HeldOut | None = setting(lambda held_out: held_out.about, default=None)
    """Pairs that are held out from training, on which criteria are computed without labels: at each evaluation or, if
    nothing chooses the checkpoint, once, when training has ended."""
    chosen_by: Criterion | None = setting(default=None)
    """Criterion that chooses the checkpoint."""
    pairs: Rows = implied()
    references: Mapping[str, tuple[StageRecord, ...]] = implied()
    """Stages with scores that criteria compare the student's with, by the model they come from: `start`, `member`."""
    both_orders: bool = implied(default=False)
    """Whether a cross-encoder is trained on both (a, b) and (b, a)."""
    dev_orders: bool = implied(default=False)
    """Whether a cross-encoder then scores both orders when it is evaluated."""

    def compute(self, work: Work) -> tuple[Encoder, Fitted]:
        """Train."""
        session = self.session(work)
        student = self._initialised(work, session.seed)
        if self.teacher is not None:
            transplant(work.load(self.teacher), student)
        labels = pq.read_table(self.labels.folder / "labels.parquet", columns=["label"])["label"].to_numpy()
        n_pairs = len(self.pairs.data)
        training_data = TrainingData(
            pairs=self.pairs.data,
            targets=labels if self.gold is None else np.stack([self.gold.scores, labels], axis=1),
            rows=None if self.held_out is None else np.delete(np.arange(n_pairs), self.held_out.untrained),
            both_orders=self.both_orders,
            prompts=self.base.prompts,
        )
        evaluate = self._evaluation(work, labels)
        is_chosen = self.dev is not None or self.chosen_by is not None
        during = evaluate if is_chosen or self.analysis else None
        fitted = fit(student, self._loss, training_data, during, self.fit, session)
        if during is None and self.held_out is not None:
            at_the_end = {name: value for name, value in defined(evaluate(student)).items() if name != "dev"}
            fitted = replace(fitted, others=[(fitted.n_steps, at_the_end)])
        return student, fitted

    @property
    def n_trained(self) -> int:
        """Number of pairs without those that are held out; a pair in both orders counts twice."""
        n_held_out = 0 if self.held_out is None else len(self.held_out.untrained)
        return (len(self.pairs.data) - n_held_out) * (2 if self.both_orders else 1)

    def cost(self) -> Cost:
        """Return the cost of the training and of dev evaluations."""
        return self.training_cost(self.base.n_parameters, self.n_scored(self.dev) * self._n_dev_orders)

    def _evaluation(self, work: Work, labels: np.ndarray) -> DevMetrics:
        """Return the function that computes the student's metrics at each evaluation."""
        references = {"teacher": [labels]} | {
            name: [np.load(each.folder / "scores.npy") for each in records] for name, records in self.references.items()
        }
        if self.held_out is not None:
            references = {name: [each[self.held_out.rows] for each in them] for name, them in references.items()}

        as_kept = self._kept_form(work)

        def metrics(model: Encoder) -> dict[str, float]:
            with as_kept(model):
                scorer = work.scorer(
                    model, self.precision, prompts=self.base.prompts, both_orders=self._n_dev_orders == 2
                )
                found = metrics_of(scorer, self.dev, self.analysis)
                if self.held_out is None:
                    return found
                criteria = self.held_out.criteria(scorer, references)
            chosen = {} if self.dev is not None else {"dev": criteria.get(str(self.chosen_by), np.nan)}
            return chosen | found | {f"criterion_{name}": value for name, value in criteria.items()}

        return metrics

    def _kept_form(self, work: Work) -> Callable[[Any], AbstractContextManager[None]]:
        """Return a function of a model to a context in which it has the extra modules that it is saved with."""
        return nullcontext

    def _initialised(self, work: Work, seed: int) -> Encoder:
        raise NotImplementedError

    def _loss(self, student: Any) -> Any:
        raise NotImplementedError

    @property
    def _n_dev_orders(self) -> int:
        return 2 if self.dev_orders and self.both_orders else 1


@dataclass(frozen=True, kw_only=True, eq=False)
class BiStudent(Student):
    """A bi-encoder, whose cosine is trained to match the labels."""

    base: Model = made_of(reading=True)
    loss: BiLoss = setting(default="mse")
    weight_tokens: bool = setting(default=False)
    """Whether it is saved with weighted tokens; it is trained without them."""

    def compute(self, work: Work) -> tuple[Encoder, Fitted]:
        """Train, and weight the tokens if `weight_tokens` is set."""
        student, fitted = super().compute(work)
        if self.weight_tokens:
            assert isinstance(student, SentenceTransformer), "it is a bi-encoder"
            add_weights(student, self._weights(work, student))
        return student, fitted

    def _kept_form(self, work: Work) -> Callable[[Any], AbstractContextManager[None]]:
        if not self.weight_tokens:
            return nullcontext
        weights = cache(partial(self._weights, work))  # they depend on the tokenizer and the pairs alone
        return lambda model: weighted(model, weights(model))

    def _weights(self, work: Work, model: SentenceTransformer) -> WordWeights:
        return token_weights(model, self.pairs.data.select_columns(["sentence1", "sentence2"]), work.cache)

    def _initialised(self, work: Work, seed: int) -> Encoder:
        return work.load(self.base, self.fit.max_length)

    def _loss(self, student: SentenceTransformer) -> losses.CosineLoss:
        return losses.CosineLoss(student, _BI_EQUATIONS[self.loss], allow_outside=self.allow_outside)


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossStudent(Student):
    """A cross-encoder, whose logit is trained to match the labels."""

    loss: CrossLoss = setting(default="bce")
    head: Head
    both_orders: bool = setting()
    dev_orders: bool = setting()

    def _initialised(self, work: Work, seed: int) -> CrossEncoder:
        student = load_cross(
            self.base.folder, max_length=self.fit.max_length, head=self.head, seed=seed, device=work.device
        )
        if self.loss == "mse":
            as_logits(student)
        if self.pretrained is not None:
            transplant(AutoModel.from_pretrained(self.pretrained.folder / "model"), student)
        return student

    def _loss(self, student: CrossEncoder) -> losses.LogitLoss:
        return losses.LogitLoss(student, _CROSS_EQUATIONS[self.loss], allow_outside=self.allow_outside)
