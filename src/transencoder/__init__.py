"""Label-free training of sentence-pair models: bi-encoders and cross-encoders that teach each other."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transencoder.config import FitConfig, Member, PretrainingConfig
    from transencoder.methods import (
        CKD,
        DCLR,
        MLM,
        SCT,
        ConGen,
        ContrastiveTension,
        DeCLUTR,
        DiffCSE,
        DvBERT,
        EmbeddingMSE,
        MirrorBERT,
        SimCSE,
        TransEncoder,
    )
    from transencoder.mining import Mined, mine
    from transencoder.pairs import read_pairs, read_sentences
    from transencoder.scorers import BiScorer, CrossScorer, MeanScorer
    from transencoder.training import Plan, Trained, plan, train

__version__ = "0.1.0"

_HOMES = {
    "FitConfig": "config",
    "Member": "config",
    "PretrainingConfig": "config",
    "CKD": "methods",
    "ConGen": "methods",
    "ContrastiveTension": "methods",
    "DeCLUTR": "methods",
    "MLM": "methods",
    "DCLR": "methods",
    "DiffCSE": "methods",
    "DvBERT": "methods",
    "EmbeddingMSE": "methods",
    "Mined": "mining",
    "MirrorBERT": "methods",
    "SCT": "methods",
    "SimCSE": "methods",
    "TransEncoder": "methods",
    "mine": "mining",
    "read_pairs": "pairs",
    "read_sentences": "pairs",
    "BiScorer": "scorers",
    "CrossScorer": "scorers",
    "MeanScorer": "scorers",
    "Plan": "training",
    "Trained": "training",
    "plan": "training",
    "train": "training",
}

__all__ = [
    "CKD",
    "DCLR",
    "BiScorer",
    "ConGen",
    "ContrastiveTension",
    "DeCLUTR",
    "MLM",
    "CrossScorer",
    "DiffCSE",
    "DvBERT",
    "EmbeddingMSE",
    "FitConfig",
    "MeanScorer",
    "Member",
    "Mined",
    "MirrorBERT",
    "Plan",
    "PretrainingConfig",
    "SCT",
    "SimCSE",
    "TransEncoder",
    "Trained",
    "mine",
    "plan",
    "read_pairs",
    "read_sentences",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing sentence-transformers takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'transencoder' has no attribute {name!r}")
    return getattr(import_module(f"transencoder.{_HOMES[name]}"), name)
