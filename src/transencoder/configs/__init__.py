"""What the configs of all methods share: the run, one encoder's training, members, text, teachers. No heavy imports."""

from transencoder.configs.choices import (
    BiLoss,
    Criterion,
    CrossLoss,
    Form,
    Head,
    LabelPolicy,
    OfEmbeddings,
    Pooling,
    Precision,
    Selection,
    Texts,
)
from transencoder.configs.fit import FitConfig, PretrainingConfig
from transencoder.configs.member import Member
from transencoder.configs.names import nearest
from transencoder.configs.run import RunConfig

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
    "RunConfig",
    "Selection",
    "Texts",
    "nearest",
]
