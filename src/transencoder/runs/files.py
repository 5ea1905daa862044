"""Files of a run: canonical JSON, atomic writes, checksums, and explanations of a full disk and other system errors.

A key depends on the content of a config and not on its formatting. Whenever the process is killed, every file is
complete or absent.
"""

import dataclasses
import errno
import hashlib
import json
import math
import numbers
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from types import UnionType
from typing import Any, TypeAlias, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from transencoder.errors import InputError, RunError, TransencoderError, reason_of, shorten
from transencoder.files import TEMPORARY, sha256_of, sync, whole_file

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors from Rust (safetensors, tokenizers) have the system's number in their text, those from C++ (torch, arrow) its
# message.
_NUMBER = re.compile(r"(?:\(os error |\[Errno )(\d+)")
_FULL_WORDS = ("No space left on device", "Disk quota exceeded")
# torch.save and NumPy hide the reason.
_NO_REASON = re.compile(r"PytorchStreamWriter failed writing|inline_container\.cc|\d+ requested and \d+ written")
_MEMORY_WORDS = ("allocate memory", "out of memory")
_PEER_WORDS = ("Connection closed by peer", "Connection reset by peer")
"""Words of gloo, between processes of one command."""
_PEER_REMEDY = "another process of this command has ended, and its own message says why"
_LITTLE_BYTES = 16 * 2**20
_PLENTY_BYTES = 2**30

_NO_REASON_REMEDY = "a file could not be written: a quota, a limit on the size of files (`ulimit -f`), or a faulty disk"
_REMEDIES = {
    errno.EIO: "the disk, or the network to it, has a fault",
    errno.ESTALE: "the disk, or the network to it, has a fault",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "a limit on the size of files is below what is written: `ulimit -f` shows and raises it",
    errno.EMFILE: "a limit on open files is too low: `ulimit -n` shows and raises it",
    errno.ENFILE: "the machine has too many files open",
    errno.ENOMEM: "memory is short: take smaller batches, or end other processes",
    errno.EACCES: "the file or its folder is not yours",
    errno.EPERM: "the file or its folder is not yours",
    errno.EEXIST: "a file stands where a folder belongs: move it away",
    errno.EISDIR: "a folder stands where a file belongs: move it away",
    errno.ENOTDIR: "a file stands where a folder belongs: move it away",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.ELOOP: "symbolic links point at each other",
}
"""Number of a system error -> what it means and what helps. Any other number may be a bug of ours."""

_OWN_HASH = "sha256"
"""Field of a record with the sha256 (hex) of all its other fields."""


def canonical_json(value: object, what: str = "") -> str:
    """Return the canonical JSON text of a value: sorted names, no spaces, ASCII.

    `1` and `1.0` stay different values: a config should hold the type that its field declares.

    Raises:
        InputError: when a part has no JSON form; the message names the part, starting from `what`.
    """
    return json.dumps(plain(value, what), sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: object, where: str = "") -> Json:
    """Turn a value into dict, list, str, int, float, bool and None, keeping the order of names.

    Tuples become lists, paths their text, numpy scalars Python numbers, dataclasses mappings. `where` is how an error
    names the value, for instance `config.learning_rate`.

    Raises:
        InputError: for NaN, infinities, names that are not strings, and objects of any other type.
    """
    numpy = sys.modules.get("numpy")  # whoever holds a numpy scalar has imported numpy
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | PurePath):
        return str(value) if isinstance(value, str) else value.as_posix()
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else _finite(float(value), where)
    if isinstance(value, Mapping):
        return {_name(name, where): plain(part, f"{where}.{name}".strip(".")) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, f"{where}[{position}]") for position, part in enumerate(value)]
    raise InputError(
        f"{where or 'the value'} is a {type(value).__name__} ({value!r:.80}); only text, numbers, booleans, "
        "None, paths, lists and mappings can be recorded; turn it into one of these."
    )


def _finite(number: float, where: str) -> float:
    if not math.isfinite(number):
        raise InputError(f"{where or 'the value'} is {number}; only finite numbers can be recorded; correct it.")
    return number + 0.0  # -0.0 and 0.0 are one number


def _name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise InputError(
            f"{where or 'the mapping'} has the name {name!r} ({type(name).__name__}); names must be strings; "
            f"write {str(name)!r}."
        )
    return str(name)


