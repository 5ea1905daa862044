"""Training: students on pseudo-labels or views, and masked language models on pairs or on packed text."""

from transencoder.fit.language_model import masked_loss, pack, train_language_model
from transencoder.fit.lora import check_lora
from transencoder.fit.pretraining import Pretrained, pretrain
from transencoder.fit.student import DevMetrics, Fitted, Material, fit
from transencoder.fit.trainers import GoldAnnealing, Session, steps_in_all

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
    "steps_in_all",
    "train_language_model",
]
