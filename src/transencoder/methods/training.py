"""A Trans-Encoder run from its config to its models: read, train the cycles, pick the best, test once, report."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import distributed
from transencoder.config import FitConfig, Form, Member
from transencoder.cycles import Cycle, Lab, Model, Starts, distil, may_leave_range, pretrained, start_model
from transencoder.encoders import weights_fingerprint
from transencoder.methods.data import Data, read_data
from transencoder.methods.labelled import Scored
from transencoder.methods.outcome import (
    BAD_ROWS,
    FOLDERS,
    finish,
    member_record,
    open_run,
    remove_unfinished,
    result_of,
)
from transencoder.methods.planning import prepare
from transencoder.methods.scoring import Metrics, measure, score, score_ensemble, score_start_as_is
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.report.result import Result
from transencoder.runs import Run
from transencoder.scorers import Scorer
from transencoder.tokens import TokenCache

_RAW_NOTE = "Label policy `raw` follows the released code: targets may lie outside [0, 1]."


@dataclass(frozen=True)
class Trained:
    """What a run leaves: the best model of each form, the record, the folder."""

    bi_encoder: SentenceTransformer
    cross_encoder: CrossEncoder
    result: Result
    """The content of result.json."""
    folder: Path
    """The run folder; the models lie in `bi-encoder` and `cross-encoder`."""


def train(config: TransEncoder, *, recipe: str | None = None) -> Trained:
    """Train a bi-encoder and a cross-encoder without labels, or go on with a run that was interrupted.

    Args:
        config: The method's config; fields left empty take the paper's values.
        recipe: Name of the recipe that the config comes from, for reports: `trans-encoder/minilm-sts`.

    Returns:
        The best models, their scores, and the run's path.

    Raises:
        InputError: Data or an option cannot be used.
        RunError: The run folder is locked, foreign, or its disk is full.
    """
    distributed.start()
    started = time.monotonic()
    given, config, starts = prepare(config)
    with open_run(given, config) as run:
        remove_unfinished(run)
        data = read_data(config, run.folder / BAD_ROWS)
        lab = pretrained(_make_lab(run, config, data, starts))
        chains = _chains(lab, distil(lab, config.cycles or 1))
        measured = [_measured(lab, data, chain) for chain in chains]
        kept = _kept(chains)
        chain = chains[kept]
        result = result_of(
            run,
            given,
            data,
            chain.cycles,
            chain.best,
            dev=measured[kept].dev,
            scores=measured[kept].scores,
            seconds=time.monotonic() - started,
            recipe=recipe,
            notes=[_RAW_NOTE] if may_leave_range(lab) else [],
        )
        if chain.member.pretrained is not None:
            record = chain.member.pretrained.result
            result["pretraining"] = {"steps": record["n_steps"], "losses": record["losses"]}
        if len(chains) > 1:
            result["member"] = kept + 1
            result["members"] = [
                member_record(number, chain.cycles, chain.best, found.dev, found.scores)
                for number, (chain, found) in enumerate(zip(chains, measured, strict=True), 1)
            ]
            ensemble = _ensemble(lab, data, chains)
            result["ensemble"] = {"dev": ensemble.dev, "scores": ensemble.scores}
        finish(run, result, chain.best, [chain.best for chain in chains])
    distributed.barrier()
    return _trained(Path(config.output), result, config.device)


@dataclass(frozen=True)
class _Chain:
    """What one member learned, or all of them in turn."""

    member: Starts
    """Whose starts the gains are over: of members in turn, the one of the best bi-encoder."""
    prefix: str
    """Of the names of its scores."""
    cycles: list[dict[Form, Model]]
    best: dict[Form, Model]


@dataclass(frozen=True)
class _Measured:
    """What a chain's start and its best models, or the means of several, are worth."""

    dev: Metrics | None
    scores: dict[str, Metrics]


def _chains(lab: Lab, cycles: list[Cycle]) -> list[_Chain]:
    """One chain for each member, or a single one for members in turn."""
    if lab.settings.alternate_members:
        return [_chain("", [row for (row,) in cycles])]
    return [_chain(member.prefix, [cycle[i] for cycle in cycles]) for i, member in enumerate(lab.members)]


def _chain(prefix: str, rows: list[tuple[Starts, Model, Model]]) -> _Chain:
    crosses, bis = [cross for _, cross, _ in rows], [bi for _, _, bi in rows]
    best: dict[Form, Model] = {"cross": _best(crosses), "bi": _best(bis)}
    member = rows[bis.index(best["bi"])][0]
    return _Chain(member, prefix, [{"cross": cross, "bi": bi} for _, cross, bi in rows], best)


