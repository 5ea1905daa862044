"""Metrics of a run's models on labelled sets, and data for the report: text statistics, gold scores, a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transencoder.configs import Precision
from transencoder.context import Context, Model, Rows, Scored, Work, operations
from transencoder.cycles import CycleContext
from transencoder.devices import uses_bf16
from transencoder.evaluation import agreement, gold_of, measure_with_scores
from transencoder.metrics import defined, spearman
from transencoder.pairs import text_statistics
from transencoder.records import DEV, GOLD, SAMPLE, SAMPLE_FILE, TextStatistics
from transencoder.runs import Cost, Stage, StageRecord, implied, made_of, setting, stage_seed
from transencoder.scorers import BiScorer

Metrics = dict[str, float | None]
"""Name of a set -> metric times 100; None if it is undefined, for a model that gives all pairs the same score."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores(Stage[Work]):
    """A model's metrics on labelled sets, and the scores that they are computed from."""

    model: Model = made_of(reading=True)
    sets: Mapping[str, Scored] = made_of()
    """Labelled sets, by the names of the files that the scores are saved in."""
    precision: Precision
    max_length: int | None
    """Tokens that the model reads of a text or pair; None: its own maximum."""
    both_orders: bool | None = setting(default=None)
    """Whether a cross-encoder scores both orders; None: the run has no cross-encoders."""

    def compute(self, work: Work) -> tuple[Metrics, dict[str, np.ndarray]]:
        """Score every set."""
        both_orders = self.both_orders is True
        scorer = work.scorer_of(self.model, self.max_length, self.precision, both_orders=both_orders)
        found, scores = {}, {}
        for name, scored in self.sets.items():
            found[name], own = measure_with_scores(scorer, scored)
            if own is not None:
                scores[name] = own
        return defined(found), scores

    def write(self, work: Work, computed: tuple[Metrics, dict[str, np.ndarray]]) -> Metrics:
        """Write `NAME.npy` for every set that has one score per pair, and return the metrics."""
        metrics, scores = computed
        for name, values in scores.items():
            np.save(work.folder / f"{name}.npy", values)
        return metrics

    def cost(self) -> Cost:
        """Return the cost of scoring all sets."""
        n_pairs = sum(len(scored.pairs) for scored in self.sets.values())
        return Cost(operations=operations(self.model.n_parameters, 0, n_pairs))


@dataclass(frozen=True, kw_only=True, eq=False)
class Similarities(Stage[Work]):
    """Four similarities of a bi-encoder's embeddings, for the pairs of each set."""

    model: Model = made_of(reading=True)
    sets: Mapping[str, Scored] = made_of()
    precision: Precision
    max_length: int | None

    def compute(self, work: Work) -> dict[str, np.ndarray]:
        """Embed the sentences of every set."""
        scorer = work.scorer_of(self.model, self.max_length, self.precision)
        assert isinstance(scorer, BiScorer), "only bi-encoders are compared so"
        return {name: similarities(scorer, scored) for name, scored in self.sets.items()}

    def write(self, work: Work, computed: dict[str, np.ndarray]) -> dict[str, Any]:
        """Write `NAME.npy`, float64 (4, n), for every set."""
        for name, values in computed.items():
            np.save(work.folder / f"{name}.npy", values)
        return {}


@dataclass(frozen=True)
class Measured:
    """Metrics of a base model and of the best models that were trained from it."""

    tests: Mapping[str, StageRecord] = field(default_factory=dict)
    """Test scores of `start`, of `start_as_is` if these differ, and of each form."""
    dev: Metrics | None = None
    """Dev metric of `start`, and for each form the dev metric that chose the model."""

    @property
    def scores(self) -> dict[str, Metrics]:
        """Test metrics of each model."""
        return {name: record.result for name, record in self.tests.items()}


Models = Mapping[str, Mapping[str, Model]]
"""Prefix of stage names -> a base model, named `start`, and the best model of each form."""


def measured(
    context: Context[Any], models: Models, test_lengths: Mapping[str, int | None] | None = None
) -> list[Measured]:
    """Score the models on the tests, and the base models on dev; models of different prefixes run in parallel.

    `test_lengths` sets another maximal length on the tests than in training, by model: `start`, `bi`, `cross`.
    """
    lengths = test_lengths or {}
    tests = {test.name: test for test in context.data.tests}
    start, *forms = next(iter(models.values()))
    on_tests: list[dict[str, StageRecord]] = [{} for _ in models]
    for name in (start, *forms) if tests else ():
        records = _scored(context, models, name, tests, max_length=lengths.get(name))
        for found, record in zip(on_tests, records, strict=True):
            found[name] = record
        as_is = _bases_as_is(context, models, tests, lengths.get(name)) if name == start else {}
        for i, prefix in enumerate(models):
            on_tests[i] |= {"start_as_is": as_is[prefix]} if prefix in as_is else {}
    if context.data.dev is None:
        return [Measured(each) for each in on_tests]
    on_dev = scored_on_dev(context, models, start)
    for name in () if tests else forms:  # the report computes its intervals from these scores
        scored_on_dev(context, models, name)
    return [
        Measured(found, {name: model.dev for name, model in each.items()} | {start: record.result[DEV]})
        for each, found, record in zip(models.values(), on_tests, on_dev, strict=True)
    ]


