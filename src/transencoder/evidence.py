"""Files that the stages of a finished run keep, such as gold scores and labels, and intervals drawn from them."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from transencoder import progress, records
from transencoder.configs import Form
from transencoder.metrics import Draws, metric_draws, row_intervals
from transencoder.records import DEV, FORM_TITLES, Cycle, IntervalRecord, Result
from transencoder.results import best_start, forms_of, table_rows, tests_by_metric
from transencoder.runs import stage_file
from transencoder.runs.files import DamagedError

logger = logging.getLogger(__name__)

Read = TypeVar("Read")


@dataclass(frozen=True)
class Gold:
    """Gold scores of a test."""

    scores: NDArray[np.float64]
    """Gold score of each pair, (n,)."""
    queries: NDArray[np.intp] | None
    """Number of each pair's query, (n,), where the test is a ranking."""


@dataclass(frozen=True)
class StudentLabels:
    """Labels that a student learned, and its scores of the same pairs after training."""

    cycle: int
    form: Form
    labels: NDArray[np.float32]
    """Labels by its teachers, (n,)."""
    scores: NDArray[np.float32]
    """Scores by the student, (n,)."""
    n_pairs: int
    """Number of all pairs that it was trained on; n is smaller where only a sample was scored."""


@dataclass(frozen=True)
class Sample:
    """Some training pairs, and their scores by the base model and the kept models."""

    rows: NDArray[np.int64]
    """Row number of each pair in the training pairs, (n,)."""
    texts: Sequence[tuple[str, str]]
    scores: dict[str, NDArray[np.float64]]
    """Scores by `start` and by each form, (n,)."""


@dataclass(frozen=True)
class Evidence:
    """The stage files of a finished run, any of which may be absent; a damaged file counts as absent."""

    folder: Path
    result: Result

    def gold(self, test: str | None) -> Gold | None:
        """Return the gold scores of a test, or of dev where `test` is None; a classifier's test has none."""

        def read(path: Path) -> Gold:
            with np.load(path) as arrays:
                return Gold(arrays["gold"], arrays["queries"] if "queries" in arrays else None)

        return self._read(records.GOLD, f"{test or DEV}.npz", read)

    def scores(self, model: str, test: str | None) -> NDArray[np.float64] | None:
        """Return a model's scores of a test's pairs, (n,).

        Args:
            model: `start`, `start_as_is` or a form.
            test: The test's name; None: dev.
        """
        folder = "scores" if test else f"scores/{DEV}"
        member = f"member-{self.result['member']}/" if "member" in self.result else ""  # the one whose models were kept
        scores = self._read(f"{folder}/{member}{model.replace('_', '-')}", f"{test or DEV}.npy", _array)
        return None if scores is None else scores.astype("float64")

    def sample(self) -> Sample | None:
        """Return training pairs with scores; methods without cycles keep none."""
        return self._read(records.SAMPLE, records.SAMPLE_FILE, _sample)

    def neighbours(self) -> records.NeighboursRecord | None:
        """Return the nearest texts before and after training."""
        return self._read(records.NEIGHBOURS, records.NEIGHBOURS_FILE, lambda path: json.loads(path.read_bytes()))

    def student_labels(self) -> Iterator[StudentLabels]:
        """Yield the labels and scores of each student of each cycle, where its scores were kept."""
        for cycle in self.result["cycles"]:
            for form in records.IN_A_CYCLE:
                learned = self._student_labels(cycle, form)
                if learned is not None:
                    yield learned

    @property
    def has_labels(self) -> bool:
        """Whether the run's students learned teachers' scores in cycles."""
        return any("/labels-for-" in stage["name"] for stage in self.result["stages"])

    def _student_labels(self, cycle: Cycle, form: Form) -> StudentLabels | None:
        names = {stage["key"]: stage["name"] for stage in self.result["stages"]}
        student = names.get(cycle[form]["stage"]) if form in cycle else None
        if student is None:
            return None
        own = f"cycle-{cycle['cycle']}/labels-for-{form}"
        shared = own if own in names.values() else f"{student.partition('cycle-')[0]}{own}"
        labels = self._read(shared, "labels.parquet", _labels)
        if labels is None:
            return None
        scores = self._read(f"{student}/scores", "scores.npy", _array)
        if scores is not None and len(scores) == len(labels):
            return StudentLabels(cycle["cycle"], form, labels, scores, len(labels))
        sample = self.sample() if self.result["best"][form]["cycle"] == cycle["cycle"] else None
        if sample is None or sample.rows.max(initial=-1) >= len(labels):
            return None
        return StudentLabels(
            cycle["cycle"], form, labels[sample.rows], sample.scores[form].astype("float32"), len(labels)
        )

    def _read(self, stage: str, name: str, read: Callable[[Path], Read]) -> Read | None:
        key = next((each["key"] for each in self.result["stages"] if each["name"] == stage), None)
        try:
            path = None if key is None else stage_file(self.folder, stage, key, name)
            return None if path is None else read(path)
        except (OSError, ValueError, KeyError, DamagedError) as error:
            logger.warning("%s: the report goes without it", error)
            return None


