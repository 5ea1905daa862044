"""What the members of a Trans-Encoder run came to: their best models, what these are worth, alone and together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transencoder.config import Form
from transencoder.cycles import Lab, Model, own_first, start_criteria
from transencoder.methods.data import Data
from transencoder.methods.outcome import MEMBERS, analysis_of, best_records, cycle_records
from transencoder.methods.released import released_metrics
from transencoder.methods.scoring import Metrics, ensemble_metrics, score, score_start_as_is
from transencoder.records import DEV, EnsembleRecord, MemberRecord, PretrainingRecord
from transencoder.runs import StageRecord


@dataclass(frozen=True)
class Chain:
    """One member's models, cycle by cycle, or those of members in turn, measured."""

    start: Model
    """What the gains are over: the member's start; of members in turn the start that is best on dev."""
    weight: float
    """The member's share in the ensemble."""
    cycles: list[dict[Form, Model]]
    best: dict[Form, Model]
    pretraining: PretrainingRecord | None
    """Of the kept cross-encoder's start."""
    tests: dict[str, StageRecord]
    """The start's, the start's as it is, and the forms' scores on the tests."""
    dev: Metrics | None
    criteria: dict[str, dict[str, float | None]] | None
    """What pairs say without labels of the start, and, where they are held out, of the kept models."""
    analysis: bool
    """Whether the tests were scored at each evaluation too."""

    @property
    def scores(self) -> dict[str, Metrics]:
        """Test metrics."""
        return {name: record.result for name, record in self.tests.items()}

    def model(self, name: str) -> Model:
        """`start`, or the best model of a form."""
        return self.start if name == "start" else self.best[name]  # type: ignore[index]


def chains_of(lab: Lab, data: Data, cycles: list[list[Model]]) -> list[Chain]:
    """One chain for each member, or a single one for members in turn."""
    if lab.settings.alternate_members:
        return [_chain(lab, data, cycles, "", _best_start(lab, data))]

    def chain(i: int) -> Chain:
        return _chain(lab, data, _of_member(cycles, i), lab.members[i].prefix, lab.members[i].bi)

    return own_first(lab, range(len(lab.members)), chain)


def best_chain(chains: Sequence[Chain]) -> int:
    """The chain whose bi-encoder is best on dev, the first of equals; the first where there is no dev metric."""
    devs = [-math.inf if chain.best["bi"].dev is None else chain.best["bi"].dev for chain in chains]
    return devs.index(max(devs))


def member_record(chain: Chain) -> MemberRecord:
    """One of several members for result.json."""
    record: MemberRecord = {
        "cycles": cycle_records(chain.cycles),
        "best": best_records(chain.best, f"{MEMBERS}/{chain.start.member + 1}/"),
        "dev": chain.dev,
        "scores": chain.scores,
        "analysis": analysis_of(chain.cycles) if chain.analysis else None,
    }
    if chain.pretraining is not None:
        record["pretraining"] = chain.pretraining
    if chain.criteria is not None:
        record["criteria"] = chain.criteria
    return record


def ensemble_of(lab: Lab, data: Data, chains: Sequence[Chain]) -> EnsembleRecord:
    """Metrics of the members' weighted mean: of their starts, and of the best models of each form."""
    weights, tests = [chain.weight for chain in chains], {test.name: test for test in data.tests}
    scores = {}
    for name in dict.fromkeys(name for chain in chains for name in chain.tests):
        records = [chain.tests.get(name) or chain.tests["start"] for chain in chains]  # the start is as it is
        scores[name] = ensemble_metrics(records, weights, tests)
        if lab.settings.ensemble_metric == "released" and name != "start_as_is":
            scores[name] |= released_metrics(lab, [chain.model(name) for chain in chains], records, tests)
    if data.dev is None:
        return {"dev": None, "scores": scores}
    dev: Metrics = {}
    for name in ("start", *chains[0].best):
        records = _on_dev(lab, data, [chain.model(name) for chain in chains], name)
        dev[name] = ensemble_metrics(records, weights, {DEV: data.dev})[DEV]
    return {"dev": dev, "scores": scores}


