"""What a run keeps for its report besides models and metrics: its text in numbers, the tests' gold, a scored sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transencoder.configs import Form, Precision
from transencoder.context import Context, Model, Rows, Scored, Work
from transencoder.cycles import CycleContext
from transencoder.evaluation import gold_of, spearman
from transencoder.pairs import text_statistics
from transencoder.records import DEV, GOLD, SAMPLE, SAMPLE_FILE, TextStatistics
from transencoder.runs import Stage, StageRecord, implied, made_of, setting, stage_seed

_SAMPLE_ROWS = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts(Stage[Work]):
    """The training text in numbers."""

    rows: Rows = made_of()

    def write(self, work: Work, computed: None) -> Mapping[str, Any]:
        """Return the statistics."""
        return text_statistics(self.rows.data)


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptGold(Stage[Work]):
    """The gold scores of labelled sets, beside the models' scores: what the report's intervals are drawn from."""

    sets: Mapping[str, Scored] = made_of()

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write `NAME.npz` of every set: `gold`, float64 (n,), and of a ranking `queries`."""
        for name, scored in self.sets.items():
            gold, queries = gold_of(scored.pairs, scored.metric)
            arrays = {"gold": gold} if queries is None else {"gold": gold, "queries": queries}
            np.savez(work.folder / f"{name}.npz", **arrays)
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(Stage[Work]):
    """What models say of some training pairs."""

    pairs: Rows = made_of()
    models: Mapping[str, Model] = made_of()
    """`start`, from which gains are counted, and the kept model of each form."""
    rows: np.ndarray = setting(len)
    """Which pairs, drawn with the seed."""
    seed: int
    both_orders: bool
    max_length: int | None
    """Of a base model."""
    precision: Precision
    start: Model = implied(reading=True)
    known: Mapping[str, StageRecord] = implied()
    """Stages with the scores of models that have scored all pairs before."""

    def compute(self, work: Work) -> dict[str, Any]:
        """Score the pairs with the models that have not."""
        pairs = self.pairs.data.select(self.rows)
        columns: dict[str, Any] = {name: pairs[name][:] for name in ("sentence1", "sentence2")}
        for name, model in self.models.items():
            if name in self.known:
                columns[name] = np.load(self.known[name].folder / "scores.npy", mmap_mode="r")[self.rows]
            else:
                encoder = work.load(model, None if model.cycle else self.max_length)
                scorer = work.scorer(encoder, self.precision, prompts=model.prompts, both_orders=self.both_orders)
                columns[name] = scorer.score(pairs)
        return {"row": self.rows} | columns

    def write(self, work: Work, computed: dict[str, Any]) -> dict[str, Any]:
        """Write the table, and return each form's rank correlation with the start, times 100."""
        pq.write_table(pa.table(computed), work.folder / SAMPLE_FILE)
        found = {form: spearman(computed["start"], computed[form]) for form in self.models if form != "start"}
        agreement = {form: None if np.isnan(value) else value for form, value in found.items()}
        return {"rows": len(self.rows), "start_agreement": agreement}


def keep_texts(context: Context[Any]) -> TextStatistics:
    """Count the training text."""
    return context.make(Texts(name="texts", rows=context.data.rows)).result  # type: ignore[return-value]


def keep_gold(context: Context[Any]) -> None:
    """Keep the gold scores of the tests, or, where there are none, of dev."""
    data = context.data
    sets = {test.name: test for test in data.tests} or ({} if data.dev is None else {DEV: data.dev})
    ranked = {name: each for name, each in sets.items() if each.classes is None}  # a classifier gives no score a pair
    if ranked:
        context.make(KeptGold(name=GOLD, sets=ranked))


def keep_sample(context: CycleContext, start: Model, best: Mapping[Form, Model]) -> StageRecord:
    """Keep what models say of up to 2,000 training pairs, drawn with the seed.

    Args:
        context: What the run works with.
        start: What the gains are counted from.
        best: The kept model of each form.
    """
    models = {"start": start, **{str(form): model for form, model in best.items()}}
    seed, n_pairs = stage_seed(context.config.seed, SAMPLE), len(context.data.training)
    scored = {name: context.made.get(f"{model.name}/scores") for name, model in models.items()}
    return context.make(
        Sample(
            name=SAMPLE,
            pairs=context.data.rows,
            models=models,
            rows=np.sort(np.random.default_rng(seed).choice(n_pairs, min(n_pairs, _SAMPLE_ROWS), replace=False)),
            seed=seed,
            both_orders=context.labels_both_orders,
            max_length=context.config.bi.max_length,
            precision=context.config.precision,
            start=start,
            known={name: record for name, record in scored.items() if record is not None},
        )
    )
