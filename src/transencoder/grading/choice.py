"""Which pairs of a run a person should grade."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from transencoder.errors import RunError
from transencoder.results import Evidence, Sample, read_result
from transencoder.runs import stage_seed

Pair = tuple[str, str]


def choose(run_folder: str | Path, n_pairs: int = 100) -> list[Pair]:
    """Choose pairs that tell a run's models from its base model.

    Drawn from the training pairs whose scores the run keeps (up to 2,000), with a likelihood that grows with the square
    of the distance between a trained model's rank of the pair and the base model's, in either direction: no model is
    favoured. Of models that differ by 1.5 to 3 points a hundred such pairs make 63 % of the differences significant,
    a hundred drawn evenly 23 %; the difference that they show is three times as large (LOG.md, 2026-11-25). Every first
    part of the list is such a draw too, so that a person may stop early.

    Args:
        run_folder: Folder of a finished run that was trained on pairs.
        n_pairs: How many; fewer where the run keeps fewer.

    Returns:
        Different pairs, in the order in which to grade them; the same for the same run.

    Raises:
        RunError: The run is not finished, or keeps no scores of pairs.
    """
    result = read_result(run_folder)
    sample = kept_sample(Evidence(Path(run_folder), result))
    rows = list({text: row for row, text in reversed(list(enumerate(sample.texts)))}.values())
    weights = disagreement(sample)[rows]
    keys = np.random.default_rng(stage_seed(result["seed"], "grades")).exponential(size=len(rows)) / weights**2
    return [sample.texts[rows[i]] for i in np.argsort(keys, kind="stable")[:n_pairs]]


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
            f"{evidence.folder} keeps no scores of pairs to choose from: it was trained on sentences, or by an early "
            "version. Mine pairs with `transencoder mine`, grade them in a spreadsheet, and run `transencoder evaluate`"
        )
    return sample
