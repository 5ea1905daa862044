"""Arrays of rows, computed shard by shard: each shard's are a part, a file that any process may make.

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
from transencoder.tokens import allocate

logger = logging.getLogger(__name__)

Arrays = dict[str, np.ndarray]
"""What is computed of n rows, by name: (n, ...) each, of any type of number."""

ROWS = 1 << 16
"""Of a shard, where nobody says how many shards there are."""

_NAME = re.compile(r"(\d+)-of-(\d+)\.safetensors")


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
    """What is computed of n rows, as parts in a folder.

    Args:
        folder: Holds them; made where it is not there.
        n_rows: How many rows there are, at least 1.
        maker: What computes: models by their content, settings.
        rows: Returns a hash of the content of a slice of them; None: the maker tells them.
        again: How an error names the command that makes a shard's part; `{shard}` stands for the shard.
        shard_rows: Rows of a shard, where nobody says how many shards there are.
    """

    folder: Path
    n_rows: int
    maker: Mapping[str, Json]
    rows: Callable[[slice], str] | None = None
    again: str = "make it again"
    shard_rows: int = ROWS

    def shards(self) -> list[Shard]:
        """Return all shards: as many as parts in the folder are of, else one for every `shard_rows`.

        Raises:
            InputError: The folder has parts of two numbers of shards.
        """
        found = sorted({int(name[2]) for path in self.folder.glob("*") if (name := _NAME.fullmatch(path.name))})
        if len(found) > 1:
            numbers = " and of ".join(map(str, found))
            raise InputError(f"{self.folder} has parts of {numbers} shards; remove those that are not wanted")
        n = next(iter(found), max(1, -(-self.n_rows // self.shard_rows)))
        return [Shard(number, n) for number in range(1, n + 1)]

    def make(self, shard: Shard, compute: Callable[[slice], Arrays]) -> None:
        """Make a shard's part, unless it is there and whole.

        Args:
            shard: Which.
            compute: Returns what is computed of a slice of rows.
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
            arrays = {name: np.ascontiguousarray(each) for name, each in compute(shard.rows(self.n_rows)).items()}
            about = with_rows | {"sha256": _hash_of(arrays)}
            with disk_full_explained(self.folder), whole_file(self._path(shard)) as draft:
                save_file(arrays, draft, {"part": canonical_json(about)})

    def make_all(self, compute: Callable[[slice], Arrays]) -> None:
        """Make the parts that are not there, one after the other; under torchrun each rank every so many-th."""
        shards = distributed.broadcast(self.shards())
        own = shards[distributed.rank() :: distributed.world_size()]
        shown = progress.task("shards", len(own)) if len(shards) > 1 else nullcontext(lambda _: None)
        with shown as advance:
            for shard in own:
                self.make(shard, compute)
                advance(1)
        distributed.barrier()

    def join(self, folder: Path | None = None) -> Arrays:
        """Return what was computed of all rows.

        Args:
            folder: Where the arrays are put, `NAME.npy`, memory-mapped; None: they are in memory.

        Raises:
            InputError: A part is missing, damaged, or of other rows or another maker; all of them are named.
        """
        joined: Arrays = {}
        faults = []
        for shard in self.shards():
            try:
                arrays = self._check(shard, self._content(shard))
            except InputError as error:
                faults.append(str(error))
                continue
            for name, each in arrays.items():
                if name not in joined:
                    shape = (self.n_rows, *each.shape[1:])
                    joined[name] = (
                        np.empty(shape, each.dtype)
                        if folder is None
                        else allocate(folder / f"{name}.npy", each.dtype, shape)
                    )
                joined[name][shard.rows(self.n_rows)] = each
        if faults:
            raise InputError("; ".join(faults))
        return joined

    def remove(self) -> None:
        """Remove the folder, once what it holds is elsewhere."""
        if distributed.rank() == 0:
            remove_folder(self.folder)

    def _path(self, shard: Shard) -> Path:
        return self.folder / f"{shard.number:0{len(str(shard.n))}}-of-{shard.n}.safetensors"

    def _content(self, shard: Shard) -> dict[str, Json]:
        rows = shard.rows(self.n_rows)
        return {"rows": self.rows(rows) if self.rows else f"{rows.start} to {rows.stop}", **self.maker}

    def _check(self, shard: Shard, wanted: Mapping[str, Json]) -> Arrays:
        """Return a part's arrays, after checking what it is of.

        Raises:
            InputError: It is missing, damaged or of something else.
        """
        path, again = self._path(shard), self.again.format(shard=shard)
        try:
            with safe_open(path, "numpy") as file:
                about: dict[str, Any] = json.loads(file.metadata()["part"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}
        except FileNotFoundError:
            raise InputError(f"{path} is missing: {again}") from None
        except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
            raise InputError(f"{path} cannot be read ({reason_of(error)}): {again}") from error
        digest = about.pop("sha256", None)
        others = sorted(name for name in {*about, *wanted} if about.get(name) != wanted.get(name))
        if others:
            raise InputError(f"{path} is of other {' and '.join(others)}: {again}")
        if digest != _hash_of(arrays):
            raise InputError(f"{path} has changed, its sha256 is not the recorded one: {again}")
        return arrays


def _hash_of(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name, each in sorted(arrays.items()):
        digest.update(f"{name} {each.dtype.str} {each.shape}".encode())
        digest.update(each.data)
    return digest.hexdigest()
