"""Anything that scores pairs: a bi-encoder, a cross-encoder, a mean of scorers."""

import contextlib
import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate.utils.memory import should_reduce_batch_size
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import batch_to_device

from transencoder import progress
from transencoder.config import Precision
from transencoder.errors import InputError
from transencoder.tokens import TokenCache, Tokens, allocate

logger = logging.getLogger(__name__)

_WINDOW = 1 << 16
_IN_MEMORY_BYTES = 16 << 20


class Scorer(Protocol):
    """Gives each pair a number: higher means more alike."""

    def score(self, pairs: Dataset) -> np.ndarray:
        """Score pairs.

        Args:
            pairs: n rows with `sentence1` and `sentence2`.

        Returns:
            float32 (n,), in the order of the rows.
        """
        ...


class BiScorer:
    """Cosine similarity of a bi-encoder's embeddings, in [-1, 1]; each distinct sentence is encoded once.

    Args:
        model: The bi-encoder. Its device and maximal length are used as they are.
        precision: `auto` takes bf16 autocast where the hardware has it.
        batch_tokens: Tokens a batch, padding included; halved when memory runs out.
        cache: Where token ids are kept; None: a cache of its own.
        prompt: Text put before every sentence; None: the model's default prompt, if it has one.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        precision: Precision = "auto",
        batch_tokens: int = 8192,
        cache: TokenCache | None = None,
        prompt: str | None = None,
    ) -> None:
        self.model = model
        self.precision = precision
        self.batch_tokens = batch_tokens
        self.cache = cache or TokenCache()
        self.prompt = prompt if prompt is not None else default_prompt(model)

    def score(self, pairs: Dataset) -> np.ndarray:
        """Cosine similarities, float32 (n,), in [-1, 1]."""
        sentences = self.cache.sentences(self.model, pairs, self.prompt)
        scores = np.empty(len(pairs), np.float32)
        with tempfile.TemporaryDirectory(prefix="transencoder-") as folder:
            embeddings = self.embed(sentences.tokens, Path(folder))
            for i in range(0, len(pairs), _WINDOW // 8):
                first, second = np.moveaxis(embeddings[sentences.index[i : i + _WINDOW // 8]], 1, 0)
                scores[i : i + len(first)] = _cosine(first, second)
            del embeddings
        return _finite(scores, pairs)

    def embed(self, tokens: Tokens, folder: Path) -> np.ndarray:
        """Embeddings of tokenised sentences.

        Args:
            tokens: n sentences.
            folder: Where embeddings that would take over 16 MB of memory are written.

        Returns:
            float32 (n, dim).
        """
        dimension = self.model.get_embedding_dimension()
        shape = (len(tokens), int(dimension or 0))
        if shape[0] * shape[1] * 4 <= _IN_MEMORY_BYTES:
            embeddings = np.empty(shape, np.float32)
        else:
            embeddings = allocate(folder / "embeddings.npy", np.float32, shape)

        def forward(features: dict[str, Any]) -> torch.Tensor:
            embeddings: torch.Tensor = self.model(features)["sentence_embedding"]
            return embeddings

        run_batches(
            self.model,
            tokens,
            forward,
            embeddings,
            precision=self.precision,
            batch_tokens=self.batch_tokens,
            description="encode sentences",
        )
        return embeddings


class CrossScorer:
    """Sigmoid of a cross-encoder's output, in (0, 1).

    Args:
        model: The cross-encoder, with one output label.
        precision: `auto` takes bf16 autocast where the hardware has it.
        batch_tokens: Tokens a batch, padding included; halved when memory runs out.
        cache: Where token ids are kept; None: a cache of its own.
        both_orders: Average the scores of (a, b) and (b, a).
        prompt: Text put before every pair; None: the model's default prompt, if it has one.
    """

    def __init__(
        self,
        model: CrossEncoder,
        *,
        precision: Precision = "auto",
        batch_tokens: int = 8192,
        cache: TokenCache | None = None,
        both_orders: bool = False,
        prompt: str | None = None,
    ) -> None:
        if model.num_labels != 1:
            raise InputError(f"the cross-encoder has {model.num_labels} outputs; a scorer needs one with num_labels=1")
        self.model = model
        self.precision = precision
        self.batch_tokens = batch_tokens
        self.cache = cache or TokenCache()
        self.both_orders = both_orders
        self.prompt = prompt if prompt is not None else default_prompt(model)

    def score(self, pairs: Dataset) -> np.ndarray:
        """Probabilities, float32 (n,), in (0, 1)."""
        scores = self._score(pairs, swapped=False)
        if self.both_orders:
            scores = (scores + self._score(pairs, swapped=True)) / 2
        return _finite(scores, pairs)

    def _score(self, pairs: Dataset, swapped: bool) -> np.ndarray:
        tokens = self.cache.pairs(self.model, pairs, swapped, self.prompt)
        scores = np.empty(len(pairs), np.float32)

        def forward(features: dict[str, Any]) -> torch.Tensor:
            return torch.sigmoid(self.model(features)["scores"].float()).view(-1)

        run_batches(
            self.model,
            tokens,
            forward,
            scores,
            precision=self.precision,
            batch_tokens=self.batch_tokens,
            description="score pairs",
        )
        return scores


class MeanScorer:
    """Weighted mean of scorers. The mean of one scorer is that scorer.

    Args:
        scorers: The scorers; their ranges should agree (calibrate otherwise, see `labels`).
        weights: One positive weight a scorer; None: equal. They are normalised to sum to 1.
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
        """Weighted mean of the scorers' scores, float32 (n,)."""
        if len(self.scorers) == 1:
            return self.scorers[0].score(pairs)
        mean = np.zeros(len(pairs), np.float32)
        for weight, scorer in zip(self.weights, self.scorers, strict=True):
            mean += np.float32(weight) * scorer.score(pairs)
        return mean


