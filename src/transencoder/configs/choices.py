"""Settings that Trans-Encoder's preset `standard` chooses for the user, each with its reason: data, no logic."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """A setting that the preset chooses for the user."""

    setting: str
    value: Any
    because: str


_TOKENS = Choice(
    "bi_labels",
    "tokens",
    "labels by tokens gained 1.0 points on ten domains from a base model trained without labels, labels by cosines "
    "none; from all-MiniLM-L6-v2 they took 0.1",
)
_LENGTH = Choice(
    "max_length", "auto", "32 tokens, the paper's, cost 3.0 points on one of ten domains, whose texts are longer"
)
_RATE = Choice("bi.learning_rate", 5e-5, "the paper's; chosen together with the epochs")
_BI = (
    Choice("bi.batch_size", 64, "the value used on the ten domains"),
    Choice(
        "bi.selection",
        "last",
        "so few epochs do not go wrong: on five domains, with 4 epochs, checkpoints chosen by self-retrieval gained no "
        "more, and beside a teacher, with 8, about a point less",
    ),
    Choice("record_criteria", True, "held-out pairs tell without labels whether a model went wrong"),
)
STANDARD = (
    Choice(
        "same_form",
        True,
        "a few thousand pairs do not teach a cross-encoder: on ten domains it ended 4 to 81 points below its base "
        "model, and bi-encoders that learned from it up to 43; --cross-start takes one that has learned it elsewhere",
    ),
    Choice("cycles", 1, "two further cycles added 0.6 points on STS and took three times as long"),
    _TOKENS,
    _LENGTH,
    _RATE,
    Choice("bi.epochs", 2, "gained as much on ten domains as 4 at 2e-5, in two thirds of the time"),
    *_BI,
)
BESIDE_TEACHERS = (
    Choice(
        "bi.epochs",
        8,
        "a better teacher is worth longer training: with minilm beside a base model that no labels had trained, 4.1 "
        "points on ten domains in place of 2.8 after 4 epochs at 2e-5",
    ),
    _RATE,
)
"""Choices that replace those of `STANDARD` if other teachers also label the pairs."""
MANY_PAIRS = 4000
"""Smallest number of pairs for which `ONE_EPOCH` is chosen."""
ONE_EPOCH = Choice(
    "bi.epochs",
    1,
    f"there are {MANY_PAIRS:,} pairs or more; on ten domains one epoch of 5,000 to 10,000 mined pairs gained as much "
    "as four at 2e-5, in a third of the time",
)
WEIGHTED = Choice(
    "weight_tokens",
    True,
    "the base model's embeddings lie close together, as after training without labels; on ten domains such a one "
    "gained 2.5 points with weighted tokens, 1.0 without",
)
HALF = Choice(
    "bi.trained_share",
    0.5,
    "the base model seems to have been trained with labels, and keeps more of what it knew this way: on the "
    "tests of ten domains the worst one lost 1.2 points, not 3.0, after 4 epochs at 2e-5",
)
STANDARD_WITH_CROSS = (
    Choice("cycles", 1, "later cycles added no more than another seed does"),
    _TOKENS,
    _LENGTH,
    Choice("cross.learning_rate", 5e-5, "the value used on the ten domains"),
    Choice("cross.batch_size", 64, "the value used on the ten domains"),
    Choice("cross.epochs", 2, "the value used on the ten domains"),
    Choice("cross.dropout", 0.0, "the value used on the ten domains"),
    Choice("cross.selection", "last", "as on the ten domains"),
    Choice("bi.learning_rate", 2e-5, "the value used on the ten domains"),
    Choice("bi.epochs", 4, "the value used on the ten domains"),
    *_BI,
)
