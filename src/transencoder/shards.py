"""Arrays of rows, computed shard by shard. The result of a shard is a part: a file that any process may make.

A shard is a fixed slice of the rows, so its part has the same bytes whichever process makes it. A part records the
content of its rows, as a hash, and what computed it. Interrupted work continues with the parts that exist. Processes on
several machines make some parts each, and one of them joins all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transencoder import distributed, progress
from transencoder.errors import InputError, reason_of
from transencoder.files import allocate, make_folder, whole_file
from transencoder.runs.files import Json, canonical_json, disk_full_explained

logger = logging.getLogger(__name__)

Arrays = dict[str, np.ndarray]
"""Arrays computed from n rows, by name: (n, ...) each, numbers of any type."""

ROWS = 1 << 16
"""Default maximum number of rows in a shard."""

FEWEST = 16
"""Default number that the number of shards is a multiple of, so that several processes can share them."""
_LEAST_ROWS = 1 << 8
"""Minimum number of rows in a shard: for fewer rows there are fewer shards."""

_NAME = re.compile(r"(\d{1,9})-of-(\d{1,9})\.safetensors")
_SHOWN = 5


@dataclass(frozen=True)
class Shard:
    """One of n slices of the rows; their sizes differ by at most one row."""

    number: int
    """Number of the shard, from 1 to n."""
    n: int

    def __str__(self) -> str:
        """Return the shard as the user types it: `3/100`."""
        return f"{self.number}/{self.n}"

    def rows(self, n_rows: int) -> slice:
        """Return the shard's slice of `n_rows` rows."""
        return slice((self.number - 1) * n_rows // self.n, self.number * n_rows // self.n)


class UnfitError(Exception):
    """Error for a part that cannot be used; the message says why, but not what to do."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts computed from n rows, in a folder.

    Args:
        folder: Folder of the parts; it is made when the first part is written.
        n_rows: Number of rows, at least 1.
        maker: Description of what computes the parts: settings, and models by their content.
        rows_hash: Function that returns a hash of the content of a slice of rows; None: `maker` identifies the rows.
        remedy: End of an error message about a shard's part; `{shard}` stands for the shard.
        shard_rows: Maximum number of rows in a shard, unless existing parts set the number of shards.
        fewest: Number that the number of shards is then a multiple of, unless shards would have fewer than 256 rows.
            With the default it does not depend on the number of processes, so the results have the same bytes.
        computed_in: Property that may differ between machines, such as `bf16`. Parts that differ in it are joined, with
            a warning.
    """

    folder: Path
    n_rows: int
    maker: Mapping[str, Json]
    rows_hash: Callable[[slice], str] | None = None
    remedy: str = "make it again"
    shard_rows: int = ROWS
    fewest: int = FEWEST
    computed_in: str = ""

    @property
    def numbers(self) -> list[int]:
        """Numbers of shards that the parts in the folder belong to: one, or several if parts do not fit together."""
        names = (_NAME.fullmatch(path.name) for path in (self.folder.iterdir() if self.folder.is_dir() else ()))
        found = {(int(name[1]), int(name[2])) for name in names if name}
        return sorted({n for number, n in found if 1 <= number <= n <= self.n_rows})

    def shards(self) -> list[Shard]:
        """Return all shards. The parts in the folder set their number; without parts it follows from the rows.

        Raises:
            InputError: The folder has parts that belong to different numbers of shards.
        """
        found = self.numbers
        if len(found) > 1:
            raise InputError(
                f"{self.folder} has parts of {' and of '.join(map(str, found))} shards; remove those that are not "
                f"wanted, such as {self._path(Shard(1, found[0])).name}"
            )
        needed = -(-self.n_rows // self.shard_rows)
        even = -(-needed // self.fewest) * self.fewest
        n = found[0] if found else max(needed, min(even, -(-self.n_rows // _LEAST_ROWS)))
        return [Shard(number, n) for number in range(1, n + 1)]

    def make(self, shard: Shard, compute: Callable[[slice], Arrays]) -> None:
        """Make a shard's part, unless it exists and is valid.

        Args:
            shard: The shard.
            compute: Function that returns the arrays computed from a slice of rows.

        Raises:
            InputError: There are more shards than rows.
        """
        if shard.n > self.n_rows:
            raise InputError(f"{shard.n} shards of {self.n_rows} rows would be empty; give at most as many as rows")
        try:
            self.read(shard)
        except UnfitError as error:
            if self._path(shard).exists():
                logger.warning("%s; it is made anew", error)
            make_folder(self.folder)
            rows = shard.rows(self.n_rows)
            try:
                arrays = {name: np.ascontiguousarray(each) for name, each in compute(rows).items()}
            except InputError as bad:
                if shard.n == 1:
                    raise
                raise InputError(f"shard {shard}, rows counted from {rows.start}: {bad}") from bad
            about = {**self._about(shard), "computed_in": self.computed_in, "sha256": _hash_of(arrays)}
            with disk_full_explained(self.folder), whole_file(self._path(shard)) as draft:
                save_file(arrays, draft, {"part": canonical_json(about)})

    def make_all(self, compute: Callable[[slice], Arrays]) -> None:
        """Make the missing parts, one after the other; under torchrun each process makes its share of them."""
        shards = distributed.from_first(self.shards)
        own = shards[distributed.own_rows(len(shards))]
        shown = progress.task("shards", len(own)) if len(own) > 1 else nullcontext(lambda _: None)
        with shown as advance:
            for shard in own:
                self.make(shard, compute)
                advance(1)
        distributed.barrier()

    def join(self, folder: Path | None = None) -> Arrays:
        """Join the parts and return the arrays of all rows.

        Args:
            folder: Folder where the first process writes the arrays, as `NAME.npy`, which all processes then map into
                memory. None: each process holds the arrays in memory.

        Raises:
            InputError: A part is missing, damaged, or from other rows or another maker.
        """
        if folder is None:
            arrays = self._joined(lambda _, shape, dtype: np.empty(shape, dtype))
        else:
            arrays = self._mapped(folder)
        distributed.barrier()  # before one of them removes what others have not read
        return arrays

    def _mapped(self, folder: Path) -> Arrays:
        def write() -> list[str]:
            arrays = self._joined(lambda name, shape, dtype: allocate(folder / f"{name}.npy", dtype, shape))
            for each in arrays.values():
                each.flush()  # type: ignore[attr-defined]
            return list(arrays)

        names = distributed.from_first(write)
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in names}

    def read(self, shard: Shard) -> tuple[Arrays, str]:
        """Return the arrays of a part, and its `computed_in`, after checking its rows and its maker.

        Raises:
            UnfitError: The part is missing, damaged, or from other rows or another maker.
        """
        path = self._path(shard)
        arrays, about = _content(path)
        digest, computed_in = about.pop("sha256", None), about.pop("computed_in", "")
        wanted = self._about(shard)
        others = sorted(name for name in {*about, *wanted} if about.get(name) != wanted.get(name))
        if others:
            raise UnfitError(f"{path} is of other {' and '.join(others)}")
        rows = shard.rows(self.n_rows)
        if digest != _hash_of(arrays) or any(len(each) != rows.stop - rows.start for each in arrays.values()):
            raise UnfitError(f"{path} has changed, its sha256 is not the recorded one")
        return arrays, str(computed_in)

    def _joined(self, make: Callable[[str, tuple[int, ...], np.dtype[Any]], np.ndarray]) -> Arrays:
        """Join the parts into arrays that `make` allocates, given name, shape and type."""
        if not self.numbers:
            raise InputError(f"{self.folder} has no parts: {self.remedy.format(shard='I/N')}")
        joined: Arrays = {}
        faults: list[tuple[Shard, str]] = []
        computed = set()
        for shard in self.shards():
            try:
                arrays, computed_in = self.read(shard)
            except UnfitError as error:
                faults.append((shard, str(error)))
                continue
            computed.add(computed_in)
            if not joined:
                joined = {name: make(name, (self.n_rows, *each.shape[1:]), each.dtype) for name, each in arrays.items()}
            if _kinds(arrays) != _kinds(joined):
                faults.append((shard, f"{self._path(shard)} holds other arrays"))
                continue
            for name, each in arrays.items():
                joined[name][shard.rows(self.n_rows)] = each
        if faults:
            shown = "; ".join(f"{reason}: {self.remedy.format(shard=shard)}" for shard, reason in faults[:_SHOWN])
            more = f"; and {len(faults) - _SHOWN} more of {shard.n} parts" if len(faults) > _SHOWN else ""
            raise InputError(f"{shown}{more}")
        if len(computed) > 1:
            kinds = " and ".join(sorted(computed))
            logger.warning("%s: parts were computed in %s; they differ in their last digits", self.folder, kinds)
        return joined

    def _path(self, shard: Shard) -> Path:
        return self.folder / f"{shard.number:0{len(str(shard.n))}}-of-{shard.n}.safetensors"

    def _about(self, shard: Shard) -> dict[str, Json]:
        rows = shard.rows(self.n_rows)
        return {"rows": self.rows_hash(rows) if self.rows_hash else f"{rows.start} to {rows.stop}", **self.maker}


def _content(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return a part's arrays and its record.

    Raises:
        UnfitError: There is no such part, or it has another form.
    """
    try:
        with safe_open(path, "numpy") as file:
            about = json.loads((file.metadata() or {})["part"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError:
        raise UnfitError(f"{path} is missing") from None
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise UnfitError(f"{path} cannot be read ({reason_of(error)})") from error
    has_arrays = arrays and all(name.isidentifier() and each.ndim for name, each in arrays.items())
    if not (isinstance(about, dict) and has_arrays):
        raise UnfitError(f"{path} cannot be read (it is no part that transencoder made)")
    return arrays, about


def _kinds(arrays: Arrays) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (each.dtype.str, each.shape[1:]) for name, each in arrays.items()}


def _hash_of(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name, each in sorted(arrays.items()):
        digest.update(f"{name} {each.dtype.str} {each.shape}".encode())
        digest.update(each.data)
    return digest.hexdigest()
