"""Losses: one equation a file. Each a pure function, and a module for sentence-transformers' own trainers.

Some modules train more than the encoder: a projector, a second copy, a discriminator. Under several processes DDP sees
the encoder alone. Our trainers then average these gradients too; beside a plain one, give the loss's own parameters to
`transencoder.distributed.average_gradients` before training.
"""

from transencoder.losses.annealing import Annealing, annealed
from transencoder.losses.ckd import CKDLoss
from transencoder.losses.class_cross_entropy import ClassCrossEntropyLoss
from transencoder.losses.congen import ConGenLoss
from transencoder.losses.contrastive_tension import (
    ContrastiveTensionLoss,
    InBatchContrastiveTensionLoss,
    contrastive_tension,
    in_batch_contrastive_tension,
)
from transencoder.losses.cosine_cross_entropy import (
    ClippedCosineCrossEntropyLoss,
    CosineCrossEntropyLoss,
    clipped_cosine_cross_entropy,
    cosine_cross_entropy,
)
from transencoder.losses.cosine_regression import CosineRegressionLoss, cosine_regression
from transencoder.losses.cosines import CosineLoss
from transencoder.losses.cross_view import SCTLoss, ViewComparison
from transencoder.losses.declutr import DeCLUTRLoss
from transencoder.losses.drophead import DropHead, add_drop_head
from transencoder.losses.dual_view import DualViewLoss, class_divergence
from transencoder.losses.info_nce import InfoNCELoss, info_nce
from transencoder.losses.log_cosh import LogCoshLoss, log_cosh
from transencoder.losses.logit_regression import LogitRegressionLoss, logit_regression
from transencoder.losses.logits import LogitLoss
from transencoder.losses.nt_xent import NTXentLoss, nt_xent
from transencoder.losses.projectors import batch_norm_projector, mlp_projector, tanh_projector
from transencoder.losses.queues import InstanceQueue
from transencoder.losses.replaced_tokens import DiffCSELoss, replaced_token_detection
from transencoder.losses.similarity_distributions import queue_info_nce, similarity_divergence
from transencoder.losses.soft_cross_entropy import SoftCrossEntropyLoss, soft_cross_entropy
from transencoder.losses.weighted_info_nce import WeightedInfoNCELoss, elementwise_info_nce, weighted_info_nce

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
