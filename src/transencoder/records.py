"""The types of a run's records, first of all of result.json, and the names of what its stages keep: data, no logic.

What a run may lack (a dev set, test sets, an analysis) is None, empty or absent there and never invented.
"""

from typing import Any, NotRequired, TypedDict

from transencoder.configs import Form

FORM_TITLES: dict[Form, str] = {
    "bi": "bi-encoder",
    "cross": "cross-encoder",
    "mlm": "masked language model",
}

IN_A_CYCLE: tuple[Form, ...] = ("cross", "bi")
"""The forms that learn labels, in the order in which a cycle trains them."""

AVERAGE = "average"
"""How the name of a row begins that is the mean of several."""

DEV = "dev"
"""Name of the dev set where it stands among tests: in rows, and in the stages' files."""

GRADES = "your grades"
"""Name of the test that a person makes by grading a run's pairs."""

HELD_ROWS = "rows given in Python"
"""How a record names rows that were in no file, their number before it."""

GOLD = "gold"
"""The stage that keeps the tests' gold scores: `<test>.npz` with `gold` and, for rankings, `queries`."""

SAMPLE = "sample"
"""The stage that keeps what the start and the kept models say of some training pairs."""

SAMPLE_FILE = "sample.parquet"
"""`row`, `sentence1`, `sentence2`, and a column of scores for `start` and for each form."""

NEIGHBOURS = "neighbours"
"""The stage that keeps the nearest texts of some training texts, before and after."""

NEIGHBOURS_FILE = "neighbours.json"
"""A `NeighboursRecord`."""

PLOTS = "plots"
"""The folder of a run's PNGs, beside its report."""


class TextStatistics(TypedDict):
    """What `text_statistics` counts; lengths are in characters (Unicode code points)."""

    rows: int
    texts: int
    """Rows times texts of a row."""
    distinct_texts: int
    most_repeated: int
    """How often the most frequent text occurs."""
    repeated_rows: int
    """Rows that repeat an earlier one, text for text."""
    same_text_rows: int
    """Rows of several texts that are all the same."""
    characters: int
    longest: int
    median_length: float
    length_edges: list[int]
    """Bounds of the histogram's n bins, n + 1 of them; each bin goes up to, not including, the next bound."""
    length_counts: list[int]
    """Texts in each bin; the last one has all longer texts too."""
    letters: dict[str, int]
    """Name of a Unicode script -> its characters in the text, most frequent first."""
    other_characters: int
    """Digits, punctuation, spaces, symbols: what belongs to no single script."""


class NeighboursRecord(TypedDict):
    """What the bi-encoder changed."""

    texts: int
    """Different ones, among which neighbours were looked for."""
    changed: int
    """Those whose nearest other text is not the base model's."""
    shown: list[dict[str, Any]]
    """`text`, and of `start` and `bi` the nearest other `text` with its `cosine`."""


class CorpusRecord(TypedDict):
    """Sentences, or documents, that pairs were mined from."""

    rows: int
    """Before duplicates were left out."""
    exact_duplicates: int
    near_duplicates: int


class MixRecord(TypedDict):
    """What one source of candidates gave."""

    candidates: int
    """Pairs that it found, and none before it in the mix."""
    pairs: int
    """Those that were chosen."""


class HistogramRecord(TypedDict):
    """Candidates and chosen pairs by the start's score."""

    edges: list[float]
    """n + 1 scores."""
    candidates: list[int]
    """n counts: of scores from an edge up to the next."""
    pairs: list[int]


class MiningRecord(TypedDict):
    """How pairs were mined from sentences."""

    sentences: CorpusRecord
    documents: NotRequired[CorpusRecord]
    """Where the second texts were not sentences."""
    near_duplicate_pairs: NotRequired[int]
    """Of a sentence and a document, left out."""
    paired_sentences: int
    """Distinct sentences that are in a pair."""
    mix: dict[str, MixRecord]
    """By source."""
    histogram: HistogramRecord
    exact_search: bool
    """Whether neighbours were searched among all sentences; else in the nearest cells."""


