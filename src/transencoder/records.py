"""Types of a run's records, above all of result.json, and names of the files that its stages keep: data, no logic.

Whatever a run lacks (a dev set, test sets, an analysis) is None, empty or absent in its record, and never invented.
"""

from typing import Any, NotRequired, TypedDict

from transencoder.configs import Form

FORM_TITLES: dict[Form, str] = {
    "bi": "bi-encoder",
    "cross": "cross-encoder",
    "mlm": "masked language model",
}

IN_A_CYCLE: tuple[Form, ...] = ("cross", "bi")
"""Forms that learn labels, in the order in which a cycle trains them."""

AVERAGE = "average"
"""Beginning of the name of a row that is the average of several tests."""

DEV = "dev"
"""Name of the dev set where it is listed like a test: in table rows, and in the stages' files."""

GRADES = "graded pairs"
"""Name of the test that a person makes by grading a run's pairs."""

GRADED_FILE = "graded.json"
"""File in a run folder with what `transencoder grade` found: entries for result.json, and the graded sample's key."""

HELD_ROWS = "rows given in Python"
"""Name, in records, of rows that did not come from a file; in the config, their number stands before it."""

GOLD = "gold"
"""Name of the stage that keeps the tests' gold scores: `<test>.npz` with `gold` and, for rankings, `queries`."""

SAMPLE = "sample"
"""Name of the stage that keeps the scores of some training pairs by the base model and the kept models."""

SAMPLE_FILE = "sample.parquet"
"""File with the columns `row`, `sentence1`, `sentence2`, and a column of scores for `start` and for each form."""

NEIGHBOURS = "neighbours"
"""Name of the stage that keeps the nearest texts of some training texts, before and after training."""

NEIGHBOURS_FILE = "neighbours.json"
"""File with a `NeighboursRecord`."""

PLOTS = "plots"
"""Folder of a run's PNG plots, beside its report."""


class TextStatistics(TypedDict):
    """Counts of `text_statistics`; lengths are in characters (Unicode code points)."""

    rows: int
    texts: int
    """Number of texts: rows times texts per row."""
    distinct_texts: int
    most_repeated: int
    """Number of times that the most frequent text occurs."""
    repeated_rows: int
    """Number of rows that repeat an earlier row, text for text."""
    same_text_rows: int
    """Number of rows with several texts that are all the same."""
    characters: int
    longest: int
    median_length: float
    length_edges: list[int]
    """Bounds of the histogram's n bins: n + 1 values. Each bin goes up to, but not including, the next bound."""
    length_counts: list[int]
    """Number of texts in each bin; the last bin includes all longer texts too."""
    letters: dict[str, int]
    """Number of characters of each Unicode script, by the script's name, most frequent first."""


class NeighboursRecord(TypedDict):
    """Nearest texts of some training texts, by the base model and by the bi-encoder."""

    texts: int
    """Number of distinct texts, among which neighbours were searched."""
    changed: int
    """Number of texts whose nearest other text by the bi-encoder is not the base model's."""
    shown: list[dict[str, Any]]
    """Examples: `text`, and for `start` and `bi` the nearest other `text` with its `cosine`."""


class CorpusRecord(TypedDict):
    """Counts of the sentences, or documents, that pairs were mined from."""

    rows: int
    """Number of rows before duplicates were left out."""
    exact_duplicates: int
    near_duplicates: int


class MixRecord(TypedDict):
    """Counts of the pairs that one source of candidates found."""

    candidates: int
    """Number of pairs that this source found and no source before it in the mix."""
    pairs: int
    """Number of these pairs that were chosen."""


class HistogramRecord(TypedDict):
    """Histograms of the candidates and of the chosen pairs, by the base model's score."""

    edges: list[float]
    """Edges of the n bins: n + 1 scores."""
    candidates: list[int]
    """Number of candidates in each bin: n counts, of scores from an edge up to the next."""
    pairs: list[int]


class MiningRecord(TypedDict):
    """Record of how pairs were mined from sentences."""

    sentences: CorpusRecord
    documents: NotRequired[CorpusRecord]
    """Counts of the documents, where the pairs' second texts were documents and not sentences."""
    near_duplicate_pairs: NotRequired[int]
    """Number of near-duplicate pairs of a sentence and a document, which were left out."""
    paired_sentences: int
    """Number of distinct sentences that are in a pair."""
    mix: dict[str, MixRecord]
    """Counts of each source."""
    histogram: HistogramRecord
    exact_search: bool
    """Whether neighbours were searched among all texts; otherwise only in the nearest cells."""


