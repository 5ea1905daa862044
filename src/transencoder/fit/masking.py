"""Masks over joined pairs, as BERT's pretraining has them."""

from typing import Any

import numpy as np
import torch

from transencoder.batching import joined_rows
from transencoder.losses.masked_words import replace_chosen
from transencoder.tokens import Tokens


class MaskedPairsCollator:
    """Rows of pairs -> joined pairs with some tokens masked, and what stood there. Rows from n on are turned round.

    Of each row a share is to guess, at least one token: 80 % of these read as the mask, 10 % as any token, 10 % as they
    are (Devlin et al., NAACL 2019, section 3.1 and appendix A.1). Special tokens are left alone, unknown words too. The
    masks depend on the seed and the batch's rows only, so that a resumed run draws the same.

    Args:
        tables: The tokens of n pairs as they stand and, for symmetric tasks, turned round.
        tokenizer: Names the mask and the special tokens.
        n_vocabulary: Tokens that the model knows.
        mask_ratio: Share of a row's tokens to guess.
        seed: With the rows, it decides the masks.
    """

    def __init__(self, tables: list[Tokens], tokenizer: Any, n_vocabulary: int, mask_ratio: float, seed: int) -> None:
        self.tables = tables
        self.mask_id = tokenizer.mask_token_id
        self.special_ids = np.array(tokenizer.all_special_ids)
        self.n_vocabulary = n_vocabulary
        self.mask_ratio = mask_ratio
        self.seed = seed

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """The batch as transformers' masked language models take it: `input_ids`, `labels` and so on."""
        rows, features = joined_rows(self.tables, examples)
        features = {name: values for name, values in features.items() if isinstance(values, torch.Tensor)}
        random = np.random.default_rng((self.seed, *rows))
        ids, is_text = features["input_ids"], features["attention_mask"].numpy() == 1
        is_chosen = torch.from_numpy(self._choose(ids.numpy(), is_text, random))
        fates, anything = random.random(ids.shape), random.integers(self.n_vocabulary, size=ids.shape)
        masked = replace_chosen(ids, is_chosen, torch.from_numpy(fates), torch.from_numpy(anything), self.mask_id)
        return features | {"input_ids": masked, "labels": ids.masked_fill(~is_chosen, -100)}

    def _choose(self, ids: np.ndarray, is_text: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Which tokens are to guess, bool (batch, longest); never none at all, which would make the loss NaN."""
        may_be = is_text & ~np.isin(ids, self.special_ids)
        if not may_be.any():
            may_be = is_text
        n_words = may_be.sum(1)
        n_chosen = np.where(n_words > 0, np.maximum(1, np.rint(self.mask_ratio * n_words)), 0)
        ranks = np.where(may_be, random.random(ids.shape), 1.0).argsort(1).argsort(1)
        is_chosen: np.ndarray = ranks < n_chosen[:, None]
        return is_chosen