class DataRecord(TypedDict):
    """One data set that a run read."""

    source: str
    rows: int
    fingerprint: str
    metric: NotRequired[str]
    """Dev and test sets only: how models are measured on it. Absent from earlier runs, whose sets have one metric."""
    transductive: NotRequired[bool]
    """Training text only: whether the test sets' sentences are among them. Absent when not known."""
    transductive_rows: NotRequired[int]
    """Training text only: rows that hold a sentence of the test sets. Absent from earlier runs."""
    short_rows: NotRequired[int]
    """Documents only: those that were left out because they have too few words."""
    drawn_from: NotRequired[int]
    """Training text only: rows there were, where only some of them were drawn."""
    extra: NotRequired["DataRecord"]
    """Training pairs only: the extra pairs that are among the rows."""
    labelled: NotRequired["DataRecord"]
    """Training pairs only: the labelled pairs that are among the rows."""
    held_out_rows: NotRequired[int]
    """Training pairs only: how many were held out, to choose or to look without labels."""
    mined: NotRequired[MiningRecord]
    """Training pairs only: how they were made of the source, which is sentences."""
    documents: NotRequired["DataRecord"]
    """Training pairs only: what the source's sentences were paired with."""
    gold_rows: NotRequired[int]
    """Training pairs only: how many have gold labels."""
    classes: NotRequired[list[str]]
    """Training pairs only: the names of the classes that they are labelled with."""
    test_rows: NotRequired[int]
    """Labelled pairs only: those that were left out because they are a test set's."""
    rows_without_class: NotRequired[int]
    """Labelled pairs only: those that were left out because they have none."""
    missing_rows: NotRequired[int]
    """Training pairs only: pairs of the paper's set that could not be had."""
    bad_rows: NotRequired[int]
    """Training text only: rows that were skipped, and are in bad-rows.tsv."""
    excluded_rows: NotRequired[int]
    """Training text only: rows left out because a test sentence occurs in them."""


class RunData(TypedDict):
    """All data sets of a run."""

    pairs: NotRequired[DataRecord]
    """What methods for pairs were trained on."""
    sentences: NotRequired[DataRecord]
    """What starting encoders were trained on."""
    documents: NotRequired[DataRecord]
    """What starting encoders were trained on that take spans of longer texts."""
    dev: DataRecord | None
    tests: dict[str, DataRecord]


class FormCycle(TypedDict):
    """One form's training in one cycle."""

    dev: float | None
    """Dev metric of the best checkpoint, times 100."""
    curve: list[tuple[int, float | None]]
    """(step within this training, dev metric times 100); a list of two in JSON."""
    criteria: NotRequired[list[tuple[int, dict[str, float | None]]]]
    """(step, what is said of the student without labels, by criterion), where pairs are held out."""
    chosen_by: NotRequired[str]
    """The criterion that chose the checkpoint without labels; absent where dev did, or the last was kept."""
    step: NotRequired[int]
    """The step that it chose."""
    seconds: float
    stage: str


class Cycle(TypedDict):
    """One cycle: the cross-encoder learns from the bi-encoder, then a bi-encoder from it."""

    cycle: int
    """From 1; methods without cycles have one."""
    cross: NotRequired[FormCycle]
    bi: NotRequired[FormCycle]
    mlm: NotRequired[FormCycle]


class Best(TypedDict):
    """The model a run keeps of one form."""

    cycle: int
    dev: float | None
    path: str
    """Folder of the saved model, relative to the run folder."""
    member: NotRequired[int]
    """From 1: whose it is, where there are several."""


class StageSummary(TypedDict):
    """One stage as listed in the result."""

    name: str
    key: str
    seconds: float
    """What the stage cost when it was computed, also when it was reused."""
    reused: bool


class Environment(TypedDict, total=False):
    """Where a run's stages were computed; where they differ, the values are joined by ` + `."""

    commit: str | None
    """Commit of the source tree, with `-dirty` when it had changes; None for an installed package."""
    device: str
    threads: str
    python: str
    versions: dict[str, str]


class PretrainingRecord(TypedDict):
    """Masked language modelling: over the pairs, before the cross-encoder learned labels, or as the method itself."""

    steps: int
    losses: list[tuple[int, float]]
    """(step, mean cross-entropy of masked tokens over the last 100 steps, in nats); a list of two in JSON."""
    held_out: NotRequired[list[float]]
    """Mean cross-entropy in nats on text that was held out, before and after."""


