"""Tell a full disk from other trouble, whichever library met it, and say what to do."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transencoder.errors import RunError, TransencoderError

_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
# Rust (safetensors, tokenizers) and C++ (torch, arrow) hand on the system's words, not its number.
_WORDS = ("No space left on device", "Disk quota exceeded", "os error 28", "os error 122")
# torch.save hides the reason; it is believed to be a full disk only where little space is left.
_TORCH_WORDS = ("PytorchStreamWriter failed writing", "inline_container.cc")
_LITTLE_BYTES = 16 * 2**20
_PLENTY_BYTES = 2**30


@contextmanager
def disk_full_explained(folder: Path) -> Iterator[None]:
    """Raise a full disk inside the block as a `RunError` that names the folder and the way on."""
    try:
        yield
    except Exception as error:
        explained = disk_full_error(error, folder)
        if explained is None:
            raise
        raise explained from error


def disk_full_error(error: BaseException, folder: Path) -> RunError | None:
    """Return the `RunError` for an error that a full disk caused, or None for any other error.

    Args:
        error: what was raised; its causes are looked at too.
        folder: where the run was writing, blamed unless the error or the free space says otherwise.
    """
    if isinstance(error, TransencoderError) or not isinstance(error, Exception):
        return None
    cause = next((link for link in _chain(error) if _is_disk_full(link, folder)), None)
    if cause is None:
        return None
    full = _full_folder(cause, folder)
    return RunError(
        f"no space is left for {full} ({_free_bytes(full) / 2**20:,.1f} MiB free); "
        "what was finished is kept; free some space there and run the same command again: it goes on."
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what caused it, as a traceback would show them."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_disk_full(error: BaseException, folder: Path) -> bool:
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return True
    text = str(error)
    if any(words in text for words in _WORDS):
        return True
    return any(words in text for words in _TORCH_WORDS) and _free_bytes(folder) < _LITTLE_BYTES


def _full_folder(error: BaseException, folder: Path) -> Path:
    """Return the folder to blame: the error's own, else the run's, unless only another is short of space."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return _existing(Path(error.filename).absolute().parent)
    if _free_bytes(folder) > _PLENTY_BYTES:
        for other in (Path(tempfile.gettempdir()), Path("/dev/shm")):
            if other.is_dir() and _free_bytes(other) < _LITTLE_BYTES:
                return other
    return folder


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder.absolute())).free


def _existing(folder: Path) -> Path:
    return next((parent for parent in (folder, *folder.parents) if parent.is_dir()), Path("/"))
