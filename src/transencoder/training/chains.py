"""What the members of a Trans-Encoder run came to: their best models, what these are worth, alone and together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transencoder.configs import Form
from transencoder.context import Model
from transencoder.cycles import CycleContext, base_criteria
from transencoder.records import DEV, EnsembleRecord, MemberRecord, PretrainingRecord
from transencoder.runs import StageRecord
from transencoder.training.result import MEMBERS, analysis_of, best_records, cycle_records
from transencoder.training.scoring import Metrics, ensemble_metrics, released_metrics, score_base_as_is, scores_stage


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One member's models, cycle by cycle, or those of members in turn, and what these are worth."""

    start: Model
    """What the gains are over: the member's base model; of members in turn the one that is best on dev."""
    prefix: str
    """Of the names of its stages."""
    weight: float
    """The member's share in the ensemble."""
    cycles: list[dict[Form, Model]]
    tests: dict[str, StageRecord] = field(default_factory=dict)
    """The base model's, the base model's as it is, and the forms' scores on the tests."""
    dev: Metrics | None = None
    criteria: dict[str, dict[str, float | None]] | None = None
    """What pairs say without labels of the base model, and, where they are held out, of the kept models."""
    pretraining: PretrainingRecord | None = None
    """Of the kept cross-encoder's base model."""

    @property
    def best(self) -> dict[Form, Model]:
        """Of each form the highest on dev or by what chose it, the earliest of equals; the last where nothing did."""
        return {form: _best([models[form] for models in self.cycles]) for form in self.cycles[0]}

    @property
    def scores(self) -> dict[str, Metrics]:
        """Test metrics."""
        return {name: record.result for name, record in self.tests.items()}

    def model(self, name: str) -> Model:
        """Return `start`, or the best model of a form."""
        return self.start if name == "start" else self.best[name]  # type: ignore[index]


def measured_chains(context: CycleContext, cycles: list[list[Model]]) -> list[Chain]:
    """Return one chain for each member, or a single one for members in turn, with what its models are worth."""
    chains = _chains(context, cycles)
    criteria = base_criteria(context, [context.members[chain.start.member] for chain in chains])
    tests, devs = _on_tests(context, chains), _dev_metrics(context, chains)
    measured = []
    for chain, record, scored, dev in zip(chains, criteria, tests, devs, strict=True):
        held_out = {form: model.criteria for form, model in chain.best.items() if model.criteria}
        known = None if record is None else {"start": record.result} | held_out
        pretraining = _pretraining(context, chain.best.get("cross"))
        measured.append(replace(chain, tests=scored, dev=dev, criteria=known, pretraining=pretraining))
    return measured


def best_chain(chains: Sequence[Chain]) -> int:
    """Return the chain whose bi-encoder is best on dev, the first of equals; the first where there is no dev metric."""
    devs = [-math.inf if chain.best["bi"].dev is None else chain.best["bi"].dev for chain in chains]
    return devs.index(max(devs))


def member_record(chain: Chain, *, is_analysed: bool) -> MemberRecord:
    """Return one of several members for result.json; `is_analysed`: the tests were scored at each evaluation too."""
    record: MemberRecord = {
        "cycles": cycle_records(chain.cycles),
        "best": best_records(chain.best, f"{MEMBERS}/{chain.start.member + 1}/"),
        "dev": chain.dev,
        "scores": chain.scores,
        "analysis": analysis_of(chain.cycles) if is_analysed else None,
    }
    if chain.pretraining is not None:
        record["pretraining"] = chain.pretraining
    if chain.criteria is not None:
        record["criteria"] = chain.criteria
    return record


def ensemble_of(context: CycleContext, chains: Sequence[Chain]) -> EnsembleRecord:
    """Return the metrics of the members' weighted mean: of their base models, and of the best models of each form."""
    weights, tests = [chain.weight for chain in chains], {test.name: test for test in context.data.tests}
    scores = {}
    for name in dict.fromkeys(name for chain in chains for name in chain.tests):
        records = [chain.tests.get(name) or chain.tests["start"] for chain in chains]  # the base model is as it is
        scores[name] = ensemble_metrics(records, weights, tests)
        if context.config.ensemble_metric == "released" and name != "start_as_is":
            models = [chain.model(name) for chain in chains]
            scores[name] |= released_metrics(context, models, records, tests)
    if context.data.dev is None:
        return {"dev": None, "scores": scores}
    dev: Metrics = {}
    for name in ("start", *chains[0].best):
        records = _on_dev(context, chains, name)
        dev[name] = ensemble_metrics(records, weights, {DEV: context.data.dev})[DEV]
    return {"dev": dev, "scores": scores}


