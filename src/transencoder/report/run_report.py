"""report.html, its plots and report.md of a finished run, from its records alone."""

from pathlib import Path, PurePath
from typing import Any

from transencoder.configs import Form
from transencoder.finished import Evidence, drawn_intervals, intervals_of, intervals_record
from transencoder.progress import duration
from transencoder.records import FORM_TITLES, GOLD, PLOTS, SAMPLE, Result
from transencoder.report.card import reproduction
from transencoder.report.curves import curve_plots
from transencoder.report.data import MIX_HEADER, mined_plot, mined_said, mining_lines, mix_rows, texts_of
from transencoder.report.figures import Plot, write_plots
from transencoder.report.labels import disagreements_of, shown_lessons
from transencoder.report.notes import notes_of
from transencoder.report.rendering import render
from transencoder.report.scores import (
    BRACKETS,
    GAIN_BRACKETS,
    gain_plot,
    member_rows,
    score_cells,
    score_header,
    score_rows,
    shown_metrics,
    size_cells,
    summary_of,
    unlabelled_of,
)
from transencoder.report.verdict import verdict_of
from transencoder.report.words import (
    all_settings,
    changed_settings,
    data_sets,
    environment_of,
    pretraining_line,
    settings_line,
    starts_of,
)
from transencoder.results import form_cycle, forms_of, has_cycles, read_result, training_data
from transencoder.runs import atomic_write_bytes, atomic_write_text
from transencoder.wording import number

_FORMS: tuple[Form, ...] = ("cross", "bi", "mlm")
"""In the order in which a cycle trains them."""

_ADD_RECORDS = "Run its command again: finished stages are reused, and what is missing is added."

Values = dict[str, Any]
"""What a template needs, by the names that it has there."""


def write_report(run_folder: str | Path) -> Path:
    """Write report.html, `plots` with a PNG of each of its plots, and report.md into the run folder.

    Returns:
        The path of report.html.

    Raises:
        RunError: the run is not finished or its result is damaged.
    """
    folder = Path(run_folder)
    result = read_result(folder)
    evidence = Evidence(folder, result)
    if "intervals" not in result:  # of an earlier version
        result["intervals"] = intervals_record(drawn_intervals(evidence))
    values, plots = _page(evidence)
    values["drawings"] = write_plots(plots, folder / PLOTS)
    write_html(folder / "report.html", render("run.html.jinja", values))
    (folder / "curves.png").unlink(missing_ok=True)  # earlier versions' only plot must not stand beside this report
    atomic_write_text(folder / "report.md", report_text(result))
    return folder / "report.html"


def write_html(path: Path, text: str) -> None:
    """Write a page; what has no UTF-8 form, half of a character, becomes a question mark."""
    atomic_write_bytes(path, text.encode("utf-8", "replace"))


def title_of(result: Result) -> str:
    """Return the recipe's name, else the run folder's."""
    return result.get("recipe") or PurePath(str(result["config"].get("output", ""))).name or result["method"]


def report_text(result: Result) -> str:
    """Return the report in Markdown."""
    mined, unlabelled = training_data(result)[1].get("mined"), unlabelled_of(result)
    weights = [f"{member.get('weight', 1.0):g}" for member in result["config"].get("members") or []]
    dev_forms, dev_rows = _dev_rows(result)
    stages = [(each["name"], duration(each["seconds"]), "reused" * each["reused"]) for each in result["stages"]]
    values = _common(result) | {
        "settings": settings_line(result),
        "metrics": shown_metrics(result),
        "header": score_header(result),
        "rows": [score_cells(row) for row in score_rows(result)],
        "weights": weights,
        "member_rows": [score_cells(row) for row in member_rows(result)],
        "unlabelled_header": ("", *unlabelled.header, "what it says") if unlabelled else (),
        "unlabelled_rows": [(name, *cells, about) for name, about, cells in unlabelled.rows] if unlabelled else [],
        "has_cycles": has_cycles(result),
        "dev_header": ("", *(FORM_TITLES[form] for form in dev_forms)),
        "dev_rows": dev_rows,
        "curves": list(curve_plots(result)),
        "plot_folder": PLOTS,
        "mining_lines": mining_lines(mined) if mined else [],
        "stage_rows": [*stages, ("whole run", duration(result["seconds"]), "")],
        **reproduction(result),
    }
    return render("report.md.jinja", values)


