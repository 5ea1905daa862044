"""Evaluation of scorers on labelled sets.

The setting is "all": one number over a task's whole concatenated file, never a mean over its subsets. Only a
scorer's `score` is used, so a bi-encoder, a cross-encoder and a mean of several are measured alike. The
paper's released code measures its ensembles differently (the best of four similarities, or a mean of AUCs).
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
from transencoder.scorers import BiScorer, Scorer, finite, score_on_ranks
from transencoder.tasks import Role, Task, expand, load

logger = logging.getLogger(__name__)

_STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-5)
"""Strengths of a classifier's regularisation that are tried, as in SentEval for SICK-E: twice the weight of the squared
norm that is added to the mean loss."""
_MAX_ITERATIONS = 1000


@dataclass(frozen=True)
class LabelledSet:
    """Pairs with gold scores that a scorer is measured on, and the metric."""

    pairs: Dataset
    """Pairs with the gold `score`."""
    metric: str
    """A key of `METRICS` or `RANKING_METRICS`, or `accuracy`."""
    classes: Mapping[Role, Dataset] | None = None
    """Data that a classifier is trained, chosen and measured on, where a classifier is measured."""


def evaluate_tasks(
    scorer: Scorer,
    tasks: str | Task | Iterable[str | Task],
    *,
    metric: str | None = None,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> dict[str, float]:
    """Score the test set of each task once and return the metrics.

    Args:
        scorer: Scorer that gives one score per pair.
        tasks: Names of tasks or suites.
        metric: A key of `METRICS` or `RANKING_METRICS`, for tasks without classes; None: each task's own.
        data_folder: Folder in the hub's layout; None: the folder in `TRANSENCODER_DATA`, or else the hub.
        cache_folder: Folder in which the hub's files and the Arrow files are kept.
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
    """Load the labelled sets that `evaluate_tasks` measures on, by task name; the arguments are the same.

    Raises:
        InputError: unknown task, or data that cannot be read.
    """
    where: dict[str, Any] = {"data_folder": data_folder, "cache_folder": cache_folder, "token": token}
    sets = {}
    for task in expand(tasks):
        if task.metric == "accuracy":
            classes = {role: load(task, role, **where) for role in task.splits}
            sets[task.name] = LabelledSet(classes["test"], task.metric, classes)
        else:
            sets[task.name] = LabelledSet(load(task, "test", **where), metric or task.metric)
    return sets


def measure(scorer: Scorer, labelled: LabelledSet) -> float:
    """Return a scorer's metric on a labelled set, times 100. Raises the same errors as `evaluate`."""
    if labelled.classes is not None:
        return evaluate_classes(scorer, labelled.classes)
    return evaluate(scorer, labelled.pairs, labelled.metric)


def measure_with_scores(scorer: Scorer, labelled: LabelledSet) -> tuple[float, NDArray[np.float32] | None]:
    """Measure a model on a labelled set, each rank on its share; return the metric, times 100, and the scores.

    The scores are float32 (n,), one per pair; None where a classifier is measured.
    """
    if labelled.classes is not None:
        return evaluate_classes(scorer, labelled.classes), None
    scores = finite(score_on_ranks(scorer, _without_gold(labelled.pairs)), labelled.pairs)
    return agreement(labelled.pairs, scores, labelled.metric), scores


def evaluate(scorer: Scorer, dataset: Dataset, metric: str = "spearman") -> float:
    """Measure a scorer on pairs with gold scores.

    Args:
        scorer: Scorer that gives one score per pair.
        dataset: Columns `sentence1`, `sentence2` and the gold `score`. A ranking metric also takes `query`, a number or
            text that the pairs of one query share; without it, pairs with equal `sentence1` are of one query.
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
    """Compute the metric of given scores.

    Args:
        dataset: As in `evaluate`.
        scores: One finite number per pair, shape (n,).
        metric: As in `evaluate`.

    Returns:
        The metric times 100, unrounded.

    Raises:
        InputError: gold or scores that the metric does not accept.
    """
    gold, queries = gold_of(dataset, metric)
    return METRICS[metric](gold, scores) if queries is None else ranking(metric, gold, scores, queries)


def gold_of(dataset: Dataset, metric: str) -> tuple[NDArray[np.float64], NDArray[np.intp] | None]:
    """Return the gold scores of n pairs, (n,), and for a ranking metric the number of each pair's query, (n,)."""
    gold = np.asarray(dataset["score"][:], dtype=np.float64)
    if metric not in RANKING_METRICS:
        return gold, None
    return gold, numbered(dataset["query" if "query" in dataset.column_names else "sentence1"][:])


def evaluate_classes(scorer: Scorer, sets: Mapping[Role, Dataset]) -> float:
    """Train and measure a classifier on a bi-encoder's embeddings: a logistic regression on [u, v, |u - v|, u * v].

    Conneau and Kiela (SentEval, 2018). The strength of regularisation is the best one on dev; the encoder is not
    trained. SentEval differs: it leaves u and v out for SICK-E, has one strength, 1e-9, for SNLI, trains with Adam, and
    stops early. Memory: 32 bytes per row and dimension, and 16 while the classifier is trained.

    Args:
        scorer: A `BiScorer`.
        sets: Data sets `train`, `dev` and `test` with columns `sentence1`, `sentence2` and the class `score`.

    Returns:
        Accuracy on test times 100, in [0, 100]; NaN, with a logged warning, where the scorer has no embeddings.

    Raises:
        InputError: The training rows are all of one class.
    """
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
