"""Table of benchmarks: where the pairs are, what their scores mean, how agreement is measured.

STS is SemEval 2012-2016 and the STS Benchmark. The hub's copies hold exactly the scored pairs of the papers. SemEval
has no dev set; the paper chooses checkpoints on STS-B's. The unlabelled pairs are the test pairs of the five years,
scored or not, and every split of STS-B; the pairs without a score (2015 and 2016) are not on the hub. Their numbers
here are counted after exact duplicates are removed.

SICK (sentences involving compositional knowledge) has a relatedness score from 1 to 5 (SICK-R) and an entailment label
(SICK-E, to train a classifier on, as in SentEval).

SNLI (Bowman et al., EMNLP 2015) serves to train a classifier on the embeddings, as in SentEval. Its pairs can also be
used for training without their labels, as in Trans-Encoder's Figure 5.

The binary tasks are from GLUE (Wang et al., ICLR 2019), with the rows that Trans-Encoder uses: the paper takes 10,000
pairs of large splits (section 4), its released code the first ones. Labels are classes on the hub; scores here are 1
for a paraphrase, a duplicate or an answer, else 0.

In re-ranking, each query has positive (relevant) and negative candidates. AskUbuntu (Lei et al., NAACL 2016) has its
authors' splits, which the sentence-transformers page and Wang et al.'s benchmark (2021), and so the SCT paper, evaluate
on: titles of questions, 20 candidates each, without the queries that have no positive. mteb's AskUbuntuDupQuestions is
another set: its test split holds 361 queries. SciDocs (Cohan et al., ACL 2020) is mteb's version: titles of papers,
about 30 candidates each, apparently with all four relations (cited, co-cited, co-viewed, co-read) in one list. Wang et
al. average the MAPs of the four relations; here the mean is over all queries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from transencoder.errors import InputError

Role = Literal["train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Rows that replace a test split that was released without labels."""

    split: str
    """Split that they are drawn from."""
    rows: int
    """Number of rows; all of the split if it has fewer."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark of scored sentence pairs, or of queries with candidates, which are read as such pairs."""

    name: str
    """Name that the user types: lower case, no spaces."""
    title: str
    """The name as papers print it."""
    dataset: str
    """Hub id, or the same path under the data folder."""
    config: str | None = None
    """The hub's configuration name, where the data set has several."""
    revision: str | None = None
    """Hub revision that the numbers were measured with; not used for a local folder."""
    layout: Literal["pairs", "candidates"] = "pairs"
    """Content of a row: a scored pair, or a query with lists of positive and negative candidates."""
    columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
    """Names in the data set: the first sentence, the second sentence and the gold score, or, in the layout
    `candidates`, the query, its positive and its negative candidates."""
    splits: Mapping[Role, str]
    """Split of each role, perhaps a slice such as `validation[:1000]`. Empty: only for training, without labels."""
    stand_in: StandIn | None = None
    """Rows to test on if the labels of the test split are all -1."""
    positive_label: int | None = None
    """Gold label of the positive class, where labels are classes: scores are then 1 for it and 0 for the others."""
    class_names: tuple[str, ...] = ()
    """Names of the classes in the order of their labels, where labels are classes."""
    unlabelled: tuple[str, ...] = ()
    """Splits that the paper trains on without their scores; transductive if the test split is among them. Empty: for
    evaluation only."""
    dev_task: str | None = None
    """Name of the task whose dev set is used if this one has no `dev` split of its own."""
    unscored_pairs: int = 0
    """Number of distinct pairs released without a gold score: the paper trains on them, but the hub lacks them."""
    score_range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest gold score or label, inclusive."""
    metric: Literal["spearman", "roc_auc", "map", "accuracy"]
    """Key of `transencoder.metrics.METRICS` or `transencoder.metrics.RANKING_METRICS`; or `accuracy` of a classifier
    on the embeddings (`transencoder.evaluation.evaluate_classes`), trained on the train split."""
    symmetric: bool = True
    """Whether (a, b) and (b, a) mean the same; if so the cross-encoder is trained on both orders."""


_ALL: Mapping[Role, str] = {"train": "train", "dev": "validation", "test": "test"}
_NLI = ("entailment", "neutral", "contradiction")


def _semeval(year: int, revision: str, unscored_pairs: int = 0) -> Task:
    """Build the task of one year of SemEval."""
    return Task(
        name=f"sts{year}",
        title=f"STS{year}",
        dataset=f"mteb/sts{year}-sts",
        revision=revision,
        splits={"test": "test"},
        unlabelled=("test",),
        dev_task="stsb",
        unscored_pairs=unscored_pairs,
        score_range=(0.0, 5.0),
        metric="spearman",
    )


_SICKR = Task(
    name="sickr",
    title="SICK-R",
    dataset="RobZamp/sick",
    revision="refs/convert/parquet",  # the hub's main branch is a loading script, which `datasets` no longer runs
    columns=("sentence_A", "sentence_B", "relatedness_score"),
    splits=_ALL,
    unlabelled=("train", "validation", "test"),
    score_range=(1.0, 5.0),
    metric="spearman",
)
_QQP = Task(
    name="qqp",
    title="QQP",
    dataset="nyu-mll/glue",
    config="qqp",
    revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    columns=("question1", "question2", "label"),
    positive_label=1,
    splits={"train": "train[:10000]", "dev": "validation[:1000]", "test": "test[:10000]"},
    # The paper's test rows are from another release of the data, with labels; the hub's have none.
    stand_in=StandIn(split="validation[1000:]", rows=10_000, seed=0),
    unlabelled=("train[:10000]", "validation[:1000]", "test[:10000]"),
    metric="roc_auc",
)
_SCIDOCS = Task(
    name="scidocs",
    title="SciDocs",
    dataset="mteb/scidocs-reranking",
    revision="d3c5e1fc0b855ab6097bf1cda04dd73947d7caab",
    layout="candidates",
    columns=("query", "positive", "negative"),
    splits={"dev": "validation", "test": "test"},
    metric="map",
    symmetric=False,
)

_TABLE = (
    _semeval(12, "a0d554a64d88156834ff5ae9920b964011b16384"),
    _semeval(13, "7e90230a92c190f1bf69ae9002b8cea547a64cca"),
    _semeval(14, "6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
    _semeval(15, "ae752c7c21bf194d8b67fd573edf7ae58183cbe3", unscored_pairs=5410),
    _semeval(16, "4d8694f8f0e0100860b497b999b3dbed754a0513", unscored_pairs=7948),
    Task(
        name="stsb",
        title="STS-B",
        dataset="mteb/stsbenchmark-sts",
        revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
        splits=_ALL,
        unlabelled=("train", "validation", "test"),
        score_range=(0.0, 5.0),
        metric="spearman",
    ),
    _SICKR,
    _QQP,
    replace(
        _QQP,
        name="qnli",
        title="QNLI",
        config="qnli",
        columns=("question", "sentence", "label"),
        positive_label=0,
        splits={"train": "train[:10000]", "dev": "validation[:1000]", "test": "validation[1000:]"},
        stand_in=None,
        unlabelled=("train[:10000]", "validation"),
        symmetric=False,
    ),
    replace(
        _QQP,
        name="mrpc",
        title="MRPC",
        config="mrpc",
        columns=("sentence1", "sentence2", "label"),
        splits=_ALL,
        stand_in=None,
        unlabelled=("train", "validation", "test"),
    ),
    replace(
        _SICKR,
        name="sicke",
        title="SICK-E",
        columns=("sentence_A", "sentence_B", "label"),
        class_names=_NLI,
        unlabelled=(),
        score_range=(0.0, 2.0),
        metric="accuracy",
        symmetric=False,
    ),
    Task(
        name="snli",
        title="SNLI",
        dataset="stanfordnlp/snli",
        revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
        columns=("premise", "hypothesis", "label"),
        class_names=_NLI,
        splits=_ALL,
        unlabelled=("train", "validation", "test"),
        score_range=(-1.0, 2.0),
        metric="accuracy",
        symmetric=True,  # entailment is not symmetric, but similarity is, and its pairs are used for that
    ),
    replace(
        _SCIDOCS,
        name="askubuntu",
        title="AskUbuntu",
        dataset="sentence-transformers/askubuntu",
        revision=None,  # no commit of it could be looked up
        splits={"dev": "dev", "test": "test"},
        symmetric=True,
    ),
    _SCIDOCS,
)

TASKS: dict[str, Task] = {task.name: task for task in _TABLE}

SUITES: dict[str, tuple[str, ...]] = {
    "sts": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"),
    "binary": ("qqp", "qnli", "mrpc"),
    "reranking": ("askubuntu", "scidocs"),
    "nli": ("sicke", "snli"),
}

SUITE_DEV: dict[str, str] = {"sts": "stsb", "reranking": "askubuntu"}
"""Task whose dev set chooses checkpoints for a whole suite: for sts as in the paper (section 4), else our choice."""


def expand(names: str | Task | Iterable[str | Task]) -> tuple[Task, ...]:
    """Return the tasks that names of tasks and suites stand for, in order, each task once.

    Raises:
        InputError: a name is in neither table.
    """
    if isinstance(names, str | Task):
        names = (names,)
    found: dict[str, Task] = {}
    for name in names:
        for task in _tasks_of(name):
            found.setdefault(task.name, task)
    return tuple(found.values())


def dev_task(name: str | Task) -> Task:
    """Return the task whose dev set chooses checkpoints for `name`, a task or a suite.

    Raises:
        InputError: the name is in neither table, or is a suite whose tasks each have a dev set of their own.
    """
    if isinstance(name, str) and name in SUITE_DEV:
        return TASKS[SUITE_DEV[name]]
    if isinstance(name, str) and name in SUITES:
        raise InputError(
            f"{name!r} is a suite whose tasks each have a dev set of their own; give one of: {', '.join(SUITES[name])}"
        )
    (task,) = _tasks_of(name)
    return TASKS[task.dev_task] if "dev" not in task.splits and task.dev_task else task


def _tasks_of(name: str | Task) -> tuple[Task, ...]:
    if isinstance(name, Task):
        return (name,)
    if name in SUITES:
        return tuple(TASKS[member] for member in SUITES[name])
    if name in TASKS:
        return (TASKS[name],)
    nearest = get_close_matches(name.lower(), [*TASKS, *SUITES], n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise InputError(f"unknown task {name!r}; {hint}tasks: {', '.join(TASKS)}; suites: {', '.join(SUITES)}")
