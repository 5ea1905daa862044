"""Scorer that compares two texts token by token with a bi-encoder, besides the cosine of their embeddings."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch.nn.functional import cosine_similarity

from transencoder import distributed
from transencoder.devices import give_back_freed_memory
from transencoder.errors import InputError
from transencoder.scorers import BiScorer, finite
from transencoder.tokens import Tokens, inverse_document_frequencies

_SIDES = ("first ", "second ")
"""Prefixes of the names of features, for the first and for the second texts."""
_TEXTS, _WEIGHTS = "texts", "token_weights"
_TOKENS_CACHED = 1 << 16
"""Number of tokens above which the cached embeddings are dropped: 100 MB at width 384, in fp32."""


class TokenScorer(BiScorer):
    """Scorer that averages three similarities of two texts from one bi-encoder, without training.

    The similarities are the cosine of the embeddings; the cosine of the mean token embeddings, where each token is
    weighted by its inverse document frequency; and late interaction: each token's highest cosine with a token of the
    other text, averaged with the same weights, and over both directions. (Weighted means: Arora et al., ICLR 2017, who
    weight by smoothed frequency. Late interaction: Khattab and Zaharia, SIGIR 2020, equation 3, and BERTScore, Zhang et
    al., ICLR 2020, which averages both directions, by F1.) Each text counts as a document. Tokens that all texts of a
    side have, such as special tokens and prompts, have weight 0.

    The arguments are those of `BiScorer`. Embeddings of tokens are cached for the next pairs, which are of like length.
    So up to some 3,000 texts of 20 tokens are encoded once; of more, each less often than it is in pairs.
    """

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs relative to each other: in another set, token frequencies and spreads of similarities differ.

        Under torchrun each rank scores its share.

        Returns:
            Scores, float32 (n,), with the mean and the standard deviation of the cosines.

        Raises:
            InputError: The model gives no token embeddings, or some scores are not finite.
        """
        return mean_similarity(self.similarities(pairs))

    def similarities(self, pairs: Dataset) -> np.ndarray:
        """Compute the three similarities: float32 (n, 3), each in [-1, 1]."""
        sides = self.cache.sides(self.model, pairs, self.prompt, self.document_prompt)
        weights = [inverse_document_frequencies(side.tokens) for side in sides]
        firsts = np.cumsum([0, *(len(side.tokens) for side in sides[:-1])])
        rows = distributed.own_rows(len(pairs))
        share = _PairTokens(
            [
                _SideTokens(side.tokens, index[rows], own, int(first))
                for side, own, first in zip(sides, weights, firsts, strict=True)
                for index in np.moveaxis(side.index, 1, 0)
            ]
        )
        similarities = np.empty((len(share), 3), np.float32)
        try:
            self.compute("compare tokens", share, partial(self._compared, _CachingEncoder(self.model)), similarities)
            similarities = distributed.concatenate(similarities)
        finally:
            give_back_freed_memory()
        finite(similarities.sum(1), pairs)
        return similarities

    def _compared(self, encoder: "_CachingEncoder", features: dict[str, Any]) -> torch.Tensor:
        """Compute the three similarities of a batch of pairs, (batch, 3)."""
        try:
            (first, *embedded_1), (second, *embedded_2) = (
                encoder.embed(
                    {name.removeprefix(side): value for name, value in features.items() if name.startswith(side)}
                )
                for side in _SIDES
            )
        except (RuntimeError, MemoryError):
            encoder.forget()  # if memory ran out, the next batch is smaller
            raise
        if encoder.n_tokens > _TOKENS_CACHED:
            encoder.forget()
        with torch.autocast(first.device.type, enabled=False):
            both = zip(embedded_1, embedded_2, strict=True)
            cosines = [cosine_similarity(one, other, eps=1e-12) for one, other in both]
            late = late_interaction(first, second, *(features[side + _WEIGHTS] for side in _SIDES))
            return torch.stack([*cosines, late], dim=1)


