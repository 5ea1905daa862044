"""Stages of an encoder's run: a smaller model, pairs made from text, a teacher's embeddings, the training, sizes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import set_seed

from transencoder.configs import Pooling, Precision
from transencoder.configs.encoder import EncoderConfig
from transencoder.configs.run import Given
from transencoder.context import Model, Rows, Scored, Training, Work, metrics_of, operations
from transencoder.encoders import count_parameters, encoding_speeds, load_bi, prune_vocabulary, truncate
from transencoder.fit import Fitted, TrainingData, fit
from transencoder.models import default_prompt
from transencoder.runs import Cost, Stage, StageRecord, implied, made_of, setting, stage_seed
from transencoder.scorers import BiScorer
from transencoder.selection import uniformity
from transencoder.sharded import embed_sharded
from transencoder.training.label_teachers import targets_of
from transencoder.training.parts import make_loss, projected
from transencoder.views import PairMaker

PAIRS = "pairs.arrow"
"""File with the rows that `Views` makes."""

_EMBEDDINGS = "embeddings.npy"
_TEXTS_AT_ONCE = 1 << 14
_LOOKED_AT = 512
"""Largest number of training texts used to measure whether the embeddings have become all alike."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut(Stage[Work]):
    """A smaller model, with some of the layers or word pieces of a base model."""

    version = 3
    base: Model = made_of()
    texts: Rows | None = made_of()
    """Training text, if word pieces that do not occur in it are removed; else None."""
    layers: tuple[int, ...]
    is_pruned: bool

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write the model."""
        truncated = work.folder / ("truncated" if self.is_pruned else "model")
        for left in (truncated, work.folder / "model"):  # by an interrupted attempt
            shutil.rmtree(left, ignore_errors=True)
        if self.layers:
            truncate(self.base.folder, self.layers, truncated)
        if self.texts is not None:
            rows = self.texts.data
            source = truncated if self.layers else self.base.folder
            prune_vocabulary(source, _texts(rows), len(rows) * len(rows.column_names), work.folder / "model")
            shutil.rmtree(truncated, ignore_errors=True)
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Views(Stage[Work]):
    """Training pairs that are made from text."""

    version = 3
    texts: Rows = made_of()
    maker: PairMaker = setting(repr)
    seed: int

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write the pairs."""
        self.maker(self.texts.data, work.folder / PAIRS, self.seed)
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherEmbeddings(Stage[Work]):
    """A teacher's embeddings of the pairs' distinct sentences.

    The stage does not depend on the student: another run with the same pairs and teacher can reuse it (`reuse_from`).
    """

    version = 3
    pairs: Rows = made_of()
    teacher: Model = made_of(reading=True)
    max_length: int | None
    precision: Precision
    relative_length: float = implied()
    """Number of tokens of a row, relative to a pair of sentences."""

    def compute(self, work: Work) -> None:
        """Embed the sentences into one file; each rank embeds its share."""
        scorer = work.scorer_of(self.teacher, self.max_length, self.precision)
        assert isinstance(scorer, BiScorer), "teachers are bi-encoders"
        tokens = work.cache.sentences(scorer.model, self.pairs.data, scorer.prompt).tokens
        embed_sharded(scorer, tokens, work.folder / _EMBEDDINGS, work.folder / "checkpoints")

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Return an empty result: `compute` has already written the embeddings."""
        return {}

    def cost(self) -> Cost:
        """Return the cost of embedding the one or two texts of each row, and the size of the embeddings."""
        n_rows = len(self.pairs.data) * self.relative_length
        n_bytes = 4 * 2 * n_rows * _width(self.teacher.folder)
        return Cost(
            operations=operations(self.teacher.n_parameters, 0, n_rows), disk_bytes=n_bytes, scratch_bytes=n_bytes
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EncoderTraining(Training):
    """Training of a bi-encoder with a method's loss."""

    version = 6
    pairs: Rows = made_of()
    embeddings: StageRecord | None = made_of()
    """A teacher's embeddings of the pairs' sentences."""
    teachers: tuple[StageRecord, ...] = made_of()
    """Labels of the pairs from each cross-encoder that teaches."""
    base: Model = made_of()
    helpers: tuple[Model, ...] = made_of()
    """Other models that the loss needs."""
    dev: Scored | None = made_of(absent="")
    analysis: tuple[Scored, ...] = made_of()
    """Tests that are scored at each evaluation, but never used to choose a checkpoint."""
    method: str
    settings: Mapping[str, Any]
    """Settings that only this method has."""
    pooling: Pooling | None
    config: EncoderConfig = implied()
    teacher: Path | None = implied()

    def compute(self, work: Work) -> tuple[SentenceTransformer, tuple[Fitted, dict[str, float | None]]]:
        """Train."""
        config, pairs = self.config, self.pairs.data
        session = self.session(work)
        student = work.load(self.base, self.fit.max_length)
        assert isinstance(student, SentenceTransformer), "a bi-encoder is trained"
        before = self._uniformity(student)
        teacher_embeddings = rows = None
        given = Given()
        if self.embeddings is not None:
            teacher_embeddings = np.load(self.embeddings.folder / _EMBEDDINGS, mmap_mode="r")
            rows, texts = self._held_out(work, student)
            given = Given(dimension=teacher_embeddings.shape[1], queue=torch.from_numpy(teacher_embeddings[texts]))
            set_seed(session.seed)  # decides the weights of a new projection
            student = projected(config, student, teacher_embeddings.shape[1])

        def loss(model: SentenceTransformer) -> Any:
            set_seed(session.seed)  # decides the weights of a new projector
            return make_loss(config, model, given)

        has_labels, labels = "label" in pairs.column_names, config.rows.text.labels
        fitted = fit(
            student,
            loss,
            TrainingData(
                pairs=pairs,
                targets=targets_of(pairs, self.teachers, 0 if labels is None else len(labels.class_names))
                if has_labels
                else np.zeros(len(pairs), np.float32),
                rows=rows,
                teacher_embeddings=teacher_embeddings,
            ),
            None
            if self.dev is None
            else lambda model: metrics_of(work.scorer(model, self.precision), self.dev, self.analysis),
            self.fit,
            session,
            candidates=config.candidates,
        )
        return student, (fitted, {"start": before, "bi": self._uniformity(student)})

    def write(self, work: Work, computed: tuple[Any, Any]) -> dict[str, Any]:
        """Save the model."""
        student, (fitted, evenness) = computed
        return super().write(work, (student, fitted)) | {"uniformity": evenness}

    @property
    def n_trained(self) -> int:
        """Number of rows that are trained on."""
        return len(self.pairs.data) - self.config.n_queued

    def cost(self) -> Cost:
        """Return the cost of the encoder, the loss, dev evaluations, and the model and its checkpoint."""
        config, n_rows = self.config, self.n_steps * (self.fit.batch_size or 1)
        n_parameters, n_scored = self.base.n_parameters, self.n_scored(self.dev)
        width, dimension = _width(self.base.folder), None if self.teacher is None else _width(self.teacher)
        own = config.cost(width, dimension)
        encoder = operations(n_parameters, n_rows * config.rows.relative_length, n_scored) * own.relative
        weights = 4 * n_parameters * own.n_encoders
        checkpoint = 4 * weights + 4 * own.loss_state
        return Cost(
            operations=encoder + n_rows * own.loss_operations,
            disk_bytes=weights + 4 * n_parameters * self.n_saved,
            scratch_bytes=2 * checkpoint,  # for a moment there are two
        )

    def _held_out(self, work: Work, student: SentenceTransformer) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the rows to train on (None: all), and the first texts of the others, as ids of distinct sentences."""
        n_held_out, pairs = self.config.n_queued, self.pairs.data
        if not n_held_out:
            return None, np.empty(0, np.int64)
        order = np.random.default_rng(stage_seed(self.seed, "queue")).permutation(len(pairs))
        sentences = work.cache.sentences(student, pairs, default_prompt(student))
        return np.sort(order[n_held_out:]), sentences.index[order[:n_held_out], 0]

    def _uniformity(self, model: SentenceTransformer) -> float | None:
        """Return the uniformity of some training texts' embeddings, from -8 to 0 (all alike); None for one text."""
        pairs = self.pairs.data
        rows = np.unique(np.linspace(0, len(pairs) - 1, _LOOKED_AT).astype(int))
        texts = Dataset.from_dict({"sentence1": list(dict.fromkeys(pairs.select(rows)["sentence1"]))})
        (embeddings,) = BiScorer(model, precision=self.precision).embed_sides(texts)
        return uniformity(embeddings) if len(texts) > 1 else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sizes(Stage[Work]):
    """Parameters, file size and speed of a student, and of its teacher or the model it was cut from."""

    version = 2
    student: Model = made_of()
    other: Model = made_of()
    texts: Rows = made_of()
    sentences: int
    """Number of sentences that both models encode."""
    whose: str = implied()
    """Kind of `other`: `teacher`, or `start` (the model that the student was cut from)."""

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Measure both models, and return the numbers."""
        column = "text" if "text" in self.texts.data.column_names else "sentence1"
        sentences = self.texts.data[: self.sentences][column]
        folders = {"student": self.student.folder, self.whose: self.other.folder}
        models = {name: SentenceTransformer(str(path), device=work.device) for name, path in folders.items()}
        max_length = min(filter(None, [self.student.max_length, self.other.max_length]), default=None)
        for model in models.values() if max_length else ():  # the stage's student reads what training read
            model.max_seq_length = max_length
        speeds = encoding_speeds(models, sentences)
        measured: dict[str, Any] = {
            name: {
                "parameters": count_parameters(path),
                "megabytes": sum(file.stat().st_size for file in path.rglob("*.safetensors")) / 1e6,
                "sentences_a_second": speeds[name],
            }
            for name, path in folders.items()
        }
        return {
            "whose": self.whose,
            "student": measured["student"],
            "other": measured[self.whose],
            "sentences": len(sentences),
            "max_length": max_length,
            "device": work.device,
            "threads": torch.get_num_threads(),
        }


def _texts(rows: Dataset) -> Iterator[list[str]]:
    for i in range(0, len(rows), _TEXTS_AT_ONCE):
        yield from rows[i : i + _TEXTS_AT_ONCE].values()


def _width(folder: Path) -> int:
    return load_bi(folder, device="cpu").get_embedding_dimension() or 0
