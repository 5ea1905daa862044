"""A Trans-Encoder run from its config to its models: read, train the cycles, pick the best, test once, report."""

import time
from dataclasses import dataclass
from pathlib import Path

from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import distributed
from transencoder.config import Form
from transencoder.cycles import Lab, Model, pretrained, self_distil, start_model
from transencoder.encoders import weights_fingerprint
from transencoder.methods.data import Data, read_data
from transencoder.methods.outcome import BAD_ROWS, FOLDERS, finish, open_run, remove_unfinished, result_of
from transencoder.methods.planning import prepare
from transencoder.methods.scoring import Metrics, measure, score, score_start_as_is
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
    given, config, start, cross_start = prepare(config)
    with open_run(given, config) as run:
        remove_unfinished(run)
        data = read_data(config, run.folder / BAD_ROWS)
        lab = pretrained(_make_lab(run, config, data, start, cross_start))
        cycles = self_distil(lab, config.cycles or 1)
        best: dict[Form, Model] = {
            "cross": _best([cross for cross, _ in cycles]),
            "bi": _best([bi for _, bi in cycles]),
        }
        scores, dev = _scores(lab, data, best), _dev(lab, data, best)
        result = result_of(
            run,
            given,
            data,
            [{"cross": cross, "bi": bi} for cross, bi in cycles],
            best,
            dev=dev,
            scores=scores,
            seconds=time.monotonic() - started,
            recipe=recipe,
            notes=[_RAW_NOTE] if config.label_policy == "raw" else [],
        )
        if lab.pretrained is not None:
            losses = lab.pretrained.result["losses"]
            result["pretraining"] = {"steps": lab.pretrained.result["n_steps"], "losses": losses}
        finish(run, result, best)
    distributed.barrier()
    return _trained(Path(config.output), result, config.device)


def _make_lab(run: Run, config: TransEncoder, data: Data, start: Path, cross_start: Path) -> Lab:
    dev, tests = data.dev, data.tests

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
        start=start_model(start),
        cross_start=cross_start,
        cross_start_fingerprint=weights_fingerprint(cross_start),
        pooling=config.members[0].pooling,
    )


def _best(models: list[Model]) -> Model:
    """The highest on dev, the earliest of equals; the last where none has a dev metric."""
    measured = [model for model in models if model.dev is not None]
    return max(measured, key=lambda model: model.dev or 0.0) if measured else models[-1]


def _scores(lab: Lab, data: Data, best: dict[Form, Model]) -> dict[str, Metrics]:
    tests = {test.name: test for test in data.tests}
    if not tests:
        return {}
    scores = {"start": score(lab, lab.start, "start", tests)}
    as_is = score_start_as_is(
        lab.run,
        lab.start,
        tests,
        lab.cache,
        max_length=lab.settings.bi.max_length,
        pooling=lab.pooling,
        precision=lab.settings.precision,
        device=lab.device,
    )
    if as_is is not None:
        scores["start_as_is"] = as_is
    return scores | {form: score(lab, model, form, tests) for form, model in best.items()}


def _dev(lab: Lab, data: Data, best: dict[Form, Model]) -> Metrics | None:
    if data.dev is None:
        return None
    sets = {"dev": data.dev}
    start = score(lab, lab.start, "start-on-dev", sets)["dev"]
    return {"start": start} | {form: model.dev for form, model in best.items()}


def _trained(folder: Path, result: Result, device: str | None) -> Trained:
    bi = SentenceTransformer(str(folder / FOLDERS["bi"]), device=device)
    cross = CrossEncoder(str(folder / FOLDERS["cross"]), device=device)
    return Trained(bi, cross, result, folder)
