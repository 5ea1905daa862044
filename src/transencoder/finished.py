"""What the stages of a finished run hold beside its result, and the bootstrap intervals that are drawn from it."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from transencoder import progress
from transencoder.configs import Form
from transencoder.metrics import Interval, RowIntervals, metric_draws, row_intervals
from transencoder.records import (
    AVERAGE,
    DEV,
    FORM_TITLES,
    GOLD,
    IN_A_CYCLE,
    SAMPLE,
    SAMPLE_FILE,
    Cycle,
    IntervalRecord,
    Result,
)
from transencoder.results import best_start, form_cycle, forms_of, metric_mark, tests_by_metric
from transencoder.runs import finished_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transencoder.metrics import Draws

logger = logging.getLogger(__name__)

Read = TypeVar("Read")


@dataclass(frozen=True)
class Gold:
    """A test's gold scores."""

    scores: "NDArray[np.float64]"
    """One a pair, (n,)."""
    queries: "NDArray[np.intp] | None"
    """Where it is a ranking: the number of each pair's query, (n,)."""


@dataclass(frozen=True)
class Lesson:
    """What a student learned, and what it says of the same pairs afterwards."""

    cycle: int
    form: Form
    labels: "NDArray[np.float32]"
    """What its teachers said, (n,)."""
    scores: "NDArray[np.float32]"
    """What it says, (n,)."""
    n_pairs: int
    """All that it was trained on; n is fewer where only a sample was scored."""


@dataclass(frozen=True)
class Sample:
    """Some training pairs and what the start and the kept models say of them."""

    rows: "NDArray[np.int64]"
    """Which of the training pairs, (n,)."""
    texts: Sequence[tuple[str, str]]
    scores: dict[str, "NDArray[np.float64]"]
    """`start` and the forms -> (n,)."""


@dataclass(frozen=True)
class Evidence:
    """The stage files of a finished run, as far as they are there; what is damaged counts as absent."""

    folder: Path
    result: Result

    def gold(self, test: str | None) -> Gold | None:
        """A test's gold scores, or dev's, given None; earlier runs did not keep them."""
        import numpy as np

        def read(path: Path) -> Gold:
            with np.load(path) as arrays:
                return Gold(arrays["gold"], arrays["queries"] if "queries" in arrays else None)

        return self._read(GOLD, f"{test or DEV}.npz", read)

    def scores(self, model: str, test: str | None) -> "NDArray[np.float64] | None":
        """What a model gave a test's pairs, (n,).

        Args:
            model: `start`, `start_as_is` or a form.
            test: The test's name; None: dev.
        """
        folder = "scores" if test else f"scores/{DEV}"
        scores = self._read(f"{folder}/{self._prefix}{model.replace('_', '-')}", f"{test or DEV}.npy", _array)
        return None if scores is None else scores.astype("float64")

    def sample(self) -> Sample | None:
        """Training pairs with scores; earlier runs did not keep any."""
        return self._read(SAMPLE, SAMPLE_FILE, _sample)

    def lessons(self) -> Iterator[Lesson]:
        """What each student of each cycle learned, as far as its scores were kept."""
        for cycle in self.result["cycles"]:
            for form in IN_A_CYCLE:
                lesson = self._lesson(cycle, form)
                if lesson is not None:
                    yield lesson

    @property
    def has_labels(self) -> bool:
        """Whether the run's students learned teachers' scores in cycles."""
        return any("/labels-for-" in stage["name"] for stage in self.result["stages"])

    @property
    def _prefix(self) -> str:
        """Of the stages of the member whose models were kept."""
        return f"member-{self.result['member']}/" if "member" in self.result else ""

    def _lesson(self, cycle: Cycle, form: Form) -> Lesson | None:
        part = form_cycle(cycle, form)
        names = {stage["key"]: stage["name"] for stage in self.result["stages"]}
        student = names.get(part["stage"]) if part else None
        if student is None:
            return None
        own = f"cycle-{cycle['cycle']}/labels-for-{form}"
        prefix = student.partition("cycle-")[0]
        shared = own if own in names.values() else f"{prefix}{own}"
        labels = self._read(shared, "labels.parquet", _labels)
        if labels is None:
            return None
        scores = self._read(f"{student}/scores", "scores.npy", _array)
        if scores is not None and len(scores) == len(labels):
            return Lesson(cycle["cycle"], form, labels, scores, len(labels))
        sample = self.sample() if self.result["best"][form]["cycle"] == cycle["cycle"] else None
        if sample is None or sample.rows.max(initial=-1) >= len(labels):
            return None
        return Lesson(cycle["cycle"], form, labels[sample.rows], sample.scores[form].astype("float32"), len(labels))

    def _read(self, stage: str, name: str, read: Callable[[Path], Read]) -> Read | None:
        key = next((each["key"] for each in self.result["stages"] if each["name"] == stage), None)
        folder = None if key is None else finished_stage(self.folder, stage, key)
        if folder is None or not (folder / name).is_file():
            return None
        try:
            return read(folder / name)
        except (OSError, ValueError, KeyError) as error:
            logger.warning("%s cannot be read (%s): the report goes without it", folder / name, error)
            return None


