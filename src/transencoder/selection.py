"""Choice of the best checkpoint without a dev set: criteria that need no labels, on held-out pairs."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args

import numpy as np
from datasets import Dataset
from jaxtyping import Float

from transencoder.configs import Criterion, Form, Selection
from transencoder.metrics import spearman
from transencoder.pairs import pair_keys, rows_of_pairs
from transencoder.scorers import BiScorer, Scorer, cosines_of
from transencoder.views import WordDeletion

LEAST_PAIRS = 500
"""Number of training pairs below which none are held out to choose checkpoints."""

LEAST_HELD_OUT_FROM = 20
"""Number of training pairs below which none are held out at all: criteria need two pairs."""

_MOST, _SHARE = 1000, 10
"""Maximum number of held-out pairs, and number of training pairs per held-out pair."""

_SEED = 20_211
"""Seed of the choice of held-out pairs. It is the same in every run, so that runs with other seeds can be compared."""

_DELETED = 0.5
"""Share of the words that are deleted in a view; with fewer deleted, every encoder finds the view's sentence."""

_EPSILON = 1e-7
"""Constant that is added to each singular value's share (Garrido et al., equation 1)."""


def criterion_of(form: Form, selection: Selection) -> Criterion | None:
    """Return the criterion that chooses the checkpoints of a form; None: the last one is kept.

    Args:
        form: Form of the student.
        selection: The config's setting; `auto` is the choice with the lowest mean regret.
    """
    if selection == "auto":
        regrets = regrets_of(form)
        selection = min((name for name in get_args(Selection) if name in regrets), key=lambda name: regrets[name])
    return None if selection == "last" else selection  # type: ignore[return-value]


def regrets_of(form: Form) -> dict[str, float]:
    """Return mean regrets over runs: by how many points of dev the chosen checkpoint of a run is below its best one.

    Args:
        form: Form of the students.

    Returns:
        Regret of each criterion, of the `last` checkpoint, and as `left_out` that of the criterion that was best on the
        runs of other base models. benchmarks/selection.py measured them.
    """
    found: dict[str, float] = _measured()[form]
    return found


def measured_on() -> tuple[int, int]:
    """Return how many runs and how many base models the regrets were measured on."""
    return _measured()["runs"], _measured()["starts"]


