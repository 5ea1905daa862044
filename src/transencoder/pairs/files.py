"""Bytes and lines of files and stdin, with errors that say what is wrong."""

import codecs
import gzip
import io
import logging
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa

from transencoder.errors import InputError
from transencoder.pairs.rows import BadRow

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 20
MOST_LINE_BYTES = 1 << 25
"""Largest size of a line in bytes: a gzip file of 3 MB can hold one line of gigabytes."""
_CONTAINERS = {
    codecs.BOM_UTF16_LE: "UTF-16 text; save it as UTF-8",
    codecs.BOM_UTF16_BE: "UTF-16 text; save it as UTF-8",
    b"\x1f\x8b": "gzip-compressed; let its name end in .gz, or state the format with .gz (such as tsv.gz)",
    b"PAR1": "Parquet; let its name end in .parquet, or state file_format='parquet' (--file-format parquet)",
    b"PK\x03\x04": "a zip archive or a spreadsheet; unpack it, or export it as CSV",
}


@contextmanager
def open_stream(
    path: Path | str | None, name: str, *, packed: str = "", seekable_in: Path | None = None
) -> Iterator[BinaryIO]:
    """Open a file as a stream of decompressed bytes.

    Args:
        path: A path, or a URL, which fsspec opens; None: stdin.
        name: Name of the source, for messages.
        packed: Compression, `gz` or `zst`; empty: none.
        seekable_in: Folder for a decompressed temporary copy, for a format that needs to seek (Parquet) where the
            stream cannot.

    Raises:
        InputError: the file is missing, unreadable, a folder, or (when copied) not whole.
    """
    with ExitStack() as stack:
        with source_faults(name):
            stream: IO[bytes] = sys.stdin.buffer
            if isinstance(path, str):
                import fsspec

                stream = stack.enter_context(fsspec.open(path, "rb"))
            elif path is not None:
                stream = stack.enter_context(open(path, "rb", _BUFFER_BYTES))
        if packed:
            unpacked: Any = (
                gzip.GzipFile(fileobj=stream, mode="rb")
                if packed == "gz"
                else pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd")
            )
            stream = stack.enter_context(io.BufferedReader(stack.enter_context(unpacked), _BUFFER_BYTES))
        if seekable_in is not None and (packed or path is None):
            copy = stack.enter_context(tempfile.TemporaryFile(dir=seekable_in))
            with source_faults(name):
                shutil.copyfileobj(stream, copy, _BUFFER_BYTES)
            copy.seek(0)
            stream = copy
        yield cast(BinaryIO, stream)


@contextmanager
def source_faults(name: str) -> Iterator[None]:
    """Turn errors while reading bytes into an InputError that names the file."""
    try:
        yield
    except EOFError as error:
        raise InputError(
            f"{name}: the gzip data ends early, so rows are missing at its end. A whole gzip file is needed. "
            "Copy or download it again."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{name}: not valid gzip data ({error}). A file called .gz must be a whole gzip file. Copy or "
            "download it again, or drop .gz from its name if it is not compressed."
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{name}: no such file. State the path of a file that is there.") from error
    except OSError as error:
        reason = str(error.strerror or error)
        if "ZSTD" in reason or "compressed stream" in reason:
            raise InputError(
                f"{name}: not whole or not valid zstd data ({reason}). A file called .zst must be a whole zstd file. "
                "Copy or download it again."
            ) from error
        raise InputError(f"{name}: cannot be read: {reason}. Check the path and its permissions.") from error


class Lines:
    r"""Lines of a UTF-8 stream, without their ends (LF or CRLF only) and without a byte order mark.

    They can be iterated over once; `number`, `text`, `ending` and `fault` describe the line that was yielded last.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        """Wrap an open stream; `name` is for messages."""
        self.number = 0
        self.text = ""
        self.ending = ""
        self.fault: str | None = None
        """Reason why a line since the last `take_fault` is not UTF-8; such a line is yielded with surrogate escapes."""
        self.name = name
        self._stream = stream
        self._offset = 0
        self._rows_by_ending = {"\n": 0, "\r\n": 0, "": 0}

    def __iter__(self) -> Iterator[str]:
        """Yield each line's text."""
        with source_faults(self.name):
            for raw in iter(partial(self._stream.readline, MOST_LINE_BYTES + 1), b""):
                self.number += 1
                if len(raw) > MOST_LINE_BYTES:
                    raise InputError(
                        f"{self.name}:{self.number}: a line of more than {MOST_LINE_BYTES:,} bytes. A row must be "
                        "shorter. Is it a text file, and does each row end with LF?"
                    )
                self.ending = "\r\n" if raw.endswith(b"\r\n") else "\n" if raw.endswith(b"\n") else ""
                body = raw[: len(raw) - len(self.ending)]
                if self.number == 1:
                    body = self._without_mark(body)
                self.text = self._decode(body, self._offset + len(raw) - len(self.ending) - len(body))
                self._offset += len(raw)
                yield self.text
        self._warn_of_mixed_ends()

    def count_row_end(self) -> None:
        """Count the last line's end as the end of a row (inside a quoted CSV field, either kind is fine)."""
        self._rows_by_ending[self.ending] += 1

    def take_fault(self, number: int, read: object) -> BadRow:
        """Return the row that starts at line `number` as a bad row, with `fault` as the reason, and clear `fault`."""
        reason, self.fault = self.fault or "", None
        return BadRow(number, reason, "Text must be UTF-8: convert the file (iconv -f LATIN1 -t UTF-8)", read)

    def _decode(self, body: bytes, offset: int) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            byte, at = body[error.start], offset + error.start
            self.fault = f"not UTF-8: byte 0x{byte:02x} at offset {at:,} ({error.reason})"
            return body.decode(errors="surrogateescape")

    def _without_mark(self, body: bytes) -> bytes:
        for magic, what in _CONTAINERS.items():
            if body.startswith(magic):
                shown = " ".join(f"0x{byte:02x}" for byte in magic)
                raise InputError(f"{self.name}: begins with {shown}, so it is {what}. Plain UTF-8 text is expected.")
        return body.removeprefix(codecs.BOM_UTF8)

    def _warn_of_mixed_ends(self) -> None:
        lf, crlf = self._rows_by_ending["\n"], self._rows_by_ending["\r\n"]
        if lf and crlf:
            logger.warning(
                "%s: mixed line ends, LF after %d rows and CRLF after %d; both were taken as the end of a row and left "
                "out of the text. Was it put together from two files?",
                self.name,
                lf,
                crlf,
            )