def _array(path: Path) -> "NDArray[np.float32]":

    array: NDArray[np.float32] = np.load(path)
    if array.ndim != 1:
        raise ValueError(f"its shape is {array.shape}")
    return array


def _labels(path: Path) -> "NDArray[np.float32]":
    import pyarrow.parquet as pq

    labels: NDArray[np.float32] = pq.read_table(path, columns=["label"])["label"].to_numpy()
    return labels


def _sample(path: Path) -> Sample:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    texts = list(zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True))
    scores = {
        name: table[name].to_numpy().astype("float64") for name in ("start", *FORM_TITLES) if name in table.column_names
    }
    return Sample(table["row"].to_numpy(), texts, scores)


def intervals_of(result: Result) -> dict[str, RowIntervals]:
    """Intervals for the rows of the score table, by the row's name; rows without kept scores have none."""
    return {
        name: RowIntervals(
            {model: Interval(*ends) for model, ends in row["scores"].items()},
            {form: Interval(*ends) for form, ends in row["gains"].items()},
        )
        for name, row in result.get("intervals", {}).items()
    }


def intervals_record(intervals: Mapping[str, RowIntervals]) -> dict[str, IntervalRecord]:
    """The intervals for result.json."""
    return {
        name: {
            "scores": {model: (each.low, each.high) for model, each in row.scores.items()},
            "gains": {form: (each.low, each.high) for form, each in row.gains.items()},
        }
        for name, row in intervals.items()
    }


def drawn_intervals(evidence: Evidence) -> dict[str, RowIntervals]:
    """Intervals by resampling pairs, or queries, of the tests, of dev where there are none; by the row's name.

    About 0.05 ms a thousand pairs, model and resample. Training with another seed is not in these intervals.
    """
    result = evidence.result
    shown = ["start", *forms_of(result)]
    groups, found = tests_by_metric(result), {}
    if not groups and result["dev"]:
        on_dev = draws_of([(evidence, model) for model in shown], None, result["metric"])
        return {} if on_dev is None else {DEV: row_intervals(on_dev, shown)}
    with progress.task("intervals of the tests", sum(map(len, groups.values()))) as advance:
        for metric, names in groups.items():
            mark = metric_mark(metric, groups)
            models = [best_start(result, names), *forms_of(result)]
            draws = {}
            for name in names:
                drawn = draws_of([(evidence, model) for model in models], name, metric)
                if drawn is not None:
                    draws[name] = drawn
                    found[name + mark] = row_intervals(drawn, shown)
                advance(1)
            if len(names) > 1 and len(draws) == len(names):
                found[AVERAGE + mark] = row_intervals(np.mean(list(draws.values()), axis=0), shown)
    return found


def draws_of(models: Sequence[tuple[Evidence, str]], test: str | None, metric: str) -> "Draws | None":
    """Metrics of several models on the same resamples of a test's pairs, or of its queries where it is a ranking.

    Args:
        models: A run's evidence, and which of its models: `start`, `start_as_is` or a form.
        test: The test's name, the same data in all runs; None: dev.
        metric: How it is measured.

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
