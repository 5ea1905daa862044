"""Report of a finished run, built from its records alone: report.html, its plots and report.md."""

from itertools import combinations
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from scipy.stats import rankdata

from transencoder import results
from transencoder.configs import Form
from transencoder.errors import number
from transencoder.evidence import Evidence, Sample, StudentLabels
from transencoder.progress import duration
from transencoder.records import FORM_TITLES, IN_A_CYCLE, PLOTS, Result
from transencoder.report import plots, scores, words
from transencoder.report.figures import Plot, write_plots
from transencoder.report.verdict import notes_of, use_of, verdict_of

_N_SHOWN = 60
"""Number of pairs shown on which the models disagree."""

Values = dict[str, Any]
"""Values for a template, by the names it uses."""


def write_report(run_folder: str | Path, result: Result | None = None) -> Path:
    """Write report.html, report.md and the folder `plots`, with a PNG of each plot, into the run folder.

    Args:
        run_folder: Folder of the run.
        result: The run's record; None: it is read from result.json.

    Returns:
        The path of report.html.

    Raises:
        RunError: the run is not finished or its result is damaged.
    """
    folder = Path(run_folder)
    result = results.with_grades(folder, result or results.read_result(folder))
    values, drawn = _page(Evidence(folder, result))
    values["drawings"] = write_plots(drawn, folder / PLOTS)
    words.write_page(folder / "report.md", report_text(result))
    return words.write_page(folder / "report.html", words.render("run.html.jinja", values))


def title_of(result: Result) -> str:
    """Return the name of the recipe, or else of the run folder, or else of the method."""
    return result.get("recipe") or PurePath(str(result["config"].get("output", ""))).name or result["method"]


def report_text(result: Result) -> str:
    """Return the report in Markdown."""
    unlabelled, (dev_forms, dev_rows) = scores.unlabelled_of(result), _dev_rows(result)
    stages = [(each["name"], duration(each["seconds"]), "reused" * each["reused"]) for each in result["stages"]]
    values = _common(result) | {
        "header": scores.score_header(result),
        "rows": [scores.score_cells(row) for row in scores.score_rows(result)],
        "member_rows": [scores.score_cells(row) for row in scores.member_rows(result)],
        "unlabelled_rows": [(name, *cells, about) for name, about, cells in unlabelled.rows] if unlabelled else [],
        "dev_header": ("", *(FORM_TITLES[form] for form in dev_forms)),
        "dev_rows": dev_rows,
        "curves": list(plots.curve_plots(result)),
        "plot_folder": PLOTS,
        "mined": results.training_data(result)[1].get("mined"),
        "stage_rows": [*stages, ("whole run", duration(result["seconds"]), "")],
    }
    return words.render("report.md.jinja", values)


def _common(result: Result) -> Values:
    """Return the values that report.html and report.md have in common."""
    return {
        "result": result,
        "verdict": None if "mlm" in result["best"] else verdict_of(result),
        "use": use_of(result),
        "notes": notes_of(result),
        "metrics": words.metrics_explained(scores.table_metrics(result)),
        "footnotes": scores.footnotes_of(result),
        "unlabelled": scores.unlabelled_of(result),
        "sizes": scores.size_cells(result["sizes"]) if "sizes" in result else None,
    }


def _dev_rows(result: Result) -> tuple[list[Form], list[tuple[str, ...]]]:
    """Return the forms, and rows with the dev metric of the base model and of each form after each cycle."""
    forms = [form for form in plots.IN_TRAINING if form in result["best"]]
    rows = [("base model", *("" for _ in forms[1:]), number((result["dev"] or {}).get("start")))]
    for cycle in result["cycles"]:
        cells = []
        for form in forms:
            shown = number(cycle[form]["dev"] if form in cycle else None)
            cells.append(f"**{shown}**" if result["best"][form]["cycle"] == cycle["cycle"] else shown)
        rows.append((f"cycle {cycle['cycle']}" if results.has_cycles(result) else "trained", *cells))
    return forms, rows


