"""Anything that scores pairs: a bi-encoder, a cross-encoder, a mean of scorers."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from accelerate.utils.memory import should_reduce_batch_size
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import batch_to_device

from transencoder import distributed, progress
from transencoder.configs import Precision
from transencoder.cpu import fast_inference
from transencoder.devices import autocast, give_back_freed_memory
from transencoder.encoders import gives_logits
from transencoder.errors import InputError
from transencoder.files import allocate, scratch_folder
from transencoder.first_token import first_token_alone
from transencoder.losses.features import unpadded
from transencoder.models import Prompts, default_prompt
from transencoder.tokens import Encoder, TokenCache, Tokens

logger = logging.getLogger(__name__)

Forward = Callable[[dict[str, Any]], torch.Tensor]
"""Function that runs a model on the features of a batch and returns a tensor (batch, ...)."""

_WINDOW = 1 << 18
"""Number of rows sorted by length at once. Each window ends with a batch of a new shape, and oneDNN keeps what it made
for a shape: labelling 400,000 pairs with a tiny model left 31 MB in memory, with windows of 65,536 rows 51 MB."""

_BATCH_TOKENS = 32768
"""Tokens per batch on a GPU. On an H200 a base-size model takes half the time of batches of 8,192, and no less with
four times as many."""
_BATCH_TOKENS_ON_CPU = 2048
"""Tokens per batch on a CPU. As fast as 4,096 and 8,192 there (all-MiniLM-L6-v2); 60,000 pairs through a tiny model
take 65 MB instead of 93."""

_COSINES_AT_ONCE = 1 << 13
_IN_MEMORY_BYTES = 16 << 20


@runtime_checkable
class Scorer(Protocol):
    """Interface of scorers, which give each pair a number: higher means more similar."""

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs.

        Args:
            pairs: n rows with `sentence1` and `sentence2`.

        Returns:
            Scores, float32 (n,), in the order of the rows.
        """
        ...


