"""Which label-free criterion can replace a dev set: correlation with dev and regret, over runs that recorded both.

    transencoder recipes run trans-encoder/twin-criteria-minilm-3     # and the others of this name
    python benchmarks/selection.py runs/trans-encoder/twin-criteria-*

A choice is made among the checkpoints of one training, or of all trainings of a form in a run. Its regret is the best
dev metric among them minus that of the chosen one, in points. The tables on stopping show how dev changes in another
cycle where a criterion says that the cycle is better, and where it does not. The `left out` tables show, for each base
model, the criterion with the lowest mean regret on the runs of all other base models, and its regret on the runs of
this one.

Writes results/selection.json, .md and .png, and the package's regrets.json, from which the package takes its default
criterion and what reports say about it.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from transencoder.records import Cycle, Result
from transencoder.report.words import markdown_table
from transencoder.results import read_result

FORMS: tuple[Literal["bi", "cross"], ...] = ("bi", "cross")
SCOPES = ("training", "run")
LAST = "last checkpoint"
MEAN = "any, on average"
MEMBERS = "member_agreement"
REGRETS = Path(__file__).parents[1] / "src" / "transencoder" / "regrets.json"


@dataclass(frozen=True)
class Choice:
    """Checkpoints to choose from, in the order in which they were made."""

    run: str
    start: str
    form: str
    scope: str
    dev: list[float]
    criteria: dict[str, list[float]]

    @property
    def correlations(self) -> dict[str, float]:
        """Spearman's rank correlation of each criterion with dev, -1 to 1; those that are undefined are left out."""
        found = {
            name: spearmanr(values, self.dev).statistic for name, values in self.criteria.items() if _varies(values)
        }
        return {name: float(value) for name, value in found.items()} if _varies(self.dev) else {}

    @property
    def regrets(self) -> dict[str, float]:
        """Regret of each criterion in points of dev, 0 or more, also of the last checkpoint and of any on average."""
        chosen = {name: self.dev[int(np.argmax(values))] for name, values in self.criteria.items()}
        chosen |= {LAST: self.dev[-1], MEAN: statistics.mean(self.dev)}
        return {name: max(self.dev) - value for name, value in chosen.items()}


def main() -> None:
    """Read the runs, write the tables and the plot."""
    options = _options()
    choices = [choice for folder in options.runs for choice in choices_of(read_result(folder), folder.name)]
    runs = {choice.run.partition(", member ")[0] for choice in choices}
    starts = sorted({choice.start for choice in choices})
    page = [f"{len(runs)} runs, {len(starts)} starts: {', '.join(starts)}.", ""]
    for form in FORMS:
        for scope in SCOPES:
            chosen = [choice for choice in choices if (choice.form, choice.scope) == (form, scope)]
            page += [f"{form}-encoder, among the checkpoints of a {scope} ({len(chosen)} choices):", ""]
            page += [*table(chosen), "", *left_out_lines(chosen), ""]
            if scope == "training":
                page += [f"{form}-encoder, whether another cycle is better:", "", *stopping_lines(chosen), ""]
            of_members = [choice for choice in chosen if MEMBERS in choice.criteria]
            if 0 < len(of_members) < len(chosen):
                page += [f"Of runs with several members ({len(of_members)} choices):", "", *table(of_members), ""]
    page += ["![what each criterion says of checkpoints, against dev](selection.png)", ""]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "selection.md").write_text("\n".join(page))
    REGRETS.write_text(json.dumps(regrets(choices, len(runs), len(starts)), indent=1) + "\n")
    kept = [asdict(choice) | {"regrets": choice.regrets, "correlations": choice.correlations} for choice in choices]
    (options.results / "selection.json").write_text(json.dumps(kept, indent=1) + "\n")
    plot(choices, options.results / "selection.png")
    print("\n".join(page))


def choices_of(result: Result, run: str) -> Iterator[Choice]:
    """Yield the choices that a run offers: for each member those of each training, and of each form over all cycles."""
    members = result.get("members") or [result]
    for number, (member, config) in enumerate(zip(members, result["config"]["members"], strict=True), 1):
        name = f"{run}, member {number}" if len(members) > 1 else run
        yield from _choices_of_member(member["cycles"], str(config["start"]), name)


def _choices_of_member(cycles: list[Cycle], start: str, run: str) -> Iterator[Choice]:
    for form in FORMS:
        trainings = [cycle[form] for cycle in cycles if form in cycle]
        points = [_points(training) for training in trainings]
        for scope, groups in (("training", points), ("run", [sum(points, [])])):
            for group in groups:
                names = group[0][1]
                criteria = {name: [_number(values[name]) for _, values in group] for name in names}
                yield Choice(run, start, form, scope, [dev for dev, _ in group], criteria)


def table(choices: list[Choice]) -> list[str]:
    """Return a table with a line for each criterion, the lowest mean regret first."""
    rows = []
    for name in sorted(_common(choices), key=lambda name: _mean_regret(choices, name)):
        found = [choice.correlations[name] for choice in choices if name in choice.correlations]
        regrets = [choice.regrets[name] for choice in choices]
        correlation = f"{statistics.mean(found):.2f}" if found else "–"
        rows.append((name, correlation, f"{statistics.mean(regrets):.2f}", f"{max(regrets):.2f}"))
    return markdown_table(("criterion", "correlation", "mean regret", "worst regret"), rows)


