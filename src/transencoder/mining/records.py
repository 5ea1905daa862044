"""What mining did, as it stands in a run's record."""

import numpy as np

from transencoder.mining.candidates import SOURCES, Candidates
from transencoder.mining.choice import Strata
from transencoder.mining.distinct import Distinct
from transencoder.mining.neighbours import is_exact
from transencoder.mining.piles import Piles
from transencoder.records import MiningRecord, MixRecord, PileRecord


def record_of(piles: Piles, n_near: int, found: Candidates, strata: Strata, chosen: np.ndarray) -> MiningRecord:
    """The counts of a mining.

    Args:
        piles: Where the sentences lie.
        n_near: Near duplicates among the candidates.
        found: The candidates.
        strata: Of the candidates' scores.
        chosen: Rows of the candidates.
    """
    pairs = found.take(chosen)
    sides = [pairs.first, pairs.second]
    record: MiningRecord = {
        "sentences": _pile_record(piles.first, n_near if piles.are_one else 0),
        "paired_sentences": len(np.unique(np.concatenate(sides) if piles.are_one else pairs.first)),
        "mix": _mix(found, pairs),
        "histogram": {
            "edges": strata.edges.tolist(),
            "candidates": strata.counts(),
            "pairs": strata.counts(chosen),
        },
        "exact_search": is_exact(piles.second),
    }
    if not piles.are_one:
        record["documents"] = _pile_record(piles.second, 0)
        record["near_duplicate_pairs"] = n_near
    return record


def _pile_record(pile: Distinct, n_near: int) -> PileRecord:
    return {
        "rows": len(pile) + pile.n_exact + pile.n_alike,
        "exact_duplicates": pile.n_exact,
        "near_duplicates": pile.n_alike + n_near,
    }


def _mix(found: Candidates, pairs: Candidates) -> dict[str, MixRecord]:
    counts = [np.bincount(each.source, minlength=len(SOURCES)).tolist() for each in (found, pairs)]
    return {
        source: {"candidates": n_found, "pairs": n_pairs}
        for source, n_found, n_pairs in zip(SOURCES, *counts, strict=True)
    }