def scored_on_dev(context: Context[Any], models: Models, name: str) -> list[StageRecord]:
    """Return the dev scores of the models with a given name."""
    assert context.data.dev is not None, "only called with a dev set"
    return _scored(context, models, name, {DEV: context.data.dev}, folder=f"{DEV}/")


def _scored(
    context: Context[Any],
    models: Models,
    name: str,
    sets: Mapping[str, Scored],
    *,
    folder: str = "",
    max_length: int | None = None,
) -> list[StageRecord]:
    """Return the scores of the models with a given name, in the run's precision."""
    stages = [
        Scores(
            name=f"scores/{folder}{prefix}{name}",
            model=each[name],
            sets=sets,
            precision=context.config.precision,
            max_length=max_length or (None if each[name].cycle else context.max_length),
            both_orders=context.labels_both_orders,
        )
        for prefix, each in models.items()
    ]
    return context.make_all(stages)


def _bases_as_is(
    context: Context[Any], models: Models, sets: Mapping[str, Scored], test_length: int | None
) -> dict[str, StageRecord]:
    """Return, by prefix, the metrics of base models as plain sentence-transformers runs them: in fp32, whole texts.

    A run in bf16 or on shortened texts may make its base model look worse than it is, so gains must be measured from
    the better of the two. Base models that the run uses as they are anyway are left out, and so are language models.
    """
    start, length = next(iter(next(iter(models.values())))), test_length or context.max_length
    stages = {
        prefix: Scores(
            name=f"scores/{prefix}start-as-is",
            model=each[start],
            sets=sets,
            precision="fp32",
            max_length=None,
            both_orders=False,
        )
        for prefix, each in models.items()
        if each[start].form == "bi"
        and (uses_bf16(context.config.device, context.config.precision) or _is_shortened(each[start], length))
    }
    return dict(zip(stages, context.make_all([*stages.values()]), strict=True))


def _is_shortened(model: Model, length: int | None) -> bool:
    return length is not None and (model.max_length is None or length < model.max_length)


def ensemble_metrics(records: Sequence[StageRecord], weights: Sequence[float], sets: Mapping[str, Scored]) -> Metrics:
    """Return the metrics of the weighted mean of scores that stages have saved (paper, section 4)."""
    shares = np.array(weights) / sum(weights)

    def metric(name: str, scored: Scored) -> float:
        if scored.classes is not None:
            return math.nan  # an ensemble has no embeddings
        scores = [np.load(record.folder / f"{name}.npy").astype(np.float64) for record in records]
        return agreement(scored.pairs, np.average(scores, axis=0, weights=shares), scored.metric)

    return defined({name: metric(name, scored) for name, scored in sets.items()})


def released_metrics(
    context: CycleContext, models: Sequence[Model], records: Sequence[StageRecord], sets: Mapping[str, Scored]
) -> Metrics:
    """Return an ensemble's metrics as the released code computes them, where they differ from the mean score's.

    They differ for bi-encoders only. On binary sets the released code takes the mean of the members' AUCs; on graded
    sets it takes the best of four similarities, each averaged over the members, a choice made on the test set.
    Cross-encoders have no entry. This exists for parity with the code: the paper's text says otherwise.
    """
    found: Metrics = {}
    if models[0].form != "bi":
        return found
    graded = {name: scored for name, scored in sets.items() if scored.metric == "spearman"}
    for name in sets.keys() - graded.keys():
        values = [record.result[name] for record in records]
        found[name] = None if None in values else float(np.mean([each for each in values if each is not None]))
    if not graded:
        return found
    stages = context.make_all(
        [
            Similarities(
                name=f"similarities/{model.name}",
                model=model,
                sets=graded,
                precision=context.config.precision,
                max_length=None if model.cycle else context.max_length,
            )
            for model in models
        ]
    )
    for name, scored in graded.items():
        means = np.mean([np.load(stage.folder / f"{name}.npy") for stage in stages], axis=0)
        found[name] = max(agreement(scored.pairs, similarity, scored.metric) for similarity in means)
    return found