def _kept(chains: list[_Chain]) -> int:
    """The chain whose bi-encoder is best on dev, the first of equals; the first where there is no dev metric."""
    devs = [-math.inf if chain.best["bi"].dev is None else chain.best["bi"].dev for chain in chains]
    return devs.index(max(devs))


def _make_lab(run: Run, config: TransEncoder, data: Data, starts: list[tuple[Path, Path]]) -> Lab:
    dev, tests, members = data.dev, data.tests, zip(config.members, starts, strict=True)

    def analysis(scorer: Scorer) -> dict[str, float]:
        return {test.name: measure(test, scorer) for test in tests}

    return Lab(
        run=run,
        settings=config,
        pairs=data.training,
        pairs_fingerprint=data.record["fingerprint"],
        dev=None if dev is None else (lambda scorer: measure(dev, scorer)),
        dev_fingerprint="" if dev is None else dev.fingerprint,
        analysis=analysis if config.test_every_eval else None,
        analysis_fingerprints=tuple(test.fingerprint for test in tests) if config.test_every_eval else (),
        cache=TokenCache(run.folder / "tokens"),
        device=str(config.device),
        members=tuple(_starts(member, folders, i, config) for i, (member, folders) in enumerate(members, 1)),
    )


def _starts(member: Member, folders: tuple[Path, Path], number: int, config: TransEncoder) -> Starts:
    prefix = f"member-{number}/" if len(config.members) > 1 else ""
    bi, cross = folders
    return Starts(
        prefix=prefix,
        bi=start_model(bi, f"{prefix}start", member.pooling),
        cross=cross,
        cross_fingerprint=weights_fingerprint(cross),
        fits={
            "bi": _at_rate(config.bi, member.learning_rate),
            "cross": _at_rate(config.cross, member.cross_learning_rate),
        },
        pretraining=config.pretraining_of(member),
        weight=member.weight,
        policy=member.policy,
    )


def _at_rate(fit: FitConfig, learning_rate: float | None) -> FitConfig:
    return fit if learning_rate is None else replace(fit, learning_rate=learning_rate)


def _best(models: list[Model]) -> Model:
    """The highest on dev, the earliest of equals; the last where none has a dev metric."""
    measured = [model for model in models if model.dev is not None]
    return max(measured, key=lambda model: model.dev or 0.0) if measured else models[-1]


def _measured(lab: Lab, data: Data, chain: _Chain) -> _Measured:
    """Metrics of a chain's start and of its best models: each form's dev metric is the one that chose it."""
    start, tests = chain.member.bi, {test.name: test for test in data.tests}
    scores = {}
    if tests:
        scores["start"] = score(lab, start, f"{chain.prefix}start", tests)
        as_is = score_start_as_is(
            lab.run,
            start,
            tests,
            lab.cache,
            max_length=lab.settings.bi.max_length,
            pooling=start.pooling,
            precision=lab.settings.precision,
            device=lab.device,
            name=f"{chain.prefix}start-as-is",
        )
        if as_is is not None:
            scores["start_as_is"] = as_is
        scores |= {form: score(lab, model, f"{chain.prefix}{form}", tests) for form, model in chain.best.items()}
    if data.dev is None:
        return _Measured(None, scores)
    on_dev = score(lab, start, f"{chain.prefix}start-on-dev", {"dev": data.dev})["dev"]
    return _Measured({"start": on_dev} | {form: model.dev for form, model in chain.best.items()}, scores)


def _ensemble(lab: Lab, data: Data, chains: list[_Chain]) -> _Measured:
    """Metrics of the members' weighted mean: of their starts, and of the best models of each form."""
    weights = [chain.member.weight for chain in chains]
    teams = {"start": [chain.member.bi for chain in chains]} | {
        form: [chain.best[form] for chain in chains] for form in chains[0].best
    }

    def measured(sets: dict[str, Scored], where: str) -> dict[str, Metrics]:
        return {
            name: score_ensemble(lab, models, weights, f"ensemble/{name}{where}", sets)
            for name, models in teams.items()
        }

    tests = {test.name: test for test in data.tests}
    scores = measured(tests, "") if tests else {}
    if data.dev is None:
        return _Measured(None, scores)
    on_dev = measured({"dev": data.dev}, "-on-dev")
    return _Measured({name: found["dev"] for name, found in on_dev.items()}, scores)


def _trained(folder: Path, result: Result, device: str | None) -> Trained:
    bi = SentenceTransformer(str(folder / FOLDERS["bi"]), device=device)
    cross = CrossEncoder(str(folder / FOLDERS["cross"]), device=device)
    return Trained(bi, cross, result, folder)
