"""A Trans-Encoder run from its config to its models: read, train the cycles, pick the best, test once, report."""

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import distributed
from transencoder.config import Criterion, Form
from transencoder.cycles import Lab, LabMember, distil, may_leave_range, pretrained, start_model, warn_of_weak_starts
from transencoder.encoders import weights_fingerprint
from transencoder.errors import InputError, RunError
from transencoder.evaluation import measure
from transencoder.methods.chains import Chain, best_chain, chains_of, ensemble_of, member_record
from transencoder.methods.data import Data, read_data
from transencoder.methods.evidence import keep_sample
from transencoder.methods.mined import miner
from transencoder.methods.outcome import BAD_ROWS, FOLDERS, finish, open_run, remove_unfinished, result_of
from transencoder.methods.planning import prepare
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.methods.workers import Part, join, n_workers, spent, workers
from transencoder.records import EnsembleRecord, Result, SelectionRecord
from transencoder.runs import Run
from transencoder.scorers import Scorer
from transencoder.selection import LEAST_PAIRS, criterion_of, hold_out, measured_on, regrets_of
from transencoder.tokens import TokenCache

_RAW_NOTE = "Label policy `raw` follows the released code: targets may lie outside [0, 1]."
_LOGIT_NOTE = "The cross-encoder learned its labels as they are: its raw output is the score, without a sigmoid."
_SAME_FORM_ABOUT = "In each cycle a bi-encoder scores the pairs, and a bi-encoder learns from it."


@dataclass(frozen=True)
class Trained:
    """What a run leaves: the best model of each form, the record, the folder."""

    bi_encoder: SentenceTransformer
    result: Result
    """The content of result.json."""
    folder: Path
    """The run folder; the models lie in `bi-encoder` and `cross-encoder`."""
    device: str | None = None
    """Where the models go; None: the best there is."""

    @cached_property
    def cross_encoder(self) -> CrossEncoder:
        """The best cross-encoder.

        Raises:
            InputError: The run made none, its students being of the same form as their teachers.
        """
        if "cross" not in self.result["best"]:
            raise InputError(
                f"{self.folder} made no cross-encoder (same_form); take its bi_encoder, or same_form false"
            )
        model: CrossEncoder = CrossEncoder(str(self.folder / FOLDERS["cross"]), device=self.device)
        return model


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
    started, as_given = time.monotonic(), config
    given, config, starts = prepare(config)
    n_processes = n_workers(as_given)
    with open_run(given, config) as run:
        remove_unfinished(run)
        data = read_data(config, run.folder / BAD_ROWS, miner(run, config, starts[0][0]))
        with workers(replace(as_given, precision=config.precision), _fingerprints(data), n_processes, run):
            lab, chains, ensemble = _distilled(run, config, data, starts)
        kept = best_chain(chains)
        chain = chains[kept]
        sample = keep_sample(lab, chain.start, chain.best)
        result = result_of(
            run,
            given,
            data,
            chain.cycles,
            chain.best,
            dev=chain.dev,
            scores=chain.scores,
            seconds=time.monotonic() - started,
            recipe=recipe,
            notes=_notes(config, lab),
        )
        if n_processes > 1:
            result["seconds"] = max(time.monotonic() - started, spent(run.stages, n_processes))
        _complete(result, config, lab, chain)
        if data.dev is None and lab.held_out is None:
            result["sample_agreement"] = sample.result.get("start_agreement", {})
        if ensemble is not None:
            result["ensemble"] = ensemble
            result["member"] = kept + 1
            result["members"] = [member_record(chain) for chain in chains]
        finish(run, result, chain.best, [chain.best for chain in chains])
    distributed.barrier()
    return _trained(Path(config.output), result, config.device)


def assist(part: Part) -> None:
    """What a worker does: the stages of its members, in the run that another process has open.

    Raises:
        RunError: That process is gone, or it read other data.
    """
    _, config, starts = prepare(part.config)

    def work(run: Run) -> None:
        data = read_data(config, None, miner(run, config, starts[0][0]))
        if _fingerprints(data) != part.data:
            raise RunError("the pairs, the dev set or a test set changed while the run read it; run the command again")
        _distilled(run, config, data, starts)

    join(part, config, work)


def _fingerprints(data: Data) -> tuple[str, ...]:
    sets = [*data.tests] if data.dev is None else [data.dev, *data.tests]
    gold = [] if data.gold is None else [data.gold.fingerprint]
    return (data.record["fingerprint"], *(each.fingerprint for each in sets), *gold)


def _distilled(
    run: Run, config: TransEncoder, data: Data, starts: list[tuple[Path, Path]]
) -> tuple[Lab, list[Chain], EnsembleRecord | None]:
    """Every stage of the run: the members' models, cycle by cycle, and what they are worth, alone and together."""
    lab = _make_lab(run, config, data, starts)
    warn_of_weak_starts(lab)
    lab = pretrained(lab)
    chains = chains_of(lab, data, distil(lab, config.cycles or 1))
    return lab, chains, ensemble_of(lab, data, chains) if len(chains) > 1 else None