class TokenRows(Protocol):
    """Interface of tokenised rows from which batches are made; `Tokens` implements it."""

    def __len__(self) -> int: ...

    def widths(self, rows: slice) -> np.ndarray:
        """Return the number of tokens of each of some rows, int64."""
        ...

    def batch(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of some rows, padded."""
        ...


def _has_fp32(model: Encoder) -> bool:
    """Check whether a model's weights are in fp32; autocast mixes badly with others."""
    return all(each.dtype == torch.float32 for each in model.parameters() if each.is_floating_point())


class _Computed:
    """A model that is run over tokenised texts."""

    def __init__(
        self, model: Encoder, precision: Precision, batch_tokens: int | None, cache: TokenCache | None = None
    ) -> None:
        self.model = model
        self.precision = precision
        self.batch_tokens = batch_tokens
        self._cache = cache

    @property
    def cache(self) -> TokenCache:
        """The cache that was given, or else a new one, which goes with the tokens of this call."""
        return self._cache or TokenCache()

    def compute(self, description: str, tokens: TokenRows, forward: Forward, output: np.ndarray) -> None:
        """Run every row of `tokens` through `forward` into `output`, longest first within large windows.

        Args:
            description: Text of the progress line.
            tokens: n rows of tokens.
            forward: Function that runs the model, which is put into evaluation mode.
            output: float32 (n, ...), filled in the rows' order.
        """
        modes = {part: part.training for part in self.model.modules()}
        self.model.eval()
        try:
            with (
                torch.inference_mode(),
                autocast(self.model.device, self.precision) if _has_fp32(self.model) else nullcontext(),
                first_token_alone(self.model),
                fast_inference(self.model, self.model.device),
                progress.task(description, len(tokens)) as advance,
            ):
                for n_rows in self._batches(tokens, forward, output):
                    advance(n_rows)
        finally:
            for part, is_training in modes.items():
                part.training = is_training

    def _batches(self, tokens: TokenRows, forward: Forward, output: np.ndarray) -> Iterator[int]:
        """Fill `output` batch by batch, and yield the number of rows of each batch."""
        device = self.model.device
        batch_tokens = self.batch_tokens or (_BATCH_TOKENS_ON_CPU if device.type == "cpu" else _BATCH_TOKENS)
        for start in range(0, len(tokens), _WINDOW):
            lengths = tokens.widths(slice(start, min(start + _WINDOW, len(tokens))))
            order = np.argsort(-lengths, kind="stable")
            position = 0
            while position < len(order):
                n_rows = max(1, batch_tokens // max(1, int(lengths[order[position]])))
                rows = start + order[position : position + n_rows]
                try:
                    output[rows] = forward(batch_to_device(tokens.batch(rows), device)).float().cpu().numpy()
                except (RuntimeError, MemoryError) as error:
                    if len(rows) == 1 or not _is_out_of_memory(error):
                        raise
                    batch_tokens //= 2
                    logger.warning(
                        "out of memory with %d rows; going on with %d tokens a batch", len(rows), batch_tokens
                    )
                    continue
                position += len(rows)
                yield len(rows)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or should_reduce_batch_size(error) or "allocate memory" in str(error)


class BiScorer(_Computed):
    """Cosine similarity of a bi-encoder's embeddings, in [-1, 1]; each distinct sentence is encoded once.

    Args:
        model: The bi-encoder. Its device and maximum length are used as they are.
        precision: Precision of the computation; `auto`: bf16 autocast where the hardware supports it.
        batch_tokens: Tokens per batch, including padding; halved when memory runs out. None: 32,768, on a CPU 2,048.
        cache: Cache of token ids; None: a cache of its own.
        prompt: Text put before every sentence; None: the model's default prompt, if it has one.
        document_prompt: Text put before `sentence2` instead, if pairs are queries with documents; None: the same.
    """

    model: SentenceTransformer

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        precision: Precision = "auto",
        batch_tokens: int | None = None,
        cache: TokenCache | None = None,
        prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        super().__init__(model, precision, batch_tokens, cache)
        self.prompt, self.document_prompt = Prompts(prompt, document_prompt).sides(default_prompt(model))

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs and return cosine similarities, float32 (n,), in [-1, 1]."""
        with scratch_folder() as folder:
            sides = self._embed_sides(pairs, folder)
            scores = cosines_of(sides, slice(0, len(pairs)))
            del sides
        return finite(scores, pairs)

    def embed_sides(self, texts: Dataset) -> tuple[np.ndarray, ...]:
        """Embed `sentence1`, `sentence2` and so on, and return float32 (n, dim) for each, in the order of the rows."""
        with scratch_folder() as folder:
            sides = tuple(embeddings[index] for embeddings, index in self._embed_sides(texts, folder))
        finite(sum(side.sum(1) for side in sides), texts, "rows of embeddings")
        return sides

    def _embed_sides(self, pairs: Dataset, folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return, for each side, the embeddings of its distinct sentences and the number of the embedding of each row.

        Embeddings of more than 16 MB are stored in the folder.
        """
        sides = []
        for number, sentences in enumerate(self.cache.sides(self.model, pairs, self.prompt, self.document_prompt)):
            shape = (len(sentences.tokens), int(self.model.get_embedding_dimension() or 0))
            if shape[0] * shape[1] * 4 <= _IN_MEMORY_BYTES:
                embeddings = np.empty(shape, np.float32)
            else:
                embeddings = allocate(folder / f"embeddings-{number}.npy", np.float32, shape)
            self.embed_into(embeddings, sentences.tokens)
            sides += [(embeddings, index) for index in np.moveaxis(sentences.index, 1, 0)]
        return sides

    def embed_into(self, embeddings: np.ndarray, tokens: Tokens) -> None:
        """Write embeddings of n tokenised sentences into an array, float32 (n, dim)."""
        model = self.model
        self.compute(
            "encode sentences",
            tokens,
            lambda each: model(unpadded(model, each))["sentence_embedding"][:, : embeddings.shape[1]],  # truncate_dim
            embeddings,
        )


class CrossScorer(_Computed):
    """Sigmoid of a cross-encoder's output, in (0, 1), or the output itself if the model was trained to regress targets.

    Args:
        model: The cross-encoder, with one output label.
        precision: Precision of the computation; `auto`: bf16 autocast where the hardware supports it.
        batch_tokens: Tokens per batch, including padding; halved when memory runs out. None: 32,768, on a CPU 2,048.
        cache: Cache of token ids; None: a cache of its own.
        both_orders: Average the scores of (a, b) and (b, a).
        prompt: Text put before every pair; None: the model's default prompt, if it has one.
    """

    model: CrossEncoder

    def __init__(
        self,
        model: CrossEncoder,
        *,
        precision: Precision = "auto",
        batch_tokens: int | None = None,
        cache: TokenCache | None = None,
        both_orders: bool = False,
        prompt: str | None = None,
    ) -> None:
        if model.num_labels != 1:
            raise InputError(f"the cross-encoder has {model.num_labels} outputs; a scorer needs one with num_labels=1")
        super().__init__(model, precision, batch_tokens, cache)
        self.both_orders = both_orders
        self.as_logit = gives_logits(model)
        self.prompt = prompt if prompt is not None else default_prompt(model)

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs and return probabilities, float32 (n,), in (0, 1), or logits, which are any real numbers."""
        return finite(self.score_tokens(self.tokens_of(pairs)), pairs)

    def tokens_of(self, pairs: Dataset) -> list[Tokens]:
        """Return the tokens of pairs in each order in which they are scored."""
        orders = (False, True) if self.both_orders else (False,)
        return [self.cache.pairs(self.model, pairs, is_swapped, self.prompt) for is_swapped in orders]

    def score_tokens(self, orders: Sequence[Tokens]) -> np.ndarray:
        """Score pairs, given their tokens in each order, and return float32 (n,)."""
        scores = self._score(orders[0])
        return scores if len(orders) == 1 else (scores + self._score(orders[1])) / 2

    def _score(self, tokens: Tokens) -> np.ndarray:
        def forward(features: dict[str, Any]) -> torch.Tensor:
            logits: torch.Tensor = self.model(features)["scores"].float().view(-1)
            return logits if self.as_logit else torch.sigmoid(logits)

        scores = np.empty(len(tokens), np.float32)
        self.compute("score pairs", tokens, forward, scores)
        return scores


def class_probabilities(
    model: CrossEncoder, pairs: Dataset, *, precision: Precision = "auto", cache: TokenCache | None = None
) -> np.ndarray:
    """Compute the class probabilities of a cross-encoder that classifies pairs (DvBERT's q, section 2.2).

    Args:
        model: The cross-encoder, with two or more outputs.
        pairs: n rows with `sentence1` and `sentence2`.
        precision: Precision of the computation; `auto`: bf16 autocast where the hardware supports it.
        cache: Cache of token ids; None: a cache of its own.

    Returns:
        Probabilities, float32 (n, classes); each row sums to 1.

    Raises:
        InputError: The model has one output, or its outputs are not finite numbers.
    """
    if model.num_labels < 2:
        raise InputError("the cross-encoder has one output, a score; probabilities of classes need two or more")
    computed = _Computed(model, precision, None, cache)
    tokens = computed.cache.pairs(model, pairs, False, default_prompt(model))
    probabilities = np.empty((len(pairs), model.num_labels), np.float32)
    computed.compute("classify pairs", tokens, lambda each: model(each)["scores"].float().softmax(-1), probabilities)
    finite(probabilities.sum(1), pairs, "rows of probabilities")
    return probabilities


class MeanScorer:
    """Weighted mean of scorers. The mean of one scorer is that scorer.

    Args:
        scorers: The scorers; their ranges should agree (calibrate otherwise, see `labels`).
        weights: One positive weight per scorer; None: equal. They are normalised to sum to 1.
    """

    def __init__(self, scorers: Sequence[Scorer], weights: Sequence[float] | None = None) -> None:
        weights = [1.0] * len(scorers) if weights is None else list(weights)
        if not scorers or len(weights) != len(scorers) or not all(0 < weight < math.inf for weight in weights):
            raise InputError(
                f"{len(scorers)} scorers and weights {weights}; give one finite positive weight for each scorer"
            )
        self.scorers = list(scorers)
        self.weights = [weight / sum(weights) for weight in weights]

    def score(self, pairs: Dataset) -> np.ndarray:
        """Compute the weighted mean of the scorers' scores, float32 (n,)."""
        return self.mean_of([scorer.score(pairs) for scorer in self.scorers])

    def mean_of(self, scores: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the weighted mean of scores that the scorers gave the same pairs, float32 (n,)."""
        if len(scores) == 1:
            return scores[0]
        mean = np.zeros(len(scores[0]), np.float32)
        for weight, each in zip(self.weights, scores, strict=True):
            mean += np.float32(weight) * each
        return mean


def cosines_of(sides: Sequence[tuple[np.ndarray, np.ndarray]], rows: slice) -> np.ndarray:
    """Return the cosines of some rows. A side consists of embeddings, and the number of the embedding of each row."""
    cosines = np.empty(rows.stop - rows.start, np.float32)
    for start in range(rows.start, rows.stop, _COSINES_AT_ONCE):
        some = slice(start, min(start + _COSINES_AT_ONCE, rows.stop))
        first, second = (embeddings[index[some]] for embeddings, index in sides)
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        found = np.einsum("ij,ij->i", first, second) / np.maximum(norms, 1e-12)
        cosines[start - rows.start : some.stop - rows.start] = np.clip(found, -1.0, 1.0)
    return cosines


def score_on_ranks(scorer: Scorer, pairs: Dataset) -> np.ndarray:
    """Score pairs, each rank its share, and return float32 (n,) on every rank."""
    try:
        if distributed.world_size() == 1:
            return scorer.score(pairs)
        own = range(len(pairs))[distributed.own_rows(len(pairs))]
        return distributed.concatenate(scorer.score(pairs.select(own)) if own else np.empty(0, np.float32))
    finally:
        give_back_freed_memory()


def finite(scores: np.ndarray, pairs: Dataset, what: str = "scores", *, first_row: int = 0) -> np.ndarray:
    """Return the scores of pairs, after checking that they are finite. They belong to the rows from `first_row` on.

    Raises:
        InputError: Some scores are not finite; the message shows the first such pairs.
    """
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        sides = [name for name in ("sentence1", "sentence2") if name in pairs.column_names]
        rows = [first_row + int(i) for i in bad[:3]]
        shown = "; ".join(f"row {row}: " + " / ".join(repr(pairs[row][side]) for side in sides) for row in rows)
        raise InputError(
            f"{len(bad)} of {len(scores)} {what} are not finite numbers, the first for {shown}. "
            "The model is damaged or overflows: try precision fp32, or another model"
        )
    return scores
