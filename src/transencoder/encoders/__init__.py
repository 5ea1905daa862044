"""Pretrained models as they take part: found, fingerprinted, and made into bi-encoders and cross-encoders."""

from transencoder.encoders.files import classes_of, count_parameters, fetch, is_cross, weights_fingerprint
from transencoder.encoders.loading import (
    as_logits,
    backbone,
    check_cross_start,
    check_length,
    gives_logits,
    load_bi,
    load_cross,
    load_trained,
    n_positions,
    transplant,
)
from transencoder.encoders.masked import fresh_masked, fresh_tokenizer, language_model_head, load_masked
from transencoder.encoders.shrinking import add_projection, check_layers, check_prunable, prune_vocabulary, truncate
from transencoder.encoders.speed import encoding_speeds

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