class _CachingEncoder:
    """A bi-encoder that caches its embeddings, so that it encodes a text of several pairs once."""

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = model
        self.cached: dict[int, tuple[torch.Tensor, ...]] = {}
        self.n_tokens = 0

    def forget(self) -> None:
        """Empty the cache."""
        self.cached.clear()
        self.n_tokens = 0

    def embed(self, features: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the transformer's token embeddings, the text embeddings, and the weighted sums of token embeddings."""
        numbers, is_token = features.pop(_TEXTS).tolist(), features["attention_mask"].bool()
        new = {number: row for row, number in enumerate(numbers) if number not in self.cached}
        if new:
            rows = list(new.values())
            columns = is_token[rows].any(0)
            found = self._encode(
                {
                    name: values[rows][:, columns] if isinstance(values, torch.Tensor) else values
                    for name, values in features.items()
                }
            )
            for number, own, tokens, *sums in zip(new, is_token[rows][:, columns], *found, strict=True):
                self.cached[number] = (tokens[own], *sums)
                self.n_tokens += len(self.cached[number][0])
        tokens, embeddings, weighted = zip(*(self.cached[number] for number in numbers), strict=True)
        padded = tokens[0].new_zeros(*is_token.shape, tokens[0].shape[1])
        padded[is_token] = torch.cat(tokens)
        return padded, torch.stack(embeddings), torch.stack(weighted)

    def _encode(self, features: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
    """Tokens of the first or the second texts of n pairs."""

    tokens: Tokens
    """Tokens of the distinct texts."""
    index: np.ndarray
    """Row of `tokens` for each pair, int32 (n,)."""
    weights: np.ndarray
    """Weight of each token id, float32 (n_ids,)."""
    first: int
    """Number of the first of the distinct texts."""

    def widths(self, rows: slice) -> np.ndarray:
        """Return the number of tokens of each text in a slice, int64."""
        index = self.index[rows]
        widths: np.ndarray = self.tokens.offsets[index + 1] - self.tokens.offsets[index]
        return widths

    def features(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the padded features of texts, their numbers, and their tokens' weights, float32, 0 for padding."""
        features = self.tokens.batch(self.index[rows])
        weights = torch.from_numpy(self.weights)[features["input_ids"]] * features["attention_mask"]
        return features | {_TEXTS: torch.from_numpy(self.index[rows] + self.first), _WEIGHTS: weights}


@dataclass(frozen=True)
class _PairTokens:
    """Tokens of both texts of n pairs, in the form of rows for batches."""

    sides: list[_SideTokens]

    def __len__(self) -> int:
        return len(self.sides[0].index)

    def widths(self, rows: slice) -> np.ndarray:
        """Return the number of tokens of each pair in a slice, int64; both texts count as long as the longer one."""
        widths: np.ndarray = 2 * np.maximum(*(side.widths(rows) for side in self.sides))
        return widths

    def batch(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of the given pairs, with the side as a prefix of their names."""
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
    """Compute the late interaction of pairs of texts from their token embeddings.

    Args:
        first: Token embeddings of the first texts.
        second: Token embeddings of the second texts.
        first_weights: Weights of the first texts' tokens, at least 0; tokens of weight 0 are ignored.
        second_weights: Weights of the second texts' tokens, in the same form.

    Returns:
        The weighted mean of each token's highest cosine with a token of the other text, averaged over both directions,
        in [-1, 1]; 0 if a text has no token.
    """
    cosines = torch.nn.functional.normalize(first, dim=-1) @ torch.nn.functional.normalize(second, dim=-1).mT
    sides = []
    for own, other, each in ((first_weights, second_weights, cosines), (second_weights, first_weights, cosines.mT)):
        highest = each.masked_fill(other[:, None, :] <= 0, -1.0).amax(-1)
        sides.append((highest * own).sum(-1) / own.sum(-1).clamp_min(1e-12))
    is_empty = (first_weights.sum(-1) <= 0) | (second_weights.sum(-1) <= 0)
    return ((sides[0] + sides[1]) / 2).masked_fill(is_empty, 0.0)


def mean_similarity(similarities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Average several similarities of the same pairs, with equal weights, on the scale of the first.

    Returns:
        Mean similarities, float32, with the mean and the standard deviation of the first; all equal if that is
        constant.
    """
    mean = np.zeros(len(similarities))
    for column in similarities.T:
        mean += _standard(column)
    first = similarities[:, 0].astype(np.float64)
    scaled: np.ndarray = (_standard(mean) * first.std() + first.mean()).astype(np.float32)
    return scaled


def _standard(values: np.ndarray) -> np.ndarray:
    """Return the values with mean 0 and standard deviation 1, float64; constant values become 0."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    standard: np.ndarray = centred / (centred.std() or np.inf)
    return standard
