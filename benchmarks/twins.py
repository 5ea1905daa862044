"""The papers' ablations, small-scale: a table over seeds and the dev curves, from the records of runs.

    transencoder recipes run RECIPE                        # one that varies its seed
    python benchmarks/twins.py runs/trans-encoder/RECIPE-seed-*
    python benchmarks/twins.py --name students runs/*/twin-3-seed-*     # SCT's and its competitors'

Adds the runs to results/twins.json, which keeps those of earlier calls, and writes results/twins.md and twins.png.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from transencoder.records import Result
from transencoder.report.words import markdown_table
from transencoder.results import mean_over, of_ensemble, of_member, read_result, tests_by_metric

FORMS = ("start", "bi", "cross")
BINARY = ("qqp", "qnli", "mrpc")

Record = dict[str, dict[str, dict[str, Any]]]
"""Rows of runs, by recipe and then by the values that vary, the seed last."""


def main() -> None:
    """Add the runs to the record; write the table and the plot of all runs."""
    options = _options()
    record = kept_with(options.runs, options.results / f"{options.name}.json")
    binary = binary_table(record)
    more = f"\nBinary tasks one by one, and across tasks:\n\n{binary}\n" if binary.count("\n") > 1 else ""
    page = f"{table(record)}\n{more}\n![dev metrics of each run, step by step]({options.name}.png)\n"
    (options.results / f"{options.name}.md").write_text(page)
    plot(record, options.results / f"{options.name}.png")
    print(page)


def kept_with(runs: Iterable[Path], file: Path) -> Record:
    """Add these runs to the record in a file; return the record."""
    record: Record = json.loads(file.read_text()) if file.exists() else {}
    for folder in runs:
        result = read_result(folder)
        commit = result["environment"].get("commit")
        if commit is None or "-dirty" in commit:
            raise SystemExit(f"{folder} comes from {commit or 'no commit'}: run it again from a clean commit")
        if "recipe" not in result:
            raise SystemExit(f"{folder} was started with --set or by hand: put the values into a recipe, and run that")
        recipe, _, varied = result["recipe"].partition(" ")
        record.setdefault(recipe, {})[varied.replace("--vary ", "")] = row(result)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return record


def short(recipe: str) -> str:
    """Return a recipe's name, without its method if that is Trans-Encoder."""
    return recipe.removeprefix("trans-encoder/")


def row(result: Result) -> dict[str, Any]:
    """Return the row of a run: each member's scores, dev metrics and curves, its cost and its environment."""
    views = {"": result}
    if "members" in result:
        views = {f"member {i}": of_member(result, i) for i in range(1, len(result["members"]) + 1)}
        views["ensemble"] = of_ensemble(result)
    return {
        "scores": {whose: view["scores"] for whose, view in views.items()},
        "dev": {whose: view["dev"] for whose, view in views.items()},
        "curves": {whose: view["cycles"] for whose, view in views.items() if whose != "ensemble"},
        "tests": tests_by_metric(result),
        "seed": result["seed"],
        "minutes": result["seconds"] / 60,
        "precision": result["config"]["precision"],
        "commit": result["environment"].get("commit"),
        "threads": result["environment"].get("threads"),
        **({"analysis": result["analysis"]} if result["analysis"] else {}),
    }


def table(record: Record) -> str:
    """Return a line for each recipe, variation and member: mean and standard deviation over seeds."""
    lines = []
    for recipe, runs in sorted(record.items()):
        for variation, group in _over_seeds(runs).items():
            for whose in group[0]["scores"]:
                name = " ".join(part for part in (short(recipe), variation) if part)
                lines.append((name, whose, *_cells(group, whose)))
    header = ("run", "whose", "metric", *FORMS, "dev: start", "dev: bi", "dev: cross", "seeds", "in", "minutes")
    used = [i for i in range(len(header)) if any(line[i] not in ("", "–") for line in lines)]
    return "\n".join(markdown_table([header[i] for i in used], [[line[i] for i in used] for line in lines]))


