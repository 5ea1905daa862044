"""Ensembles as Trans-Encoder's released code measures them, for parity: not what its paper's text says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transencoder import distributed
from transencoder.cycles import Lab, Model, load, make_scorer, own_first
from transencoder.evaluation import agreement
from transencoder.methods.labelled import Scored
from transencoder.methods.scoring import Metrics
from transencoder.runs import StageRecord
from transencoder.scorers import BiScorer

_CODE_VERSION = 1
"""Raised when a change of the code changes what the similarities are."""

SIMILARITIES = ("cosine", "manhattan", "euclidean", "dot")


def released_metrics(
    lab: Lab, models: Sequence[Model], records: Sequence[StageRecord], sets: dict[str, Scored]
) -> Metrics:
    """Where the released code's metric of an ensemble differs from that of the mean score.

    That is for bi-encoders alone: on binary sets the mean of the members' AUCs; on graded sets the best of four
    similarities, each averaged over the members: a choice made on the test set. For cross-encoders there is no
    difference, and no entry.

    Args:
        lab: What the run works with.
        models: One of each member, all of one form.
        records: Their scores on the sets: what `scoring.score` gave.
        sets: The labelled sets.
    """
    found: Metrics = {}
    if models[0].form != "bi":
        return found
    graded = {name: scored for name, scored in sets.items() if scored.metric == "spearman"}
    for name in sets.keys() - graded.keys():
        values = [record.result[name] for record in records]
        found[name] = None if None in values else float(np.mean(values))
    if not graded:
        return found
    stages = own_first(lab, [model.member for model in models], lambda i: _similarities(lab, models[i], graded))
    for name, scored in graded.items():
        means = np.mean([np.load(stage.folder / f"{name}.npy") for stage in stages], axis=0)
        found[name] = max(agreement(scored.pairs, similarity, scored.metric) for similarity in means)
    return found


def _similarities(lab: Lab, model: Model, sets: dict[str, Scored]) -> StageRecord:
    """Four similarities of the pairs of each set: a stage."""

    def compute(folder: Path) -> dict[str, Any]:
        scorer = make_scorer(lab, load(lab, model), model.prompts)
        assert isinstance(scorer, BiScorer)
        for name, scored in sets.items():
            values = similarities(scorer, scored)
            if distributed.rank() == 0:
                np.save(folder / f"{name}.npy", values)
        return {}

    return lab.run.stage(
        f"similarities/{model.name}",
        config={
            "version": _CODE_VERSION,
            "precision": lab.settings.precision,
            "max_length": None if model.cycle else lab.settings.bi.max_length,
            **model.reading,
            "sets": list(sets),
        },
        inputs=[model.key, *(scored.fingerprint for scored in sets.values())],
        compute=compute,
    )


def similarities(scorer: BiScorer, scored: Scored) -> np.ndarray:
    """Of each pair the cosine, the negative Manhattan and Euclidean distances, and the dot product.

    Args:
        scorer: Embeds the sentences.
        scored: n pairs.

    Returns:
        float64 (4, n), higher meaning more alike, in the order of `SIMILARITIES`.
    """
    pairs = scored.pairs.select_columns(["sentence1", "sentence2"])
    first, second = (np.array(side, np.float64) for side in scorer.embed_sides(pairs))
    dots = np.einsum("ij,ij->i", first, second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    difference = first - second
    return np.stack(
        [
            dots / np.maximum(norms, 1e-12),
            -np.abs(difference).sum(axis=1),
            -np.linalg.norm(difference, axis=1),
            dots,
        ]
    )
