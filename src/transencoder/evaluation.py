"""Scorers measured on labelled sets.

The "all" setting: one number over a task's whole concatenated file, never a mean over its subsets. Only a
scorer's `score` is used, so a bi-encoder, a cross-encoder and a mean of several are measured alike. The
paper's released code measures its ensembles otherwise (the best of four similarities, or a mean of AUCs).
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from jaxtyping import Float32
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from transencoder import progress
from transencoder.errors import InputError
from transencoder.metrics import METRICS, RANKING_METRICS, numbered, ranking
from transencoder.scorers import BiScorer, KeptScores, Scorer, finite
from transencoder.tasks import Role, Task, expand, load, load_classes

logger = logging.getLogger(__name__)

_STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-5)
"""Of a classifier's regularisation, SentEval's for SICK-E: twice the squared norm's weight beside the mean loss."""
_MAX_ITERATIONS = 1000


@dataclass(frozen=True)
class LabelledSet:
    """What a scorer is measured on, and how."""

    pairs: Dataset
    """With the gold `score`."""
    metric: str
    """A key of `METRICS` or `RANKING_METRICS`, or `accuracy`."""
    classes: Mapping[Role, Dataset] | None = None
    """Where a classifier is measured: what it is trained, chosen and measured on."""


def evaluate_tasks(
    scorer: Scorer,
    tasks: str | Task | Iterable[str | Task],
    *,
    metric: str | None = None,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> dict[str, float]:
    """Score the test set of each task once and give its metric.

    Args:
        scorer: Gives one score a pair.
        tasks: Names of tasks or suites.
        metric: A key of `METRICS` or `RANKING_METRICS`, for tasks that are not of classes; None: each task's own.
        data_folder: Folder in the hub's layout; without it `TRANSENCODER_DATA`, then the hub.
        cache_folder: Where the hub's files and the Arrow files are kept.
        token: Hub token.

    Returns:
        Task name -> metric times 100, in the order of the tasks.

    Raises:
        InputError: unknown task, or scores that cannot be measured.
    """
    sets = load_sets(tasks, metric=metric, data_folder=data_folder, cache_folder=cache_folder, token=token)
    return {name: measure(scorer, labelled) for name, labelled in sets.items()}


def load_sets(
    tasks: str | Task | Iterable[str | Task],
    *,
    metric: str | None = None,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> dict[str, LabelledSet]:
    """Load what `evaluate_tasks`, whose arguments these are, measures on: task name -> labelled set.

    Raises:
        InputError: unknown task, or data that cannot be read.
    """
    where: dict[str, Any] = {"data_folder": data_folder, "cache_folder": cache_folder, "token": token}
    sets = {}
    for task in expand(tasks):
        if task.metric == "accuracy":
            classes = load_classes(task, **where)
            sets[task.name] = LabelledSet(classes["test"], task.metric, classes)
        else:
            sets[task.name] = LabelledSet(load(task, "test", **where), metric or task.metric)
    return sets


def measure(scorer: Scorer, labelled: LabelledSet) -> float:
    """Measure a scorer on a labelled set: the metric times 100. Raises what `evaluate` does."""
    if labelled.classes is not None:
        return evaluate_classes(scorer, labelled.classes)
    return evaluate(scorer, labelled.pairs, labelled.metric)


def evaluate(scorer: Scorer, dataset: Dataset, metric: str = "spearman") -> float:
    """Measure a scorer on scored pairs.

    Args:
        scorer: Gives one score a pair.
        dataset: Columns `sentence1`, `sentence2` and the gold `score`; for a ranking metric `query` too, a number or
            text that pairs of one query share, without which these are the pairs of equal `sentence1`.
        metric: A key of `METRICS` or `RANKING_METRICS`.

    Returns:
        The metric times 100, unrounded.

    Raises:
        InputError: unknown metric, no gold column, or scores that are not finite or not one a pair.
    """
    known = (*METRICS, *RANKING_METRICS)
    if metric not in known:
        raise InputError(f"unknown metric {metric!r}; choose one of: {', '.join(known)}")
    if "score" not in dataset.column_names:
        raise InputError(
            "evaluation needs gold scores in a column `score`; "
            f"this data has {', '.join(dataset.column_names)}. "
            "Name the column that holds them (--score-column)."
        )
    return agreement(dataset, finite(scorer.score(_without_gold(dataset)), dataset), metric)


def agreement(dataset: Dataset, scores: ArrayLike, metric: str) -> float:
    """Measure scores that are there already.

    Args:
        dataset: As in `evaluate`.
        scores: One finite number a pair, shape (n,).
        metric: As in `evaluate`.

    Returns:
        The metric times 100, unrounded.

    Raises:
        InputError: gold or scores that the metric cannot be of.
    """
    gold, queries = gold_of(dataset, metric)
    return METRICS[metric](gold, scores) if queries is None else ranking(metric, gold, scores, queries)


def gold_of(dataset: Dataset, metric: str) -> tuple[NDArray[np.float64], NDArray[np.intp] | None]:
    """Return the gold scores of n pairs, (n,), and for a ranking metric the number of each pair's query, (n,)."""
    gold = np.asarray(dataset["score"][:], dtype=np.float64)
    if metric not in RANKING_METRICS:
        return gold, None
    return gold, numbered(dataset["query" if "query" in dataset.column_names else "sentence1"][:])


def average(scores: Mapping[str, float]) -> float:
    """Return the plain mean over tasks, as the papers' tables have it; NaN where one of them is.

    Raises:
        InputError: no score at all.
    """
    if not scores:
        raise InputError("there is no score to average; name at least one task")
    return float(np.mean(list(scores.values())))


def evaluate_classes(scorer: Scorer, sets: Mapping[Role, Dataset]) -> float:
    """Measure a classifier on a bi-encoder's embeddings, a logistic regression on [u, v, |u - v|, u * v].

    Conneau and Kiela (SentEval, 2018). The strength of regularisation is the one that does best on dev; the encoder is
    not trained. SentEval leaves u and v out for SICK-E, has one strength, 1e-9, for SNLI, trains by Adam, and ends
    early. Memory: 32 bytes for each row and dimension, 16 while the classifier is trained.

    Args:
        scorer: A `BiScorer`, or what keeps the scores of one.
        sets: `train`, `dev` and `test`: columns `sentence1`, `sentence2` and the class `score`.

    Returns:
        Accuracy on test times 100, in [0, 100]; NaN, with a logged warning, where the scorer has no embeddings.

    Raises:
        InputError: Training rows of one class only.
    """
    scorer = scorer.scorer if isinstance(scorer, KeptScores) else scorer
    if not isinstance(scorer, BiScorer):
        logger.warning(
            "a classifier is trained on embeddings, and a cross-encoder or an ensemble has none: no accuracy"
        )
        return float("nan")
    gold = {role: np.asarray(rows["score"][:]).astype(np.int64) for role, rows in sets.items()}
    if len(np.unique(gold["train"])) < 2:
        raise InputError(
            f"the training rows are all of class {gold['train'][0]}; a classifier needs two classes or more"
        )
    features = {role: _features(*scorer.embed_sides(_without_gold(rows))) for role, rows in sets.items()}
    model: Any = LogisticRegression(max_iter=_MAX_ITERATIONS, warm_start=True)
    best, test = -1.0, 0.0
    with progress.task("train classifiers", len(_STRENGTHS)) as advance:
        for strength in _STRENGTHS:
            model.set_params(C=1 / (strength * len(gold["train"])))
            model.fit(features["train"], gold["train"])
            dev = model.score(features["dev"], gold["dev"])
            if dev > best:
                best, test, chosen = dev, model.score(features["test"], gold["test"]), strength
            advance(1)
    logger.info("classifier: strength %g, accuracy on dev %.2f", chosen, 100 * best)
    return 100.0 * float(test)


def _features(first: NDArray[np.float32], second: NDArray[np.float32]) -> Float32[np.ndarray, "pairs features"]:
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)


def _without_gold(dataset: Dataset) -> Dataset:
    return dataset.select_columns(["sentence1", "sentence2"])