class DataRecord(TypedDict):
    """One data set that a run read."""

    source: str
    rows: int
    fingerprint: str
    metric: NotRequired[str]
    """Dev and test sets only: metric of the set."""
    transductive: NotRequired[bool]
    """Training text only: whether it includes the test sets' sentences. Absent when not known."""
    transductive_rows: NotRequired[int]
    """Training text only: number of rows with a sentence of the test sets. Absent where they were not counted."""
    short_rows: NotRequired[int]
    """Documents only: number of documents that were left out because they have too few words."""
    drawn_from: NotRequired[int]
    """Training text only: number of rows in the source, where only some of them were drawn."""
    extra: NotRequired["DataRecord"]
    """Training pairs only: the extra pairs that are among the rows."""
    labelled: NotRequired["DataRecord"]
    """Training pairs only: the labelled pairs that are among the rows."""
    held_out_rows: NotRequired[int]
    """Training pairs only: number of pairs held out, to choose checkpoints or to evaluate models without labels."""
    mined: NotRequired[MiningRecord]
    """Training pairs only: how they were mined from the source, which holds sentences."""
    documents: NotRequired["DataRecord"]
    """Training pairs only: the documents that the source's sentences were paired with."""
    gold_rows: NotRequired[int]
    """Training pairs only: number of pairs with gold labels."""
    classes: NotRequired[list[str]]
    """Training pairs only: the names of the classes that they are labelled with."""
    test_rows: NotRequired[int]
    """Labelled pairs only: number of pairs that were left out because they are in a test set."""
    rows_without_class: NotRequired[int]
    """Labelled pairs only: number of pairs that were left out because they have no class."""
    missing_rows: NotRequired[int]
    """Training pairs only: number of pairs of the paper's data set that are not available."""
    bad_rows: NotRequired[int]
    """Training text only: number of rows that were skipped; bad-rows.tsv lists them."""
    excluded_rows: NotRequired[int]
    """Training text only: number of rows left out because a test sentence occurs in them."""


class RunData(TypedDict):
    """All data sets of a run."""

    pairs: NotRequired[DataRecord]
    """Training pairs of the methods that train on pairs."""
    sentences: NotRequired[DataRecord]
    """Training sentences of the encoder methods."""
    documents: NotRequired[DataRecord]
    """Training documents of the encoder methods that take spans of longer texts."""
    dev: DataRecord | None
    tests: dict[str, DataRecord]


class FormCycle(TypedDict):
    """Record of one form's training in one cycle."""

    dev: float | None
    """Dev metric of the best checkpoint, times 100."""
    curve: list[tuple[int, float | None]]
    """Dev curve: (step within this training, dev metric times 100); a list of two in JSON."""
    criteria: NotRequired[list[tuple[int, dict[str, float | None]]]]
    """Student's criteria that need no labels, where pairs are held out: (step, criterion -> value)."""
    chosen_by: NotRequired[str]
    """Criterion that chose the checkpoint without labels; absent where dev chose it, or the last one was kept."""
    step: NotRequired[int]
    """Step of the checkpoint that the criterion chose."""
    seconds: float
    stage: str


class Cycle(TypedDict):
    """One cycle: a cross-encoder learns from the bi-encoder, then a bi-encoder learns from the cross-encoder."""

    cycle: int
    """Number of the cycle, from 1; methods without cycles have one."""
    cross: NotRequired[FormCycle]
    bi: NotRequired[FormCycle]
    mlm: NotRequired[FormCycle]


class Best(TypedDict):
    """Model of one form that a run keeps."""

    cycle: int
    dev: float | None
    path: str
    """Folder of the saved model, relative to the run folder."""
    member: NotRequired[int]
    """Number, from 1, of the member that the model belongs to, where there are several members."""


class StageSummary(TypedDict):
    """One stage as listed in the result."""

    name: str
    key: str
    seconds: float
    """Seconds that the stage took when it was computed, even if it was reused."""
    reused: bool


class Environment(TypedDict, total=False):
    """Environment in which a run's stages were computed; values that differ between stages are joined by ` + `."""

    commit: str | None
    """Commit of the source tree, with `-dirty` when it had changes; None for an installed package."""
    device: str
    threads: str
    python: str
    versions: dict[str, str]


class PretrainingRecord(TypedDict):
    """Masked language modelling, on the pairs before the cross-encoder learned labels, or as the method itself."""

    steps: int
    losses: list[tuple[int, float]]
    """Losses: (step, mean cross-entropy of masked tokens over the last 100 steps, in nats); a list of two in JSON."""
    held_out: NotRequired[list[float]]
    """Mean cross-entropy in nats on held-out text, before and after training."""


class EnsembleRecord(TypedDict):
    """Metrics of one member's models, or of the weighted mean of the members' scores."""

    dev: dict[str, float | None] | None
    """Dev metric times 100 of `start` and of each form."""
    scores: dict[str, dict[str, float | None]]
    """Metric times 100 of `start` and of each form on each test set, None where it is undefined (all scores equal);
    empty when test scoring is off. It includes `start_as_is` where this differs from `start`, see `best_start`, and
    `teacher-1` and so on for teachers that learned scores in this run."""


