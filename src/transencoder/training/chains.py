"""Results of the members of a Trans-Encoder run: their best models, and the metrics of each and of the ensemble."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transencoder.configs import Form
from transencoder.context import Model
from transencoder.cycles import CycleContext, base_criteria
from transencoder.records import DEV, EnsembleRecord, MemberRecord, PretrainingRecord
from transencoder.training.result import MEMBERS, analysis_of, best_records, cycle_records
from transencoder.training.scoring import Measured, Metrics, ensemble_metrics, measured, released_metrics, scored_on_dev


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Models of one member, or of members that alternate, cycle by cycle, and their metrics."""

    start: Model
    """Base model that gains are measured from: the member's; if members alternate, the one that is best on dev."""
    prefix: str
    """Prefix of the names of its stages."""
    cycles: list[dict[Form, Model]]
    measured: Measured = field(default_factory=Measured)
    criteria: dict[str, dict[str, float | None]] | None = None
    """Criteria without labels, computed on pairs: of the base model and, if pairs are held out, of the kept models."""
    pretraining: PretrainingRecord | None = None
    """Record of the pretraining of the kept cross-encoder's base model."""

    @property
    def best(self) -> dict[Form, Model]:
        """Best model of each form: the earliest with the highest dev metric or criterion; the last if nothing chose."""
        return {form: _best([models[form] for models in self.cycles]) for form in self.cycles[0]}

    @property
    def models(self) -> dict[str, Model]:
        """Base model, named `start`, and the best model of each form."""
        return {"start": self.start} | {str(form): model for form, model in self.best.items()}


def measured_chains(context: CycleContext, cycles: list[list[Model]]) -> list[Chain]:
    """Return one chain for each member, or a single one if members alternate, with the metrics of its models."""
    chains = _chains(context, cycles)
    criteria = base_criteria(context, [context.members[chain.start.member] for chain in chains])
    worth = measured(context, _models(chains), {"cross": context.config.cross_test_length})
    found = []
    for chain, record, each in zip(chains, criteria, worth, strict=True):
        held_out = {form: model.criteria for form, model in chain.best.items() if model.criteria}
        known = None if record is None else {"start": record.result} | held_out
        pretraining = _pretraining(context, chain.best.get("cross"))
        found.append(replace(chain, measured=each, criteria=known, pretraining=pretraining))
    return found


def best_chain(chains: Sequence[Chain]) -> int:
    """Return the position of the chain whose bi-encoder is best on dev, the first of equals; 0 without dev metrics."""
    devs = [-math.inf if chain.best["bi"].dev is None else chain.best["bi"].dev for chain in chains]
    return devs.index(max(devs))


def member_record(chain: Chain, *, is_analysed: bool) -> MemberRecord:
    """Return the record of one of several members; `is_analysed`: whether the tests were scored at each evaluation."""
    record: MemberRecord = {
        "cycles": cycle_records(chain.cycles),
        "best": best_records(chain.best, f"{MEMBERS}/{chain.start.member + 1}/"),
        "dev": chain.measured.dev,
        "scores": chain.measured.scores,
        "analysis": analysis_of(chain.cycles) if is_analysed else None,
    }
    if chain.pretraining is not None:
        record["pretraining"] = chain.pretraining
    if chain.criteria is not None:
        record["criteria"] = chain.criteria
    return record


def ensemble_of(context: CycleContext, chains: Sequence[Chain]) -> EnsembleRecord:
    """Return the metrics of the members' weighted mean score, for the base models and the best models of each form."""
    weights = [context.members[chain.start.member].config.weight for chain in chains]
    tests = {test.name: test for test in context.data.tests}
    tested, scores = [chain.measured.tests for chain in chains], {}
    for name in dict.fromkeys(name for each in tested for name in each):
        records = [each.get(name) or each["start"] for each in tested]  # no `start_as_is`: `start` is scored as it is
        scores[name] = ensemble_metrics(records, weights, tests)
        if context.config.ensemble_metric == "released" and name != "start_as_is":
            models = [chain.models[name] for chain in chains]
            scores[name] |= released_metrics(context, models, records, tests)
    if context.data.dev is None:
        return {"dev": None, "scores": scores}
    dev: Metrics = {}
    for name in chains[0].models:
        records = scored_on_dev(context, _models(chains), name)
        dev[name] = ensemble_metrics(records, weights, {DEV: context.data.dev})[DEV]
    return {"dev": dev, "scores": scores}


def _chains(context: CycleContext, cycles: list[list[Model]]) -> list[Chain]:
    """Return the chains, without metrics."""
    if context.config.alternate_members:
        start = _best_base(context)
        in_turn = [{model.form: model for model in cycle} for cycle in cycles]
        return [Chain(start=start, prefix="", cycles=in_turn)]
    return [
        Chain(
            start=member.bi,
            prefix=member.prefix,
            cycles=[{model.form: model for model in cycle if model.member == i} for cycle in cycles],
        )
        for i, member in enumerate(context.members)
    ]


def _models(chains: Sequence[Chain]) -> dict[str, dict[str, Model]]:
    return {chain.prefix: chain.models for chain in chains}


def _best_base(context: CycleContext) -> Model:
    """Return the base model that is best on dev, the first of equals; the first one without a dev set."""
    if context.data.dev is None:
        return context.members[0].bi
    records = scored_on_dev(context, {member.prefix: {"start": member.bi} for member in context.members}, "start")
    known = [-math.inf if record.result[DEV] is None else record.result[DEV] for record in records]
    return context.members[known.index(max(known))].bi


def _pretraining(context: CycleContext, cross: Model | None) -> PretrainingRecord | None:
    """Return the record of a cross-encoder's masked language modelling before its training; None if it had none."""
    record = None if cross is None else context.members[cross.member].pretrained
    return None if record is None else {"steps": record.result["n_steps"], "losses": record.result["losses"]}


def _best(models: list[Model]) -> Model:
    known = [model for model in models if model.best is not None]
    return max(known, key=lambda model: model.best or 0.0) if known else models[-1]
