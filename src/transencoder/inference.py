"""A model over tokenised texts: batches of like length, bf16 where it pays, less at a time when memory runs out."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from accelerate.utils.memory import should_reduce_batch_size
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import batch_to_device

from transencoder import progress
from transencoder.configs import Precision
from transencoder.errors import InputError
from transencoder.tokens import Tokens

logger = logging.getLogger(__name__)

_WINDOW = 1 << 18
"""Rows sorted at once. Each window ends with a batch of a shape of its own, and oneDNN keeps what it made for a shape:
labelling 400,000 pairs with a tiny model left 31 MB, in windows of 65,536 rows 51 MB."""

_BATCH_TOKENS = 8192
_BATCH_TOKENS_ON_CPU = 2048
"""As fast there as 4,096 and 8,192 (all-MiniLM-L6-v2); 60,000 pairs through a tiny model take 65 MB instead of 93."""


def run_batches(
    model: SentenceTransformer | CrossEncoder,
    tokens: Tokens,
    forward: Callable[[dict[str, Any]], torch.Tensor],
    output: np.ndarray,
    *,
    precision: Precision,
    batch_tokens: int | None,
    description: str,
) -> None:
    """Run every row of `tokens` through `forward` into `output`, longest first within large windows.

    Args:
        model: The model, put into evaluation mode.
        tokens: n rows.
        forward: Features of a batch -> tensor (batch, ...).
        output: float32 (n, ...), filled in the rows' order.
        precision: Numbers the forward pass is done in.
        batch_tokens: Tokens a batch, padding included; halved when memory runs out. None: 8,192, on a CPU 2,048.
        description: What the progress line says.
    """
    if batch_tokens is None:
        batch_tokens = _BATCH_TOKENS_ON_CPU if model.device.type == "cpu" else _BATCH_TOKENS
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


def checked_device(name: str) -> str:
    """The device, where torch knows it and this machine has it.

    Raises:
        InputError: It does not.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"device is {name!r}, which cannot be used here ({reason}). Give cpu, cuda or cuda:0 where there is a GPU, "
            "or leave it out to take the best there is"
        ) from error
    return name


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


@contextlib.contextmanager
def quick_products(is_quick: bool) -> Iterator[None]:
    """Within it, fp32 matrices are multiplied as bf16 on CPUs that have it, as TF32 on GPUs, and summed in fp32.

    For what stands outside autocast: a loss's projectors and its similarities to a queue. Their results are not rounded
    as autocast's are: cosines of width 384 are off by 1e-4, the worst of a million by 7e-4, and a product of 256 x 384
    by 384 x 4096 takes 1.3 ms on one core with AMX, in fp32 6.3.

    Args:
        is_quick: Whether they are; else nothing changes.
    """
    before = torch.get_float32_matmul_precision()
    if is_quick:
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def unit_vectors(embeddings: np.ndarray) -> np.ndarray:
    """Divide embeddings, (n, dim), by their lengths; zeros stay."""
    unit: np.ndarray = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    return unit


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or should_reduce_batch_size(error) or "allocate memory" in str(error)
