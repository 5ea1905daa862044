"""The names that moved to `transencoder.configs`, for modules that still import them from here."""

from transencoder.configs import (
    BiLoss,
    Criterion,
    CrossLoss,
    FitConfig,
    Form,
    Head,
    LabelPolicy,
    Member,
    OfEmbeddings,
    Pooling,
    Precision,
    PretrainingConfig,
    Selection,
    Texts,
)
from transencoder.configs.names import nearest

__all__ = [
    "BiLoss",
    "Criterion",
    "CrossLoss",
    "FitConfig",
    "Form",
    "Head",
    "LabelPolicy",
    "Member",
    "OfEmbeddings",
    "Pooling",
    "Precision",
    "PretrainingConfig",
    "Selection",
    "Texts",
    "nearest",
]
