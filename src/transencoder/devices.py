"""What computes, and in which numbers: bf16 where it pays, and training on CPUs with less beside matrix products."""

import ctypes
import math
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transencoder.configs import Precision
from transencoder.errors import InputError, reason_of

_SHORT = 128
"""Tokens up to which attention is done by plain products. Faster at 15 and 30 tokens; longer ones were not measured."""

_STEPS = 1 << 16
"""Values that 16 random bits can have."""

# Options of glibc's mallopt. Its defaults adapt to what a process frees; once an option is set they no longer do, so
# that afterwards the ends of their ranges are set.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_KEEP = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1}
_GIVE_BACK = {_M_MMAP_MAX: 65536, _M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 64 << 20}


def checked_device(name: str) -> str:
    """Return the device, where torch knows it and this machine has it.

    Raises:
        InputError: It does not.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = reason_of(error)
        raise InputError(
            f"device is {name!r}, which cannot be used here ({reason}). Give cpu, cuda or cuda:0 where there is a GPU, "
            "or leave it out to take the best there is"
        ) from error
    return name


def has_bf16(device: torch.device | str) -> bool:
    """Tell whether bf16 pays on this device: a GPU that has it, or a CPU with AVX512-BF16 or AMX."""
    device = torch.device(device)
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = torch.backends.cpu.get_cpu_capability()
    is_supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return device.type == "cpu" and flags.startswith("AVX512") and is_supported


def uses_bf16(device: torch.device | str, precision: Precision) -> bool:
    """Tell whether `precision` means bf16 on this device."""
    return precision == "bf16" or (precision == "auto" and has_bf16(device))


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Compute in bf16 autocast within it, or as without it."""
    return torch.autocast(device.type, torch.bfloat16) if uses_bf16(device, precision) else nullcontext()


@contextmanager
def quick_products(is_quick: bool) -> Iterator[None]:
    """Multiply fp32 matrices as bf16 on CPUs that have it, as TF32 on GPUs, and sum in fp32, within it.

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


@contextmanager
def fast_training(model: nn.Module, device: torch.device, max_length: int | None) -> Iterator[None]:
    """Train a model on a CPU faster on texts of `max_length` tokens within it; on other devices nothing changes.

    Measured on all-MiniLM-L6-v2 in bf16, 2 threads, tokens a second: a cross-encoder's steps of 32 pairs 2,620 -> 3,630
    (freed memory kept: 3,020; then attention in bf16: 3,420; then the cheaper dropout), a bi-encoder's of 128 pairs
    3,600 -> 4,220. Without dropout, attention by plain products alone: 3,300 -> 4,200.
    """
    with ExitStack() as stack:
        if device.type == "cpu":
            stack.enter_context(_freed_memory_kept())
            stack.enter_context(_plain_attention(is_short=(max_length or math.inf) <= _SHORT))
            stack.enter_context(_cheap_dropout(model))
        yield


def give_back_freed_memory() -> None:
    """Have glibc return all free pages to the system: after scoring it holds on to tens of megabytes."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def _freed_memory_kept() -> Iterator[None]:
    """Have glibc reuse large blocks instead of giving them back and faulting them in again at every step."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    for option, value in _KEEP.items():
        libc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in _GIVE_BACK.items():
            libc.mallopt(option, value)
        give_back_freed_memory()


@contextmanager
def _plain_attention(*, is_short: bool) -> Iterator[None]:
    """Compute attention as matrix products in the numbers of autocast, where texts are short.

    The fused kernel's backward pass takes twice the time at 15 tokens; with dropout torch takes products by itself, but
    in fp32.
    """
    was_allowed = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH) if is_short else nullcontext():
            yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(was_allowed)


@contextmanager
def _cheap_dropout(model: nn.Module) -> Iterator[None]:
    """Put `CheapDropout` in the place of each dropout layer, and the layers back at the end."""
    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Dropout and layer.p < 1
    ]
    for parent, name, layer in found:
        setattr(parent, name, CheapDropout(layer.p).train(layer.training))
    try:
        yield
    finally:
        for parent, name, layer in found:
            setattr(parent, name, layer)


class CheapDropout(nn.Dropout):
    """Dropout with 16 random bits an element; `torch.nn.Dropout` draws a whole number for each, on one core.

    Args:
        p: Probability of a zero, in [0, 1), rounded to a multiple of 2^-16.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, each zero or scaled so that the mean stays; unchanged in evaluation mode."""
        n_dropped = min(round(self.p * _STEPS), _STEPS - 1)
        if not self.training or not n_dropped:
            return values
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: values.numel()].view(values.shape)
        is_kept = bits >= n_dropped - _STEPS // 2
        return values * is_kept.to(values.dtype).mul_(_STEPS / (_STEPS - n_dropped))