def left_out_lines(choices: list[Choice]) -> list[str]:
    """Return a table of the regret on each base model's runs, with the criterion chosen on the others' runs."""
    rows, mean = _left_out(choices)
    rows.append(("all", "", f"{mean:.2f}", f"{_mean_regret(choices, LAST):.2f}"))
    return markdown_table(("start left out", "criterion chosen on the others", "mean regret", LAST), rows)


def _left_out(choices: list[Choice]) -> tuple[list[tuple[str, ...]], float]:
    """Return a line for each base model, and the mean regret over all of their runs."""
    rows, regrets = [], []
    for start in sorted({choice.start for choice in choices}):
        own = [choice for choice in choices if choice.start == start]
        others = [choice for choice in choices if choice.start != start]
        best = min(_common(choices), key=lambda name: _mean_regret(others, name))
        regrets += [choice.regrets[best] for choice in own]
        rows.append((start, best, f"{_mean_regret(own, best):.2f}", f"{_mean_regret(own, LAST):.2f}"))
    return rows, statistics.mean(regrets)


def stopping_lines(trainings: list[Choice]) -> list[str]:
    """Return a table of how dev changed in another cycle, where a criterion says that the cycle is better or is not.

    Each cycle is represented by the checkpoint that the criterion rates highest.
    """
    rows = []
    for name in (each for each in _common(trainings) if each not in (LAST, MEAN)):
        said: dict[bool, list[float]] = {True: [], False: []}
        for earlier, later in zip(trainings, trainings[1:], strict=False):
            if earlier.run == later.run:
                before, after = (int(np.argmax(each.criteria[name])) for each in (earlier, later))
                is_better = later.criteria[name][after] > earlier.criteria[name][before]
                said[is_better].append(later.dev[after] - earlier.dev[before])
        rows.append((name, *(cell for is_better in (True, False) for cell in _gains(said[is_better]))))
    header = ("criterion", "says go on", "dev rose", "mean", "says stop", "dev fell or stayed", "mean")
    return markdown_table(header, [(*row[:5], f"{int(row[4]) - int(row[5])}", row[6]) for row in rows])


def _gains(points: list[float]) -> tuple[str, str, str]:
    """Return the number of points, the number above 0, and the mean."""
    return f"{len(points)}", f"{sum(each > 0 for each in points)}", f"{statistics.mean(points):+.2f}" if points else "–"


def regrets(choices: list[Choice], n_runs: int, n_starts: int) -> dict[str, Any]:
    """Return mean regrets of choosing among all checkpoints of a run, by form, of criteria and the last checkpoint."""
    found: dict[str, Any] = {"runs": n_runs, "starts": n_starts}
    for form in FORMS:
        chosen = [choice for choice in choices if (choice.form, choice.scope) == (form, "run")]
        names = [name for name in _common(chosen) if name not in (LAST, MEAN)]
        means = {name: _mean_regret(chosen, name) for name in names} | {"last": _mean_regret(chosen, LAST)}
        found[form] = {name: round(value, 2) for name, value in means.items()}
        found[form]["left_out"] = round(_left_out(chosen)[1], 2)
    return found


def plot(choices: list[Choice], path: Path) -> None:
    """Plot dev against each criterion, both minus their means in the training, with a colour for each training."""
    names = list(dict.fromkeys(name for choice in choices for name in choice.criteria))
    figure = Figure(figsize=(3 * len(names), 6), layout="constrained")
    grid = figure.subplots(len(FORMS), len(names), squeeze=False)
    for axes, form in zip(grid, FORMS, strict=True):
        for ax, name in zip(axes, names, strict=True):
            trainings = [each for each in choices if (each.form, each.scope) == (form, "training")]
            for choice in (each for each in trainings if name in each.criteria):
                values = np.array(choice.criteria[name])
                ax.plot(values - values.mean(), np.array(choice.dev) - np.mean(choice.dev), ".", markersize=4)
            ax.set_title(f"{form}: {name}", fontsize=8)
            ax.set_visible(bool(ax.get_lines()))
        axes[0].set_ylabel("dev less its mean in the training", fontsize=8)
    figure.savefig(path, dpi=110)


def _points(training: Any) -> list[tuple[float, dict[str, Any]]]:
    """Return (dev, criteria) of each evaluation that has a dev metric."""
    dev = {step: value for step, value in training["curve"] if value is not None}
    return [(dev[step], values) for step, values in training["criteria"] if step in dev]


def _common(choices: list[Choice]) -> list[str]:
    """Return the criteria that all choices have, because some need several members."""
    return [name for name in choices[0].regrets if all(name in choice.regrets for choice in choices)]


def _mean_regret(choices: list[Choice], name: str) -> float:
    return statistics.mean(choice.regrets[name] for choice in choices)


def _varies(values: list[float]) -> bool:
    return len(values) > 2 and bool(np.isfinite(values).all()) and min(values) < max(values)


def _number(value: float | None) -> float:
    """Return the value of a criterion, minus infinity if it is undefined."""
    return -np.inf if value is None else value


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="finished runs that recorded the criteria")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
