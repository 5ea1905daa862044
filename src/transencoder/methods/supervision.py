"""Cross-encoders that learn labelled pairs and teach a bi-encoder (DvBERT, section 2.2)."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset
from scipy.optimize import linear_sum_assignment
from sentence_transformers import CrossEncoder

from transencoder import distributed
from transencoder.encoders import (
    check_cross_start,
    classes_of,
    fetch,
    gives_logits,
    is_cross,
    load_cross,
    load_trained,
    weights_fingerprint,
)
from transencoder.errors import InputError
from transencoder.evaluation import measure
from transencoder.fit import Material, fit, stage_session
from transencoder.losses import ClassCrossEntropyLoss, SoftCrossEntropyLoss
from transencoder.methods.dvbert import DvBERT
from transencoder.methods.labelled import Scored
from transencoder.methods.outcome import TEACHERS
from transencoder.methods.start_bench import Bench
from transencoder.runs import Run, StageRecord, atomic_write_text
from transencoder.scorers import CrossScorer, class_probabilities
from transencoder.wording import plural

logger = logging.getLogger(__name__)

_CODE_VERSION = 1
"""Raised when a change of the code changes what a stage computes."""

_LABELS = "labels.parquet"
_CHUNK = 1 << 13


@dataclass(frozen=True)
class TaughtLabels:
    """What a teacher says of the pairs."""

    record: StageRecord
    """The stage that holds it."""
    model: Path | None
    """The teacher, where it learned the labels in this run; None: it had before."""


def taught_labels(bench: Bench, pairs: Dataset, pairs_key: str) -> list[TaughtLabels]:
    """What each teacher says of the pairs, in stages; teachers that have not learned the labels do so first.

    Raises:
        InputError: A teacher that cannot be had, or with other classes.
    """
    config = bench.config
    assert isinstance(config, DvBERT), "only called for methods with labels"
    learned_teachers(config)  # all of them are looked at before the first is trained
    return [_labels(bench, config, pairs, pairs_key, number) for number in range(1, len(config.teacher) + 1)]


def learned_teachers(config: DvBERT) -> list[bool]:
    """Which teachers have learned these classes, or scores, already, and are taken as they are.

    Args:
        config: With the names of all classes.

    Raises:
        InputError: A teacher that cannot be had or cannot learn them, or with other classes.
    """
    learned = []
    for name in config.teacher:
        folder = _fetched(config, name)
        learned.append(_has_learned(config, folder))
        if not learned[-1]:
            check_cross_start(folder, config.class_names, new_head=config.new_head)
    return learned


def export_teachers(run: Run, labels: Sequence[TaughtLabels], n_gold: int) -> None:
    """Put the teachers that learned the labels here where the user finds them, as cross-encoders.

    Args:
        run: The run, its stages done.
        labels: What `taught_labels` gave.
        n_gold: Pairs that they learned.
    """
    if distributed.rank() != 0:
        return
    unfinished = run.folder / f".tmp-{TEACHERS}"
    shutil.rmtree(unfinished, ignore_errors=True)
    for number, taught in enumerate(labels, 1):
        if taught.model is not None:
            target = unfinished / str(number)
            shutil.copytree(taught.model, target)
            classes = ", ".join(classes_of(target))
            what = f"A cross-encoder that transencoder's `dvbert` trained on {plural(n_gold, 'gold label')}"
            card = f"# Teacher {number}\n\n{what}{f': {classes}' if classes else ''}.\n"
            atomic_write_text(target / "README.md", card)
    shutil.rmtree(run.folder / TEACHERS, ignore_errors=True)
    if unfinished.exists():
        unfinished.rename(run.folder / TEACHERS)


def targets_of(pairs: Dataset, labels: Sequence[TaughtLabels], n_classes: int) -> np.ndarray:
    """What the loss takes as labels: gold, then each teacher's: (n, targets * classes), of scores (n, targets).

    Args:
        pairs: With `label`.
        labels: What `taught_labels` gave.
        n_classes: 0: scores.
    """
    column = pairs.select_columns("label").with_format("arrow")[:]["label"]
    gold: np.ndarray = column.to_numpy().astype(np.float32)
    if not labels:
        return gold
    columns = [np.eye(n_classes, dtype=np.float32)[gold.astype(np.int64)] if n_classes else gold[:, None]]
    return np.concatenate([*columns, *(_read_labels(taught.record.folder / _LABELS) for taught in labels)], axis=1)


def _labels(bench: Bench, config: DvBERT, pairs: Dataset, pairs_key: str, number: int) -> TaughtLabels:
    folder = _fetched(config, config.teacher[number - 1])
    key, learned = weights_fingerprint(folder), None
    if not _has_learned(config, folder):
        trained = _trained(bench, config, pairs, pairs_key, folder, number)
        folder = learned = trained.folder / "model"
        key = trained.key

    def compute(stage: Path) -> dict[str, Any]:
        taught = _said_by(bench, config, folder, pairs)
        if learned is None and _is_unnamed(classes_of(folder)):
            _check_order(config, folder, taught, pairs)
        if distributed.rank() == 0:
            _write_labels(stage / _LABELS, pairs, taught)
        return {}

    record = bench.run.stage(
        f"teacher-{number}/labels",
        config={
            "version": _CODE_VERSION,
            "classes": list(config.class_names),
            "max_length": config.cross.max_length,
            "precision": config.precision,
        },
        inputs=[pairs_key, key],
        compute=compute,
    )
    return TaughtLabels(record, learned)


def _fetched(config: DvBERT, name: str) -> Path:
    return fetch(name, form="cross", token=config.token, cache_folder=config.cache_dir)


def _said_by(bench: Bench, config: DvBERT, folder: Path, pairs: Dataset) -> np.ndarray:
    """What a teacher says of the pairs, each rank asking about its share: (n, classes), of scores (n, 1)."""
    model = load_trained(folder, bench.device, max_length=config.cross.max_length)
    assert isinstance(model, CrossEncoder), "a teacher is one"
    options: Any = {"precision": config.precision, "cache": bench.cache}

    def say(share: Dataset) -> np.ndarray:
        if config.class_names:
            return class_probabilities(model, share, **options)
        scores = CrossScorer(model, as_logit=gives_logits(model), **options).score(share)
        clipped: np.ndarray = np.clip(scores, 0.0, 1.0)  # raw outputs may be anything
        if outside := np.mean(clipped != scores):
            logger.warning("the teacher %s: %.1f %% of its scores lie outside 0 to 1, cut off", folder, 100 * outside)
        return clipped[:, None]

    if distributed.world_size() == 1:
        return say(pairs)
    return distributed.concatenate(say(pairs.shard(distributed.world_size(), distributed.rank(), contiguous=True)))


def _check_order(config: DvBERT, folder: Path, taught: np.ndarray, pairs: Dataset) -> None:
    """Refuse a teacher whose outputs, which have no names, mean the classes in another order, by the gold labels.

    Raises:
        InputError: In another order it agrees with more of them.
    """
    n = len(config.class_names)
    gold = targets_of(pairs, [], 0).astype(np.int64)
    agreed = np.bincount(taught.argmax(1) * n + gold, minlength=n * n).reshape(n, n)
    outputs, classes = linear_sum_assignment(-agreed)
    if agreed[outputs, classes].sum() > agreed.trace():
        order = ", ".join(config.class_names[i] for i in classes)
        raise InputError(
            f"the outputs of the teacher {folder} agree with the labels best in the order {order}; give class_names in "
            "the teacher's order, or new_head, with which it learns the classes in yours"
        )


def _has_learned(config: DvBERT, folder: Path) -> bool:
    """Whether a teacher is a cross-encoder with such outputs already, and is taken as it is.

    Raises:
        InputError: It has other classes.
    """
    if config.new_head:
        return False
    names = classes_of(folder)
    if not names:
        return config.label_kind == "scores" and is_cross(folder)
    if len(names) == len(config.class_names) and (_is_unnamed(names) or _folded(names) == _folded(config.class_names)):
        return True
    wanted = f"the classes {', '.join(config.class_names)}, in this order" if config.class_names else "scores"
    order = "class_names in the teacher's order, or " if config.class_names else ""
    raise InputError(
        f"the teacher {folder} tells apart {', '.join(names)}; what is learned here has {wanted}. Give {order}"
        "new_head, with which it learns these first"
    )


def _folded(names: Sequence[str]) -> list[str]:
    """Published teachers write ENTAILMENT."""
    return [name.casefold() for name in names]


def _is_unnamed(names: tuple[str, ...]) -> bool:
    """Whether a cross-encoder's classes have transformers' names in the place of their own."""
    return bool(names) and all(name == f"LABEL_{number}" for number, name in enumerate(names))


def _trained(bench: Bench, config: DvBERT, pairs: Dataset, pairs_key: str, folder: Path, number: int) -> StageRecord:
    name = f"teacher-{number}/cross-encoder"
    dev = _dev(bench, config)
    return bench.run.stage(
        name,
        config={
            "version": _CODE_VERSION,
            "classes": list(config.class_names),
            "fit": config.cross.outcome,
            "new_head": config.new_head,
            "seed": config.seed,
            "precision": config.precision,
            "n_processes": distributed.world_size(),
        },
        inputs=[pairs_key, weights_fingerprint(folder), "" if dev is None else dev.fingerprint],
        compute=partial(_fit, bench, config, pairs, folder, name),
    )


def _dev(bench: Bench, config: DvBERT) -> Scored | None:
    """What chooses a teacher's checkpoint: it scores pairs as dev does; of classes the last is kept."""
    return bench.data.dev if config.label_kind == "scores" else None


