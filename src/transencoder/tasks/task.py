"""What a benchmark is: data-set ids, columns, splits, metric. Data only; what reads it stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Rows in the place of a test split that was released without labels."""

    split: str
    """Where they are drawn from."""
    rows: int
    """How many, or all there are."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark of scored sentence pairs, or of queries with candidates, which are read as such pairs."""

    name: str
    """What the user types: lower case, no spaces."""
    title: str
    """The name as papers print it."""
    dataset: str
    """Hub id, or the same path under the data folder."""
    config: str | None = None
    """The hub's configuration name, where the data set has several."""
    revision: str | None = None
    """Hub revision the numbers were made with; not used for a local folder."""
    layout: Literal["pairs", "candidates"] = "pairs"
    """What a row is: a scored pair, or a query with lists of positive and negative candidates."""
    columns: tuple[str, str, str]
    """Names in the data set: the first sentence, the second sentence and the gold score, or, in the layout
    `candidates`, the query, its positive and its negative candidates."""
    splits: Mapping[Role, str]
    """Role -> split; a split may be a slice such as `validation[:1000]`. Empty: only for training, without labels."""
    stand_in: StandIn | None = None
    """What is tested on where the test split's labels are all -1."""
    positive_label: int | None = None
    """The gold label that means yes, where labels are classes: scores are then 1 for it and 0 for the others."""
    class_names: tuple[str, ...] = ()
    """Names of the classes in the order of their labels, where labels are classes."""
    unlabelled: tuple[str, ...]
    """Splits whose pairs, without scores, the paper trains on; transductive with the test split.
    Empty: for evaluation only."""
    dev_task: str | None = None
    """The task whose dev set stands in where this one has no `dev` split of its own."""
    unscored_pairs: int = 0
    """Distinct pairs released without a gold score: the paper trains on them, the hub lacks them."""
    score_range: tuple[float, float]
    """Lowest and highest gold score or label, inclusive."""
    metric: Literal["spearman", "roc_auc", "map", "accuracy"]
    """Key of `transencoder.evaluation.METRICS` or `transencoder.ranking.RANKING_METRICS`; or `accuracy` of a classifier
    on the embeddings (`transencoder.evaluation.evaluate_classes`), trained on the train split."""
    symmetric: bool
    """Whether (a, b) and (b, a) mean the same; if so the cross-encoder is trained on both orders."""
