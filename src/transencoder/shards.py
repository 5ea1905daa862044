"""Numbers of rows, computed shard by shard: each shard's are a part, a file that any process may make.

A shard is a fixed slice of the rows, so that its part has the same bytes whoever makes it. A part says what it is of:
rows, by their content, and what computed them. Work that was interrupted goes on with the parts that are there;
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
from transencoder.files import make_folder, remove_folder, whole_file
from transencoder.runs.files import Json, canonical_json, disk_full_explained

logger = logging.getLogger(__name__)

ROWS = 1 << 16
"""Of a shard, where nobody says how many shards there are."""

_NAME = re.compile(r"(\d+)-of-(\d+)\.safetensors")
_ROWS = "rows"
_VALUES = "values"


@dataclass(frozen=True)
class Shard:
    """One of n equal slices of rows, some of them longer by a row."""

    number: int
    """From 1."""
    n: int

    def __post_init__(self) -> None:
        """Refuse a number that is none of theirs."""
        if not 1 <= self.number <= self.n:
            raise InputError(f"the shard is {self}; give a number from 1 to the number of shards, such as 3/100")

    def __str__(self) -> str:
        """Return it as it is typed: `3/100`."""
        return f"{self.number}/{self.n}"

    def rows(self, n_rows: int) -> slice:
        """Return its slice of so many rows."""
        return slice((self.number - 1) * n_rows // self.n, self.number * n_rows // self.n)


def read_shard(text: str) -> Shard:
    """Read `3/100`.

    Raises:
        InputError: It is none.
    """
    number, _, n = text.partition("/")
    if not (number.isdecimal() and n.isdecimal()):
        raise InputError(f"the shard is {text!r}; give its number and how many there are, such as 3/100")
    return Shard(int(number), int(n))


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Numbers of n rows, as parts in a folder.

    Args:
        folder: Holds them; made where it is not there.
        n_rows: How many rows there are, at least 1.
        rows: Returns a hash of the content of a slice of them.
        maker: What computes the numbers: models by their content, settings.
        again: How an error names the command that makes a shard's part; `{shard}` stands for the shard.
    """

    folder: Path
    n_rows: int
    rows: Callable[[slice], str]
    maker: Mapping[str, Json]
    again: str = "make it again"

    def shards(self, n: int | None = None) -> list[Shard]:
        """Return all shards: so many, else as many as parts in the folder are of, else one for every 65,536 rows.

        Raises:
            InputError: The folder has parts of two numbers of shards.
        """
        found = sorted({int(name[2]) for path in self.folder.glob("*") if (name := _NAME.fullmatch(path.name))})
        if n is None and len(found) > 1:
            numbers = " and of ".join(map(str, found))
            raise InputError(f"{self.folder} has parts of {numbers} shards; remove those that are not wanted")
        n = n or next(iter(found), max(1, -(-self.n_rows // ROWS)))
        return [Shard(number, n) for number in range(1, n + 1)]

    def make(self, shard: Shard, compute: Callable[[slice], np.ndarray]) -> None:
        """Make a shard's part, unless it is there and whole.

        Args:
            shard: Which.
            compute: Returns the numbers of a slice of rows, (rows, ...), any type.
        """
        if shard.n > self.n_rows:
            raise InputError(f"{shard.n} shards of {self.n_rows} rows would be empty; give at most as many as rows")
        with_rows = self._content(shard)
        try:
            self._check(shard, with_rows)
        except InputError as error:
            if self._path(shard).exists():
                logger.warning("%s; it is made anew", str(error).partition(": ")[0])
            make_folder(self.folder)
            values = np.ascontiguousarray(compute(shard.rows(self.n_rows)))
            about = with_rows | {"sha256": _hash_of(values)}
            with disk_full_explained(self.folder), whole_file(self._path(shard)) as draft:
                save_file({_VALUES: values}, draft, {"part": canonical_json(about)})

    def make_all(self, compute: Callable[[slice], np.ndarray], n: int | None = None) -> None:
        """Make the parts that are not there, one after the other; under torchrun each rank every so many-th."""
        shards = distributed.broadcast(self.shards(n))
        own = shards[distributed.rank() :: distributed.world_size()]
        run = progress.Run(dict.fromkeys(map(str, own), 1.0))
        for shard in own:
            with run.stage(str(shard), f"shard {shard}") if len(shards) > 1 else nullcontext():
                self.make(shard, compute)
        distributed.barrier()

    def join(self, n: int | None = None) -> np.ndarray:
        """Return the numbers of all rows, (n_rows, ...).

        Raises:
            InputError: A part is missing, damaged, or of other rows or another maker; all of them are named.
        """
        joined, faults = None, []
        for shard in self.shards(n):
            try:
                values = self._check(shard, self._content(shard))
            except InputError as error:
                faults.append(str(error))
                continue
            if joined is None:
                joined = np.empty((self.n_rows, *values.shape[1:]), values.dtype)
            joined[shard.rows(self.n_rows)] = values
        if faults or joined is None:
            raise InputError("; ".join(faults))
        return joined

    def remove(self) -> None:
        """Remove the folder, once its numbers are elsewhere."""
        if distributed.rank() == 0:
            remove_folder(self.folder)

    def _path(self, shard: Shard) -> Path:
        return self.folder / f"{shard.number:0{len(str(shard.n))}}-of-{shard.n}.safetensors"

    def _content(self, shard: Shard) -> dict[str, Json]:
        return {_ROWS: self.rows(shard.rows(self.n_rows)), **self.maker}

    def _check(self, shard: Shard, wanted: Mapping[str, Json]) -> np.ndarray:
        """Return a part's numbers, after checking what it is of.

        Raises:
            InputError: It is missing, damaged or of something else.
        """
        path, again = self._path(shard), self.again.format(shard=shard)
        try:
            with safe_open(path, "numpy") as file:
                about: dict[str, Any] = json.loads(file.metadata()["part"])
                values: np.ndarray = file.get_tensor(_VALUES)
        except FileNotFoundError:
            raise InputError(f"{path} is missing: {again}") from None
        except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
            raise InputError(f"{path} cannot be read ({reason_of(error)}): {again}") from error
        digest = about.pop("sha256", None)
        others = sorted(name for name in {*about, *wanted} if about.get(name) != wanted.get(name))
        if others:
            raise InputError(f"{path} is of other {' and '.join(others)}: {again}")
        rows = shard.rows(self.n_rows)
        if digest != _hash_of(values) or len(values) != rows.stop - rows.start:
            raise InputError(f"{path} has changed, its sha256 is not the recorded one: {again}")
        return values


def _hash_of(values: np.ndarray) -> str:
    return hashlib.sha256(f"{values.dtype.str} {values.shape}".encode() + values.tobytes()).hexdigest()
