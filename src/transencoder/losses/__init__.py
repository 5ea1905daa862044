"""Losses: one family of equations a file. Each a pure function, and a module for sentence-transformers' own trainers.

Some modules train more than the encoder: a projector, a second copy, a discriminator. Under several processes DDP sees
the encoder alone. Our trainers then average these gradients too; beside a plain one, give the loss's own parameters to
`transencoder.distributed.average_gradients` before training.
"""

from transencoder.losses.annealing import Annealing, annealed
from transencoder.losses.classes import ClassCrossEntropyLoss, DualViewLoss, class_divergence
from transencoder.losses.contrastive import (
    InfoNCELoss,
    NTXentLoss,
    WeightedInfoNCELoss,
    elementwise_info_nce,
    info_nce,
    nt_xent,
    weighted_info_nce,
)
from transencoder.losses.contrastive_tension import (
    ContrastiveTensionLoss,
    InBatchContrastiveTensionLoss,
    contrastive_tension,
    in_batch_contrastive_tension,
)
from transencoder.losses.cross_view import SCTLoss, ViewComparison
from transencoder.losses.drophead import DropHead, add_drop_head
from transencoder.losses.masked_words import DeCLUTRLoss, DiffCSELoss, replaced_token_detection
from transencoder.losses.projectors import batch_norm_projector, mlp_projector, tanh_projector
from transencoder.losses.queues import CKDLoss, ConGenLoss, InstanceQueue, queue_info_nce, similarity_divergence
from transencoder.losses.scores import (
    ClippedCosineCrossEntropyLoss,
    CosineCrossEntropyLoss,
    CosineLoss,
    CosineRegressionLoss,
    LogCoshLoss,
    LogitLoss,
    LogitRegressionLoss,
    SoftCrossEntropyLoss,
    clipped_cosine_cross_entropy,
    cosine_cross_entropy,
    cosine_regression,
    log_cosh,
    logit_regression,
    soft_cross_entropy,
)

__all__ = [
    "Annealing",
    "CKDLoss",
    "ClassCrossEntropyLoss",
    "ClippedCosineCrossEntropyLoss",
    "ConGenLoss",
    "ContrastiveTensionLoss",
    "CosineCrossEntropyLoss",
    "CosineLoss",
    "CosineRegressionLoss",
    "DeCLUTRLoss",
    "DiffCSELoss",
    "DropHead",
    "DualViewLoss",
    "InBatchContrastiveTensionLoss",
    "InfoNCELoss",
    "InstanceQueue",
    "LogCoshLoss",
    "LogitLoss",
    "LogitRegressionLoss",
    "NTXentLoss",
    "SCTLoss",
    "SoftCrossEntropyLoss",
    "ViewComparison",
    "WeightedInfoNCELoss",
    "add_drop_head",
    "annealed",
    "batch_norm_projector",
    "class_divergence",
    "clipped_cosine_cross_entropy",
    "contrastive_tension",
    "cosine_cross_entropy",
    "cosine_regression",
    "elementwise_info_nce",
    "in_batch_contrastive_tension",
    "info_nce",
    "log_cosh",
    "logit_regression",
    "mlp_projector",
    "nt_xent",
    "queue_info_nce",
    "replaced_token_detection",
    "similarity_divergence",
    "soft_cross_entropy",
    "tanh_projector",
    "weighted_info_nce",
]
