"""Pretrained models as they take part: found, fingerprinted, and made into bi-encoders and cross-encoders."""

from transencoder.encoders.cross import as_logits, check_cross_start, gives_logits, load_cross
from transencoder.encoders.files import count_parameters, fetch, weights_fingerprint
from transencoder.encoders.forms import backbone, load_bi, load_trained, transplant
from transencoder.encoders.fresh import fresh_masked, fresh_tokenizer
from transencoder.encoders.lengths import check_length, n_positions
from transencoder.encoders.masked import language_model_head, load_masked
from transencoder.encoders.projection import add_projection
from transencoder.encoders.saved import classes_of, is_cross
from transencoder.encoders.speed import encoding_speeds
from transencoder.encoders.truncation import check_layers, truncate
from transencoder.encoders.vocabulary import check_prunable, prune_vocabulary

__all__ = [
    "add_projection",
    "as_logits",
    "backbone",
    "check_cross_start",
    "check_layers",
    "check_length",
    "check_prunable",
    "classes_of",
    "count_parameters",
    "encoding_speeds",
    "fetch",
    "fresh_masked",
    "fresh_tokenizer",
    "gives_logits",
    "is_cross",
    "language_model_head",
    "load_bi",
    "load_cross",
    "load_masked",
    "load_trained",
    "n_positions",
    "prune_vocabulary",
    "transplant",
    "truncate",
    "weights_fingerprint",
]
