"""A Trans-Encoder run from its config to its models: read, train the cycles, pick the best, test once, report."""

import dataclasses
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import distributed
from transencoder.config import Form
from transencoder.cycles import Lab, Model, pretrained, self_distil, start_model
from transencoder.encoders import weights_fingerprint
from transencoder.methods.data import Data, read_data
from transencoder.methods.planning import prepare
from transencoder.methods.scoring import Metrics, measure, score, score_start_as_is
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.report import model_card, write_report
from transencoder.report.result import Environment, Result
from transencoder.runs import Run, atomic_write_text
from transencoder.scorers import Scorer
from transencoder.settings import recipe_toml
from transencoder.tokens import TokenCache

_RAW_NOTE = "Label policy `raw` follows the released code: targets may lie outside [0, 1]."

_FOLDERS: dict[Form, str] = {"bi": "bi-encoder", "cross": "cross-encoder"}
_BAD_ROWS = "bad-rows.tsv"
_OUTPUTS = (*_FOLDERS.values(), "report.md", "curves.png", _BAD_ROWS)


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
    with Run.open(
        config.output,
        recipe_toml(given),
        "trans-encoder",
        details={"device": config.device, "threads": torch.get_num_threads()},
        outputs=_OUTPUTS,
        rank=distributed.rank(),
        barrier=distributed.barrier,
        broadcast=distributed.broadcast,
    ) as run:
        if distributed.rank() == 0 and not (run.folder / "result.json").exists():
            _remove_unfinished(run.folder)
        data = read_data(config, run.folder / _BAD_ROWS)
        lab = pretrained(_make_lab(run, config, data, start, cross_start))
        cycles = self_distil(lab, config.cycles or 1)
        best = {"cross": _best([cross for cross, _ in cycles]), "bi": _best([bi for _, bi in cycles])}
        record = _result(lab, given, data, cycles, best, time.monotonic() - started)
        if recipe is not None:
            record["recipe"] = recipe
        if lab.pretrained is not None:
            losses = lab.pretrained.result["losses"]
            record["pretraining"] = {"steps": lab.pretrained.result["n_steps"], "losses": losses}
        if distributed.rank() == 0:
            _export(run, record, best)
        run.finish(record)
        if distributed.rank() == 0:
            write_report(run.folder)
    distributed.barrier()
    return _trained(Path(config.output), record, config.device)


def _make_lab(run: Run, config: TransEncoder, data: Data, start: Path, cross_start: Path) -> Lab:
    dev, tests = data.dev, data.tests

    def analysis(scorer: Scorer) -> dict[str, float]:
        return {test.name: measure(test, scorer) for test in tests}

    return Lab(
        run=run,
        settings=config,
        pairs=data.pairs,
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


def _scores(lab: Lab, data: Data, best: dict[str, Model]) -> dict[str, Metrics]:
    tests = {test.name: test for test in data.tests}
    if not tests:
        return {}
    scores = {"start": score(lab, lab.start, "start", tests)}
    if (as_is := score_start_as_is(lab, tests)) is not None:
        scores["start_as_is"] = as_is
    return scores | {form: score(lab, model, form, tests) for form, model in best.items()}


def _dev(lab: Lab, data: Data, best: dict[str, Model]) -> Metrics | None:
    if data.dev is None:
        return None
    sets = {"dev": data.dev}
    start = score(lab, lab.start, "start-on-dev", sets)["dev"]
    return {"start": start} | {form: model.dev for form, model in best.items()}


def _result(
    lab: Lab,
    config: TransEncoder,
    data: Data,
    cycles: list[tuple[Model, Model]],
    best: dict[str, Model],
    seconds: float,
) -> Result:
    scores, dev = _scores(lab, data, best), _dev(lab, data, best)
    stages = lab.run.stages
    return {
        "method": "trans-encoder",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        "config": _plain(config),
        "environment": _environment(lab.run.environments),
        "data": data.as_record(),
        "metric": data.dev.metric if data.dev else (data.tests[0].metric if data.tests else "spearman"),
        "cycles": [
            {"cycle": i, "cross": _form_record(cross), "bi": _form_record(bi)}
            for i, (cross, bi) in enumerate(cycles, 1)
        ],
        "best": {
            form: {"cycle": best[form].cycle, "dev": best[form].dev, "path": folder}
            for form, folder in _FOLDERS.items()
        },
        "dev": dev,
        "scores": scores,
        "analysis": _analysis(cycles) if lab.analysis else None,
        "stages": stages,  # type: ignore[typeddict-item]
        "seconds": max(seconds, sum(stage["seconds"] for stage in stages)),
        "notes": [_RAW_NOTE] if config.label_policy == "raw" else [],
    }


def _environment(recorded: list[dict[str, Any]]) -> Environment:
    """Where the stages were computed; for a run that went on elsewhere, all commits, devices and so on."""
    commits = [
        each["git"]["commit"] + ("-dirty" if each["git"]["is_changed"] else "") for each in recorded if each["git"]
    ]
    return {
        "commit": _joined(commits) if commits else None,
        "device": _joined(each["details"]["device"] for each in recorded),
        "threads": _joined(str(each["details"]["threads"]) for each in recorded),
        "python": _joined(each["python"] for each in recorded),
        "versions": {name: version for name, version in recorded[-1]["versions"].items() if version is not None},
    }


def _joined(values: Iterable[str]) -> str:
    return " + ".join(dict.fromkeys(values))


def _form_record(model: Model) -> Any:
    curve = model.fitted["curve"] if model.fitted else []
    return {"dev": model.dev, "curve": curve, "seconds": model.seconds, "stage": model.key}


def _analysis(cycles: list[tuple[Model, Model]]) -> dict[str, list[tuple[int, int, dict[str, float | None]]]]:
    curves: dict[str, list[tuple[int, int, dict[str, float | None]]]] = {"cross": [], "bi": []}
    for model in (model for cycle in cycles for model in cycle):
        for step, values in (model.fitted or {}).get("others", []):
            named = {name.removeprefix("test_"): value for name, value in values.items()}
            curves[model.form].append((model.cycle, step, named))
    return curves


def _plain(config: TransEncoder) -> dict[str, Any]:
    """The config for result.json: no token, a Dataset by its number of rows."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in ("pairs", "dev") and value is not None and not isinstance(value, str):
            value = f"a Dataset of {len(value)} rows"
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        elif field.name == "members":
            value = [dataclasses.asdict(member) for member in value]
        values[field.name] = value
    values["token"] = None
    return values


def _remove_unfinished(folder: Path) -> None:
    """Remove what a run left that was killed before its result was written: it must not pass for this one's."""
    for path in (folder / name for name in _OUTPUTS):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _export(run: Run, result: Result, best: dict[str, Model]) -> None:
    """Put the best models, with their cards, where the user finds them."""
    for form, folder in _FOLDERS.items():
        target, unfinished = run.folder / folder, run.folder / f".tmp-{folder}"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(best[form].folder, unfinished)
        atomic_write_text(unfinished / "README.md", model_card(result, form))
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)


def _trained(folder: Path, result: Result, device: str | None) -> Trained:
    bi = SentenceTransformer(str(folder / _FOLDERS["bi"]), device=device)
    cross = CrossEncoder(str(folder / _FOLDERS["cross"]), device=device)
    return Trained(bi, cross, result, folder)
