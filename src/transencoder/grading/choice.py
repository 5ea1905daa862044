"""Which pairs of a run a person should grade."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from transencoder.errors import RunError
from transencoder.results import Evidence, Sample, read_result
from transencoder.runs import stage_seed

Pair = tuple[str, str]


def choose(run_folder: str | Path, n_pairs: int | None = 100) -> list[Pair]:
    """Choose pairs that tell a run's models from its base model.

    Drawn from the training pairs whose scores the run keeps (up to 2,000), with a likelihood that grows with the square
    of the distance between a trained model's rank of the pair and the base model's, in either direction: no model is
    favoured. A hundred such pairs make two to three times as many small differences significant as a hundred drawn
    evenly, and show them larger (benchmarks/results/grades.md). Every first part of the list is such a draw too, so
    that a person may stop early.

    Args:
        run_folder: Folder of a finished run that was trained on pairs.
        n_pairs: How many, fewer where the run keeps fewer; None: all.

    Returns:
        Different pairs, in the order in which to grade them; the same for the same run.

    Raises:
        RunError: The run is not finished, or keeps no scores of pairs.
    """
    result = read_result(run_folder)
    sample = kept_sample(Evidence(Path(run_folder), result))
    order = drawn(disagreement(sample), np.random.default_rng(stage_seed(result["seed"], "grades")))
    return list(dict.fromkeys(sample.texts[row] for row in order))[:n_pairs]


def drawn(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw all rows one after the other, each with a likelihood that grows with the square of its distance: (n,).

    Efraimidis and Spirakis (2006): the smallest of exponential variables, each divided by its weight, come first.
    """
    return np.argsort(rng.exponential(size=len(distances)) / distances**2, kind="stable")


def disagreement(sample: Sample) -> NDArray[np.float64]:
    """Return how far each pair's rank by a trained model is from its rank by the base model, the furthest: (n,).

    A share of all pairs, above 0.
    """
    ranks = {model: rankdata(scores) / len(scores) for model, scores in sample.scores.items()}
    start = ranks.pop("start")
    furthest: NDArray[np.float64] = np.max([np.abs(each - start) for each in ranks.values()], axis=0)
    return 1 / len(sample.rows) + furthest


def kept_sample(evidence: Evidence) -> Sample:
    """Return the pairs whose scores a run keeps, with those of the base model and of a trained one.

    Raises:
        RunError: There are none.
    """
    sample = evidence.sample()
    if sample is None or len(sample.scores) < 2 or not len(sample.rows):
        raise RunError(
            f"{evidence.folder} keeps no scores of pairs to choose from: its method does not train on pairs, or the "
            "stage `sample` is absent or damaged, and running the run's command again makes it anew. Otherwise mine "
            "pairs with `transencoder mine`, grade them in a spreadsheet, and run `transencoder evaluate`"
        )
    return sample
