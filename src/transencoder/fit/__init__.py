"""Training: students on pseudo-labels or views, and masked language models on pairs or on packed text."""

from transencoder.fit.annealing import GoldAnnealing
from transencoder.fit.language_model import masked_loss, train_language_model
from transencoder.fit.lora import check_lora
from transencoder.fit.packing import pack
from transencoder.fit.pretraining import Pretrained, pretrain
from transencoder.fit.running import steps_in_all
from transencoder.fit.session import Session, stage_session
from transencoder.fit.student import DevMetrics, Fitted, Material, fit

__all__ = [
    "DevMetrics",
    "Fitted",
    "GoldAnnealing",
    "Material",
    "Pretrained",
    "Session",
    "check_lora",
    "fit",
    "masked_loss",
    "pack",
    "pretrain",
    "stage_session",
    "steps_in_all",
    "train_language_model",
]
