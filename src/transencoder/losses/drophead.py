"""DropHead: drops attention heads at random in training, which makes two views of a text differ (Mirror-BERT)."""

from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

_PROJECTIONS = {
    "AlbertAttention": "dense",
    "BertSelfOutput": "dense",
    "CamembertSelfOutput": "dense",
    "DebertaSelfOutput": "dense",
    "DebertaV2SelfOutput": "dense",
    "DistilBertSelfAttention": "out_lin",
    "ElectraSelfOutput": "dense",
    "EuroBertAttention": "o_proj",
    "ModernBertAttention": "Wo",
    "MPNetSelfAttention": "o",
    "NomicBertAttention": "o_proj",
    "RobertaSelfOutput": "dense",
    "T5Attention": "o",
    "XLMRobertaSelfOutput": "dense",
}
"""Class in transformers -> its linear layer that reads the concatenated outputs of the heads."""

_CHILD = "drop_head"


def add_drop_head(model: SentenceTransformer, share: float) -> None:
    """Add DropHead to each attention layer, for training mode; the model's weights and saved files do not change.

    Released code of Mirror-BERT: 0.2 for BERT with mean pooling, 0.05 for RoBERTa with cls, all other dropout 0.

    Args:
        model: The bi-encoder to train, with any loss.
        share: Probability that a head is dropped, for each text and layer, 0 to below 1.

    Raises:
        ValueError: The share is out of range, the model drops heads already, has one head only, or is of an
            architecture whose heads are not known.
    """
    encoder = model.transformers_model
    attentions = [part for part in model.modules() if _class(part) in _PROJECTIONS]
    if encoder is None or not attentions:
        known = ", ".join(sorted({name.partition("Self")[0].removesuffix("Attention") for name in _PROJECTIONS}))
        raise ValueError(f"the attention heads of {_class(encoder)} are not known, only those of {known}")
    n_heads = encoder.config.num_attention_heads
    if n_heads < 2:
        raise ValueError("the model has one attention head, which always stays")
    if any(isinstance(part, DropHead) for part in model.modules()):
        raise ValueError("the model drops heads already; load it anew for another share")
    for attention in attentions:
        projection = attention.get_submodule(_PROJECTIONS[_class(attention)])
        projection.add_module(_CHILD, DropHead(n_heads, share).train(projection.training))  # follows the mode
        projection.register_forward_pre_hook(_before)


class DropHead(nn.Module):
    """Dropout of whole attention heads, where the kept heads are scaled up (Zhou et al., EMNLP Findings 2020).

    output = n_heads / n_kept * kept * input, where kept is 0 or 1 for each text and head. One head is always kept: if
    all would be dropped, one of them drawn at random. In evaluation mode the output is the input. It has no state.

    Args:
        n_heads: Number of heads, concatenated in the input; at least 2, or nothing is ever dropped.
        share: Probability that a head is dropped, for each text, 0 to below 1.
    """

    def __init__(self, n_heads: int, share: float) -> None:
        super().__init__()
        if not 0.0 <= share < 1.0:
            raise ValueError(f"share is {share}; it is a share of the heads, 0 to below 1")
        self.n_heads = n_heads
        self.share = share

    def forward(self, heads: Float[Tensor, "texts tokens width"]) -> Float[Tensor, "texts tokens width"]:
        """Return the heads' outputs, concatenated along the width, with those of dropped heads set to 0.

        Texts that are packed into one row, as flash attention allows, lose the same heads.
        """
        if not self.training or not self.share:
            return heads
        draws = torch.rand(len(heads), self.n_heads, device=heads.device)
        # A head is kept if its draw is not below the share; the head with a text's highest draw is always kept.
        is_kept = draws >= draws.amax(1, keepdim=True).clamp(max=self.share)
        scales = is_kept * (self.n_heads / is_kept.sum(1, keepdim=True))
        apart = heads.reshape(*heads.shape[:2], self.n_heads, -1)
        return (apart * scales[:, None, :, None].to(heads.dtype)).reshape(heads.shape)

    def extra_repr(self) -> str:
        """Return the settings, for the model's `repr`."""
        return f"n_heads={self.n_heads}, share={self.share}"


def _before(projection: nn.Module, inputs: tuple[Any, ...]) -> Any:
    return projection.get_submodule(_CHILD)(*inputs)


def _class(part: object) -> str:
    return type(part).__name__
