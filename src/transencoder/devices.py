"""Devices and number formats: bf16 where it is faster."""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch

from transencoder.configs import Precision
from transencoder.errors import InputError, reason_of

# Options of glibc's mallopt. The default thresholds adapt to what a process frees, but no longer do so once an option
# is set. `_GIVE_BACK` therefore sets them to the ends of their ranges.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_KEEP = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1}
_GIVE_BACK = {_M_MMAP_MAX: 65536, _M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 64 << 20}


def checked_device(name: str) -> str:
    """Return the name of a device, after a check that torch knows it and this machine has it.

    Raises:
        InputError: The device cannot be used.
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
    """Check whether bf16 is faster on this device: a GPU that supports it, or a CPU with AVX512-BF16 or AMX."""
    device = torch.device(device)
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    is_wide = device.type == "cpu" and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return is_wide and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # missing without oneDNN, as on Macs


def uses_bf16(device: torch.device | str, precision: Precision) -> bool:
    """Check whether `precision` means bf16 on this device."""
    return precision == "bf16" or (precision == "auto" and has_bf16(device))


def computed_in(device: torch.device | str, precision: Precision) -> Literal["bf16", "fp32"]:
    """Return the number format that `precision` means on this device, `bf16` or `fp32`."""
    return "bf16" if uses_bf16(device, precision) else "fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Return a context of bf16 autocast if `precision` means bf16 on this device, else a context without effect."""
    return torch.autocast(device.type, torch.bfloat16) if uses_bf16(device, precision) else nullcontext()


@contextmanager
def quick_products(is_quick: bool) -> Iterator[None]:
    """Multiply fp32 matrices as bf16 on CPUs that support it, as TF32 on GPUs, with sums in fp32, in this context.

    It serves computations outside autocast: a loss's projectors and its similarities to a queue. The results are not
    rounded as those of autocast are: cosines of width 384 are off by 1e-4, the worst of a million by 7e-4. A product of
    256 x 384 by 384 x 4096 takes 1.3 ms on one core with AMX, and 6.3 ms in fp32.

    Args:
        is_quick: Whether to do so; if false, nothing changes.
    """
    before = torch.get_float32_matmul_precision()
    if is_quick:
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def give_back_freed_memory() -> None:
    """Make glibc return all free pages to the system: after scoring it would keep tens of megabytes."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Make glibc reuse large blocks, rather than return them to the system and fault them in again at every step."""
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
