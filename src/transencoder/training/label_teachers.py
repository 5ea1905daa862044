"""Cross-encoders that learn labelled pairs and teach a bi-encoder (DvBERT, section 2.2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset
from scipy.optimize import linear_sum_assignment
from sentence_transformers import CrossEncoder

from transencoder import distributed, encoders
from transencoder.configs import Precision
from transencoder.configs.run import LabelledRows, RunConfig
from transencoder.context import (
    Context,
    Model,
    Rows,
    Scored,
    Training,
    Work,
    base_model,
    metrics_of,
    operations,
    trained_model,
)
from transencoder.errors import InputError, plural
from transencoder.fit import Fitted, TrainingData, check_lora, fit
from transencoder.losses import ClassCrossEntropyLoss, LogitLoss
from transencoder.report.words import in_markdown
from transencoder.runs import Cost, Stage, StageRecord, made_of
from transencoder.scorers import class_probabilities
from transencoder.training.parts import fetched

logger = logging.getLogger(__name__)

_LABELS = "labels.parquet"
_CHUNK = 1 << 13


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelTeacher(Training):
    """Training of a cross-encoder on gold labels."""

    pairs: Rows = made_of()
    base: Model = made_of()
    dev: Scored | None = made_of(absent="")
    """Dev set that chooses the checkpoint; None: the last one is kept."""
    classes: tuple[str, ...]
    """Names of the classes that it learns; empty: it learns scores."""
    new_head: bool

    def compute(self, work: Work) -> tuple[CrossEncoder, Fitted]:
        """Train."""
        session = self.session(work)
        model = encoders.load_cross(
            self.base.folder,
            class_names=self.classes,
            seed=session.seed,
            device=work.device,
            new_head=self.new_head,
        )

        fitted = fit(
            model,
            ClassCrossEntropyLoss if self.classes else LogitLoss,
            TrainingData(pairs=self.pairs.data, targets=targets_of(self.pairs.data, [], 0)),
            None
            if self.dev is None
            else lambda student: metrics_of(work.scorer(student, self.precision), self.dev, ()),
            self.fit,
            session,
        )
        return model, fitted

    @property
    def n_trained(self) -> int:
        """Number of pairs."""
        return len(self.pairs.data)

    def cost(self) -> Cost:
        """Return the training's cost."""
        return self.training_cost(self.base.n_parameters, n_checkpoints=2)


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherLabels(Stage[Work]):
    """Labels that a cross-encoder gives to labelled pairs."""

    pairs: Rows = made_of()
    teacher: Model = made_of()
    classes: tuple[str, ...]
    """Names of the classes; empty: it gives scores."""
    max_length: int | None
    precision: Precision

    def compute(self, work: Work) -> np.ndarray:
        """Return the teacher's labels, (n, classes), or (n, 1) for scores; each rank computes its share.

        Raises:
            InputError: The teacher's outputs, which have no names, have the classes in another order.
        """
        folder, pairs = self.teacher.folder, self.pairs.data
        model = encoders.load_trained(folder, work.device, max_length=self.max_length)
        assert isinstance(model, CrossEncoder), "a teacher is one"
        own = range(len(pairs))[distributed.own_rows(len(pairs))]
        share = pairs if len(own) == len(pairs) else pairs.select(own)
        nothing = np.empty((0, max(1, len(self.classes))), np.float32)
        labels = distributed.concatenate(self._said_by(model, share, work) if own else nothing)
        if not self.teacher.cycle and _is_unnamed(encoders.classes_of(folder)):
            _check_order(self.classes, folder, labels, pairs)
        return labels

    def write(self, work: Work, computed: np.ndarray) -> dict[str, Any]:
        """Write texts, gold and the teacher's label, a list: the probability of each class, or one score."""
        text, width = pa.string(), computed.shape[1]
        schema = pa.schema(
            {"sentence1": text, "sentence2": text, "gold": pa.float64(), "label": pa.list_(pa.float32(), width)}
        )
        with pq.ParquetWriter(work.folder / _LABELS, schema) as writer:
            for i in range(0, len(self.pairs.data), _CHUNK):
                rows = self.pairs.data[i : i + _CHUNK]
                labels = pa.FixedSizeListArray.from_arrays(pa.array(computed[i : i + _CHUNK].reshape(-1)), width)
                texts = {name: rows[name] for name in ("sentence1", "sentence2")}
                writer.write_table(pa.table(texts | {"gold": rows["label"], "label": labels}, schema=schema))
        return {}

    def cost(self) -> Cost:
        """Return the cost of scoring the pairs."""
        return Cost(operations=operations(self.teacher.n_parameters, 0, len(self.pairs.data)))

    def _said_by(self, model: CrossEncoder, pairs: Dataset, work: Work) -> np.ndarray:
        if self.classes:
            return class_probabilities(model, pairs, precision=self.precision, cache=work.cache)
        scores = work.scorer(model, self.precision).score(pairs)
        clipped: np.ndarray = np.clip(scores, 0.0, 1.0)  # raw outputs have no range
        if outside := np.mean(clipped != scores):
            logger.warning(
                "the teacher %s: %.1f %% of its scores lie outside 0 to 1, cut off",
                self.teacher.folder,
                100 * outside,
            )
        return clipped[:, None]


