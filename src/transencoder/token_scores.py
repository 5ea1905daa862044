"""A bi-encoder that compares two texts token by token, beside the cosine of their embeddings."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from jaxtyping import Float

from transencoder import distributed
from transencoder.devices import give_back_freed_memory
from transencoder.errors import InputError
from transencoder.scorers import BiScorer, finite
from transencoder.tokens import Tokens, inverse_document_frequencies

_SIDES = ("first ", "second ")
"""How names of features begin: of the first texts, of the second."""
_WEIGHTS = "token_weights"


class TokenScorer(BiScorer):
    """The mean of three similarities of two texts by one bi-encoder, without training.

    The cosine of its embeddings; the cosine of the means of its token embeddings, each token weighted by its inverse
    document frequency; and late interaction: each token's highest cosine with a token of the other text, averaged with
    the same weights, and over both directions. (Weighted means: Arora et al., ICLR 2017, there by smoothed frequency.
    Late interaction: Khattab and Zaharia, SIGIR 2020, equation 3, and BERTScore, Zhang et al., ICLR 2020, which
    averages both directions, by F1.) A text is a document; tokens that all texts of a side have, as special ones and
    prompts, have no weight.

    Takes what a BiScorer takes. It runs the model over both texts of each pair, not once over each distinct text.
    """

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs, which it compares with each other: those of another set have other frequencies and spreads.

        Under torchrun each rank scores its share.

        Returns:
            float32 (n,), with the mean and the standard deviation of the cosines.

        Raises:
            InputError: The model gives no token embeddings, or some scores are not finite.
        """
        return mean_similarity(self.similarities(pairs))

    def similarities(self, pairs: Dataset) -> np.ndarray:
        """Compute the three similarities: float32 (n, 3), each in [-1, 1]."""
        sides = self.cache.sides(self.model, pairs, self.prompt, self.document_prompt)
        weights = [inverse_document_frequencies(side.tokens) for side in sides]
        n, rank = distributed.world_size(), distributed.rank()
        rows = slice(rank * len(pairs) // n, (rank + 1) * len(pairs) // n)
        share = _PairTokens(
            [
                _SideTokens(side.tokens, index[rows], own)
                for side, own in zip(sides, weights, strict=True)
                for index in np.moveaxis(side.index, 1, 0)
            ]
        )
        similarities = np.empty((len(share), 3), np.float32)
        try:
            self.compute("compare tokens", share, self._compared, similarities)
            similarities = distributed.concatenate(similarities)
        finally:
            give_back_freed_memory()
        finite(similarities.sum(1), pairs)
        return similarities

    def _compared(self, features: dict[str, Any]) -> torch.Tensor:
        """Compute the three similarities of a batch of pairs, (batch, 3)."""
        (first, *embedded_1), (second, *embedded_2) = (
            self._embedded(
                {name.removeprefix(side): value for name, value in features.items() if name.startswith(side)}
            )
            for side in _SIDES
        )
        with torch.autocast(first.device.type, enabled=False):
            cosines = [_cosines(one, other) for one, other in zip(embedded_1, embedded_2, strict=True)]
            late = late_interaction(first, second, *(features[side + _WEIGHTS] for side in _SIDES))
            return torch.stack([*cosines, late], dim=1)

    def _embedded(self, features: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return embeddings of tokens as the transformer gives them, of the texts, and the tokens' weighted sums."""
        weights = features.pop(_WEIGHTS)
        transformer, *others = self.model
        features = transformer(features)
        if "token_embeddings" not in features:
            raise InputError("the bi-encoder gives no embeddings of tokens; take bi_labels cosine")
        tokens = features["token_embeddings"].float()
        for module in others:
            features = module(features)
        return tokens, features["sentence_embedding"].float(), (tokens * weights[..., None]).sum(1)


@dataclass(frozen=True)
class _SideTokens:
    """The first or the second texts of n pairs."""

    tokens: Tokens
    """Of distinct texts."""
    index: np.ndarray
    """int32 (n,): which of them each pair has."""
    weights: np.ndarray
    """float32 (n_ids,): of each token id."""

    def widths(self, rows: slice) -> np.ndarray:
        """Return the tokens of each of some texts, int64."""
        index = self.index[rows]
        widths: np.ndarray = self.tokens.offsets[index + 1] - self.tokens.offsets[index]
        return widths

    def features(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of some texts, padded, and the weights of their tokens, float32, 0 where padded."""
        features = self.tokens.batch(self.index[rows])
        weights = torch.from_numpy(self.weights)[features["input_ids"]] * features["attention_mask"]
        return features | {_WEIGHTS: weights}


@dataclass(frozen=True)
class _PairTokens:
    """Both texts of n pairs, as rows that batches are made of."""

    sides: list[_SideTokens]

    def __len__(self) -> int:
        return len(self.sides[0].index)

    def widths(self, rows: slice) -> np.ndarray:
        """Return the tokens of each of some pairs, int64, both texts being as long as the longer one."""
        widths: np.ndarray = 2 * np.maximum(*(side.widths(rows) for side in self.sides))
        return widths

    def batch(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of some pairs, named by their side."""
        return {
            prefix + name: value
            for prefix, side in zip(_SIDES, self.sides, strict=True)
            for name, value in side.features(rows).items()
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


def mean_similarity(similarities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Average similarities of the same pairs, each with equal weight, on the scale of the first.

    Returns:
        float32, with the mean and the standard deviation of the first; all equal where that is constant.
    """
    mean = np.zeros(len(similarities))
    for column in similarities.T:
        mean += _standard(column)
    first = similarities[:, 0].astype(np.float64)
    scaled: np.ndarray = (_standard(mean) * first.std() + first.mean()).astype(np.float32)
    return scaled


def _standard(values: np.ndarray) -> np.ndarray:
    """Return values with mean 0 and deviation 1, float64; what is constant becomes 0."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    standard: np.ndarray = centred / (centred.std() or np.inf)
    return standard


def _cosines(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(first, second, dim=-1, eps=1e-12)
