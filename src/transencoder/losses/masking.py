"""Tokens of a batch masked at random, as BERT's pretraining has them."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

_MASKED, _RANDOM = 0.8, 0.1
"""Of the chosen tokens these shares become the mask and any token; the others stay."""


def mask_tokens(
    ids: Int[Tensor, "batch tokens"],
    attention_mask: Int[Tensor, "batch tokens"],
    mask_ratio: float,
    *,
    mask_token_id: int,
    special_ids: list[int],
    n_vocabulary: int,
) -> tuple[Int[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"]]:
    """Choose tokens to guess, 80 % of them masked, 10 % any token, 10 % as they are (Devlin et al., NAACL 2019).

    Args:
        ids: Token ids.
        attention_mask: 1 on texts, 0 on padding, which is never chosen.
        mask_ratio: Probability of each token to be chosen, 0 to 1.
        mask_token_id: The vocabulary's mask.
        special_ids: Tokens that are never chosen.
        n_vocabulary: A random token is one of so many.

    Returns:
        The ids with masks, which tokens were chosen, and which could have been.
    """
    is_text = attention_mask.bool() & ~torch.isin(ids, torch.tensor(special_ids, device=ids.device))
    is_chosen = is_text & (torch.rand(ids.shape, device=ids.device) < mask_ratio)
    fate = torch.rand(ids.shape, device=ids.device)
    masked = ids.masked_fill(is_chosen & (fate < _MASKED), mask_token_id)
    anything = torch.randint(n_vocabulary, ids.shape, device=ids.device)
    return torch.where(is_chosen & (fate >= 1 - _RANDOM), anything, masked), is_chosen, is_text