def _chains(context: CycleContext, cycles: list[list[Model]]) -> list[Chain]:
    """Return the chains, not yet measured."""
    forms = [[{model.form: model for model in cycle if model.member == i} for cycle in cycles] for i in _all(context)]
    chains = [
        Chain(start=member.bi, prefix=member.prefix, weight=member.weight, cycles=own)
        for member, own in zip(context.members, forms, strict=True)
    ]
    if not context.config.alternate_members:
        return chains
    start = _best_base(context, chains)
    in_turn = [{model.form: model for model in cycle} for cycle in cycles]
    return [Chain(start=start, prefix="", weight=context.members[start.member].weight, cycles=in_turn)]


def _all(context: CycleContext) -> range:
    return range(len(context.members))


def _best_base(context: CycleContext, chains: Sequence[Chain]) -> Model:
    """Return the base model that is best on dev, the first of equals; the first without dev."""
    if context.data.dev is None:
        return chains[0].start
    devs = [record.result[DEV] for record in _on_dev(context, chains, "start")]
    known = [-math.inf if value is None else value for value in devs]
    return chains[known.index(max(known))].start


def _pretraining(context: CycleContext, cross: Model | None) -> PretrainingRecord | None:
    """Return the masked language modelling before a cross-encoder's training, where there was any."""
    record = None if cross is None else context.members[cross.member].pretrained
    return None if record is None else {"steps": record.result["n_steps"], "losses": record.result["losses"]}


def _on_tests(context: CycleContext, chains: Sequence[Chain]) -> list[dict[str, StageRecord]]:
    """Return the scores of each chain's base model, of this as it is, and of its best models on the tests."""
    tests = {test.name: test for test in context.data.tests}
    if not tests:
        return [{} for _ in chains]
    starts = context.make_all([scores_stage(context, each.start, f"{each.prefix}start", tests) for each in chains])
    found = []
    for chain, record in zip(chains, starts, strict=True):
        as_is = score_base_as_is(context, chain.start, f"{chain.prefix}start-as-is", tests)
        found.append({"start": record} | ({} if as_is is None else {"start_as_is": as_is}))
    for form in chains[0].best:
        longer = context.config.cross_test_length if form == "cross" else None
        stages = [scores_stage(context, each.best[form], f"{each.prefix}{form}", tests, longer) for each in chains]
        for scored, record in zip(found, context.make_all(stages), strict=True):
            scored[form] = record
    return found


def _dev_metrics(context: CycleContext, chains: Sequence[Chain]) -> list[Metrics | None]:
    """Return the dev metric of each chain's base model, and of each form the one that chose it."""
    if context.data.dev is None:
        return [None for _ in chains]
    starts = _on_dev(context, chains, "start")
    if not context.data.tests:  # the report's intervals are drawn from these scores
        for form in chains[0].best:
            _on_dev(context, chains, form)
    return [
        {"start": record.result[DEV]} | {form: model.dev for form, model in chain.best.items()}
        for chain, record in zip(chains, starts, strict=True)
    ]


def _on_dev(context: CycleContext, chains: Sequence[Chain], name: str) -> list[StageRecord]:
    """Return the dev scores of each chain's base model, or of its best model of a form."""
    assert context.data.dev is not None, "only called with a dev set"
    sets = {DEV: context.data.dev}
    stages = [scores_stage(context, each.model(name), f"{DEV}/{each.prefix}{name}", sets) for each in chains]
    return context.make_all(stages)


def _best(models: list[Model]) -> Model:
    measured = [model for model in models if model.best is not None]
    return max(measured, key=lambda model: model.best or 0.0) if measured else models[-1]