@cache
def _measured() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((files("transencoder") / "regrets.json").read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class HeldOut:
    """Held-out pairs, and a view of each first sentence."""

    rows: np.ndarray
    """Row number of each pair in the training pairs, int64 (n,)."""
    texts: Dataset
    """n rows with `sentence1`, `sentence2`, and as `sentence3` the first sentence with half of its words."""
    distinct: np.ndarray
    """Rows in which a first sentence occurs for the first time, int64."""
    untrained: np.ndarray
    """Row numbers that are not trained on: `rows`, and those with the same two texts in either order, int64."""

    @property
    def about(self) -> dict[str, float]:
        """Numbers that, with the training pairs, determine the held-out pairs and their views."""
        n_copies = len(self.untrained) - len(self.rows)
        about = {"n_rows": len(self.rows), "seed": _SEED, "deleted": _DELETED}
        return about | ({"n_copies": n_copies} if n_copies else {})

    def criteria(self, scorer: Scorer, references: Mapping[str, Sequence[np.ndarray]]) -> dict[str, float]:
        """Compute every criterion of an encoder, by name; higher is assumed to be better.

        Args:
            scorer: Scorer of the encoder.
            references: Other scores of the pairs, float32 (n,) each, by their origin: `teacher`, `start`, `member`.

        Returns:
            `view_preference`; for bi-encoders also the criteria of embeddings; and for each origin of references its
            agreement, such as `teacher_agreement`: Spearman's rank correlation times 100, or the mean of several.
        """
        with_views = self.texts.select_columns(["sentence1", "sentence3"]).rename_column("sentence3", "sentence2")
        of_embeddings = {}
        if isinstance(scorer, BiScorer):
            sides, every = scorer.embed_sides(self.texts), np.arange(len(self.rows))
            as_second = sides[2] if scorer.document_prompt == scorer.prompt else scorer.embed_sides(with_views)[1]
            scores, view_scores = (
                cosines_of([(sides[0], every), (second, every)], slice(0, len(every)))
                for second in (sides[1], as_second)
            )
            sentences, _, views = (side[self.distinct] for side in sides)
            aligned, uniform = alignment(sentences, views), uniformity(sentences)
            of_embeddings = {
                "self_retrieval": self_retrieval(views, sentences),
                "alignment": -aligned,
                "uniformity": -uniform,
                "alignment_and_uniformity": -aligned - uniform,
                "effective_rank": effective_rank(sentences),
            }
        else:
            scores = scorer.score(self.texts.select_columns(["sentence1", "sentence2"]))
            view_scores = scorer.score(with_views)
        agreements = {
            f"{name}_agreement": float(np.mean([spearman(each, scores) for each in theirs]))
            for name, theirs in references.items()
        }
        return {"view_preference": view_preference(view_scores, scores)} | of_embeddings | agreements


def hold_out(pairs: Dataset, gold: np.ndarray | None = None) -> HeldOut:
    """Choose the held-out pairs of a training set, and make their views.

    A tenth of the pairs is held out, at most 1,000, and the same in every run.

    Args:
        pairs: n training pairs, at least `LEAST_HELD_OUT_FROM` of them without gold scores.
        gold: float32 (n,), NaN where a pair has no gold score. Pairs with a gold score are not held out.
    """
    unlabelled = np.arange(len(pairs)) if gold is None else np.flatnonzero(np.isnan(gold))
    n_rows = min(_MOST, len(unlabelled) // _SHARE)
    rows = unlabelled[np.sort(np.random.default_rng(_SEED).choice(len(unlabelled), n_rows, replace=False))]
    texts = pairs.select(rows).select_columns(["sentence1", "sentence2"])
    firsts = texts["sentence1"][:]
    views = WordDeletion(share=_DELETED)(firsts, [random.Random(f"{_SEED} {row}") for row in rows])
    _, distinct = np.unique(np.array(firsts, object), return_index=True)
    copies = rows_of_pairs(pairs, pair_keys(texts, both_orders=True) - {("", "")})  # a plan's pairs have no texts
    untrained = np.union1d(rows, copies).astype(np.int64)
    return HeldOut(rows, texts.add_column("sentence3", views), np.sort(distinct), untrained)


def unit_vectors(embeddings: np.ndarray) -> np.ndarray:
    """Normalise embeddings, (n, dim), to unit length; zero vectors stay zero."""
    unit: np.ndarray = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    return unit


def self_retrieval(views: Float[np.ndarray, "n dim"], sentences: Float[np.ndarray, "n dim"]) -> float:
    """Compute the mean reciprocal rank at which a view finds its sentence among all sentences, by cosine.

    Ties have their mean rank, so that an encoder whose embeddings are all the same finds nothing.

    Args:
        views: Embeddings of one view of each sentence.
        sentences: Embeddings of the sentences, all of them different texts.

    Returns:
        The mean times 100, above 0 and up to 100.
    """
    cosines = unit_vectors(views) @ unit_vectors(sentences).T
    own = np.diag(cosines)[:, None]
    ranks = 1.0 + (cosines > own).sum(1) + ((cosines == own).sum(1) - 1) / 2
    return 100.0 * float(np.mean(1.0 / ranks))


def view_preference(view_scores: Float[np.ndarray, " n"], pair_scores: Float[np.ndarray, " n"]) -> float:
    """Measure how often a sentence is more like a view of itself than like the sentence that it is paired with.

    Args:
        view_scores: Scores of each sentence and its view.
        pair_scores: Scores of each sentence and the other sentence of its pair.

    Returns:
        The share times 100, in [0, 100]; ties count half.
    """
    return 100.0 * float(np.mean((view_scores > pair_scores) + 0.5 * (view_scores == pair_scores)))


def alignment(sentences: Float[np.ndarray, "n dim"], views: Float[np.ndarray, "n dim"]) -> float:
    """Compute the mean squared distance of a sentence and its view on the unit sphere, in [0, 4]; lower is closer.

    Wang and Isola (ICML 2020), section 4.1.1, with their exponent 2.
    """
    return float(((unit_vectors(sentences) - unit_vectors(views)) ** 2).sum(1).mean())


def uniformity(sentences: Float[np.ndarray, "n dim"]) -> float:
    """Compute the logarithm of the mean Gaussian potential of all pairs, in [-8, 0]; lower is more evenly spread.

    Wang and Isola (ICML 2020), section 4.1.2, with their t of 2.

    Args:
        sentences: Embeddings of at least two sentences.
    """
    rows = unit_vectors(sentences)
    above = np.triu_indices(len(rows), 1)
    squared = 2.0 - 2.0 * (rows @ rows.T)[above]
    return float(np.log(np.mean(np.exp(-2.0 * squared))))


def effective_rank(sentences: Float[np.ndarray, "n dim"]) -> float:
    """Count the directions that embeddings use: the exponential of the entropy of their singular values (RankMe).

    Garrido et al. (ICML 2023), equation 1.

    Returns:
        At least 1, at most the lower of n and dim.
    """
    values = np.linalg.svd(sentences.astype(np.float64), compute_uv=False)
    shares = values / max(values.sum(), _EPSILON) + _EPSILON
    return float(np.exp(-(shares * np.log(shares)).sum()))