def _page(evidence: Evidence) -> tuple[Values, list[Plot]]:
    """Return the values for the page's template, and all plots of the page."""
    result, intervals = evidence.result, evidence.result["intervals"]
    student_labels = [
        (learned, _agreement(learned), plots.label_plots(learned)) for learned in evidence.student_labels()
    ]
    rows, curves = scores.score_rows(result), [*plots.curve_plots(result)]
    is_tested = any(result["scores"].values())
    gains = plots.gain_plot(rows, intervals) if is_tested and len(rows) > 1 else None
    mined, sample = results.training_data(result)[1].get("mined"), evidence.sample()
    histogram = plots.mined_plot(mined) if mined else None
    lengths = plots.length_plot(result["texts"])
    is_comparable = sample is not None and len(sample.scores) > 1 and len(sample.rows) > 1
    values = _common(result) | {
        "title": title_of(result),
        "facts": run_facts(result),
        "rows": rows,
        "intervals": intervals,
        "gains": gains,
        "brackets": f"{scores.BRACKETS}; {scores.GAIN_BRACKETS}.",
        "without_interval": [row.name for row in rows if row.name not in intervals] if is_tested else [],
        "member_rows": scores.member_rows(result),
        "curves": curves,
        "has_labels": evidence.has_labels,
        "student_labels": student_labels,
        "absent_labels": _absent(result, [learned for learned, *_ in student_labels]),
        "neighbours": evidence.neighbours(),
        "disagreements": disagreements_of(sample) if is_comparable and sample else None,
        "lengths": lengths,
        "mined": mined,
        "mined_plot": histogram,
    }
    drawn = [gains, *curves, *(plot for *_, both in student_labels for plot in both), lengths, histogram]
    return values, [plot for plot in drawn if plot is not None]


def run_facts(result: Result) -> list[tuple[str, str]]:
    """Return the facts that identify a run, each as a title and a value."""
    return [
        ("Method", result["method"]),
        ("Base model", " + ".join(words.starts_of(result)) or "none"),
        ("Seed", str(result["seed"])),
        ("Took", duration(result["seconds"])),
        ("Finished", f"{result['finished'][:16].replace('T', ' ')} UTC"),
    ]


def _agreement(learned: StudentLabels) -> tuple[float, float | None]:
    """Return the mean distance of a student's scores from its labels, and their correlation; None if undefined."""
    labels, own = learned.labels.astype(np.float64), learned.scores.astype(np.float64)
    is_defined = labels.std() > 0 and own.std() > 0
    return float(np.abs(own - labels).mean()), float(np.corrcoef(labels, own)[0, 1]) if is_defined else None


def _absent(result: Result, student_labels: list[StudentLabels]) -> list[tuple[Form, int]]:
    """Return the form and the cycle of each student whose scores were not kept."""
    there = {(learned.form, learned.cycle) for learned in student_labels}
    students = [(form, cycle["cycle"]) for cycle in result["cycles"] for form in IN_A_CYCLE if form in cycle]
    return [student for student in students if student not in there]


def disagreements_of(sample: Sample) -> Values:
    """Compare the models' ranks of the sample's pairs, because cosines and probabilities cannot be compared.

    Returns:
        `models`; `n_pairs`; `correlations`, the rank correlation of every two models over the whole sample, None where
        a model gives every pair the same score; `pairs`, the largest disagreement first: their texts, each model's
        score, its rank in the sample from 0 to 100, and the highest rank minus the lowest.
    """
    models, n_pairs = list(sample.scores), len(sample.rows)
    ranks = np.array([100 * (rankdata(own) - 0.5) / n_pairs for own in sample.scores.values()])
    spreads = ranks.max(axis=0) - ranks.min(axis=0)
    correlations = None
    if (ranks.std(axis=1) > 0).all():
        found = np.corrcoef(ranks)
        correlations = [(models[i], models[j], found[i, j]) for i, j in combinations(range(len(models)), 2)]
    pairs = [
        {
            "texts": sample.texts[row],
            "scores": {model: own[row] for model, own in sample.scores.items()},
            "ranks": dict(zip(models, ranks[:, row], strict=True)),
            "spread": spreads[row],
        }
        for row in np.argsort(-spreads, kind="stable")[:_N_SHOWN]
    ]
    return {"models": models, "n_pairs": n_pairs, "correlations": correlations, "pairs": pairs}


def notebook_html(result: Result, folder: str) -> str:
    """Return a short summary of a result in HTML, for notebooks."""
    values = {
        "verdict": verdict_of(result),
        "rows": [scores.score_cells(row) for row in scores.score_rows(result)],
        "header": scores.score_header(result),
        "metrics": words.metric_titles(scores.table_metrics(result)),
        "folder": folder,
        "forms": list(result["best"]),
    }
    return words.render("notebook.html.jinja", values)
