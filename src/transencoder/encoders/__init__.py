"""Pretrained models as they take part: found, fingerprinted, and made into bi-encoders and cross-encoders."""

from transencoder.encoders.files import classes_of as classes_of
from transencoder.encoders.files import count_parameters as count_parameters
from transencoder.encoders.files import fetch as fetch
from transencoder.encoders.files import is_cross as is_cross
from transencoder.encoders.files import weights_fingerprint as weights_fingerprint
from transencoder.encoders.files import write_checksums as write_checksums
from transencoder.encoders.loading import as_logits as as_logits
from transencoder.encoders.loading import backbone as backbone
from transencoder.encoders.loading import check_cross_start as check_cross_start
from transencoder.encoders.loading import check_length as check_length
from transencoder.encoders.loading import forget_last_call as forget_last_call
from transencoder.encoders.loading import gives_logits as gives_logits
from transencoder.encoders.loading import language_model_head as language_model_head
from transencoder.encoders.loading import load_bi as load_bi
from transencoder.encoders.loading import load_cross as load_cross
from transencoder.encoders.loading import load_masked as load_masked
from transencoder.encoders.loading import load_trained as load_trained
from transencoder.encoders.loading import transplant as transplant
from transencoder.encoders.small import add_projection as add_projection
from transencoder.encoders.small import check_layers as check_layers
from transencoder.encoders.small import check_prunable as check_prunable
from transencoder.encoders.small import encoding_speeds as encoding_speeds
from transencoder.encoders.small import fresh_masked as fresh_masked
from transencoder.encoders.small import fresh_tokenizer as fresh_tokenizer
from transencoder.encoders.small import prune_vocabulary as prune_vocabulary
from transencoder.encoders.small import truncate as truncate
