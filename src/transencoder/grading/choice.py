"""Choice of the pairs of a run that a person should grade."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from transencoder.errors import RunError
from transencoder.evidence import Evidence, Sample
from transencoder.records import Result
from transencoder.results import read_result
from transencoder.runs import stage_seed

Pair = tuple[str, str]


@dataclass(frozen=True)
class ScoredPairs:
    """Training pairs whose scores a run keeps, at most 2,000, for a person to grade."""

    folder: Path
    """Folder of the run."""
    result: Result
    sample: Sample
    """The pairs, with the scores of the base model and of each trained model."""

    @classmethod
    def of_run(cls, folder: str | Path) -> Self:
        """Read the scored pairs of a run.

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
        """Return the graded pairs that are not among the scored pairs."""
        known = set(self.sample.texts)
        return [pair for pair in graded if pair not in known]


def choose(scored: ScoredPairs) -> list[Pair]:
    """Choose pairs that show the differences between a run's models and its base model.

    A pair's probability grows with the square of the distance between its rank by a trained model and its rank by the
    base model. The direction does not count, so no model is favoured. With a hundred such pairs, about three times as
    many small differences are significant as with a hundred pairs drawn uniformly, and the differences appear larger
    (benchmarks/results/grades.md). Every prefix of the list is such a draw too, so a person may stop early.

    Args:
        scored: Scored pairs of the run.

    Returns:
        All distinct pairs, in the order in which to grade them; the same for the same run.
    """
    rng = np.random.default_rng(stage_seed(scored.result["seed"], "grades"))
    order = drawn(disagreement(scored.sample), rng)
    return list(dict.fromkeys(scored.sample.texts[row] for row in order))


def drawn(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw all rows one by one, with a probability that grows with the square of the row's distance: (n,).

    Efraimidis and Spirakis (2006): rows are sorted by exponential variables divided by the rows' weights, the smallest
    first.
    """
    return np.argsort(rng.exponential(size=len(distances)) / distances**2, kind="stable")


def disagreement(sample: Sample) -> NDArray[np.float64]:
    """Return how far each pair's rank by a trained model is from its rank by the base model: (n,), above 0.

    Each model's distances are divided by their mean, so that a model that learned nothing does not decide alone which
    pairs are drawn. The largest over all models is then taken.
    """
    ranks = {model: rankdata(scores) for model, scores in sample.scores.items()}
    start = ranks.pop("start")
    distances = [1.0 + np.abs(each - start) for each in ranks.values()]
    largest: NDArray[np.float64] = np.max([each / each.mean() for each in distances], axis=0)
    return largest
