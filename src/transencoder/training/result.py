"""Outputs of a run: result.json, the exported models, and the report."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset

from transencoder import distributed
from transencoder.configs import Form
from transencoder.configs.run import RunConfig
from transencoder.context import Context, Model
from transencoder.encoders import CARD_NAME, write_checksums, write_length
from transencoder.evidence import Evidence, drawn_intervals
from transencoder.files import remove_folder, whole_folder
from transencoder.records import GRADED_FILE, HELD_ROWS, PLOTS, Best, Cycle, Environment, IntervalRecord, Result
from transencoder.report.card import model_card
from transencoder.report.run_report import write_report
from transencoder.results import of_member, with_grades
from transencoder.runs import Run
from transencoder.runs.files import plain
from transencoder.settings import method_name, recipe_toml
from transencoder.training.data import ALL_BAD_ROWS
from transencoder.training.executors import spent
from transencoder.training.scoring import Metrics, keep_gold, keep_texts

FOLDERS: dict[Form, str] = {"bi": "bi-encoder", "cross": "cross-encoder", "mlm": "masked-lm"}
"""Folder of the best model of each form, inside the run folder."""

MEMBERS = "members"
"""Folder of the members' models inside the run folder, if there are several members: `members/2/bi-encoder`."""

TEACHERS = "teachers"
"""Folder of the cross-encoders that learned labels first, inside the run folder: `teachers/1`."""

_OUTPUTS = (
    *FOLDERS.values(),
    MEMBERS,
    TEACHERS,
    "report.html",
    "report.md",
    PLOTS,
    GRADED_FILE,
    ALL_BAD_ROWS,
)
"""Files and folders that belong to a result besides result.json, or patterns of their names."""


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The models that the stages of a run made, and their metrics."""

    cycles: list[dict[Form, Model]]
    """Models of each cycle; methods without cycles have one."""
    best: Mapping[Form, Model]
    """Kept model of each form."""
    dev: Metrics | None
    """Dev metrics of the base model and of the kept models."""
    scores: dict[str, Metrics]
    """Test metrics of the same models."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Other entries of result.json."""
    notes: list[str] = field(default_factory=list)
    """Notes that a reader must know before trusting the numbers."""
    members: Sequence[Mapping[Form, Model]] = ()
    """Kept models of each member, if there are several."""
    teachers: Mapping[int, tuple[Model, str]] = field(default_factory=dict)
    """Cross-encoders that learned labels first, by number, each with its model card."""


def open_run(given: RunConfig, config: RunConfig) -> Run:
    """Open the run folder of a config."""
    recipe = dataclasses.replace(given, reuse_from=())  # the source of reused stages does not change the result
    run = Run.open(
        config.output,
        recipe_toml(recipe),
        method_name(type(given)),
        details={"device": config.device, "threads": torch.get_num_threads()},
        outputs=_OUTPUTS,
        stage_caches=config.reuse_from,
        ranks=distributed.ranks(),
    )
    try:
        if run.is_first and not (run.folder / "result.json").exists():
            # Outputs of a run that was killed before it wrote its result must not pass for this run's.
            for path in [path for name in _OUTPUTS for path in run.folder.glob(name)]:
                remove_folder(path)
    except BaseException:
        run.close()
        raise
    return run


def result_of(
    run: Run,
    given: RunConfig,
    context: Context[Any],
    measurements: Measurements,
    *,
    started: float,
    n_workers: int,
    recipe: str | None,
) -> Result:
    """Return the content of result.json."""
    texts = keep_texts(context)
    keep_gold(context)
    data = context.data
    result: Result = {
        "method": method_name(type(given)),
        "about": given.about,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": given.seed,
        "config": _plain(given),
        "environment": _environment(run.environments),
        "data": data.as_record(),
        "texts": texts,
        "metric": data.dev.metric if data.dev else (data.tests[0].metric if data.tests else "spearman"),
        "cycles": cycle_records(measurements.cycles),
        "best": best_records(measurements.best, ""),
        "dev": measurements.dev,
        "scores": measurements.scores,
        "analysis": analysis_of(measurements.cycles) if given.test_every_eval else None,
        "stages": run.stages,  # type: ignore[typeddict-item]
        "seconds": max(time.monotonic() - started, spent(run.stages, n_workers)),
        "notes": [*measurements.notes, *_ended_early(measurements.cycles)],
    }
    if recipe is not None:
        result["recipe"] = recipe
    return cast(Result, {**result, **measurements.details})