def atomic_json(path: str | Path, value: object) -> None:
    """Write a value as indented JSON; after a crash the file holds the old or the new content, never a part.

    Raises:
        InputError: when a part of the value has no JSON form, a NaN for instance.
        RunError: when the disk is full.
    """
    text = json.dumps(plain(value, Path(path).name), indent=1, allow_nan=False)
    atomic_write_bytes(path, (text + "\n").encode())


def write_checked_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a record as `atomic_json` does, with the sha256 of its own content, which `read_checked_json` checks."""
    recorded = plain(content, path.name)
    atomic_json(path, {**content, _OWN_HASH: _hash_of(recorded)})


def read_checked_json(path: Path, shape: Any = dict) -> dict[str, Any]:
    """Return the content of a record, after checking its hash and its shape.

    Args:
        path: Path of the record.
        shape: Fields that must be there, as for `check_shape`; there may be more.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedError: The file is not what was written, or has no hash; the message names it.
        OSError: The system could not read it, which says nothing about the file: damaged ones are often removed.
    """
    try:
        content = json.loads(path.read_bytes())
        check_shape(content, dict, str(path))
        own_hash = content.pop(_OWN_HASH, None)
        if own_hash is None:
            raise DamagedError(f"{path} is damaged: it has no sha256 of its content")
        if own_hash != _hash_of(content):
            raise DamagedError(f"{path} has changed: its sha256 is not the recorded one")
        check_shape(content, shape, str(path))
    except (IsADirectoryError, NotADirectoryError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read ({reason_of(error)})") from error
    return content  # type: ignore[no-any-return]


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Check that a value from JSON has a shape: a TypedDict, `list[...]`, `dict[str, ...]`, or a type for `isinstance`.

    Raises:
        DamagedError: It has another shape; the message begins with `where`.
    """
    kind, inner = (shape, ()) if isinstance(shape, UnionType) else (get_origin(shape) or shape, get_args(shape))
    if is_typeddict(shape):
        kind = dict
    if kind is not Any and not isinstance(value, kind):
        raise DamagedError(f"{where} is {shorten(value)}, and should be {getattr(kind, '__name__', kind)}")
    if is_typeddict(shape):
        for name, part in _hints(shape).items():
            if name in value:
                check_shape(value[name], part, f"{where}: {name}")
            elif name in shape.__required_keys__:
                raise DamagedError(f"{where} has no {name}")
    elif inner and kind in (dict, list):
        places: Iterable[tuple[object, Any]] = value.items() if kind is dict else enumerate(value, 1)
        for place, each in places:
            check_shape(each, inner[-1], f"{where}: {place}")


_hints = cache(get_type_hints)


def _hash_of(content: Json) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def atomic_write_bytes(path: str | Path, content: bytes) -> None:
    """Write bytes; after a crash the file holds the old or the new content, never a part.

    The bytes go to a temporary name in the same folder, reach the disk, and are then moved into place.

    Raises:
        RunError: when the disk is full.
    """
    path = Path(path)
    with disk_full_explained(path.parent), whole_file(path) as draft:
        draft.write_bytes(content)


class Checksum(TypedDict):
    """Hash and size of a file, to check later that it has not changed."""

    sha256: str
    size: int
    """Size in bytes."""


class NoSpaceError(RunError):
    """Error for a full disk; the message says which."""


class DamagedError(RunError):
    """Error for a file that is no longer what was written; the message names it."""


def sync_files(folder: Path, names: Iterable[str]) -> dict[str, Checksum]:
    """Flush files of a folder, and their folders' entries, to disk; return the files' checksums.

    Args:
        folder: The folder.
        names: Paths of the files relative to the folder, with `/`.
    """
    checksums: dict[str, Checksum] = {}
    for name in names:
        sync(folder / name)
        checksums[name] = Checksum(sha256=sha256_of(folder / name), size=(folder / name).stat().st_size)
    for parent in sorted({folder, *((folder / name).parent for name in checksums)}):
        sync(parent)
    return checksums


def check_files(folder: Path, checksums: Mapping[str, Checksum], *, up_to_bytes: int | None = None) -> None:
    """Check that files are still what was written.

    Args:
        folder: The folder.
        checksums: Path relative to the folder -> checksum.
        up_to_bytes: Size above which only a file's size is checked, not its hash; None: all hashes are checked.

    Raises:
        DamagedError: A file is missing or has changed; the message names it.
    """
    for name, checksum in checksums.items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{path} is missing")
        size = path.stat().st_size
        if size != checksum["size"]:
            raise DamagedError(f"{path} has {size} bytes instead of {checksum['size']}")
        is_read = up_to_bytes is None or size <= up_to_bytes
        if is_read and sha256_of(path) != checksum["sha256"]:
            raise DamagedError(f"{path} has changed: its sha256 is not the recorded one")