def label(context: Context[Any], given: LabelledRows, pairs: Rows) -> tuple[list[StageRecord], dict[int, Model]]:
    """Label the pairs with each teacher; first train the teachers that have not learned the labels.

    Returns:
        The labels of each teacher; and, by number, the teachers that learned the labels in this run.

    Raises:
        InputError: A teacher cannot be loaded, cannot learn the labels, or has other classes.
    """
    config, labels, learned = context.config, [], {}
    folders = [fetched(config, name, "cross") for name in given.teachers]
    are_ready = [_is_ready(given, folder) for folder in folders]  # checks all before one is trained
    for number, (folder, is_ready) in enumerate(zip(folders, are_ready, strict=True), 1):
        model = base_model(folder, f"teacher-{number}", form="cross")
        if not is_ready:
            record = context.make(
                LabelTeacher(
                    name=f"teacher-{number}/cross-encoder",
                    pairs=pairs,
                    base=model,
                    dev=context.data.dev if given.kind == "scores" else None,  # dev has scores, not classes
                    classes=given.class_names,
                    fit=given.teachers_fit,
                    new_head=given.new_head,
                    seed=config.seed,
                    precision=config.precision,
                )
            )
            model = trained_model(record, model)
            learned[number] = model
        stage = TeacherLabels(
            name=f"teacher-{number}/labels",
            pairs=pairs,
            teacher=model,
            classes=given.class_names,
            max_length=given.teachers_fit.max_length,
            precision=config.precision,
        )
        labels.append(context.make(stage))
    return labels, learned


def check_teachers(config: RunConfig, given: LabelledRows) -> None:
    """Raise an error if a cross-encoder cannot be loaded, or reads fewer tokens than the config asks for."""
    for name in given.teachers:
        encoders.check_length(fetched(config, name, "cross"), given.teachers_fit.max_length, "cross.max_length", name)
    if given.teachers and given.teachers_fit.lora_rank:
        check_lora()


def teachers_to_export(learned: Mapping[int, Model], n_gold: int) -> dict[int, tuple[Model, str]]:
    """Return the teachers that learned the labels in this run, by number, each with its model card."""
    found = {}
    for number, model in learned.items():
        classes = in_markdown(", ".join(encoders.classes_of(model.folder)))
        what = f"A cross-encoder that transencoder's `dvbert` trained on {plural(n_gold, 'gold label')}"
        found[number] = model, f"# Teacher {number}\n\n{what}{f': {classes}' if classes else ''}.\n"
    return found


def targets_of(pairs: Dataset, labels: Sequence[StageRecord], n_classes: int) -> np.ndarray:
    """Return the labels for the loss, gold first, then each teacher's.

    The shape is (n, targets * classes), or (n, targets) for scores, where `n_classes` is 0. Without teachers it is
    (n,).
    """
    column = pairs.select_columns("label").with_format("arrow")[:]["label"]
    gold: np.ndarray = column.to_numpy().astype(np.float32)
    if not labels:
        return gold
    columns = [np.eye(n_classes, dtype=np.float32)[gold.astype(np.int64)] if n_classes else gold[:, None]]
    return np.concatenate([*columns, *(_read_labels(record.folder / _LABELS) for record in labels)], axis=1)


def _check_order(classes: Sequence[str], folder: Path, labels: np.ndarray, pairs: Dataset) -> None:
    """Raise an error if, by the gold labels, a teacher's outputs have the classes in another order."""
    n = len(classes)
    gold = targets_of(pairs, [], 0).astype(np.int64)
    agreed = np.bincount(labels.argmax(1) * n + gold, minlength=n * n).reshape(n, n)
    outputs, theirs = linear_sum_assignment(-agreed)
    if agreed[outputs, theirs].sum() > agreed.trace():
        order = ", ".join(classes[i] for i in theirs)
        raise InputError(
            f"the outputs of the teacher {folder} agree with the labels best in the order {order}; give class_names in "
            "the teacher's order, or new_head, with which it learns the classes in yours"
        )


def _is_ready(given: LabelledRows, folder: Path) -> bool:
    """Return whether a teacher is already a cross-encoder with such outputs.

    Raises:
        InputError: It is not, and cannot learn the labels, or has other classes.
    """
    names = () if given.new_head else encoders.classes_of(folder)
    if not names:
        is_ready = not given.new_head and given.kind == "scores" and encoders.is_cross(folder)
        if not is_ready:
            encoders.check_cross_start(folder, given.class_names, new_head=given.new_head)
        return is_ready
    # Published teachers have names such as ENTAILMENT.
    is_named_alike = [name.casefold() for name in names] == [name.casefold() for name in given.class_names]
    if is_named_alike or (len(names) == len(given.class_names) and _is_unnamed(names)):
        return True
    wanted = f"the classes {', '.join(given.class_names)}, in this order" if given.class_names else "scores"
    order = "class_names in the teacher's order, or " if given.class_names else ""
    raise InputError(
        f"the teacher {folder} tells apart {', '.join(names)}; what is learned here has {wanted}. Give {order}"
        "new_head, with which it learns these first"
    )


def _is_unnamed(names: tuple[str, ...]) -> bool:
    """Return whether a cross-encoder's classes have the default names of transformers, `LABEL_0` and so on."""
    return bool(names) and all(name == f"LABEL_{number}" for number, name in enumerate(names))


def _read_labels(path: Path) -> np.ndarray:
    column = pq.read_table(path, columns=["label"])["label"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)  # type: ignore[no-any-return]
