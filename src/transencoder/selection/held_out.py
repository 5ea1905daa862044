"""Pairs on which nothing is trained, and what they say of an encoder without labels."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from datasets import Dataset

from transencoder.evaluation import spearman
from transencoder.scorers import BiScorer, Scorer
from transencoder.selection.criteria import alignment, effective_rank, self_retrieval, uniformity, view_preference
from transencoder.views import WordDeletion

LEAST_PAIRS = 500
"""Of fewer training pairs none can be spared."""

_MOST, _SHARE = 1000, 10
"""Held out is one pair in so many, and no more than so many."""

_SEED = 20_211
"""The same pairs are held out in every run on them: runs that differ in their seed can be compared."""

_DELETED = 0.5
"""Share of the words that a view lacks: with fewer every encoder finds its sentence."""


def held_out_rows(n_pairs: int) -> np.ndarray:
    """Which of n pairs are held out, int64, ascending: a tenth of them, at most 1,000, the same in every run."""
    n_rows = min(_MOST, n_pairs // _SHARE)
    rows: np.ndarray = np.sort(np.random.default_rng(_SEED).choice(n_pairs, n_rows, replace=False))
    return rows


@dataclass(frozen=True)
class HeldOut:
    """Held-out pairs, and a view of each first sentence."""

    rows: np.ndarray
    """int64 (n,): which of the training pairs they are."""
    texts: Dataset
    """n rows: `sentence1`, `sentence2`, and as `sentence3` the first with half of its words."""
    distinct: np.ndarray
    """int64: rows whose first sentence comes for the first time."""

    @property
    def about(self) -> dict[str, float]:
        """What decides, with the pairs, which these are and how they are looked at."""
        return {"n_rows": len(self.rows), "seed": _SEED, "deleted": _DELETED}

    def criteria(self, scorer: Scorer, references: Mapping[str, Sequence[np.ndarray]]) -> dict[str, float]:
        """Every criterion of an encoder, by name; higher is taken to be better.

        Args:
            scorer: The encoder's.
            references: What others say of the pairs, float32 (n,) each, by who they are: `teacher`, `start`, `member`.

        Returns:
            `view_preference`; for bi-encoders what can be said of embeddings too; of the references
            `teacher_agreement` and so on, Spearman's rank correlation times 100, its mean where there are several.
        """
        scores, view_scores = self._scores(scorer)
        found = {"view_preference": view_preference(view_scores, scores)}
        if isinstance(scorer, BiScorer):
            found |= self._of_embeddings(scorer)
        return found | {
            f"{name}_agreement": float(np.mean([spearman(each, scores) for each in theirs]))
            for name, theirs in references.items()
        }

    def _scores(self, scorer: Scorer) -> tuple[np.ndarray, np.ndarray]:
        """Scores of the pairs, and of each first sentence with its view."""
        return scorer.score(self._pairs), scorer.score(self._views)

    @cached_property
    def _pairs(self) -> Dataset:
        return self.texts.select_columns(["sentence1", "sentence2"])

    @cached_property
    def _views(self) -> Dataset:
        return self.texts.select_columns(["sentence1", "sentence3"]).rename_column("sentence3", "sentence2")

    def _of_embeddings(self, scorer: BiScorer) -> dict[str, float]:
        sentences, _, views = (side[self.distinct] for side in scorer.embed_sides(self.texts))
        aligned, uniform = alignment(sentences, views), uniformity(sentences)
        return {
            "self_retrieval": self_retrieval(views, sentences),
            "alignment": -aligned,
            "uniformity": -uniform,
            "alignment_and_uniformity": -aligned - uniform,
            "effective_rank": effective_rank(sentences),
        }


def hold_out(pairs: Dataset, gold: np.ndarray | None = None) -> HeldOut:
    """The held-out pairs of a training set, with their views.

    Args:
        pairs: n training pairs, at least 20 without gold scores.
        gold: float32 (n,), NaN where a pair has no gold score: those that have one are not held out.
    """
    unlabelled = np.arange(len(pairs)) if gold is None else np.flatnonzero(np.isnan(gold))
    rows = unlabelled[held_out_rows(len(unlabelled))]
    texts = pairs.select(rows).select_columns(["sentence1", "sentence2"])
    firsts = texts["sentence1"][:]
    views = WordDeletion(share=_DELETED)(firsts, [random.Random(f"{_SEED} {row}") for row in rows])
    _, distinct = np.unique(np.array(firsts, object), return_index=True)
    return HeldOut(rows, texts.add_column("sentence3", views), np.sort(distinct))
