"""How often a hundred graded pairs tell two models apart: drawn evenly, and as `transencoder grade` draws them.

    python benchmarks/grades.py

On the tests of ten domains, with up to 600 pairs each, gold stands for a person's grades. all-MiniLM-L6-v2 is compared
with its first 5, 4 and 3 layers, and with means of its scores and theirs, which are closer to it, in both directions.
The true difference is the one on all pairs of the test. Writes results/grades.md in ten minutes on one core.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from domain_data import DOMAINS, tests
from scipy.stats import zscore

from transencoder import load_scorer
from transencoder.encoders import truncate
from transencoder.evidence import Sample
from transencoder.grading.choice import disagreement, drawn
from transencoder.metrics import METRICS, metric_draws, row_intervals
from transencoder.models import MINILM, resolve_model
from transencoder.report.words import markdown_table

RESULT = Path(__file__).parent / "results" / "grades.md"
N_GRADES, N_DRAWS = 100, 12
SIZES = ((0.5, 1.5), (1.5, 3.0), (3.0, 6.0), (6.0, 100.0))
"""Ranges of the true difference in points: from the first number to below the second."""
WAYS = ("evenly", "by disagreement")


@dataclass(frozen=True)
class Outcome:
    """Result of comparing two models on one draw of graded pairs."""

    way: str
    true: float
    """Difference in points on all pairs of the test."""
    seen: float
    """Difference in points on the pairs of the draw."""
    is_significant: bool


def outcomes(data: Path) -> Iterator[Outcome]:
    """Compare models on draws of the tests' pairs."""
    scores = scored(data)
    for name, test in tests(data).items():
        gold, metric = np.array(test["score"], np.float64), DOMAINS[name].metric
        start, *others = (zscore(each[name]) for each in scores)
        close = [start + share * each for each in others for share in (0.5, 0.7)]
        pairs = [(start, other) for other in (*others, *close)]
        for before, after in [*pairs, *((after, before) for before, after in pairs)]:
            yield from compared(name, metric, gold, before, after)


def scored(data: Path) -> list[dict[str, np.ndarray]]:
    """Score every test with the model and with its first layers; return scores (n,) by test for each model."""
    with TemporaryDirectory() as folder:
        models = [Path(resolve_model(MINILM))]
        for n_layers in (5, 4, 3):
            models.append(Path(folder) / str(n_layers))
            truncate(models[0], range(n_layers), models[-1])
        scorers = [load_scorer(str(model), precision="fp32", device="cpu") for model in models]
        return [{name: each.score(test).astype(np.float64) for name, test in tests(data).items()} for each in scorers]


def compared(name: str, metric: str, gold: np.ndarray, before: np.ndarray, after: np.ndarray) -> Iterator[Outcome]:
    """Compare two models on pairs drawn in both ways."""
    true = METRICS[metric](gold, after) - METRICS[metric](gold, before)
    sample = Sample(np.arange(len(gold)), [], {"start": before, "bi": after})
    for seed in range(N_DRAWS):
        rng = np.random.default_rng(seed)
        for way, distances in zip(WAYS, (np.ones(len(gold)), disagreement(sample)), strict=True):
            rows = drawn(distances, rng)[:N_GRADES]
            both = np.array([before[rows], after[rows]])
            draws = metric_draws(metric, gold[rows], both, name=name, seed=seed)
            if draws is None:
                continue
            low, high = row_intervals(draws, ["start", "bi"])["gains"]["bi"]
            seen = METRICS[metric](gold[rows], after[rows]) - METRICS[metric](gold[rows], before[rows])
            yield Outcome(way, true, seen, low > 0 or high < 0)


def page(found: list[Outcome]) -> str:
    """Return the Markdown page."""
    rows = []
    for low, high in SIZES:
        for way in WAYS:
            own = [each for each in found if each.way == way and low <= abs(each.true) < high]
            right = [np.sign(each.seen) == np.sign(each.true) for each in own]
            significant = [each.is_significant for each in own]
            larger = sum(each.seen * each.true for each in own) / sum(each.true**2 for each in own)
            rows.append(
                (
                    f"{low:g} to {high:g}" if high < 100 else f"over {low:g}",
                    *(way, str(len(own))),
                    f"{100 * np.mean(np.logical_and(significant, right)):.0f} %",
                    f"{100 * np.mean(np.logical_and(significant, np.logical_not(right))):.1f} %",
                    f"{100 * np.mean(right):.0f} %",
                    f"x {larger:.1f}",
                )
            )
    header = (
        "true difference",
        "pairs drawn",
        "draws",
        "significant, right",
        "significant, wrong",
        "sign right",
        "seen",
    )
    how = "".join(str(__doc__).partition("On the tests")[1:]).replace("\n", " ").partition(" Writes")[0]
    title = f"# {N_GRADES} graded pairs"
    note = (
        "Points of Spearman's correlation or ROC-AUC times 100. Significant: the 95 % interval of the gain is on one "
    )
    note += "side of 0. Seen: the difference on the draw, as a multiple of the true one. People's grades are noisier."
    return "\n\n".join([title, f"{how} {note}", "\n".join(markdown_table(header, rows))]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TRANSENCODER_DATA", "../shared/data")))
    text = page(list(outcomes(parser.parse_args().data)))
    RESULT.write_text(text)
    print(text)
