"""What the runs of all methods share: how they are opened, the record's common parts, where the models go."""

import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from transencoder import distributed
from transencoder.config import Form
from transencoder.cycles import Model
from transencoder.finished import Evidence, drawn_intervals, intervals_record
from transencoder.methods.data import BAD_DOCUMENTS, BAD_EXTRA_ROWS, BAD_LABELLED, Data
from transencoder.methods.evidence import keep_gold, keep_texts
from transencoder.methods.method import Method
from transencoder.methods.scoring import Metrics
from transencoder.records import PLOTS, Best, Cycle, Environment, Result
from transencoder.report.card import model_card
from transencoder.report.run_report import write_report
from transencoder.results import of_member
from transencoder.runs import Run, atomic_write_text
from transencoder.settings import method_name, recipe_toml
from transencoder.wording import shown_source

FOLDERS: dict[Form, str] = {"bi": "bi-encoder", "cross": "cross-encoder", "mlm": "masked-lm"}
"""Where in the run folder the best model of each form lies."""

BAD_ROWS = "bad-rows.tsv"

MEMBERS = "members"
"""Where in the run folder the models of each of several members lie: `members/2/bi-encoder`."""

TEACHERS = "teachers"
"""Where in the run folder cross-encoders lie that learned labels first: `teachers/1`."""

_OUTPUTS = (
    *FOLDERS.values(),
    MEMBERS,
    TEACHERS,
    "report.html",
    "report.md",
    PLOTS,
    "curves.png",  # of earlier versions
    BAD_ROWS,
    BAD_EXTRA_ROWS,
    BAD_DOCUMENTS,
    BAD_LABELLED,
)
"""What belongs to a result besides its record."""


def open_run(given: Method[Any], config: Method[Any]) -> Run:
    """Open the run folder of a config.

    Args:
        given: The config with every default written out, for the run's recipe.
        config: The same with its variables filled in.
    """
    return Run.open(
        config.output,
        recipe_toml(
            dataclasses.replace(given, reuse_from=())
        ),  # where stages come from changes no outcome: it is no other recipe
        method_name(type(given)),
        details={"device": config.device, "threads": torch.get_num_threads()},
        outputs=_OUTPUTS,
        lenders=config.reuse_from,
        rank=distributed.rank(),
        barrier=distributed.barrier,
        broadcast=distributed.broadcast,
    )


def remove_unfinished(run: Run) -> None:
    """Remove what a run left that was killed before its result was written: it must not pass for this one's."""
    if distributed.rank() != 0 or (run.folder / "result.json").exists():
        return
    for path in (run.folder / name for name in _OUTPUTS):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def result_of(
    run: Run,
    given: Method[Any],
    data: Data,
    cycles: list[dict[Form, Model]],
    best: Mapping[Form, Model],
    *,
    dev: Metrics | None,
    scores: dict[str, Metrics],
    seconds: float,
    recipe: str | None,
    notes: list[str],
) -> Result:
    """The content of result.json.

    Args:
        run: The run, its stages done.
        given: The config with every default written out.
        data: What was read.
        cycles: The models of each cycle, one cycle for methods that have none.
        best: The model that is kept of each form.
        dev: Dev metric of the start and of the kept models.
        scores: Test metrics of the same.
        seconds: Wall time of this process.
        recipe: Name of the recipe that the config comes from.
        notes: What else to know before trusting the numbers.
    """
    texts = keep_texts(run, data)
    keep_gold(run, data)
    stages = run.stages
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
        "cycles": cycle_records(cycles),
        "best": best_records(best, ""),
        "dev": dev,
        "scores": scores,
        "analysis": analysis_of(cycles) if given.test_every_eval else None,
        "stages": stages,  # type: ignore[typeddict-item]
        "seconds": max(seconds, sum(stage["seconds"] for stage in stages)),
        "notes": notes,
    }
    if recipe is not None:
        result["recipe"] = recipe
    return result


def finish(run: Run, result: Result, best: Mapping[Form, Model], members: Sequence[Mapping[Form, Model]] = ()) -> None:
    """Put the models where the user finds them, write the record, then the report.

    Args:
        run: The run, its stages done.
        result: The content of result.json.
        best: The model that is kept of each form.
        members: The same of each member, where the result has several.
    """
    run.set_outdated_result_aside()
    if distributed.rank() == 0:
        for form, model in best.items():
            _export(run, _of_model(result, form), form, model, run.folder / FOLDERS[form])
        for number, models in enumerate(members if "members" in result else (), 1):
            own = of_member(result, number)
            for form, model in models.items():
                target = run.folder / MEMBERS / str(number) / FOLDERS[form]
                _export(run, _of_model(own, form, number), form, model, target)
    result["intervals"] = distributed.broadcast(
        intervals_record(drawn_intervals(Evidence(run.folder, result))) if distributed.rank() == 0 else {}
    )
    run.finish(result)
    if distributed.rank() == 0:
        write_report(run.folder)


def _of_model(result: Result, form: Form, number: int | None = None) -> Result:
    """What the card of one model of several members is written from: the config names that member alone."""
    number = number or result["best"][form].get("member")
    if number is None:
        return result
    members = result["config"]["members"]
    others = [shown_source(str(member["start"])) for i, member in enumerate(members, 1) if i != number]
    about = (
        f"{result['about']} This model is of member {number} of {len(members)}; the others started from "
        f"{' and '.join(f'`{start}`' for start in others)}."
    )
    return {**result, "config": result["config"] | {"members": [members[number - 1]]}, "about": about}


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


def cycle_records(cycles: list[dict[Form, Model]]) -> list[Cycle]:
    """Each cycle's models for result.json."""
    return [
        {"cycle": i} | {form: _form_record(model) for form, model in models.items()}  # type: ignore[misc]
        for i, models in enumerate(cycles, 1)
    ]


def best_records(best: Mapping[Form, Model], parent: str) -> dict[Form, Best]:
    """The kept models for result.json, exported below `parent`."""
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
    """What `test_every_eval` recorded, for result.json."""
    curves: dict[str, list[tuple[int, int, dict[str, float | None]]]] = {}
    for form, model in (item for models in cycles for item in models.items()):
        curves.setdefault(form, []).extend((model.cycle, step, values) for step, values in model.others("test_"))
    return curves


def _plain(config: Method[Any]) -> dict[str, Any]:
    """The config for result.json: no token, a Dataset by its number of rows."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Dataset):
            value = f"a Dataset of {len(value)} rows"
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        elif field.name == "members":
            value = [dataclasses.asdict(member) for member in value]
        values[field.name] = value
    values["token"] = None
    return values


def _export(run: Run, result: Result, form: Form, model: Model, target: Path) -> None:
    unfinished = run.folder / f".tmp-{FOLDERS[form]}"
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(model.folder, unfinished)
    atomic_write_text(unfinished / "README.md", model_card(result, form))
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished.rename(target)
