"""SNLI (Bowman et al., EMNLP 2015): entailment, neutral or contradiction.

For a classifier on the embeddings, as in SentEval; and pairs to train on without their labels, as in Trans-Encoder's
Figure 5.
"""

from transencoder.tasks.task import Task

SNLI = Task(
    name="snli",
    title="SNLI",
    dataset="stanfordnlp/snli",
    revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
    columns=("premise", "hypothesis", "label"),
    class_names=("entailment", "neutral", "contradiction"),
    splits={"train": "train", "dev": "validation", "test": "test"},
    unlabelled=("train", "validation", "test"),
    score_range=(-1.0, 2.0),
    metric="accuracy",
    symmetric=True,  # entailment is not; how alike two sentences are, which is what its pairs are taken for, is
)
