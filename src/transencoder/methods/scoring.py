"""What a run's models score on its labelled sets: each set once a model, as stages of the run."""

import math
from collections.abc import Callable, Mapping, Sequence

from transencoder.config import Pooling, Precision
from transencoder.cycles import Lab, Model, load, make_scorer
from transencoder.encoders import load_bi
from transencoder.evaluation import evaluate
from transencoder.inference import uses_bf16
from transencoder.methods.labelled import Scored
from transencoder.runs import Run
from transencoder.scorers import BiScorer, MeanScorer, Scorer
from transencoder.tokens import TokenCache

_CODE_VERSION = 1
"""Raised when a change of the code changes what scoring computes."""

Metrics = dict[str, float | None]
"""Name of a set -> metric times 100; None where it is undefined, for a model that gives all pairs one score."""


def measure(scored: Scored, scorer: Scorer) -> float:
    """The metric times 100; NaN where it is undefined."""
    return evaluate(scorer, scored.pairs, scored.metric)


def score(lab: Lab, model: Model, name: str, sets: dict[str, Scored]) -> Metrics:
    """Metrics of a model on labelled sets, in the run's precision and lengths."""
    conditions = _conditions(lab, model) | {"pooling": model.pooling}
    return score_stage(lab.run, [model], name, conditions, sets, lambda: make_scorer(lab, load(lab, model)))


def score_ensemble(
    lab: Lab, models: Sequence[Model], weights: Sequence[float], name: str, sets: dict[str, Scored]
) -> Metrics:
    """Metrics of the weighted mean of models of one form on labelled sets (paper, section 3: ensemble results)."""
    conditions = _conditions(lab, models[0]) | {
        "pooling": [model.pooling for model in models],
        "weights": list(weights),
    }

    def make() -> Scorer:
        return MeanScorer([make_scorer(lab, load(lab, model)) for model in models], weights)

    return score_stage(lab.run, models, name, conditions, sets, make)


def _conditions(lab: Lab, model: Model) -> dict[str, object]:
    """What decides the scores of a model, be it a start or trained, besides its weights and its pooling."""
    return {
        "precision": lab.settings.precision,
        "max_length": None if model.cycle else lab.settings.bi.max_length,
        "both_orders": lab.settings.label_both_orders and lab.settings.is_symmetric,
    }


def score_start_as_is(
    run: Run,
    start: Model,
    sets: dict[str, Scored],
    cache: TokenCache,
    *,
    max_length: int | None,
    pooling: Pooling | None,
    precision: Precision,
    device: str,
    name: str = "start-as-is",
) -> Metrics | None:
    """Metrics of the start as plain sentence-transformers runs it: in fp32, at its own maximal length.

    A run in bf16 or on shortened texts may make its start look worse than it is; gains are to be counted against the
    better of the two. None where the run takes the start as it is anyway.

    Args:
        run: Keeps the stage.
        start: The model.
        sets: What it is measured on.
        cache: Its tokens.
        max_length: Tokens of a sentence in the run.
        pooling: As in the run.
        precision: As in the run.
        device: Where it runs.
        name: Of the stage, after `scores/`.
    """
    model = load_bi(start.folder, pooling=pooling, device=device)
    own = model.max_seq_length
    is_shortened = max_length is not None and (own is None or max_length < own)
    if not is_shortened and not uses_bf16(device, precision):
        return None
    conditions = {"precision": "fp32", "max_length": None, "pooling": pooling, "both_orders": False}
    return score_stage(run, [start], name, conditions, sets, lambda: BiScorer(model, precision="fp32", cache=cache))


def score_stage(
    run: Run,
    models: Sequence[Model],
    name: str,
    conditions: Mapping[str, object],
    sets: dict[str, Scored],
    make: Callable[[], Scorer],
) -> Metrics:
    """Metrics of a model, or of several together, on labelled sets, a stage of the run.

    Args:
        run: Keeps the stage.
        models: What is measured.
        name: Of the stage, after `scores/`.
        conditions: All that decides the scores besides the models' weights.
        sets: What they are measured on.
        make: Makes the scorer, when there is no such stage yet.
    """
    record = run.stage(
        f"scores/{name}",
        config={"version": _CODE_VERSION, **conditions, "sets": list(sets)},
        inputs=[*(model.key for model in models), *(scored.fingerprint for scored in sets.values())],
        compute=lambda _: _score_all(make(), sets),
    )
    return record.result


def _score_all(scorer: Scorer, sets: dict[str, Scored]) -> Metrics:
    found = {name: measure(scored, scorer) for name, scored in sets.items()}
    return {name: None if math.isnan(value) else value for name, value in found.items()}
