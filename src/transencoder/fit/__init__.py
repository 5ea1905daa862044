"""Training: students on pseudo-labels, and masked language models on pairs before them."""

from transencoder.fit.pretraining import Pretrained, pretrain
from transencoder.fit.pseudo_labels import DevMetrics, Fitted, fit
from transencoder.fit.trainer import steps_in_all

__all__ = ["DevMetrics", "Fitted", "Pretrained", "fit", "pretrain", "steps_in_all"]
