"""What labels gain in small-scale runs: DvBERT against SBERT, annealing against fixed weights, few labels against none.

    transencoder recipes run dvbert/twin-sbert dvbert/twin dvbert/twin-one dvbert/twin-weights ...
    python benchmarks/labels.py runs/dvbert/twin-* runs/trans-encoder/twin-few*

Adds the runs to results/labels.json, which keeps those of earlier calls, and writes results/labels.md and labels.png.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from twins import Record, kept_with, table

Series = dict[float, list[float]]
"""Scores of all seeds, by the value that varies."""


def main() -> None:
    """Add the runs to the record; write the table and the plot of all runs."""
    options = _options()
    record = kept_with(options.runs, options.results / "labels.json")
    page = f"![STS-B by labels; STS by the teacher's share and by step](labels.png)\n\n{table(record)}\n"
    (options.results / "labels.md").write_text(page)
    plot(record, options.results / "labels.png")
    print(page)


def plot(record: Record, path: Path) -> None:
    """Draw three panels: STS-B by number of labels, STS by the teacher's share, STS by step."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    few, shares, steps = figure.subplots(1, 3)
    for name, series in by_labels(record).items():
        _draw(few, name, series)
    few.set_xscale("symlog", linthresh=20)
    few.set_xticks([0, 50, 500, 5732], labels=["0", "50", "500", "5,732"])
    few.set(xlabel="labels of STS-B", ylabel="STS-B test (Spearman x 100)")
    _draw(shares, "fixed", by_share(record))
    for name, recipe, color in (("annealed", "dvbert/twin-one", "C1"), ("no teacher", "dvbert/twin-sbert", "C2")):
        if averages := _averages(record.get(recipe, {}), "bi"):
            shares.axhline(statistics.mean(averages), color=color, linestyle="--", label=name)
    shares.set(xlabel="share of the teacher (alpha)", ylabel="average of six STS sets")
    for name, series in by_step(record).items():
        _draw(steps, name, series)
    steps.set(xlabel="step", ylabel="average of six STS sets")
    for ax in (few, shares, steps):
        ax.grid(alpha=0.3)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.savefig(path, dpi=120)


def by_labels(record: Record) -> dict[str, Series]:
    """Return STS-B test scores by number of labels, used in Trans-Encoder, after it, or in fine-tuning alone.

    The scores at 0 labels are those of Trans-Encoder without labels, and the base model's for fine-tuning alone.
    """
    few, none = record.get("trans-encoder/twin-few", {}), record.get("trans-encoder/twin-few-none", {})
    alone, after = record.get("dvbert/twin-few-sbert", {}), record.get("dvbert/twin-few-after", {})
    return {
        "Trans-Encoder, cross": {0.0: _averages(none, "cross"), **_by(few, "n_labelled", "cross")},
        "Trans-Encoder, bi": {0.0: _averages(none, "bi"), **_by(few, "n_labelled", "bi")},
        "Trans-Encoder, then fine-tuning, bi": {0.0: _averages(none, "bi"), **_by(after, "n_labelled", "bi")},
        "fine-tuning alone, bi": {0.0: _averages(alone, "start"), **_by(alone, "n_labelled", "bi")},
    }


def by_share(record: Record) -> Series:
    """Return averages of six STS sets by the teacher's fixed share (DvBERT, Figure 3)."""
    return _by(record.get("dvbert/twin-weights", {}), "soft_share", "bi")


def by_step(record: Record) -> dict[str, Series]:
    """Return averages of six STS sets by training step, with teachers and without (DvBERT, Figure 2)."""
    found: dict[str, Series] = {}
    for name, recipe in (("DvBERT", "dvbert/twin"), ("SBERT", "dvbert/twin-sbert")):
        for each in record.get(recipe, {}).values():
            series = found.setdefault(name, {})
            series.setdefault(0.0, []).append(_average(each["scores"][""]["start"]))
            for _, step, scores in each["analysis"]["bi"]:
                series.setdefault(float(step), []).append(_average(scores))
    return found


def _by(runs: dict[str, dict[str, Any]], name: str, form: str) -> Series:
    """Return the scores of all seeds, by the value of a setting in the runs' names, such as `n_labelled=50 seed=1`."""
    found: Series = {}
    for varied, each in runs.items():
        value = dict(part.split("=") for part in varied.split(" "))[name]
        found.setdefault(float(value), []).extend(_averages({varied: each}, form))
    return found


def _averages(runs: dict[str, dict[str, Any]], form: str) -> list[float]:
    return [_average(each["scores"][""][form]) for each in runs.values()]


def _average(scores: dict[str, float]) -> float:
    return statistics.mean(scores.values())


def _draw(ax: Axes, name: str, series: Series) -> None:
    """Draw a line through the means and a dot for each seed."""
    points = sorted((x, values) for x, values in series.items() if values)
    (line,) = ax.plot([x for x, _ in points], [statistics.mean(values) for _, values in points], label=name)
    dots = [(x, value) for x, values in points for value in values]
    ax.plot([x for x, _ in dots], [value for _, value in dots], ".", color=line.get_color())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="finished runs of recipes")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
