"""Views that somebody else made: each text's other text stands in a file."""

import os
from typing import TYPE_CHECKING

import numpy as np

from transencoder.errors import InputError
from transencoder.pairs import fingerprint, read_pairs, text_hashes
from transencoder.views.texts import Randoms
from transencoder.wording import shorten

if TYPE_CHECKING:
    from datasets import Dataset

_BLOCK_ROWS = 4096


class GivenTranslations:
    """Back-translations from a file, looked up by the text; where a text has several, one is drawn.

    The rows stay on disk; memory grows by 16 bytes a row.

    Args:
        pairs: Texts in `sentence1`, their back-translations in `sentence2`.
        name: Of the file, for messages.
    """

    def __init__(self, pairs: "Dataset", name: str) -> None:
        hashes = np.empty(len(pairs), np.uint64)
        for start in range(0, len(pairs), _BLOCK_ROWS):
            texts = pairs[start : start + _BLOCK_ROWS]["sentence1"]
            hashes[start : start + len(texts)] = text_hashes(texts)
        self._rows = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._rows]
        self._pairs = pairs
        self._name = name

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """A back-translation of each text.

        Raises:
            InputError: The file has none of a text.
        """
        hashes = text_hashes(texts)
        first = np.searchsorted(self._hashes, hashes, "left").tolist()
        after = np.searchsorted(self._hashes, hashes, "right").tolist()
        for text, start, stop in zip(texts, first, after, strict=True):
            if start == stop:
                raise InputError(
                    f"{self._name} has no back-translation of {shorten(text)}. It must have one of every text: "
                    "a row with the text as it stands, and its back-translation"
                )
        chosen = [random.randrange(*span) for random, *span in zip(randoms, first, after, strict=True)]
        made: list[str] = self._pairs[self._rows[chosen].tolist()]["sentence2"]
        return made

    def __repr__(self) -> str:
        """The file by its content."""
        return f"GivenTranslations({fingerprint(self._pairs)})"


def read_translations(
    path: str | os.PathLike[str], *, cache_folder: str | os.PathLike[str] | None = None
) -> GivenTranslations:
    """Read back-translations: two columns, the text and its back-translation.

    Args:
        path: A TSV, CSV, JSONL or Parquet file, as `read_pairs` takes it.
        cache_folder: For Arrow files, as in `read_pairs`.

    Raises:
        InputError: With `path:line`, what was read, what is allowed and what to do.
    """
    return GivenTranslations(read_pairs(path, cache_folder=cache_folder), os.fspath(path))
