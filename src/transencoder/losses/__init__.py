"""Losses: one equation a file. Each a pure function, and a module for sentence-transformers' own trainers."""

from transencoder.losses.cosine_regression import CosineRegressionLoss, cosine_regression
from transencoder.losses.soft_cross_entropy import SoftCrossEntropyLoss, soft_cross_entropy

__all__ = ["CosineRegressionLoss", "SoftCrossEntropyLoss", "cosine_regression", "soft_cross_entropy"]