def _complete(result: Result, config: TransEncoder, lab: Lab, chain: Chain) -> None:
    """Add what only this method has to the record of the kept chain."""
    if lab.held_out is not None:
        result["data"]["pairs"]["held_out_rows"] = len(lab.held_out.rows)
    if any(lab.criteria.values()):
        result["selection"] = _selection(lab)
    if chain.criteria is not None:
        result["criteria"] = chain.criteria
    if chain.pretraining is not None:
        result["pretraining"] = chain.pretraining
    if config.same_form:
        result["about"] = _SAME_FORM_ABOUT
    if len(config.members) > 1:
        result["about"] = f"{result['about']} {_how_members_learn(config)}"
        for form, model in chain.best.items():
            result["best"][form]["member"] = model.member + 1
        result["start_member"] = chain.start.member + 1


def _selection(lab: Lab) -> SelectionRecord:
    """What chose without labels, and what choosing so cost where there were some."""
    n_runs, n_starts = measured_on()
    regrets = {form: regrets_of(form) for form in lab.criteria}
    return {
        "criteria": {form: criterion or "last" for form, criterion in lab.criteria.items()},
        "left_out_regrets": {form: found["left_out"] for form, found in regrets.items()},
        "last_regrets": {form: found["last"] for form, found in regrets.items()},
        "runs": n_runs,
        "starts": n_starts,
    }


def _notes(config: TransEncoder, lab: Lab) -> list[str]:
    notes = [_RAW_NOTE] if may_leave_range(lab) else []
    return notes + ([_LOGIT_NOTE] if config.cross_loss == "mse" and not config.same_form else [])


def _how_members_learn(config: TransEncoder) -> str:
    if config.alternate_members:
        return f"{len(config.members)} members learn in turn, one a cycle, each from the one before."
    if not config.share_labels:
        return f"{len(config.members)} members do so side by side, each learning from its own scores."
    return f"{len(config.members)} members learn from the weighted mean of their scores."


def _make_lab(run: Run, config: TransEncoder, data: Data, starts: list[tuple[Path, Path]]) -> Lab:
    dev, tests = data.dev, data.tests
    gold = None if data.gold is None else data.gold.scores
    criteria = _criteria(config, dev is not None, len(data.training))
    if config.test_every_eval and dev is None and not criteria:
        raise InputError(
            f"test_every_eval needs evaluations, and without dev there are none: of {len(data.training)} pairs, fewer "
            f"than {LEAST_PAIRS}, none can be held out to choose by. Give dev or more pairs, or leave it out"
        )

    def analysis(scorer: Scorer) -> dict[str, float]:
        return {test.name: measure(scorer, test) for test in tests}

    return Lab(
        run=run,
        settings=config,
        pairs=data.training,
        pairs_fingerprint=data.record["fingerprint"],
        dev=None if dev is None else (lambda scorer: measure(scorer, dev)),
        dev_fingerprint="" if dev is None else dev.fingerprint,
        analysis=analysis if config.test_every_eval else None,
        analysis_fingerprints=tuple(test.fingerprint for test in tests) if config.test_every_eval else (),
        cache=TokenCache(run.folder / "tokens"),
        device=str(config.device),
        members=tuple(_lab_member(config, position, folders) for position, folders in enumerate(starts)),
        gold=gold,
        gold_fingerprint="" if data.gold is None else data.gold.fingerprint,
        held_out=hold_out(data.training, gold) if config.record_criteria or any(criteria.values()) else None,
        criteria=criteria,
    )


def _criteria(config: TransEncoder, has_dev: bool, n_pairs: int) -> dict[Form, Criterion | None]:
    """What chooses the checkpoints of each form without labels, where there is no dev set and pairs can be spared."""
    if has_dev or n_pairs < LEAST_PAIRS:
        return {}
    return {"bi": criterion_of("bi", config.bi.selection), "cross": criterion_of("cross", config.cross.selection)}


def _lab_member(config: TransEncoder, position: int, folders: tuple[Path, Path]) -> LabMember:
    member = config.members[position]
    prefix = f"member-{position + 1}/" if len(config.members) > 1 else ""
    bi, cross = folders
    return LabMember(
        prefix=prefix,
        bi=start_model(bi, f"{prefix}start", member.pooling, member.prompts, position),
        cross=cross,
        cross_fingerprint=weights_fingerprint(cross),
        fits={"bi": config.fit_of(member, "bi"), "cross": config.fit_of(member, "cross")},
        pretraining=config.pretraining_of(member),
        weight=member.weight,
        policy=member.policy,
    )


def _trained(folder: Path, result: Result, device: str | None) -> Trained:
    return Trained(SentenceTransformer(str(folder / FOLDERS["bi"]), device=device), result, folder, device)