class EnsembleRecord(TypedDict):
    """What models score: one member's, or the weighted mean of the members' scores."""

    dev: dict[str, float | None] | None
    """`start` and the forms -> dev metric times 100."""
    scores: dict[str, dict[str, float | None]]
    """`start` and the forms -> test set -> metric times 100, None where it is undefined (all scores equal);
    empty when test scoring is off. `start_as_is` where it differs, see `best_start`; `teacher-1` and so on for teachers
    that learned scores in this run."""


class MemberRecord(EnsembleRecord):
    """A member, alone or one of several that were trained side by side."""

    cycles: list[Cycle]
    best: dict[Form, Best]
    analysis: dict[str, list[tuple[int, int, dict[str, float | None]]]] | None
    """Form -> (cycle, step within this training, test set -> metric times 100)."""
    pretraining: NotRequired[PretrainingRecord]
    """Absent when no masked words were guessed."""
    criteria: NotRequired[dict[str, dict[str, float | None]]]
    """`start` and, where pairs are held out, the forms -> what pairs say of them without labels, by criterion."""


class ModelSize(TypedDict):
    """Of one model."""

    parameters: int
    megabytes: float
    """Of its weights on disk."""
    sentences_a_second: float
    """Of its own `encode`, plain sentence-transformers."""


class SizeRecord(TypedDict):
    """A student beside a larger model."""

    whose: str
    """What the larger one is: `teacher`, or the `start` that the student was cut from."""
    student: ModelSize
    other: ModelSize
    sentences: int
    """How many both encoded."""
    device: str
    threads: int


class SelectionRecord(TypedDict):
    """What chose checkpoints and cycles where there was no dev set."""

    criteria: dict[Form, str]
    """By form; `last` where nothing did."""
    left_out_regrets: dict[Form, float]
    """Points of dev that such a choice cost on runs that had a dev set, of starts left out of picking the criterion."""
    last_regrets: dict[Form, float]
    """The same of taking the last checkpoint."""
    runs: int
    starts: int


Interval = tuple[float, float]
"""Where 95 % of the bootstrap resamples lie, (low, high); a list of two in JSON."""


class IntervalRecord(TypedDict):
    """Of several models on one test, or of their averages over several tests; those that are undefined are left out."""

    scores: dict[str, Interval]
    """Model, such as `start` or a form -> of its metric times 100."""
    gains: dict[str, Interval]
    """Each model but the first -> of its points over the first, both measured on the same resamples."""


class ChoiceRecord(TypedDict):
    """A setting that was chosen for the user, and what by."""

    setting: str
    value: bool | float | str
    because: str


class Result(MemberRecord):
    """The content of result.json; of several members, what one has is that of `member`."""

    method: str
    about: NotRequired[str]
    """What the method does, in a sentence or two; absent from runs of version 0.1.0."""
    recipe: NotRequired[str]
    """Name of the recipe, `<method>/<row>`; absent when the run was not made from one."""
    finished: str
    seed: int
    config: dict[str, Any]
    environment: Environment
    data: RunData
    texts: NotRequired[TextStatistics]
    """The training text in numbers; absent from earlier runs."""
    member: NotRequired[int]
    """From 1: of several members the one whose bi-encoder is best on dev; `cycles`, `best`, `dev` and `scores` are
    its."""
    members: NotRequired[list[MemberRecord]]
    """All members, where several learn in each cycle; not where they learn in turn."""
    start_member: NotRequired[int]
    """From 1: of several members the one whose start is `start`."""
    ensemble: NotRequired[EnsembleRecord]
    """Of these members together: of their starts, and of the kept models of each form."""
    metric: str
    """Of the dev set, else of the first test set."""
    intervals: NotRequired[dict[str, IntervalRecord]]
    """Of `scores`: each test, and the average of the tests of a metric; absent from earlier runs."""
    sample_agreement: NotRequired[dict[Form, float | None]]
    """Where there was no dev set and nothing was held out: each form's rank correlation times 100 with the start, on
    training pairs."""
    uniformity: NotRequired[dict[str, float | None]]
    """Of a starting encoder's run: `start` and `bi` -> uniformity of training texts (Wang and Isola, ICML 2020)."""
    selection: NotRequired[SelectionRecord]
    """Where checkpoints were chosen without labels."""
    choices: NotRequired[list[ChoiceRecord]]
    """Of settings that the user left open, those that are not the paper's."""
    stages: list[StageSummary]
    seconds: float
    notes: list[str]
    sizes: NotRequired[SizeRecord]
    """Where there is a larger model to compare with."""
