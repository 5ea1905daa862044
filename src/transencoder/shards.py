"""Arrays of rows, computed shard by shard: what is computed of a shard is a part, a file that any process may make.

A shard is a fixed slice of the rows, so that its part has the same bytes whoever makes it. A part records what it is
of: its rows, by their content, and what computed them. Interrupted work goes on with the parts that are there;
processes on several machines make some parts each, and one of them joins all.
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
from transencoder.files import make_folder, whole_file
from transencoder.runs.files import Json, canonical_json, disk_full_explained
from transencoder.tokens import allocate

logger = logging.getLogger(__name__)

Arrays = dict[str, np.ndarray]
"""What is computed of n rows, by name: (n, ...) each, numbers of any type."""

ROWS = 1 << 16
"""Rows of a shard at most, unless told otherwise."""

FEWEST = 16
"""Unless told otherwise the number of shards is a multiple of this, so that several processes can share them."""
_LEAST_ROWS = 1 << 8
"""Rows of a shard at least: of fewer rows there are fewer shards."""

_NAME = re.compile(r"(\d{1,9})-of-(\d{1,9})\.safetensors")
_SHOWN = 5


@dataclass(frozen=True)
class Shard:
    """One of n slices of rows, equal but for one row."""

    number: int
    """1 to n."""
    n: int

    def __str__(self) -> str:
        """Return it as it is typed: `3/100`."""
        return f"{self.number}/{self.n}"

    def rows(self, n_rows: int) -> slice:
        """Return its slice of so many rows."""
        return slice((self.number - 1) * n_rows // self.n, self.number * n_rows // self.n)


class UnfitError(Exception):
    """A part cannot be used; the message says why, without what to do."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is computed of n rows, as parts in a folder.

    Args:
        folder: Where the parts lie; it is made when the first is written.
        n_rows: How many rows there are, at least 1.
        maker: What computes: models by their content, settings.
        rows_hash: Returns a hash of the content of a slice of rows; None: `maker` says which rows these are.
        remedy: The end of an error about a shard's part; `{shard}` stands for the shard.
        shard_rows: Rows of a shard at most, where no part says how many shards there are.
        fewest: The number of shards is then a multiple of this; of the default, it does not depend on how many
            processes compute, and what they compute has the same bytes.
        computed_in: What may differ between machines, such as `bf16`: parts of both are joined, with a warning.
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
        """Of how many shards the parts in the folder are; one number, or several where parts do not fit together."""
        names = (_NAME.fullmatch(path.name) for path in (self.folder.iterdir() if self.folder.is_dir() else ()))
        found = {(int(name[1]), int(name[2])) for name in names if name}
        return sorted({n for number, n in found if 1 <= number <= n <= self.n_rows})

    def shards(self) -> list[Shard]:
        """Return all shards: as many as the parts in the folder are of, else a number that follows from the rows.

        Raises:
            InputError: The folder has parts of two numbers of shards.
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
        """Make a shard's part, unless it is there and whole.

        Args:
            shard: Which part.
            compute: Returns what is computed of a slice of rows.
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
        """Make the parts that are not there; under torchrun each process its share of them, one after the other."""
        shards = distributed.from_first(self.shards)
        own = shards[distributed.own_rows(len(shards))]
        shown = progress.task("shards", len(own)) if len(own) > 1 else nullcontext(lambda _: None)
        with shown as advance:
            for shard in own:
                self.make(shard, compute)
                advance(1)
        distributed.barrier()

    def join(self, folder: Path | None = None) -> Arrays:
        """Return what was computed of all rows.

        Args:
            folder: Where the first process puts the arrays, `NAME.npy`, which all then map into memory; None: they are
                in the memory of each process.

        Raises:
            InputError: A part is missing, damaged, or of other rows or another maker.
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

    def read(self, shard: Shard) -> Arrays:
        """Return what a part holds, after checking what it is of.

        Raises:
            UnfitError: It is missing, damaged or of something else.
        """
        return self._read(shard)[0]

    def _read(self, shard: Shard) -> tuple[Arrays, str]:
        """Return what a part holds, and what it was computed in."""
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
        """Join the parts into arrays that `make` makes of name, shape and type."""
        if not self.numbers:
            raise InputError(f"{self.folder} has no parts: {self.remedy.format(shard='I/N')}")
        joined: Arrays = {}
        faults: list[tuple[Shard, str]] = []
        computed = set()
        for shard in self.shards():
            try:
                arrays, computed_in = self._read(shard)
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
        UnfitError: There is no such part, or it is not of this form.
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