class MemberRecord(EnsembleRecord):
    """Record of a member, alone or one of several that were trained side by side."""

    cycles: list[Cycle]
    best: dict[Form, Best]
    analysis: dict[str, list[tuple[int, int, dict[str, float | None]]]] | None
    """Test metrics during training, by form: (cycle, step within this training, test set -> metric times 100)."""
    pretraining: NotRequired[PretrainingRecord]
    """Masked language modelling; absent when there was none."""
    criteria: NotRequired[dict[str, dict[str, float | None]]]
    """Criteria that need no labels, of `start` and, where pairs are held out, of the forms: criterion -> value."""
    intervals: NotRequired[dict[str, "IntervalRecord"]]
    """Intervals of its metrics and gains, by test."""


class ModelSize(TypedDict):
    """Size and speed of one model."""

    parameters: int
    megabytes: float
    """Size of its weights on disk."""
    sentences_a_second: float
    """Speed of its own `encode`, in plain sentence-transformers."""


class SizeRecord(TypedDict):
    """Comparison of a student's size and speed with those of a larger model."""

    whose: str
    """Role of the larger model: `teacher`, or the `start` that the student was cut from."""
    student: ModelSize
    other: ModelSize
    sentences: int
    """Number of sentences that both encoded."""
    max_length: NotRequired[int | None]
    """Tokens of a text that both read; None: no limit."""
    device: str
    threads: int


class SelectionRecord(TypedDict):
    """Criteria that chose checkpoints and cycles where there was no dev set."""

    criteria: dict[Form, str]
    """Criterion of each form; `last` where the last checkpoint was kept."""
    left_out_regrets: dict[Form, float]
    """Mean regret of such a choice, in points of dev, on runs that had a dev set. The criterion was picked on the runs
    of other base models."""
    last_regrets: dict[Form, float]
    """Mean regret of keeping the last checkpoint on the same runs, in points of dev."""
    own_regrets: NotRequired[dict[Form, float]]
    """Mean regret of the criteria that the user chose, on the same runs, where it is known."""
    runs: int
    starts: int


Interval = tuple[float, float]
"""Range that holds 95 % of the bootstrap resamples, (low, high); a list of two in JSON."""


class IntervalRecord(TypedDict):
    """Intervals of several models on one test, or of their averages over several; undefined ones are left out."""

    scores: dict[str, Interval]
    """Interval of the metric times 100 of each model, such as `start` or a form."""
    gains: dict[str, Interval]
    """Interval of each other model's gain over the first, in points, with both measured on the same resamples."""


class ChoiceRecord(TypedDict):
    """A setting that was chosen for the user, and the reason."""

    setting: str
    value: bool | float | str
    because: str


class Result(MemberRecord):
    """Content of result.json; where there are several members, the fields of one member are those of `member`."""

    method: str
    about: str
    """What the method does, in a sentence or two."""
    recipe: NotRequired[str]
    """Name of the recipe, `<method>/<row>`; absent when the run was not made from one."""
    finished: str
    seed: int
    config: dict[str, Any]
    environment: Environment
    data: RunData
    texts: TextStatistics
    """Statistics of the training text."""
    member: NotRequired[int]
    """Number, from 1, of the member whose bi-encoder is best on dev, where there are several members. `cycles`, `best`,
    `dev` and `scores` are those of this member."""
    members: NotRequired[list[MemberRecord]]
    """Records of all members, where several learn in each cycle; absent where they learn in turn."""
    start_member: NotRequired[int]
    """Number, from 1, of the member whose base model is `start`, where there are several members."""
    ensemble: NotRequired[EnsembleRecord]
    """Metrics of these members together: of their base models, and of the kept models of each form."""
    metric: str
    """Metric of the dev set, or else of the first test set."""
    intervals: NotRequired[dict[str, IntervalRecord]]
    """Intervals of `scores`: of each test, and of the average of the tests of a metric; absent before the run's
    end, and from the record of one of several members."""
    sample_agreement: NotRequired[dict[Form, float | None]]
    """Rank correlation times 100 of each form with the base model on training pairs, where there was no dev set and
    nothing was held out."""
    uniformity: NotRequired[dict[str, float | None]]
    """Uniformity of training texts by `start` and by `bi`, for encoder methods (Wang and Isola, ICML 2020)."""
    selection: NotRequired[SelectionRecord]
    """Criteria that chose checkpoints, where they were chosen without labels."""
    choices: NotRequired[list[ChoiceRecord]]
    """Settings that the user left open and whose values are not the paper's."""
    stages: list[StageSummary]
    seconds: float
    notes: list[str]
    sizes: NotRequired[SizeRecord]
    """Sizes of the student and of a larger model, where there is one to compare with."""
