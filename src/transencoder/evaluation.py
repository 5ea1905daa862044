"""Agreement of scores with gold, times 100: Spearman's rank correlation, the area under the ROC curve, rankings.

The "all" setting: one number over a task's whole concatenated file, never a mean over its subsets. Only a
scorer's `score` is used, so a bi-encoder, a cross-encoder and a mean of several are measured alike. The
paper's released code measures its ensembles otherwise (the best of four similarities, or a mean of AUCs).
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from datasets import Dataset
from jaxtyping import Float32
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from transencoder import progress
from transencoder.errors import InputError
from transencoder.ranking import RANKING_METRICS, numbered, ranking
from transencoder.scorers import BiScorer, KeptScores, Scorer
from transencoder.tasks import Role, Task, expand, load, load_classes

logger = logging.getLogger(__name__)

_ROWS_NAMED = 5
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
    scores = np.asarray(scorer.score(_without_gold(dataset)), dtype=np.float64)
    _check_lengths(len(dataset), scores)
    _check_pairs(dataset, scores)
    return agreement(dataset, scores, metric)


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
    return METRICS[metric](gold, scores) if queries is None else ranking(metric, *_checked(gold, scores), queries)


def gold_of(dataset: Dataset, metric: str) -> tuple[NDArray[np.float64], NDArray[np.intp] | None]:
    """Return the gold scores of n pairs, (n,), and for a ranking metric the number of each pair's query, (n,)."""
    gold = np.asarray(dataset["score"][:], dtype=np.float64)
    if metric not in RANKING_METRICS:
        return gold, None
    return gold, numbered(dataset["query" if "query" in dataset.column_names else "sentence1"][:])


def spearman(gold: ArrayLike, scores: ArrayLike) -> float:
    """Compute Spearman's rank correlation of unrounded scores, with mean ranks for ties.

    Args:
        gold: Gold scores on any scale, shape (n,).
        scores: A model's scores on any scale, shape (n,).

    Returns:
        The correlation times 100, in [-100, 100]; NaN, with a logged warning, where one side is all equal.

    Raises:
        InputError: different lengths, fewer than two pairs, or a value that is not finite.
    """
    gold_array, score_array = _checked(gold, scores)
    if len(gold_array) < 2:
        raise InputError(f"Spearman's correlation needs at least 2 pairs, got {len(gold_array)}")
    for name, values in (("gold scores", gold_array), ("model's scores", score_array)):
        if values.min() == values.max():
            message = "the %s of all %d pairs are %s: Spearman's correlation is undefined (nan)"
            logger.warning(message, name, len(values), values[0])
            return float("nan")
    return 100.0 * float(spearmanr(gold_array, score_array).statistic)


def roc_auc(gold: ArrayLike, scores: ArrayLike) -> float:
    """Compute the area under the ROC curve: the chance that a positive pair scores above a negative one.

    Args:
        gold: 0 or 1, shape (n,), both present.
        scores: A model's scores on any scale, shape (n,).

    Returns:
        The area times 100, in [0, 100]; 50 where all scores are equal.

    Raises:
        InputError: different lengths, gold other than both 0 and 1, or a value that is not finite.
    """
    gold_array, score_array = _checked(gold, scores)
    labels = np.unique(gold_array)
    if not np.array_equal(labels, [0.0, 1.0]):
        shown = ", ".join(f"{label:g}" for label in labels[:_ROWS_NAMED])
        raise InputError(f"ROC-AUC needs gold labels 0 and 1, both present; got {shown or 'none'}")
    return 100.0 * float(roc_auc_score(gold_array, score_array))


METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {"spearman": spearman, "roc_auc": roc_auc}


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


_TEXTS: WeakKeyDictionary[Dataset, Dataset] = WeakKeyDictionary()
"""Per data set its texts alone: token caches know rows by their `Dataset`, and a new one would be hashed again."""


def _without_gold(dataset: Dataset) -> Dataset:
    if dataset not in _TEXTS:
        _TEXTS[dataset] = dataset.select_columns(["sentence1", "sentence2"])
    return _TEXTS[dataset]


def _checked(gold: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    gold_array, score_array = np.asarray(gold, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if gold_array.ndim != 1:
        raise InputError(f"gold scores have the shape {gold_array.shape}; one number a pair is needed")
    _check_lengths(len(gold_array), score_array)
    for name, values in (("gold scores", gold_array), ("model's scores", score_array)):
        rows = np.flatnonzero(~np.isfinite(values))
        if len(rows):
            raise InputError(
                f"{len(rows)} of {len(values)} {name} are not finite numbers: rows {_first(rows)} (from 0)"
            )
    return gold_array, score_array


def _check_lengths(n_pairs: int, scores: NDArray[np.float64]) -> None:
    if scores.shape != (n_pairs,):
        raise InputError(
            f"the scores have the shape {scores.shape}; {n_pairs} pairs need one number each, ({n_pairs},)"
        )


def _check_pairs(dataset: Dataset, scores: NDArray[np.float64]) -> None:
    rows = np.flatnonzero(~np.isfinite(scores))
    if not len(rows):
        return
    shown = "; ".join(
        f"row {row}: {dataset[int(row)]['sentence1']!r} / {dataset[int(row)]['sentence2']!r} -> {scores[row]}"
        for row in rows[:_ROWS_NAMED]
    )
    raise InputError(
        f"{len(rows)} of {len(scores)} scores are not finite numbers: {shown}. "
        "Try fp32 instead of a lower precision, and check that the model loads without missing weights."
    )


def _first(rows: NDArray[np.intp]) -> str:
    return ", ".join(str(row) for row in rows[:_ROWS_NAMED]) + (", ..." if len(rows) > _ROWS_NAMED else "")
