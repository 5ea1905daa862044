"""Methods, one paper per file: a config with views, loss, teacher and cost. No engine, no heavy imports."""

from transencoder import configs
from transencoder.methods.ckd import CKD as CKD
from transencoder.methods.congen import ConGen as ConGen
from transencoder.methods.contrastive_tension import ContrastiveTension as ContrastiveTension
from transencoder.methods.dclr import DCLR as DCLR
from transencoder.methods.declutr import DeCLUTR as DeCLUTR
from transencoder.methods.diffcse import DiffCSE as DiffCSE
from transencoder.methods.dvbert import DvBERT as DvBERT
from transencoder.methods.embedding_mse import EmbeddingMSE as EmbeddingMSE
from transencoder.methods.mirror_bert import MirrorBERT as MirrorBERT
from transencoder.methods.mlm import MLM as MLM
from transencoder.methods.sct import SCT as SCT
from transencoder.methods.simcse import SimCSE as SimCSE
from transencoder.methods.trans_encoder import TransEncoder as TransEncoder

METHODS: dict[str, type[configs.RunConfig]] = {
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
