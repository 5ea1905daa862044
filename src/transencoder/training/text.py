"""Training text between its source and the stages: its rows, and their record in result.json."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset

from transencoder import tasks
from transencoder.configs import RunConfig
from transencoder.context import Scored
from transencoder.errors import InputError, plural
from transencoder.pairs import fingerprint, pair_keys, rows_of_pairs
from transencoder.records import HELD_ROWS, DataRecord

logger = logging.getLogger(__name__)

_LEFT_OUT: tuple[Literal["missing_rows", "excluded_rows", "bad_rows"], ...] = (
    "missing_rows",
    "excluded_rows",
    "bad_rows",
)


@dataclass(frozen=True)
class TrainingText:
    """Rows to train on, and their record."""

    rows: Dataset
    record: DataRecord

    @classmethod
    def read(cls, source: str | Dataset, rows: Dataset, *bad_rows: Path | None) -> TrainingText:
        """Return the rows read from a source, with a count of the bad rows that reading wrote to files."""
        text = cls(rows, data_record(source_name(source), rows))
        files = [path for path in bad_rows if path is not None]
        return text.noted(bad_rows=sum(map(_n_lines, files))) if files else text

    def left_out_with(self, other: TrainingText) -> dict[str, int]:
        """Return the number of rows that were left out of this text and of another, by reason."""
        return {name: self.record.get(name, 0) + other.record.get(name, 0) for name in _LEFT_OUT}

    def replaced(self, rows: Dataset, **more: Any) -> TrainingText:
        """Return other rows of the same source, with more entries in their record."""
        return TrainingText(rows, self.record | data_record(self.record["source"], rows) | more)  # type: ignore[arg-type]

    def noted(self, **more: Any) -> TrainingText:
        """Return the same rows with more entries in their record."""
        return TrainingText(self.rows, self.record | more)  # type: ignore[arg-type]

    def drawn(self, n_rows: int | None, field: str, seed: int) -> TrainingText:
        """Draw `n_rows` rows, which keep their order; None: all.

        Raises:
            InputError: There are fewer rows.
        """
        if n_rows is None:
            return self
        if n_rows > len(self.rows):
            raise InputError(
                f"{field} is {n_rows}, but {self.record['source']} has {len(self.rows)}; give at most that, or none"
            )
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.rows), n_rows, replace=False))
        return self.replaced(self.rows.select(chosen), drawn_from=len(self.rows))

    def without_sentences_of(self, tests: list[Scored]) -> TrainingText:
        """Leave out rows that contain a sentence of a test (inductive).

        Raises:
            InputError: No row is left.
        """
        kept = _without_sentences(self.rows, tests)
        if not len(kept):
            raise InputError(
                f"every row of {self.record['source']} holds a sentence of a test set; give other text, or leave "
                "exclude_test_sentences out"
            )
        n_excluded = self.record.get("excluded_rows", 0) + len(self.rows) - len(kept)
        return self.replaced(kept, transductive=False, excluded_rows=n_excluded)

    def compared_with(self, tests: list[Scored]) -> TrainingText:
        """Record how many rows contain a sentence of a test (transductive)."""
        n_touched = len(self.rows) - len(_without_sentences(self.rows, tests))
        return self.noted(transductive=n_touched > 0, transductive_rows=n_touched)

    def without_pairs_of(self, sets: list[Scored]) -> TrainingText:
        """Leave out the pairs of tests and dev, in either order: their gold must not be learned.

        Of STS-B's train split 17 are in its test split, 11 in its dev split.

        Raises:
            InputError: No row is left.
        """
        kept = without_pairs(self.rows, {key for each in sets for key in pair_keys(each.pairs, both_orders=True)})
        if not len(kept):
            source = self.record["source"]
            raise InputError(f"every labelled pair of {source} is one of a test set or of dev; give others")
        n_left_out = len(self.rows) - len(kept)
        if not n_left_out:
            return self
        words = plural(n_left_out, "labelled pair")
        logger.warning("%s: %s of a test set or of dev left out of what is learned", self.record["source"], words)
        return self.replaced(kept, test_rows=n_left_out)


def data_record(source: str, rows: Dataset) -> DataRecord:
    """Return the record of a data set for result.json."""
    return {"source": source, "rows": len(rows), "fingerprint": fingerprint(rows)}


def source_name(source: str | Dataset) -> str:
    """Return the source of a data set, in words."""
    return source if isinstance(source, str) else HELD_ROWS


def task_named(source: str | Dataset) -> tasks.Task | None:
    """Return the task that a source names; None for a file or a data set."""
    return tasks.TASKS.get(source) if isinstance(source, str) else None


def where(config: RunConfig) -> dict[str, Any]:
    """Return the readers' options for where data sets are found."""
    return {"data_folder": config.data_dir, "cache_folder": config.cache_dir, "token": config.token}


def reading(config: RunConfig, bad_rows_file: Path | None) -> dict[str, Any]:
    """Return the readers' options for training text."""
    return where(config) | {
        "header": config.header,
        "file_format": config.file_format,
        "split": config.split,
        "skip_bad_rows": config.skip_bad_rows,
        "bad_rows_file": bad_rows_file,
    }


def without_pairs(pairs: Dataset, keys: set[tuple[str, str]]) -> Dataset:
    """Return the pairs whose two texts are not among the keys."""
    rows = rows_of_pairs(pairs, keys)
    return pairs.select(np.delete(np.arange(len(pairs)), rows)) if rows else pairs


def _without_sentences(rows: Dataset, tests: Iterable[Scored]) -> Dataset:
    return tasks.without_sentences(rows, tasks.sentences_of(test.pairs for test in tests))


def _n_lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0
