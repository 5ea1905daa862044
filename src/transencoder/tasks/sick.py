"""SICK: sentences involving compositional knowledge, each pair with a relatedness and an entailment label."""

from transencoder.tasks.task import Task

_DATASET = "RobZamp/sick"
_REVISION = "refs/convert/parquet"
"""The hub's main branch is a loading script, which `datasets` no longer runs; this is its conversion."""

SICKR = Task(
    name="sickr",
    title="SICK-R",
    dataset=_DATASET,
    revision=_REVISION,
    columns=("sentence_A", "sentence_B", "relatedness_score"),
    splits={"train": "train", "dev": "validation", "test": "test"},
    unlabelled=("train", "validation", "test"),
    score_range=(1.0, 5.0),
    metric="spearman",
    symmetric=True,
)
"""Relatedness, 1 (least) to 5 (most)."""

SICKE = Task(
    name="sicke",
    title="SICK-E",
    dataset=_DATASET,
    revision=_REVISION,
    columns=("sentence_A", "sentence_B", "label"),
    class_names=("entailment", "neutral", "contradiction"),
    splits={"train": "train", "dev": "validation", "test": "test"},
    unlabelled=(),
    score_range=(0.0, 2.0),
    metric="accuracy",
    symmetric=False,
)
"""Entailment, neutral or contradiction; to train a classifier on, as in SentEval."""
