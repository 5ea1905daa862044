"""The values that settings choose from; several configs have each of them."""

from typing import Literal

Form = Literal["bi", "cross", "mlm"]
Precision = Literal["auto", "bf16", "fp32"]
Pooling = Literal["mean", "cls", "max"]
Head = Literal["pooler", "linear"]
Texts = Literal["sentences", "documents"]
LabelPolicy = Literal["clip", "affine", "quantile", "raw"]
CrossLoss = Literal["bce", "mse"]
BiLoss = Literal["mse", "log_cosh", "bce", "bce_clipped"]
OfEmbeddings = Literal["self_retrieval", "alignment", "uniformity", "alignment_and_uniformity", "effective_rank"]
Criterion = Literal["teacher_agreement", "start_agreement", "member_agreement", "view_preference", OfEmbeddings]
Selection = Literal["auto", "last", Criterion]