def files_under(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder in a fixed order; linked folders are not entered."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def folder_bytes(folder: Path) -> int:
    """Return the total bytes of all files below a folder; a file that disappears meanwhile counts as 0."""
    total = 0
    for path in files_under(folder):
        try:
            total += path.lstat().st_size
        except FileNotFoundError:
            continue
    return total


@contextmanager
def disk_full_explained(folder: Path) -> Iterator[None]:
    """Turn an error of a full disk inside the block into a `RunError` that names the folder and says what to do."""
    try:
        yield
    except Exception as error:
        explained = system_error(error, folder)
        if not isinstance(explained, NoSpaceError):
            raise
        raise explained from error


@contextmanager
def output_explained(output: str | Path) -> Iterator[None]:
    """Turn an error of the system inside the block into one that names the output, if it is the output's.

    Raises:
        NoSpaceError: A disk is full, the output's or that of temporary files.
        InputError: The output cannot be written.
    """
    place = Path(output).absolute()
    try:
        with disk_full_explained(place.parent):
            yield
    except OSError as error:
        if isinstance(error.filename, str):
            named = Path(error.filename).absolute()
            inside = named.relative_to(place.parent).parts[:1] if named.is_relative_to(place.parent) else ("",)
            if not (place.is_relative_to(named) or inside[0].startswith((TEMPORARY, place.name))):
                raise
        raise InputError(
            f"{output} cannot be written ({error.strerror or reason_of(error)}). Choose another --output."
        ) from error


def system_error(error: BaseException, folder: Path | None = None) -> RunError | None:
    """Return a `RunError` that explains a system error: no space, no memory, no access to a file; None for any other.

    Args:
        error: The exception; its causes are examined too.
        folder: Folder that was written to; blamed for a full disk unless the error or the free space says otherwise.
    """
    if isinstance(error, TransencoderError) or not isinstance(error, Exception):
        return None
    cause: BaseException | None = error
    while cause is not None:
        if (refused := _refused(cause, folder)) is not None:
            return refused
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _refused(error: BaseException, folder: Path | None) -> RunError | None:
    if isinstance(error, shutil.Error):  # from copying a folder: (source, target, reason) of each failure
        error = OSError(error.args[0][0][2])
    text = str(error)
    number = getattr(error, "errno", None) or (int(found[1]) if (found := _NUMBER.search(text)) else None)
    has_no_reason = _NO_REASON.search(text) is not None
    is_short = has_no_reason and folder is not None and _free_bytes(folder) < _LITTLE_BYTES
    if number in _FULL or is_short or any(words in text for words in _FULL_WORDS):
        full = _full_folder(error, folder)
        place = "where the output goes" if full is None else f"for {full} ({_free_bytes(full) / 2**20:,.1f} MiB free)"
        return NoSpaceError(
            f"no space is left {place}; "
            "what was finished is kept; free some space there and run the same command again: it goes on."
        )
    is_torchs = isinstance(error, RuntimeError) and any(words in text for words in _MEMORY_WORDS)
    if isinstance(error, MemoryError) or is_torchs:
        number = errno.ENOMEM
    is_alone = isinstance(error, RuntimeError) and any(words in text for words in _PEER_WORDS)
    remedy = _REMEDIES.get(number or 0) or (_NO_REASON_REMEDY if has_no_reason else _PEER_REMEDY if is_alone else None)
    if remedy is None:
        return None
    return RunError(
        f"{reason_of(error)}: {remedy}; what was finished is kept; solve that and run the same command again."
    )


def _full_folder(error: BaseException, folder: Path | None) -> Path | None:
    """Return the folder to blame for a full disk: the error's own, else the run's, unless only another one is full."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return _existing(Path(error.filename).absolute().parent)
    if folder is not None and _free_bytes(folder) > _PLENTY_BYTES:
        for other in (Path(tempfile.gettempdir()), Path("/dev/shm")):
            if other.is_dir() and _free_bytes(other) < _LITTLE_BYTES:
                return other
    return folder


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder.absolute())).free


def _existing(folder: Path) -> Path:
    return next((parent for parent in (folder, *folder.parents) if parent.is_dir()), Path("/"))