def finish(run: Run, result: Result, measurements: Measurements) -> None:
    """Export the models, write the report and, last, result.json, which marks the run as complete."""
    run.set_outdated_result_aside(written=[ALL_BAD_ROWS])
    result["intervals"] = _intervals(run, result)
    for number, member in enumerate(result.get("members", ()), 1):
        member["intervals"] = _intervals(run, {**of_member(result, number), "member": number})
    if run.is_first:
        shown = with_grades(run.folder, result)
        for form, model in measurements.best.items():
            _export(model, model_card(shown, form, model.card), run.folder / FOLDERS[form])
        for number, models in enumerate(measurements.members if "members" in result else (), 1):
            own = of_member(result, number)
            for form, model in models.items():
                card = model_card(own, form, model.card, member=number)
                _export(model, card, run.folder / MEMBERS / str(number) / FOLDERS[form])
        shutil.rmtree(run.folder / TEACHERS, ignore_errors=True)
        for number, (model, card) in measurements.teachers.items():
            _export(model, card, run.folder / TEACHERS / str(number))
        write_report(run.folder, cast(Result, plain(result)))
    run.finish(result)


def _intervals(run: Run, result: Result) -> dict[str, IntervalRecord]:
    """Return the intervals that the first rank draws."""
    return distributed.broadcast(drawn_intervals(Evidence(run.folder, result)) if run.is_first else {})


def _environment(recorded: list[dict[str, Any]]) -> Environment:
    """Return the environment of the stages; for a run that was continued elsewhere, all commits, devices and so on."""
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


def cycle_records(cycles: list[dict[Form, Model]]) -> list[Cycle]:
    """Return the records of each cycle's models for result.json."""
    return [
        {"cycle": i} | {form: _form_record(model) for form, model in models.items()}  # type: ignore[misc]
        for i, models in enumerate(cycles, 1)
    ]


def best_records(best: Mapping[Form, Model], parent: str) -> dict[Form, Best]:
    """Return the records of the kept models, which are exported below `parent`, for result.json."""
    return {
        form: {"cycle": best[form].cycle, "dev": best[form].dev, "path": f"{parent}{folder}"}
        for form, folder in FOLDERS.items()
        if form in best
    }


def _form_record(model: Model) -> Any:
    curve = model.fitted["curve"] if model.fitted and model.chosen_by == "dev" else []
    record = {"dev": model.dev, "curve": curve, "seconds": model.seconds, "stage": model.key}
    if criteria := model.others("criterion_"):
        record["criteria"] = criteria
    if model.chosen_by not in ("dev", None):
        record |= {"chosen_by": model.chosen_by, "step": (model.fitted or {})["best_step"]}
    return record


def analysis_of(cycles: list[dict[Form, Model]]) -> dict[str, list[tuple[int, int, dict[str, float | None]]]]:
    """Return what `test_every_eval` recorded, for result.json."""
    curves: dict[str, list[tuple[int, int, dict[str, float | None]]]] = {}
    for form, model in (item for models in cycles for item in models.items()):
        curves.setdefault(form, []).extend((model.cycle, step, values) for step, values in model.others("test_"))
    return curves


def _plain(config: RunConfig) -> dict[str, Any]:
    """Return the config for result.json, without the token and with a Dataset's number of rows in its place."""
    values: dict[str, Any] = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    held = {name: f"{len(value)} {HELD_ROWS}" for name, value in values.items() if isinstance(value, Dataset)}
    return cast(dict[str, Any], plain(values | held | {"token": None}))


def _ended_early(cycles: list[dict[Form, Model]]) -> list[str]:
    """Return a note on the trainings that `patience_epochs` ended before their last step."""
    fits = {model.name: model.fitted or {} for models in cycles for model in models.values()}
    ended = [
        f"{name} at step {fit['n_steps']} of {fit['n_planned']}" for name, fit in fits.items() if fit.get("n_planned")
    ]
    if not ended:
        return []
    return [f"The best checkpoint was as old as patience_epochs allows, so training ended early: {', '.join(ended)}."]


def _export(model: Model, card: str, target: Path) -> None:
    """Copy a model, with its card and the checksums of its other files, to its place in the run folder.

    The copy reads as many tokens as its base model, even if training read fewer.
    """
    with whole_folder(target, replaces=True) as draft:
        shutil.copytree(model.folder, draft, dirs_exist_ok=True)
        write_length(draft, model.max_length)
        write_checksums(draft)
        (draft / CARD_NAME).write_text(card, encoding="utf-8")