def _fit(bench: Bench, config: DvBERT, pairs: Dataset, start: Path, name: str, folder: Path) -> dict[str, Any]:
    dev = _dev(bench, config)
    session = stage_session(bench.run, config, name, folder, bench.cache)
    model = load_cross(
        start, class_names=config.class_names, seed=session.seed, device=bench.device, new_head=config.new_head
    )

    def metrics(student: Any) -> dict[str, float]:
        assert dev is not None
        return {"dev": measure(CrossScorer(student, precision=config.precision, cache=bench.cache), dev)}

    fitted = fit(
        model,
        ClassCrossEntropyLoss if config.class_names else SoftCrossEntropyLoss,
        Material(pairs=pairs, targets=targets_of(pairs, [], 0)),
        None if dev is None else metrics,
        config.cross,
        session,
    )
    if distributed.rank() == 0:
        model.save_pretrained(str(folder / "model"), create_model_card=False)
    return asdict(fitted)


def _write_labels(path: Path, pairs: Dataset, taught: np.ndarray) -> None:
    """`sentence1`, `sentence2`, gold and what the teacher says: a list of each class's probability, or of the score."""
    text, width = pa.string(), taught.shape[1]
    schema = pa.schema(
        {"sentence1": text, "sentence2": text, "gold": pa.float64(), "label": pa.list_(pa.float32(), width)}
    )
    with pq.ParquetWriter(path, schema) as writer:
        for i in range(0, len(pairs), _CHUNK):
            rows = pairs[i : i + _CHUNK]
            labels = pa.FixedSizeListArray.from_arrays(pa.array(taught[i : i + _CHUNK].reshape(-1)), width)
            texts = {name: rows[name] for name in ("sentence1", "sentence2")}
            writer.write_table(pa.table(texts | {"gold": rows["label"], "label": labels}, schema=schema))


def _read_labels(path: Path) -> np.ndarray:
    column = pq.read_table(path, columns=["label"])["label"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)  # type: ignore[no-any-return]
