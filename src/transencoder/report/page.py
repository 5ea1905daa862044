"""report.html of a finished run: one file that loads nothing, and a PNG of each of its plots beside it."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from transencoder.files import whole_folder
from transencoder.finished import Evidence, intervals_of
from transencoder.progress import duration
from transencoder.records import PLOTS, SAMPLE, Result
from transencoder.report.disagreements import disagreements_of
from transencoder.report.inputs import data_sets, texts_of
from transencoder.report.lessons import shown_lessons
from transencoder.report.mining import MIX_HEADER, mined_said, mix_rows
from transencoder.report.notes import notes_of
from transencoder.report.plots import Plot, curve_plots, gain_plot, mined_plot, png
from transencoder.report.rendering import render
from transencoder.report.summary import score_caption, score_remarks, summary_of, why_absent
from transencoder.report.tables import member_rows, score_rows, shown_metrics, size_cells
from transencoder.report.text import environment_of, pretraining_lines, reproduce_command, settings_of, starts_of
from transencoder.report.unlabelled import unlabelled_of
from transencoder.report.verdict import verdict_of
from transencoder.results import forms_of, training_data
from transencoder.runs import atomic_write_bytes

Values = dict[str, Any]
"""What a part of the template needs, by the names that it has there."""


def write_page(folder: Path, result: Result) -> Path:
    """Write report.html and its plots into the run folder.

    Args:
        folder: The run folder.
        result: Its record.

    Returns:
        The path of report.html.
    """
    path = folder / "report.html"
    values, plots = _content(Evidence(folder, result))
    write_plots(plots, folder / PLOTS)
    write_html(path, render("run.html", values))
    return path


def write_html(path: Path, text: str) -> None:
    """Write a page; what has no UTF-8 form, half of a character, becomes a question mark."""
    atomic_write_bytes(path, text.encode("utf-8", "replace"))


def write_plots(plots: Sequence[Plot], folder: Path) -> None:
    """Draw the plots into a folder, in the place of those that were there."""
    if not plots:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with whole_folder(folder) as draft:
        for plot in plots:
            png.write_png(plot, draft / f"{plot.name}.png")
        shutil.rmtree(folder, ignore_errors=True)


def title_of(result: Result) -> str:
    """The recipe's name, else the run folder's."""
    return result.get("recipe") or PurePath(str(result["config"].get("output", ""))).name or result["method"]


def _content(evidence: Evidence) -> tuple[Values, list[Plot]]:
    """What the template needs, and all plots of the page."""
    result = evidence.result
    lessons, absent_lessons = shown_lessons(evidence)
    scores, texts, curves, mining = _scores(evidence), texts_of(result), list(curve_plots(result)), _mining(result)
    of_texts = [texts and texts.lengths, mining and mining["histogram"]]
    plots = [scores["gains"], *curves, *(plot for lesson in lessons for plot in lesson.plots), *of_texts]
    values = {
        "title": title_of(result),
        "result": result,
        "facts": _facts(result),
        "forms": forms_of(result),
        "verdict": None if "mlm" in result["best"] else verdict_of(result).sentence,
        "notes": [*filter(None, pretraining_lines(result)), *notes_of(result)],
        **scores,
        "unlabelled": unlabelled_of(result),
        "curves": curves,
        "has_labels": evidence.has_labels,
        "lessons": lessons,
        "absent_lessons": absent_lessons,
        **_disagreements(evidence),
        "data_sets": list(data_sets(result)),
        "texts": texts,
        "no_texts": why_absent(result, "texts", "numbers about its training text"),
        "mining": mining,
        "stages": _stages(result),
        "sizes": size_cells(result["sizes"]) if "sizes" in result else None,
        "command": reproduce_command(result),
        "environment": environment_of(result),
        "settings": settings_of(result["config"]),
    }
    return values | {"contents": _contents(values)}, [plot for plot in plots if plot is not None]


def _scores(evidence: Evidence) -> Values:
    result = evidence.result
    rows, intervals = score_rows(result), intervals_of(result)
    is_tested = any(result["scores"].values())
    return {
        "summary": summary_of(result, rows, intervals),
        "rows": rows,
        "intervals": intervals,
        "gains": gain_plot(rows, intervals) if is_tested else None,
        "score_caption": score_caption(result, intervals),
        "score_remarks": score_remarks(result, rows, intervals) if is_tested else [],
        "member_rows": member_rows(result) if "members" in result and rows else [],
        "member_caption": f"{shown_metrics(result)}: averages, or the only test. The ensemble is the members' mean.",
    }


def _disagreements(evidence: Evidence) -> Values:
    sample = evidence.sample()
    is_comparable = sample is not None and len(sample.scores) > 1 and len(sample.rows) > 1
    return {
        "disagreements": disagreements_of(sample) if sample is not None and is_comparable else None,
        "no_sample": why_absent(evidence.result, SAMPLE, "what its models say of single training pairs"),
    }


def _mining(result: Result) -> Values | None:
    record = training_data(result)[1].get("mined")
    if record is None:
        return None
    return {
        "said": mined_said(record),
        "header": MIX_HEADER,
        "mix": mix_rows(record),
        "histogram": mined_plot(record),
    }


def _facts(result: Result) -> list[tuple[str, str]]:
    starts = " + ".join(starts_of(result))
    return [
        ("Method", result["method"]),
        *([("Started from", starts)] if starts else []),
        ("Finished", result["finished"][:16].replace("T", " ") + " UTC"),
        ("Took", duration(result["seconds"])),
        ("Seed", str(result["seed"])),
    ]


def _contents(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    labelled = [("labels", "Labels"), ("disagreements", "Disagreements")] if values["has_labels"] else []
    return [
        ("short", "In short"),
        *([("scores", "Scores")] if values["rows"] else []),
        *([("unlabelled", "Without labels")] if values["unlabelled"] else []),
        ("curves", "Curves"),
        *labelled,
        ("data", "What went in"),
        ("time", "Time"),
        ("again", "How to make it again"),
    ]


def _stages(result: Result) -> list[Values]:
    longest = max([stage["seconds"] for stage in result["stages"]], default=0.0) or 1.0
    return [
        {**stage, "time": duration(stage["seconds"]), "share": f"{100 * stage['seconds'] / longest:.1f}"}
        for stage in result["stages"]
    ]