def binary_table(record: Record) -> str:
    """Return the average rank correlation of graded tasks, and the ROC-AUC of binary ones, as in Tables 11 and 12."""
    lines = []
    for recipe, runs in sorted(record.items()):
        for variation, group in _over_seeds(runs).items():
            graded = group[0]["tests"].get("spearman", [])
            columns = [graded, *([task] for task in BINARY)]
            if not any(task in group[0]["tests"].get("roc_auc", []) for task in BINARY):
                continue
            for whose, form in itertools.product(group[0]["scores"], FORMS):
                scores = [each["scores"][whose].get(form, {}) for each in group]
                values = [_spread([mean_over(score, names) for score in scores]) for names in columns]
                lines.append((" ".join(filter(None, (short(recipe), variation, whose, form))), *values))
    return "\n".join(markdown_table(("run", "spearman", *BINARY), lines))


def _over_seeds(runs: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all seeds, by the values that vary besides the seed."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for varied, each in runs.items():
        others = " ".join(part for part in varied.split(" ") if not part.startswith("seed="))
        groups.setdefault(others, []).append(each)
    return groups


def _cells(group: list[dict[str, Any]], whose: str) -> tuple[str, ...]:
    """Return the metrics, each form's averages by metric and on dev, and the cost; all seeds have the same tests."""
    metrics, columns = dict(sorted(group[0]["tests"].items(), reverse=True)), []  # Spearman's, then ROC-AUC
    for form in FORMS:
        scores = [each["scores"][whose].get(form, {}) for each in group]
        averages = [[mean_over(score, names) for score in scores] for names in metrics.values()]
        columns.append(" / ".join(_spread(values) for values in averages))
    devs = [_spread([(each["dev"][whose] or {}).get(form) for each in group]) for form in FORMS]
    minutes = statistics.median(each["minutes"] for each in group)
    precisions = ", ".join(sorted({each["precision"] for each in group}))
    return (" / ".join(metrics), *columns, *devs, str(len(group)), precisions, f"{minutes:.1f}")


def _spread(values: Iterable[float | None]) -> str:
    """Return mean and standard deviation; a dash if a run has no such number, as when its model collapsed."""
    every = list(values)
    found = [value for value in every if value is not None]
    if not found or len(found) < len(every):
        return "–"
    deviation = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.2f}{deviation}"


def plot(record: Record, path: Path) -> None:
    """Plot dev metrics by step: a panel for each recipe and form, a line for each run, one colour for all its seeds."""
    forms = [form for form in ("cross", "bi") if any(_lines(runs, form) for runs in record.values())]
    panels = [(recipe, form) for recipe in sorted(record) for form in forms]
    n_rows = -(-len(panels) // 2)
    figure = Figure(figsize=(12, 2.4 * n_rows), layout="constrained")
    for ax, (recipe, form) in zip(figure.subplots(n_rows, 2, squeeze=False).flat, panels, strict=False):
        kinds = _lines(record[recipe], form)
        for n_th, (kind, lines) in enumerate(kinds.items()):
            for steps, values in lines:
                ax.plot(steps, values, f"C{n_th}.-", linewidth=1, label=kind if lines[0] == (steps, values) else None)
        rows = record[recipe].values()
        for start in {row["dev"][whose]["start"] for row in rows for whose in row["curves"]} if kinds else ():
            ax.axhline(start, color="0.4", linestyle=":", linewidth=1)
        ax.set_title(f"{short(recipe)}, {form} (dotted: start)", fontsize=8)
        ax.set_xlabel("step, cycle after cycle", fontsize=7)
        ax.set_ylabel("dev", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.set_visible(bool(kinds))
        if len(kinds) > 1 and form == forms[-1]:
            ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    for ax in figure.axes[len(panels) :]:
        ax.set_visible(False)
    figure.savefig(path, dpi=120)


def _lines(runs: dict[str, dict[str, Any]], form: str) -> dict[str, list[tuple[list[int], list[float]]]]:
    """Return steps and dev metrics of each seed, by variation and member; those without any are left out."""
    kinds = {
        f"{variation} {whose}".strip(): [_line(each["curves"][whose], form) for each in group]
        for variation, group in _over_seeds(runs).items()
        for whose in group[0]["curves"]
    }
    return {kind: lines for kind, lines in kinds.items() if any(steps for steps, _ in lines)}


def _line(cycles: list[dict[str, Any]], form: str) -> tuple[list[int], list[float]]:
    steps: list[int] = []
    values: list[float] = []
    for cycle in cycles:
        before = steps[-1] if steps else 0
        for step, value in cycle.get(form, {}).get("curve", []):
            if value is not None:
                steps.append(before + step)
                values.append(value)
    return steps, values


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="finished runs of recipes")
    parser.add_argument("--name", default="twins", help="of the record, table and plot")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
