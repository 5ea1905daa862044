"""A bi-encoder that compares two texts token by token: what it knows of a pair beyond the cosine of two vectors."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from jaxtyping import Float

from transencoder import distributed
from transencoder.errors import InputError
from transencoder.scorers import BiScorer, finite
from transencoder.tokens import Tokens, inverse_document_frequencies


class TokenScorer(BiScorer):
    """The mean of three readings of a pair by one bi-encoder, without training.

    The cosine of its embeddings; the cosine of the means of its token embeddings, each token weighted by its inverse
    document frequency; and late interaction: each token's highest cosine with a token of the other text, averaged with
    the same weights, and over both directions. (Weighted means: Arora et al., ICLR 2017, there by smoothed frequency.
    Late interaction: Khattab and Zaharia, SIGIR 2020, equation 3, and BERTScore, Zhang et al., ICLR 2020, which
    averages both directions, by F1.) A text is a document; tokens that all texts of a side
    have, as special ones and prompts, count nowhere.

    Takes what a BiScorer takes. It runs the model over both texts of each pair, not once over each distinct text.
    """

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs, which it compares with each other: those of another set have other frequencies and spreads.

        Under torchrun each rank reads its share.

        Returns:
            float32 (n,), with the mean and the standard deviation of the cosines.

        Raises:
            InputError: The model gives no token embeddings, or what it gives is no number.
        """
        return mean_reading(self.readings(pairs))

    def readings(self, pairs: Dataset) -> np.ndarray:
        """Return the three readings: float32 (n, 3), each in [-1, 1]."""
        sides = self.cache.sides(self.model, pairs, self.prompt, self.document_prompt)
        n, rank = distributed.world_size(), distributed.rank()
        rows = slice(rank * len(pairs) // n, (rank + 1) * len(pairs) // n)
        weights = [inverse_document_frequencies(side.tokens) for side in sides]
        share = _PairRows(
            [
                _Side(side.tokens, index[rows], own)
                for side, own in zip(sides, weights, strict=True)
                for index in np.moveaxis(side.index, 1, 0)
            ]
        )
        readings = np.empty((len(share), 3), np.float32)
        self.compute("read pairs", share, self._read, readings)
        finite(readings.sum(1), pairs)
        return distributed.concatenate(readings)

    def _read(self, features: dict[str, Any]) -> torch.Tensor:
        weights = features.pop("token_weights")
        computed = self.model(features)
        if "token_embeddings" not in computed:
            raise InputError("the bi-encoder gives no embeddings of tokens; take bi_labels cosine")
        with torch.autocast(weights.device.type, enabled=False):
            tokens, embeddings = computed["token_embeddings"].float(), computed["sentence_embedding"].float()
            weighted = (tokens * weights[..., None]).sum(1)
            return torch.stack(
                [_cosines(embeddings), _cosines(weighted), late_interaction(*tokens.chunk(2), *weights.chunk(2))], dim=1
            )


@dataclass(frozen=True)
class _Side:
    """The first or the second texts of n pairs."""

    tokens: Tokens
    """Of distinct texts."""
    index: np.ndarray
    """int32 (n,): which of them each pair has."""
    weights: np.ndarray
    """float32 (n_ids,): of each token id."""

    @property
    def lengths(self) -> np.ndarray:
        """int64 (n,): tokens of each text."""
        lengths: np.ndarray = self.tokens.lengths[self.index].astype(np.int64)
        return lengths

    def batch(self, rows: np.ndarray, width: int) -> dict[str, Any]:
        """Return the features of some texts, padded, and `token_weights`, float32, 0 where padded."""
        features = self.tokens.batch(self.index[rows], width)
        weights = torch.from_numpy(self.weights)[features["input_ids"]] * features["attention_mask"]
        return features | {"token_weights": weights}


@dataclass(frozen=True)
class _PairRows:
    """Pairs as batches of both texts: those of the first sentences, then those of the second."""

    sides: list[_Side]

    def __len__(self) -> int:
        return len(self.sides[0].index)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 (n,): tokens of a pair as it is run, both texts as long as the longer one."""
        lengths: np.ndarray = 2 * np.maximum(*(side.lengths for side in self.sides))
        return lengths

    def batch(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of some pairs' texts, (2 * batch, width)."""
        first, second = (side.batch(rows, int(self.lengths[rows].max()) // 2) for side in self.sides)
        return {
            name: torch.cat([value, second[name]]) if isinstance(value, torch.Tensor) else value
            for name, value in first.items()
        }


def late_interaction(
    first: Float[torch.Tensor, "n first dim"],
    second: Float[torch.Tensor, "n second dim"],
    first_weights: Float[torch.Tensor, "n first"],
    second_weights: Float[torch.Tensor, "n second"],
) -> Float[torch.Tensor, " n"]:
    """Compare pairs of texts by their tokens' embeddings.

    Args:
        first: Of the first texts' tokens.
        second: Of the second texts' tokens.
        first_weights: At least 0; a token of weight 0 is not there.
        second_weights: The same.

    Returns:
        The weighted mean of each token's highest cosine with a token of the other text, of both directions the mean, in
        [-1, 1]; 0 where a text has no token.
    """
    cosines = torch.nn.functional.normalize(first, dim=-1) @ torch.nn.functional.normalize(second, dim=-1).mT
    sides = []
    for own, other, each in ((first_weights, second_weights, cosines), (second_weights, first_weights, cosines.mT)):
        highest = each.masked_fill(other[:, None, :] <= 0, -1.0).amax(-1)
        sides.append((highest * own).sum(-1) / own.sum(-1).clamp_min(1e-12))
    is_empty = (first_weights.sum(-1) <= 0) | (second_weights.sum(-1) <= 0)
    return ((sides[0] + sides[1]) / 2).masked_fill(is_empty, 0.0)


def mean_reading(readings: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Average readings of the same pairs, each with equal weight, on the scale of the first.

    Returns:
        float32, with the mean and the standard deviation of the first reading; all equal where that is constant.
    """
    columns = readings.astype(np.float64)
    mean = _standard(_standard(columns).mean(1, keepdims=True))[:, 0]
    scaled: np.ndarray = (mean * columns[:, 0].std() + columns[:, 0].mean()).astype(np.float32)
    return scaled


def _standard(columns: np.ndarray) -> np.ndarray:
    """Return columns with mean 0 and deviation 1; what is constant becomes 0."""
    centred = columns - columns.mean(0)
    deviation = centred.std(0)
    standard: np.ndarray = centred / np.where(deviation > 0, deviation, np.inf)
    return standard


def _cosines(both: torch.Tensor) -> torch.Tensor:
    first, second = both.chunk(2)
    return torch.nn.functional.cosine_similarity(first, second, dim=-1, eps=1e-12)