def _of_member(cycles: list[list[Model]], member: int) -> list[list[Model]]:
    return [[model for model in cycle if model.member == member] for cycle in cycles]


def _chain(lab: Lab, data: Data, cycles: list[list[Model]], prefix: str, start: Model) -> Chain:
    rows: list[dict[Form, Model]] = [{model.form: model for model in cycle} for cycle in cycles]
    best = {form: _best([row[form] for row in rows]) for form in rows[0]}
    pretraining = lab.members[best["cross"].member].pretrained if "cross" in best else None
    return Chain(
        start=start,
        weight=lab.members[start.member].weight,
        cycles=rows,
        best=best,
        pretraining=None
        if pretraining is None
        else {"steps": pretraining.result["n_steps"], "losses": pretraining.result["losses"]},
        tests=_tests(lab, data, start, best, prefix),
        dev=_dev(lab, data, start, best, prefix),
        criteria=_criteria(lab, start, best),
        analysis=lab.analysis is not None,
    )


def _best(models: list[Model]) -> Model:
    """The highest on dev or by what chose it without labels, the earliest of equals; the last where nothing did."""
    measured = [model for model in models if model.best is not None]
    return max(measured, key=lambda model: model.best or 0.0) if measured else models[-1]


def _criteria(lab: Lab, start: Model, best: dict[Form, Model]) -> dict[str, dict[str, float | None]] | None:
    """What some pairs say of the start without labels, and, held out, of each kept model at the step that was kept."""
    record = start_criteria(lab, lab.members[start.member])
    if record is None:
        return None
    return {"start": record.result} | {form: model.criteria for form, model in best.items() if model.criteria}


def _best_start(lab: Lab, data: Data) -> Model:
    """The start that is best on dev, the first of equals; the first without dev."""
    starts = [member.bi for member in lab.members]
    if data.dev is None:
        return starts[0]
    found = [_score_on_dev(lab, data, member.bi, f"{member.prefix}start").result[DEV] for member in lab.members]
    devs = [-math.inf if dev is None else dev for dev in found]
    return starts[devs.index(max(devs))]


def _tests(lab: Lab, data: Data, start: Model, best: dict[Form, Model], prefix: str) -> dict[str, StageRecord]:
    tests = {test.name: test for test in data.tests}
    if not tests:
        return {}
    found = {"start": score(lab, start, f"{prefix}start", tests)}
    as_is = score_start_as_is(
        lab.run,
        start,
        tests,
        lab.cache,
        max_length=lab.settings.bi.max_length,
        precision=lab.settings.precision,
        device=lab.device,
        name=f"{prefix}start-as-is",
    )
    if as_is is not None:
        found["start_as_is"] = as_is
    lengths: dict[Form, int | None] = {"cross": lab.settings.cross_test_length}
    return found | {
        form: score(lab, model, f"{prefix}{form}", tests, lengths.get(form)) for form, model in best.items()
    }


def _dev(lab: Lab, data: Data, start: Model, best: dict[Form, Model], prefix: str) -> Metrics | None:
    """Dev metric of the start, and of each form the one that chose it."""
    if data.dev is None:
        return None
    found = _score_on_dev(lab, data, start, f"{prefix}start").result[DEV]
    if not data.tests:
        for form, model in best.items():
            _score_on_dev(lab, data, model, f"{prefix}{form}")  # the report's intervals are drawn from these scores
    return {"start": found} | {form: model.dev for form, model in best.items()}


def _on_dev(lab: Lab, data: Data, models: list[Model], name: str) -> list[StageRecord]:
    """Dev scores of one model of each member."""

    def scored(i: int) -> StageRecord:
        return _score_on_dev(lab, data, models[i], f"{lab.members[models[i].member].prefix}{name}")

    return own_first(lab, [model.member for model in models], scored)


def _score_on_dev(lab: Lab, data: Data, model: Model, name: str) -> StageRecord:
    assert data.dev is not None
    return score(lab, model, f"{DEV}/{name}", {DEV: data.dev})
