"""Binary tasks of GLUE (Wang et al., ICLR 2019), measured by ROC-AUC, in the rows that Trans-Encoder takes of them.

The paper takes 10,000 pairs of large splits (section 4 of Trans-Encoder), its released code the first ones.
Labels are classes on the hub; scores here are 1 for a paraphrase, a duplicate or an answer, else 0.
"""

from transencoder.tasks.task import StandIn, Task

_DATASET = "nyu-mll/glue"
_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"

QQP = Task(
    name="qqp",
    title="QQP",
    dataset=_DATASET,
    config="qqp",
    revision=_REVISION,
    columns=("question1", "question2", "label"),
    positive_label=1,
    splits={"train": "train[:10000]", "dev": "validation[:1000]", "test": "test[:10000]"},
    # The paper's test rows are of another release of the data, with labels; the hub's have none.
    stand_in=StandIn(split="validation[1000:]", rows=10_000, seed=0),
    unlabelled=("train[:10000]", "validation[:1000]", "test[:10000]"),
    score_range=(0.0, 1.0),
    metric="roc_auc",
    symmetric=True,
)

QNLI = Task(
    name="qnli",
    title="QNLI",
    dataset=_DATASET,
    config="qnli",
    revision=_REVISION,
    columns=("question", "sentence", "label"),
    positive_label=0,
    splits={"train": "train[:10000]", "dev": "validation[:1000]", "test": "validation[1000:]"},
    unlabelled=("train[:10000]", "validation"),
    score_range=(0.0, 1.0),
    metric="roc_auc",
    symmetric=False,
)

MRPC = Task(
    name="mrpc",
    title="MRPC",
    dataset=_DATASET,
    config="mrpc",
    revision=_REVISION,
    columns=("sentence1", "sentence2", "label"),
    positive_label=1,
    splits={"train": "train", "dev": "validation", "test": "test"},
    unlabelled=("train", "validation", "test"),
    score_range=(0.0, 1.0),
    metric="roc_auc",
    symmetric=True,
)