def similarities(scorer: BiScorer, scored: Scored) -> np.ndarray:
    """Return each pair's cosine, negative Manhattan and Euclidean distances, and dot product.

    Returns:
        float64 (4, n); higher values mean more similar texts.
    """
    pairs = scored.pairs.select_columns(["sentence1", "sentence2"])
    first, second = (np.array(side, np.float64) for side in scorer.embed_sides(pairs))
    dots = np.einsum("ij,ij->i", first, second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    difference = first - second
    distances = [-np.abs(difference).sum(axis=1), -np.linalg.norm(difference, axis=1)]
    return np.stack([dots / np.maximum(norms, 1e-12), *distances, dots])


_SAMPLE_ROWS = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts(Stage[Work]):
    """Statistics of the training text."""

    rows: Rows = made_of()

    def write(self, work: Work, computed: None) -> Mapping[str, Any]:
        """Return the statistics."""
        return text_statistics(self.rows.data)


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptGold(Stage[Work]):
    """Gold scores of labelled sets, which the report compares with the models' scores to compute intervals."""

    sets: Mapping[str, Scored] = made_of()

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write `NAME.npz` for every set: `gold`, float64 (n,), and `queries` for a ranking."""
        for name, scored in self.sets.items():
            gold, queries = gold_of(scored.pairs, scored.metric)
            arrays = {"gold": gold} if queries is None else {"gold": gold, "queries": queries}
            np.savez(work.folder / f"{name}.npz", **arrays)
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(Stage[Work]):
    """Scores that models give a sample of the training pairs."""

    version = 2
    pairs: Rows = made_of()
    models: Mapping[str, Model] = made_of()
    """Base model, named `start`, that gains are measured from, and the kept model of each form."""
    rows: np.ndarray = setting(len)
    """Row numbers of the sampled pairs, drawn with the seed."""
    seed: int
    both_orders: bool
    max_length: int | None
    """Tokens that a base model reads of a text; None: its own maximum."""
    precision: Precision
    start: Model = implied(reading=True)
    known: Mapping[str, StageRecord] = implied()
    """Stages with the scores of models that have already scored all pairs."""

    def compute(self, work: Work) -> dict[str, Any]:
        """Score the sampled pairs with the models that have not scored them yet."""
        pairs = self.pairs.data.select(self.rows)
        columns: dict[str, Any] = {name: pairs[name][:] for name in ("sentence1", "sentence2")}
        for name, model in self.models.items():
            if name in self.known:
                columns[name] = np.load(self.known[name].folder / "scores.npy", mmap_mode="r")[self.rows]
            else:
                length = None if model.cycle else self.max_length
                scorer = work.scorer_of(model, length, self.precision, both_orders=self.both_orders)
                columns[name] = scorer.score(pairs)
        return {"row": self.rows} | columns

    def write(self, work: Work, computed: dict[str, Any]) -> dict[str, Any]:
        """Write the table, and return each form's rank correlation with `start`, times 100."""
        pq.write_table(pa.table(computed), work.folder / SAMPLE_FILE)
        found = {form: spearman(computed["start"], computed[form]) for form in self.models if form != "start"}
        return {"rows": len(self.rows), "start_agreement": defined(found)}


def keep_texts(context: Context[Any]) -> TextStatistics:
    """Compute the statistics of the training text."""
    return context.make(Texts(name="texts", rows=context.data.rows)).result  # type: ignore[return-value]


def keep_gold(context: Context[Any]) -> None:
    """Save the gold scores of the tests or, if there are none, of dev."""
    data = context.data
    sets = {test.name: test for test in data.tests} or ({} if data.dev is None else {DEV: data.dev})
    ranked = {name: each for name, each in sets.items() if each.classes is None}  # a classifier gives no score per pair
    if ranked:
        context.make(KeptGold(name=GOLD, sets=ranked))


def keep_sample(context: CycleContext, models: Mapping[str, Model]) -> StageRecord:
    """Save the scores that `start` and the best models give up to 2,000 training pairs, drawn with the seed."""
    seed, n_pairs = stage_seed(context.config.seed, SAMPLE), len(context.data.training)
    scored = {name: context.made.get(f"{model.name}/scores") for name, model in models.items()}
    return context.make(
        Sample(
            name=SAMPLE,
            pairs=context.data.rows,
            models=models,
            rows=np.sort(np.random.default_rng(seed).choice(n_pairs, min(n_pairs, _SAMPLE_ROWS), replace=False)),
            seed=seed,
            both_orders=bool(context.labels_both_orders),
            max_length=context.max_length,
            precision=context.config.precision,
            start=models["start"],
            known={name: record for name, record in scored.items() if record is not None},
        )
    )
