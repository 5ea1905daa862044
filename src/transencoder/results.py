"""Facts about a finished run: its tests by metric, its forms, models that look weak, and the files its stages keep."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from transencoder import progress, records
from transencoder.configs import Form
from transencoder.errors import RunError, number
from transencoder.metrics import Draws, metric_draws, row_intervals
from transencoder.records import AVERAGE, DEV, FORM_TITLES, Cycle, DataRecord, IntervalRecord, Result
from transencoder.runs import stage_file
from transencoder.runs.files import DamagedError, read_checked_json

logger = logging.getLogger(__name__)

Read = TypeVar("Read")

_CLOSE_TOGETHER = -2.0
"""Uniformity above which a base model counts as weak. Of six base models on STS pairs, the three above it had 62.7 to
66.9 on STS-B's dev set, and the three below it 71.4 to 86.6 (LOG.md, 2026-11-22)."""

ENOUGH_AGREEMENT = 60.0
"""Spearman's correlation times 100 with its teacher on held-out pairs, below which a cross-encoder counts as weak. In
runs with a dev set, all 24 cross-encoders below it were worse than their base model, and so were 15 of the 24
bi-encoders that learned from them."""


def read_result(run_folder: str | Path) -> Result:
    """Read result.json of a finished run.

    Raises:
        RunError: no such folder, the run is not finished, or the file is not a result of this version.
    """
    path = Path(run_folder) / "result.json"
    if not path.parent.is_dir():
        raise RunError(f"no run folder at {path.parent}; give the folder that --output named")
    if not path.exists():
        raise RunError(
            f"the run in {path.parent} is not finished (it has no result.json); run the same command again to go on"
        )
    try:
        record = read_checked_json(path)
    except DamagedError as error:
        raise RunError(f"{error}. Run the same command again: finished stages are reused") from error
    tests = record["data"]["tests"] if "data" in record else {}
    absent = {f"data.tests.{name}.metric" for name, test in tests.items() if "metric" not in test}
    absent |= (Result.__required_keys__ | {"intervals"}) - set(record)
    if absent:
        raise RunError(
            f"{path} lacks {', '.join(sorted(absent))}; it was not written by this version: run the same command again"
        )
    return cast(Result, record)


def of_member(result: Result, number: int) -> Result:
    """Return the record of one of several members, numbered from 1, as if it were a run of its own."""
    own: Result = {**result, **result["members"][number - 1]}
    for name in ("pretraining", "criteria", "intervals"):
        if name not in result["members"][number - 1]:
            own.pop(name, None)  # type: ignore[misc]
    return own


def of_ensemble(result: Result) -> Result:
    """Return the record of the members' weighted mean as if it were a run; it has no cycles or models of its own."""
    ensemble = result["ensemble"]
    own: Result = {**result, "dev": ensemble["dev"], "scores": ensemble["scores"]}
    own.pop("intervals", None)
    return own


def mean_over(scores: Mapping[str, float | None], names: Sequence[str]) -> float | None:
    """Return the plain mean over all of `names`; None where one was not measured."""
    values = [scores.get(name) for name in names]
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured and len(measured) == len(values) else None


def scored_tests(result: Result) -> list[str]:
    """Return the scored test sets, in the order of the record."""
    return list(dict.fromkeys(name for form in ("start", *FORM_TITLES) for name in result["scores"].get(form, {})))


def tests_by_metric(result: Result) -> dict[str, list[str]]:
    """Return the scored test sets of each metric; averages are only taken over test sets of one metric."""
    groups: dict[str, list[str]] = {}
    for name in scored_tests(result):
        groups.setdefault(result["data"]["tests"][name]["metric"], []).append(name)
    return groups


class TableRow(NamedTuple):
    """A row of a table of scores: a test set, or the average of the test sets of a metric."""

    name: str
    """Name of the row, with its metric where there are several metrics."""
    metric: str
    tests: Sequence[str]


def table_rows(groups: Mapping[str, Sequence[str]], metrics: Sized | None = None) -> Iterator[TableRow]:
    """Yield for each metric a row per test set and, if there are several, a row for their average.

    Args:
        groups: Test sets of each metric.
        metrics: All metrics of the table; None: those of the tests.
    """
    for metric, names in groups.items():
        mark = metric_mark(metric, metrics or groups)
        yield from (TableRow(name + mark, metric, [name]) for name in names)
        if len(names) > 1:
            yield TableRow(AVERAGE + mark, metric, names)


def best_start(result: Result, names: list[str]) -> str:
    """Return the base model to count gains from: `start` or `start_as_is`, the better one on average on these tests.

    `start` is measured in the run's precision and length, `start_as_is` in fp32 at the model's own length.
    """

    def mean(name: str) -> float:
        average = mean_over(result["scores"].get(name, {}), names)
        return -math.inf if average is None else average

    return max(("start", "start_as_is"), key=mean)


def training_data(result: Result) -> tuple[str, DataRecord]:
    """Return the kind of data that the run was trained on, `pairs`, `sentences` or `documents`, and its record."""
    data = result["data"]
    kind = next(kind for kind in ("pairs", "sentences", "documents") if kind in data)
    return kind, data[kind]


def has_cycles(result: Result) -> bool:
    """Check whether the run went through cycles, of which one is kept."""
    return len(result["cycles"]) > 1 or len(forms_of(result)) > 1


def forms_of(result: Result) -> list[Form]:
    """Return the forms that the run trained."""
    return [form for form in FORM_TITLES if form in result["best"]]


def metric_mark(metric: str, metrics: Sized) -> str:
    """Return the suffix that names a set's metric, such as ` (map)`; empty where there is only one metric."""
    return f" ({metric})" if len(metrics) > 1 else ""


def looks_weak(cross: Mapping[str, float | None]) -> bool:
    """Check whether a cross-encoder failed to learn its teacher's ranking.

    Args:
        cross: Its criteria on held-out pairs, which need no labels; empty where none were held out.
    """
    agreement = cross.get("teacher_agreement", ENOUGH_AGREEMENT)
    return agreement is None or agreement < ENOUGH_AGREEMENT


def weak_start_notes(criteria: Mapping[str, float | None]) -> Iterator[str]:
    """Yield a note if a base model looks too weak to teach.

    Args:
        criteria: Its criteria on held-out pairs, which need no labels; empty where none were held out.
    """
    evenness = criteria.get("uniformity")
    if evenness is not None and -evenness > _CLOSE_TOGETHER:
        yield (
            f"The base model looks weak on these texts: its embeddings lie close together (uniformity {-evenness:.2f}; "
            "even would be -4). Where such models could be measured with labels they were the worse ones; "
            "`transencoder train simcse` on your sentences makes a better base model."
        )


def weak_cross_notes(criteria: Mapping[str, float | None]) -> Iterator[str]:
    """Yield a note if a cross-encoder looks too weak to teach.

    Args:
        criteria: Its criteria on held-out pairs, which need no labels; empty where none were held out.
    """
    if looks_weak(criteria):
        yield (
            "The cross-encoder looks weak: on pairs that it did not learn, its ranking and its teacher's have a rank "
            f"correlation of {number(criteria['teacher_agreement'])}, of 100. Where such ones were measured by labels "
            "all were worse than the base model, and five of eight bi-encoders that learned from them: more pairs "
            "or epochs, a higher learning rate, or masked words to guess first (pretraining.epochs) may help."
        )


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