def _common(result: Result) -> Values:
    """Return what both forms of the report show."""
    return {
        "result": result,
        "starts": starts_of(result),
        "verdict": None if "mlm" in result["best"] else verdict_of(result).sentence,
        "pretraining": pretraining_line(result),
        "notes": notes_of(result),
        "unlabelled": unlabelled_of(result),
        "data_sets": list(data_sets(result)),
        "sizes": size_cells(result["sizes"]) if "sizes" in result else None,
    }


def _dev_rows(result: Result) -> tuple[list[Form], list[tuple[str, ...]]]:
    """Return the forms, and what dev said of the base model and of each form after each cycle."""
    forms = [form for form in _FORMS if form in forms_of(result)]
    rows = [("base model", *("" for _ in forms[1:]), number((result["dev"] or {}).get("start")))]
    for cycle in result["cycles"]:
        cells = []
        for form in forms:
            part, best = form_cycle(cycle, form), result["best"].get(form)
            shown = number(part["dev"] if part else None)
            cells.append(f"**{shown}**" if best and best["cycle"] == cycle["cycle"] else shown)
        rows.append((f"cycle {cycle['cycle']}" if has_cycles(result) else "trained", *cells))
    return forms, rows


def _page(evidence: Evidence) -> tuple[Values, list[Plot]]:
    """Return what the page's template needs, and all plots of the page."""
    result = evidence.result
    lessons, absent_lessons = shown_lessons(evidence)
    rows, intervals, texts, curves = score_rows(result), intervals_of(result), texts_of(result), [*curve_plots(result)]
    is_tested = any(result["scores"].values())
    gains = gain_plot(rows, intervals) if is_tested else None
    mined, sample = training_data(result)[1].get("mined"), evidence.sample()
    histogram = mined_plot(mined) if mined else None
    is_comparable = sample is not None and len(sample.scores) > 1 and len(sample.rows) > 1
    without = [row.name for row in rows if row.name not in intervals]
    of_lessons = [plot for lesson in lessons for plot in lesson.plots]
    values = _common(result) | {
        "title": title_of(result),
        "facts": run_facts(result),
        "forms": forms_of(result),
        "summary": summary_of(result, rows, intervals),
        "rows": rows,
        "intervals": intervals,
        "gains": gains,
        "metrics": shown_metrics(result),
        "brackets": f"{BRACKETS}; {GAIN_BRACKETS}.",
        "without_interval": without if is_tested else [],
        "no_gold": _why_absent(result, GOLD, "the gold scores of its tests"),
        "member_rows": member_rows(result),
        "curves": curves,
        "has_labels": evidence.has_labels,
        "lessons": lessons,
        "absent_lessons": absent_lessons,
        "disagreements": disagreements_of(sample) if is_comparable and sample else None,
        "no_sample": _why_absent(result, SAMPLE, "its models' scores of single training pairs"),
        "texts": texts,
        "no_texts": _why_absent(result, "texts", "numbers about its training text"),
        "mining": {"said": mined_said(mined), "header": MIX_HEADER, "mix": mix_rows(mined)} if mined else None,
        "mined_plot": histogram,
        "longest_stage": max([stage["seconds"] for stage in result["stages"]], default=0.0) or 1.0,
        "command": reproduction(result)["command"],
        "environment": environment_of(result),
        "changed": changed_settings(result),
        "settings": all_settings(result["config"]),
    }
    plots = [gains, *curves, *of_lessons, texts.lengths if texts else None, histogram]
    return values, [plot for plot in plots if plot is not None]


def run_facts(result: Result) -> list[tuple[str, str]]:
    """Return what tells a run from others, each with its title."""
    return [
        ("Method", result["method"]),
        ("Base model", " + ".join(starts_of(result)) or "none"),
        ("Seed", str(result["seed"])),
        ("Took", duration(result["seconds"])),
        ("Finished", f"{result['finished'][:16].replace('T', ' ')} UTC"),
    ]


def _why_absent(result: Result, stage: str, what: str) -> str:
    """Say why a page goes without something that a stage keeps, and what to do."""
    if any(each["name"] == stage for each in result["stages"]):
        return f"This run kept {what}, but its stages were removed."
    return f"This run was made by an earlier version, which did not keep {what}. {_ADD_RECORDS}"
