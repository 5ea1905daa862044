"""report.html, its plots and report.md of a finished run, from its records alone."""

from pathlib import Path

from transencoder.config import Form
from transencoder.finished import Evidence
from transencoder.progress import duration
from transencoder.records import FORM_TITLES, PLOTS, Result
from transencoder.report.mining import mining_lines
from transencoder.report.notes import notes_of
from transencoder.report.plots import curve_plots
from transencoder.report.tables import markdown_table, member_table, score_table, shown_metrics, size_table
from transencoder.report.text import data_line, gold_or, pretraining_lines, reproduce_lines, settings_line, starts_of
from transencoder.report.unlabelled import unlabelled_of
from transencoder.report.verdict import verdict_of
from transencoder.results import form_cycle, forms_of, has_cycles, read_result, training_data
from transencoder.runs import atomic_write_text
from transencoder.wording import number

_FORMS: tuple[Form, ...] = ("cross", "bi", "mlm")
"""In the order in which a cycle trains them."""


def write_report(run_folder: str | Path) -> Path:
    """Write report.html, `plots` with a PNG of each of its plots, and report.md into the run folder.

    Returns:
        The path of report.html.

    Raises:
        RunError: the run is not finished or its result is damaged.
    """
    # Imported here: `--help` must not wait for what draws and counts.
    from transencoder.finished import drawn_intervals, intervals_record
    from transencoder.report.page import write_page

    folder = Path(run_folder)
    result = read_result(folder)
    if "intervals" not in result:  # of an earlier version
        result["intervals"] = intervals_record(drawn_intervals(Evidence(folder, result)))
    path = write_page(folder, result)
    (folder / "curves.png").unlink(missing_ok=True)  # earlier versions' only plot must not stand beside this report
    atomic_write_text(folder / "report.md", report_text(result))
    return path


def report_text(result: Result) -> str:
    """The report in Markdown."""
    sections = [
        _headline(result),
        ["## Scores", "", *_scores(result)],
        *([["## Members and ensemble", "", *_members(result)]] if "members" in result else []),
        *([["## Without labels", "", *unlabelled.markdown]] if (unlabelled := unlabelled_of(result)) else []),
        ["## Notes", "", *[f"- {note}" for note in notes_of(result)]],
        [
            "## Dev per cycle" if has_cycles(result) else "## Dev",
            "",
            *_dev_table(result),
            *(line for plot in curve_plots(result) for line in ("", f"![{plot.title}]({PLOTS}/{plot.name}.png)")),
        ],
        *([["## Size and speed", "", *size_table(result["sizes"])]] if "sizes" in result else []),
        ["## Data", "", *_data(result)],
        *([["## Mining", "", *mining_lines(mined)]] if (mined := training_data(result)[1].get("mined")) else []),
        ["## Time", "", *_times(result)],
        ["## How to make it again", "", *reproduce_lines(result)],
    ]
    return "\n\n".join("\n".join(lines).rstrip() for lines in sections) + "\n"


def _headline(result: Result) -> list[str]:
    starts = " + ".join(f"`{start}`" for start in starts_of(result))
    return [
        f"# {result.get('recipe') or result['method']}",
        "",
        f"Method {result['method']}{f', started from {starts}' if starts else ''}; "
        f"finished {result['finished']}, {duration(result['seconds'])} in all.",
        "",
        *([] if "mlm" in result["best"] else [f"**{verdict_of(result).sentence}**", ""]),
        *pretraining_lines(result),
        f"Settings: {settings_line(result)}. Every default is in `result.json`.",
    ]


def _scores(result: Result) -> list[str]:
    if not any(result["scores"].values()) and not result["dev"]:
        return ["Nothing was measured: the run had neither a test set nor a dev set."]
    return [
        f"{shown_metrics(result)}; a gain is over the start, from unrounded numbers.",
        "",
        *score_table(result),
    ]


def _members(result: Result) -> list[str]:
    weights = [member.get("weight", 1.0) for member in result["config"]["members"]]
    shares = "equal shares" if len(set(weights)) == 1 else f"weights {', '.join(f'{weight:g}' for weight in weights)}"
    starts = ", ".join(f"member {number} `{start}`" for number, start in enumerate(starts_of(result), 1))
    is_measured = any(result["scores"].values()) or result["dev"]
    how = f"The ensemble is the mean of their scores, {shares}."
    if result["config"].get("ensemble_metric") == "released":
        how += (
            " Its metrics on the tests are the released code's: for bi-encoders the best of four similarities on each "
            "graded set, chosen on that set, and on binary sets the mean of the members' metrics."
        )
    return [
        f"{starts}. {how}",
        "",
        *(member_table(result) if is_measured else ["Nothing was measured."]),
    ]


def _dev_table(result: Result) -> list[str]:
    if result["dev"] is None:
        return ["The run had no dev set."]
    forms = [form for form in _FORMS if form in forms_of(result)]
    rows = [("start", *("" for _ in forms[1:]), number(result["dev"].get("start")))]
    rows += [
        (
            f"cycle {cycle['cycle']}" if has_cycles(result) else "trained",
            *(_dev_cell(result, form, i) for form in forms),
        )
        for i, cycle in enumerate(result["cycles"])
    ]
    return [
        *markdown_table(("", *(FORM_TITLES[form] for form in forms)), rows),
        "",
        *(["The kept model of each form is in bold; the start is a bi-encoder."] if has_cycles(result) else []),
    ]


def _dev_cell(result: Result, form: Form, position: int) -> str:
    cycle = result["cycles"][position]
    part = form_cycle(cycle, form)
    shown = number(part["dev"] if part else None)
    best = result["best"].get(form)
    return f"**{shown}**" if best and best["cycle"] == cycle["cycle"] else shown


def _data(result: Result) -> list[str]:
    data, dev = result["data"], result["data"]["dev"]
    texts, record = training_data(result)
    return [
        f"- training {texts}, {gold_or('unlabelled', record)}: {data_line(record)}",
        f"- dev: {data_line(dev)}" if dev else "- dev: none",
        *([f"- test {name}: {data_line(record)}" for name, record in data["tests"].items()] or ["- test: none"]),
    ]


def _times(result: Result) -> list[str]:
    rows = [
        (stage["name"], duration(stage["seconds"]), "reused" if stage["reused"] else "") for stage in result["stages"]
    ]
    return markdown_table(("stage", "time", ""), [*rows, ("whole run", duration(result["seconds"]), "")])
