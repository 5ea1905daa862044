"""What a run keeps for its report besides models and metrics: its text in numbers, the tests' gold, a scored sample."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transencoder import distributed
from transencoder.config import Form
from transencoder.cycles import Lab, Model, load, make_scorer
from transencoder.evaluation import gold_of, spearman
from transencoder.methods.data import Data
from transencoder.methods.labelled import Scored
from transencoder.pairs import text_statistics
from transencoder.records import DEV, GOLD, SAMPLE, SAMPLE_FILE, TextStatistics
from transencoder.runs import Run, StageRecord, stage_seed

_CODE_VERSION = 1
"""Raised when a change of the code changes what is kept."""

_SAMPLE_ROWS = 2000


def keep_texts(run: Run, data: Data) -> TextStatistics:
    """Count the training text, as a stage."""
    record = run.stage(
        "texts",
        config={"version": _CODE_VERSION},
        inputs=[data.record["fingerprint"]],
        compute=lambda _: text_statistics(data.training) if distributed.rank() == 0 else {},
    )
    return record.result  # type: ignore[return-value]


def keep_gold(run: Run, data: Data) -> None:
    """Keep gold scores beside the models', as a stage: what the report's intervals are drawn from.

    The tests'; dev's where there are none.
    """
    sets = {test.name: test for test in data.tests} or ({} if data.dev is None else {DEV: data.dev})
    ranked = {
        name: each for name, each in sets.items() if each.classes is None
    }  # of a classifier no score a pair is kept
    if ranked:
        run.stage(
            GOLD,
            config={"version": _CODE_VERSION, "sets": list(ranked)},
            inputs=[each.fingerprint for each in ranked.values()],
            compute=lambda folder: _write_gold(ranked, folder),
        )


def keep_sample(lab: Lab, start: Model, best: Mapping[Form, Model]) -> StageRecord:
    """Keep what models say of up to 2,000 training pairs, drawn with the seed, as a stage.

    A model that taught has scored them before; the others score them here.

    Args:
        lab: What the run works with.
        start: What the gains are counted from.
        best: The kept model of each form.

    Returns:
        The stage; `start_agreement` in its result is Spearman's correlation times 100 of each form with the start.
    """
    models = {"start": start, **{str(form): model for form, model in best.items()}}
    seed = stage_seed(lab.settings.seed, SAMPLE)
    n_pairs = len(lab.pairs)
    rows = np.sort(np.random.default_rng(seed).choice(n_pairs, min(n_pairs, _SAMPLE_ROWS), replace=False))
    taught = {name: lab.run.done(f"{model.name}/scores") for name, model in models.items()}

    def compute(folder: Path) -> dict[str, Any]:
        pairs = lab.pairs.select(rows)
        columns: dict[str, Any] = {"row": rows, "sentence1": pairs["sentence1"][:], "sentence2": pairs["sentence2"][:]}
        for name, model in models.items():
            known = taught[name]
            if known is None:
                columns[name] = make_scorer(lab, load(lab, model), model.prompts).score(pairs)
            else:
                columns[name] = np.load(known.folder / "scores.npy", mmap_mode="r")[rows]
        if distributed.rank() == 0:
            pq.write_table(pa.table(columns), folder / SAMPLE_FILE)
        return {"rows": len(rows), "start_agreement": {form: _agreement(columns, form) for form in best}}

    return lab.run.stage(
        SAMPLE,
        config={
            "version": _CODE_VERSION,
            "rows": len(rows),
            "seed": seed,
            "models": list(models),
            "both_orders": lab.settings.label_both_orders and lab.settings.is_symmetric,
            "max_length": lab.settings.bi.max_length,
            **start.reading,
            "precision": lab.settings.precision,
        },
        inputs=[lab.pairs_fingerprint, *(model.key for model in models.values())],
        compute=compute,
    )


def _agreement(columns: Mapping[str, Any], form: Form) -> float | None:
    """None where a model says the same of all pairs."""
    found = spearman(columns["start"], columns[form])
    return None if np.isnan(found) else found


def _write_gold(sets: Mapping[str, Scored], folder: Path) -> dict[str, Any]:
    for name, scored in sets.items() if distributed.rank() == 0 else ():
        gold, queries = gold_of(scored.pairs, scored.metric)
        arrays = {"gold": gold} if queries is None else {"gold": gold, "queries": queries}
        np.savez(folder / f"{name}.npz", **arrays)
    return {}