def _array(path: Path) -> NDArray[np.float32]:
    array: NDArray[np.float32] = np.load(path)
    if array.ndim != 1:
        raise ValueError(f"its shape is {array.shape}")
    return array


def _labels(path: Path) -> NDArray[np.float32]:
    labels: NDArray[np.float32] = pq.read_table(path, columns=["label"])["label"].to_numpy()
    return labels


def _sample(path: Path) -> Sample:
    table = pq.read_table(path)
    texts = list(zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True))
    models = [name for name in ("start", *FORM_TITLES) if name in table.column_names]
    return Sample(table["row"].to_numpy(), texts, {name: table[name].to_numpy().astype("float64") for name in models})


def drawn_intervals(evidence: Evidence) -> dict[str, IntervalRecord]:
    """Return intervals by row name, from resampled pairs, or queries, of the tests, or of dev where there are no tests.

    This takes about 0.05 ms per thousand pairs, per model and resample. The intervals do not include the variation
    between training seeds.
    """
    result, drawn = evidence.result, {}
    forms, groups = forms_of(result), tests_by_metric(result)
    shown = ["start", *forms]
    if not groups and result["dev"]:
        on_dev = draws_of([(evidence, model) for model in shown], None, result["metric"])
        return {} if on_dev is None else {DEV: row_intervals(on_dev, shown)}
    with progress.task("intervals of the tests", sum(map(len, groups.values()))) as advance:
        for metric, names in groups.items():
            models = [(evidence, model) for model in (best_start(result, names), *forms)]
            for name in names:
                drawn[name] = draws_of(models, name, metric)
                advance(1)
    found = {}
    for row in table_rows(groups):
        draws = [each for name in row.tests if (each := drawn[name]) is not None]
        if len(draws) == len(row.tests):
            found[row.name] = row_intervals(np.mean(draws, axis=0), shown)
    return found


def draws_of(models: Sequence[tuple[Evidence, str]], test: str | None, metric: str) -> Draws | None:
    """Return metrics of several models on the same resamples of a test's pairs, or of its queries if it is a ranking.

    Args:
        models: Evidence of a run and the name of one of its models: `start`, `start_as_is` or a form.
        test: Name of the test, whose data must be the same in all runs; None: dev.
        metric: Metric of the test.

    Returns:
        Metrics times 100, (models, N_RESAMPLES), or None where gold or a model's scores were not kept.
    """
    gold = models[0][0].gold(test)
    scores = [evidence.scores(model, test) for evidence, model in models]
    if gold is None or any(each is None or each.shape != gold.scores.shape for each in scores):
        return None
    return metric_draws(
        metric, gold.scores, np.array(scores), gold.queries, name=test or DEV, seed=models[0][0].result["seed"]
    )
