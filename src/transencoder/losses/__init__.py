"""Losses, one family of equations per file: each a pure function, and a module for sentence-transformers' trainers.

A module takes the encoder to train as `model`. If that ends in Normalize, a projector or a classifier reads its
embeddings multiplied by the square root of their width: the scale of pooled vectors, for which the papers' heads are
made.

Some modules train more than the encoder: a projector, a second copy, a discriminator. With several processes, DDP sees
the encoder only. This package's trainers then average these gradients too; with a plain trainer, pass the loss's own
parameters to `transencoder.distributed.average_gradients` before training.
"""

from transencoder.losses.classes import ClassCrossEntropyLoss as ClassCrossEntropyLoss
from transencoder.losses.classes import DualViewLoss as DualViewLoss
from transencoder.losses.classes import class_divergence as class_divergence
from transencoder.losses.contrastive import ContrastiveTensionLoss as ContrastiveTensionLoss
from transencoder.losses.contrastive import InBatchContrastiveTensionLoss as InBatchContrastiveTensionLoss
from transencoder.losses.contrastive import InfoNCELoss as InfoNCELoss
from transencoder.losses.contrastive import NTXentLoss as NTXentLoss
from transencoder.losses.contrastive import WeightedInfoNCELoss as WeightedInfoNCELoss
from transencoder.losses.contrastive import contrastive_tension as contrastive_tension
from transencoder.losses.contrastive import elementwise_info_nce as elementwise_info_nce
from transencoder.losses.contrastive import in_batch_contrastive_tension as in_batch_contrastive_tension
from transencoder.losses.contrastive import info_nce as info_nce
from transencoder.losses.contrastive import nt_xent as nt_xent
from transencoder.losses.contrastive import tanh_projector as tanh_projector
from transencoder.losses.contrastive import weighted_info_nce as weighted_info_nce
from transencoder.losses.cross_view import FirstViewDivergence as FirstViewDivergence
from transencoder.losses.cross_view import ReferenceSearch as ReferenceSearch
from transencoder.losses.cross_view import SCTLoss as SCTLoss
from transencoder.losses.cross_view import ViewComparison as ViewComparison
from transencoder.losses.cross_view import ViewError as ViewError
from transencoder.losses.cross_view import mlp_projector as mlp_projector
from transencoder.losses.drophead import DropHead as DropHead
from transencoder.losses.drophead import add_drop_head as add_drop_head
from transencoder.losses.masked_words import DeCLUTRLoss as DeCLUTRLoss
from transencoder.losses.masked_words import DiffCSELoss as DiffCSELoss
from transencoder.losses.masked_words import batch_norm_projector as batch_norm_projector
from transencoder.losses.masked_words import replaced_token_detection as replaced_token_detection
from transencoder.losses.queues import CKDLoss as CKDLoss
from transencoder.losses.queues import ConGenLoss as ConGenLoss
from transencoder.losses.queues import InstanceQueue as InstanceQueue
from transencoder.losses.queues import queue_info_nce as queue_info_nce
from transencoder.losses.queues import similarity_divergence as similarity_divergence
from transencoder.losses.scores import Annealing as Annealing
from transencoder.losses.scores import CosineLoss as CosineLoss
from transencoder.losses.scores import Equation as Equation
from transencoder.losses.scores import LogitLoss as LogitLoss
from transencoder.losses.scores import annealed as annealed
from transencoder.losses.scores import clipped_cosine_cross_entropy as clipped_cosine_cross_entropy
from transencoder.losses.scores import cosine_cross_entropy as cosine_cross_entropy
from transencoder.losses.scores import cosine_regression as cosine_regression
from transencoder.losses.scores import log_cosh as log_cosh
from transencoder.losses.scores import logit_regression as logit_regression
from transencoder.losses.scores import soft_cross_entropy as soft_cross_entropy
