"""One paper a file: a config with its views, its loss, its teacher and its cost. No engine, no heavy imports."""

from transencoder.configs import RunConfig
from transencoder.methods.ckd import CKD
from transencoder.methods.congen import ConGen
from transencoder.methods.contrastive_tension import ContrastiveTension
from transencoder.methods.dclr import DCLR
from transencoder.methods.declutr import DeCLUTR
from transencoder.methods.diffcse import DiffCSE
from transencoder.methods.dvbert import DvBERT
from transencoder.methods.embedding_mse import EmbeddingMSE
from transencoder.methods.mirror_bert import MirrorBERT
from transencoder.methods.mlm import MLM
from transencoder.methods.sct import SCT
from transencoder.methods.simcse import SimCSE
from transencoder.methods.trans_encoder import TransEncoder

METHODS: dict[str, type[RunConfig]] = {
    "trans-encoder": TransEncoder,
    "simcse": SimCSE,
    "mirror-bert": MirrorBERT,
    "contrastive-tension": ContrastiveTension,
    "declutr": DeCLUTR,
    "diffcse": DiffCSE,
    "dclr": DCLR,
    "sct": SCT,
    "congen": ConGen,
    "ckd": CKD,
    "embedding-mse": EmbeddingMSE,
    "mlm": MLM,
    "dvbert": DvBERT,
}

__all__ = [
    "CKD",
    "DCLR",
    "METHODS",
    "MLM",
    "SCT",
    "ConGen",
    "ContrastiveTension",
    "DeCLUTR",
    "DiffCSE",
    "DvBERT",
    "EmbeddingMSE",
    "MirrorBERT",
    "SimCSE",
    "TransEncoder",
]
