"""Losses: one equation a file. Each a pure function, and a module for sentence-transformers' own trainers."""

from transencoder.losses.cosine_regression import CosineRegressionLoss, cosine_regression
from transencoder.losses.info_nce import InfoNCELoss, info_nce
from transencoder.losses.nt_xent import NTXentLoss, nt_xent
from transencoder.losses.projectors import tanh_projector
from transencoder.losses.soft_cross_entropy import SoftCrossEntropyLoss, soft_cross_entropy

__all__ = [
    "CosineRegressionLoss",
    "InfoNCELoss",
    "NTXentLoss",
    "SoftCrossEntropyLoss",
    "cosine_regression",
    "info_nce",
    "nt_xent",
    "soft_cross_entropy",
    "tanh_projector",
]
