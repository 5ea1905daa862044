"""Which pairs of a run a person should grade."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from transencoder.errors import RunError
from transencoder.records import Result
from transencoder.results import Evidence, Sample, read_result
from transencoder.runs import stage_seed

Pair = tuple[str, str]


@dataclass(frozen=True)
class ScoredPairs:
    """The training pairs of a run whose scores it keeps, up to 2,000, which a person can grade."""

    folder: Path
    """The run's."""
    result: Result
    sample: Sample
    """With the scores of the base model and of each trained one."""

    @classmethod
    def of_run(cls, folder: str | Path) -> Self:
        """Read them.

        Raises:
            RunError: The run is not finished, or keeps no scores of pairs.
        """
        folder = Path(folder)
        result = read_result(folder)
        sample = Evidence(folder, result).sample()
        if sample is None or len(sample.scores) < 2 or not len(sample.rows):
            raise RunError(
                f"{folder} keeps no scores of pairs to choose from: its method does not train on pairs, or the stage "
                "`sample` is absent or damaged, and running the run's command again makes it anew. Otherwise mine "
                "pairs with `transencoder mine`, grade them in a spreadsheet, and run `transencoder evaluate`"
            )
        return cls(folder, result, sample)

    def unknown(self, graded: Iterable[Pair]) -> list[Pair]:
        """Return those of some pairs that are not among them."""
        known = set(self.sample.texts)
        return [pair for pair in graded if pair not in known]


def choose(scored: ScoredPairs, n_pairs: int | None = 100) -> list[Pair]:
    """Choose pairs that tell a run's models from its base model.

    The likelihood of a pair grows with the square of the distance between a trained model's rank of it and the base
    model's, in either direction: no model is favoured. A hundred such pairs make two to three times as many small
    differences significant as a hundred drawn evenly, and show them larger (benchmarks/results/grades.md). Every first
    part of the list is such a draw too, so that a person may stop early.

    Args:
        scored: The run's pairs.
        n_pairs: How many, fewer where there are fewer; None: all.

    Returns:
        Different pairs, in the order in which to grade them; the same for the same run.
    """
    rng = np.random.default_rng(stage_seed(scored.result["seed"], "grades"))
    order = drawn(disagreement(scored.sample), rng)
    return list(dict.fromkeys(scored.sample.texts[row] for row in order))[:n_pairs]


def drawn(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw all rows one after the other, each with a likelihood that grows with the square of its distance: (n,).

    Efraimidis and Spirakis (2006): the smallest of exponential variables, each divided by its weight, come first.
    """
    return np.argsort(rng.exponential(size=len(distances)) / distances**2, kind="stable")


def disagreement(sample: Sample) -> NDArray[np.float64]:
    """Return how far each pair's rank by a trained model is from its rank by the base model: (n,), above 0.

    Each model's distances are divided by their mean, so that one that learned nothing does not decide alone which
    pairs are drawn; then the largest of all models is taken.
    """
    ranks = {model: rankdata(scores) for model, scores in sample.scores.items()}
    start = ranks.pop("start")
    distances = [1.0 + np.abs(each - start) for each in ranks.values()]
    largest: NDArray[np.float64] = np.max([each / each.mean() for each in distances], axis=0)
    return largest
