"""What a run's models score on its labelled sets: each set once a model, as stages of the run."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from transencoder import distributed
from transencoder.config import Precision
from transencoder.cycles import Lab, Model, load, make_scorer
from transencoder.encoders import load_bi
from transencoder.evaluation import agreement, measure
from transencoder.inference import uses_bf16
from transencoder.methods.labelled import Scored
from transencoder.runs import Run, StageRecord
from transencoder.scorers import BiScorer, KeptScores, Scorer
from transencoder.tokens import TokenCache

_CODE_VERSION = 1
"""Raised when a change of the code changes what scoring computes."""

Metrics = dict[str, float | None]
"""Name of a set -> metric times 100; None where it is undefined, for a model that gives all pairs one score."""


def score(lab: Lab, model: Model, name: str, sets: dict[str, Scored], max_length: int | None = None) -> StageRecord:
    """Metrics of a model on labelled sets, in the run's precision and lengths: the stage's result.

    Args:
        lab: What the run works with.
        model: What is measured.
        name: Of the stage, after `scores/`.
        sets: What it is measured on.
        max_length: Tokens of a text or pair in the place of a trained model's own.
    """
    conditions = {
        "precision": lab.settings.precision,
        "max_length": max_length if model.cycle else lab.settings.bi.max_length,
        **model.reading,
        "both_orders": lab.settings.label_both_orders and lab.settings.is_symmetric,
    }

    def make() -> Scorer:
        return make_scorer(lab, load(lab, model, max_length), model.prompts)

    return score_stage(lab.run, model, name, conditions, sets, make)


def score_start_as_is(
    run: Run,
    start: Model,
    sets: dict[str, Scored],
    cache: TokenCache,
    *,
    max_length: int | None,
    precision: Precision,
    device: str,
    name: str = "start-as-is",
) -> StageRecord | None:
    """Metrics of the start as plain sentence-transformers runs it: in fp32, at its own maximal length.

    A run in bf16 or on shortened texts may make its start look worse than it is; gains are to be counted against the
    better of the two. None where the run takes the start as it is anyway.

    Args:
        run: Keeps the stage.
        start: The model.
        sets: What it is measured on.
        cache: Its tokens.
        max_length: Tokens of a sentence in the run.
        precision: As in the run.
        device: Where it runs.
        name: Of the stage, after `scores/`.
    """
    model = load_bi(start.folder, pooling=start.pooling, device=device)
    own = model.max_seq_length
    is_shortened = max_length is not None and (own is None or max_length < own)
    if not is_shortened and not uses_bf16(device, precision):
        return None
    conditions = {"precision": "fp32", "max_length": None, **start.reading, "both_orders": False}

    def make() -> Scorer:
        prompts = start.prompts
        return BiScorer(model, precision="fp32", cache=cache, prompt=prompts.query, document_prompt=prompts.document)

    return score_stage(run, start, name, conditions, sets, make)


def score_stage(
    run: Run,
    model: Model,
    name: str,
    conditions: Mapping[str, object],
    sets: dict[str, Scored],
    make: Callable[[], Scorer],
) -> StageRecord:
    """Metrics of a model on labelled sets, a stage of the run, which keeps the scores too.

    Args:
        run: Keeps the stage.
        model: What is measured.
        name: Of the stage, after `scores/`.
        conditions: All that decides its scores besides its weights.
        sets: What it is measured on, by the names of the files that the scores are kept in.
        make: Makes its scorer, when there is no such stage yet.
    """
    return run.stage(
        f"scores/{name}",
        config={"version": _CODE_VERSION, **conditions, "sets": list(sets)},
        inputs=[model.key, *(scored.fingerprint for scored in sets.values())],
        compute=lambda folder: _score_all(make(), sets, folder),
    )


def ensemble_metrics(records: Sequence[StageRecord], weights: Sequence[float], sets: dict[str, Scored]) -> Metrics:
    """Metrics of the weighted mean of scores that stages keep (paper, section 4: the average of the predictions).

    Args:
        records: What `score` gave for each model on these sets.
        weights: Of each model, above 0; normalised.
        sets: The labelled sets.
    """
    shares = np.array(weights) / sum(weights)

    def metric(name: str, scored: Scored) -> float:
        if scored.classes is not None:
            return math.nan  # an ensemble has no embeddings
        scores = [np.load(record.folder / f"{name}.npy").astype(np.float64) for record in records]
        return agreement(scored.pairs, np.average(scores, axis=0, weights=shares), scored.metric)

    return _defined({name: metric(name, scored) for name, scored in sets.items()})


def _score_all(scorer: Scorer, sets: dict[str, Scored], folder: Path) -> Metrics:
    found = {}
    for name, scored in sets.items():
        kept = KeptScores(scorer)
        found[name] = measure(kept, scored)
        if kept.scores and distributed.rank() == 0:
            np.save(folder / f"{name}.npy", kept.scores[-1])
    return _defined(found)


def _defined(found: Mapping[str, float]) -> Metrics:
    """None in the place of NaN, which JSON lacks."""
    return {name: None if math.isnan(value) else value for name, value in found.items()}
