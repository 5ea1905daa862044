"""SICK-R: relatedness of sentences involving compositional knowledge, scores 1 (least) to 5 (most)."""

from transencoder.tasks.task import Task

SICKR = Task(
    name="sickr",
    title="SICK-R",
    dataset="RobZamp/sick",
    # The hub's main branch is a loading script, which `datasets` no longer runs; this is its conversion.
    revision="refs/convert/parquet",
    columns=("sentence_A", "sentence_B", "relatedness_score"),
    splits={"train": "train", "dev": "validation", "test": "test"},
    unlabelled=("train", "validation", "test"),
    score_range=(1.0, 5.0),
    metric="spearman",
    symmetric=True,
)
