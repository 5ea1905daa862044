"""Semantic textual similarity: SemEval 2012-2016 and the STS Benchmark, scores 0 (unrelated) to 5 (same).

The hub's copies hold exactly the scored pairs of the papers. SemEval 2012-2016 have no dev set; the paper
chooses checkpoints on STS-B's. The unlabelled pairs are the test pairs of the five years, scored or not, and
every split of STS-B; the pairs without a score (2015 and 2016) are not on the hub. Their numbers here are
those left after exact duplicates are removed.
"""

from transencoder.tasks.task import Task

_COLUMNS = ("sentence1", "sentence2", "score")
_RANGE = (0.0, 5.0)

STS12 = Task(
    name="sts12",
    title="STS12",
    dataset="mteb/sts12-sts",
    revision="a0d554a64d88156834ff5ae9920b964011b16384",
    columns=_COLUMNS,
    splits={"test": "test"},
    unlabelled=("test",),
    dev_task="stsb",
    score_range=_RANGE,
    metric="spearman",
    symmetric=True,
)

STS13 = Task(
    name="sts13",
    title="STS13",
    dataset="mteb/sts13-sts",
    revision="7e90230a92c190f1bf69ae9002b8cea547a64cca",
    columns=_COLUMNS,
    splits={"test": "test"},
    unlabelled=("test",),
    dev_task="stsb",
    score_range=_RANGE,
    metric="spearman",
    symmetric=True,
)

STS14 = Task(
    name="sts14",
    title="STS14",
    dataset="mteb/sts14-sts",
    revision="6031580fec1f6af667f0bd2da0a551cf4f0b2375",
    columns=_COLUMNS,
    splits={"test": "test"},
    unlabelled=("test",),
    dev_task="stsb",
    score_range=_RANGE,
    metric="spearman",
    symmetric=True,
)

STS15 = Task(
    name="sts15",
    title="STS15",
    dataset="mteb/sts15-sts",
    revision="ae752c7c21bf194d8b67fd573edf7ae58183cbe3",
    columns=_COLUMNS,
    splits={"test": "test"},
    unlabelled=("test",),
    dev_task="stsb",
    unscored_pairs=5410,
    score_range=_RANGE,
    metric="spearman",
    symmetric=True,
)

STS16 = Task(
    name="sts16",
    title="STS16",
    dataset="mteb/sts16-sts",
    revision="4d8694f8f0e0100860b497b999b3dbed754a0513",
    columns=_COLUMNS,
    splits={"test": "test"},
    unlabelled=("test",),
    dev_task="stsb",
    unscored_pairs=7948,
    score_range=_RANGE,
    metric="spearman",
    symmetric=True,
)

STSB = Task(
    name="stsb",
    title="STS-B",
    dataset="mteb/stsbenchmark-sts",
    revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    columns=_COLUMNS,
    splits={"train": "train", "dev": "validation", "test": "test"},
    unlabelled=("train", "validation", "test"),
    score_range=_RANGE,
    metric="spearman",
    symmetric=True,
)