def default_prompt(model: SentenceTransformer | CrossEncoder) -> str | None:
    """The prompt the model puts before texts when none is named."""
    return model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None


def run_batches(
    model: SentenceTransformer | CrossEncoder,
    tokens: Tokens,
    forward: Callable[[dict[str, Any]], torch.Tensor],
    output: np.ndarray,
    *,
    precision: Precision,
    batch_tokens: int,
    description: str,
) -> None:
    """Run every row of `tokens` through `forward` into `output`, longest first within large windows.

    Args:
        model: The model, put into evaluation mode.
        tokens: n rows.
        forward: Features of a batch -> tensor (batch, ...).
        output: float32 (n, ...), filled in the rows' order.
        precision: Numbers the forward pass is done in.
        batch_tokens: Tokens a batch, padding included; halved when memory runs out.
        description: What the progress line says.
    """
    was_training = model.training
    model.eval()
    try:
        with (
            torch.inference_mode(),
            autocast(model.device, precision),
            progress.task(description, len(tokens)) as advance,
        ):
            for rows in _forward_all(model, tokens, forward, output, batch_tokens):
                advance(rows)
    finally:
        model.train(was_training)


def _forward_all(
    model: SentenceTransformer | CrossEncoder,
    tokens: Tokens,
    forward: Callable[[dict[str, Any]], torch.Tensor],
    output: np.ndarray,
    batch_tokens: int,
) -> Iterator[int]:
    """Fill `output`; yields the number of rows of each batch."""
    for start in range(0, len(tokens), _WINDOW):
        lengths = np.diff(tokens.offsets[start : start + _WINDOW + 1])
        order = np.argsort(-lengths, kind="stable")
        position = 0
        while position < len(order):
            n_rows = max(1, batch_tokens // max(1, int(lengths[order[position]])))
            rows = start + order[position : position + n_rows]
            try:
                output[rows] = forward(batch_to_device(tokens.batch(rows), model.device)).float().cpu().numpy()
            except (RuntimeError, MemoryError) as error:
                if len(rows) == 1 or not _is_out_of_memory(error):
                    raise
                batch_tokens //= 2
                logger.warning("out of memory with %d rows; going on with %d tokens a batch", len(rows), batch_tokens)
                continue
            position += len(rows)
            yield len(rows)


def has_bf16(device: torch.device | str) -> bool:
    """Whether bf16 pays on this device: a GPU that has it, or a CPU with AVX512-BF16 or AMX."""
    device = torch.device(device)
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = torch.backends.cpu.get_cpu_capability()
    is_supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return device.type == "cpu" and flags.startswith("AVX512") and is_supported


def uses_bf16(device: torch.device | str, precision: Precision) -> bool:
    """Whether `precision` means bf16 on this device."""
    return precision == "bf16" or (precision == "auto" and has_bf16(device))


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[Any]:
    """bf16 autocast, or nothing."""
    return torch.autocast(device.type, torch.bfloat16) if uses_bf16(device, precision) else contextlib.nullcontext()


def _cosine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines: np.ndarray = np.clip(np.einsum("ij,ij->i", first, second) / np.maximum(norms, 1e-12), -1.0, 1.0)
    return cosines


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or should_reduce_batch_size(error) or "allocate memory" in str(error)


def _finite(scores: np.ndarray, pairs: Dataset) -> np.ndarray:
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        shown = "; ".join(f"row {i}: {pairs[int(i)]['sentence1']!r} / {pairs[int(i)]['sentence2']!r}" for i in bad[:3])
        raise InputError(
            f"{len(bad)} of {len(scores)} scores are not finite numbers, the first for {shown}. "
            "The model is damaged or overflows: try precision fp32, or another model"
        )
    return scores
