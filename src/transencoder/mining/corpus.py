"""Sentences without repetitions, by their words in any script, and their embeddings: unit vectors on disk."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder import distributed, progress
from transencoder.errors import InputError
from transencoder.pairs import text_hashes
from transencoder.scorers import BiScorer
from transencoder.scripts import HAN_AND_KANA, HANGUL, SOUTH_EAST_ASIAN
from transencoder.tokens import allocate

_BLOCK_ROWS = 4096
_PAIRWISE = HAN_AND_KANA + HANGUL
"""Two characters at a time, as search engines take them."""

_PARTS = re.compile(
    f"(?P<pairwise>[{_PAIRWISE}]+)|(?P<by_threes>[{SOUTH_EAST_ASIAN}]+)|[^ {_PAIRWISE}{SOUTH_EAST_ASIAN}]+"
)


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """n sentences, no two of the same words."""

    texts: Dataset
    """In `text`."""
    n_characters: np.ndarray
    """int32 (n,): of their plain words."""
    n_exact: int
    """Sentences left out: an earlier one is the same."""
    n_alike: int
    """Sentences left out: an earlier one has the same words in the same order, and another case, punctuation or
    spacing."""

    def __len__(self) -> int:
        return len(self.texts)


def distinct(sentences: Dataset) -> Distinct:
    """Keep the first sentence of each group of those with the same words, in their order.

    Texts are compared by 64-bit hashes: that two of a million different ones agree has a probability of 3e-8. 20 bytes
    of memory a sentence.

    Args:
        sentences: Texts in `text`.
    """
    texts, words = np.empty(len(sentences), np.uint64), np.empty(len(sentences), np.uint64)
    n_characters = np.empty(len(sentences), np.int32)
    with progress.task("compare sentences", len(sentences)) as advance:
        for start in range(0, len(sentences), _BLOCK_ROWS):
            block = sentences[start : start + _BLOCK_ROWS]["text"]
            rows = slice(start, start + len(block))
            plain = [plain_words(text) for text in block]
            texts[rows] = text_hashes(block)
            words[rows] = text_hashes(plain)
            n_characters[rows] = [len(text) for text in plain]
            advance(len(block))
    kept = np.sort(np.unique(words, return_index=True)[1])
    n_exact = len(sentences) - len(np.unique(texts))
    return Distinct(
        texts=sentences if len(kept) == len(sentences) else sentences.select(kept, keep_in_memory=True),
        n_characters=n_characters[kept],
        n_exact=n_exact,
        n_alike=len(sentences) - len(kept) - n_exact,
    )


@dataclass(frozen=True)
class Workspace:
    """The base model that mining encodes with, and folders."""

    scorer: BiScorer
    """The base model. Under torchrun each rank encodes its share."""
    folder: Path
    """Where pairs are kept, under their fingerprint."""
    scratch: Path
    """For what is not needed afterwards; all ranks see it."""


@dataclass(frozen=True, kw_only=True)
class Corpus(Distinct):
    """Distinct sentences and their embeddings."""

    embeddings: np.ndarray
    """float32 (n, dim), of length 1, memory-mapped."""


@dataclass(frozen=True)
class Corpora:
    """Where the first and the second sentences of pairs come from."""

    first: Corpus
    second: Corpus

    @property
    def are_one(self) -> bool:
        """Whether both come from the same corpus; a pair then has no order."""
        return self.second is self.first


def embed(sentences: Dataset, workspace: Workspace, name: str, prompt: str | None) -> Corpus:
    """Leave out repetitions and encode the other sentences; of several ranks each encodes its share.

    Args:
        sentences: Texts in `text`.
        workspace: Has the base model, and takes the embeddings.
        name: Their file's.
        prompt: What the base model reads before each.

    Raises:
        InputError: An embedding is not finite.
    """
    found, scorer, file = distinct(sentences), workspace.scorer, workspace.scratch / f"{name}.npy"
    sides = found.texts.select_columns("text").rename_column("text", "sentence1")
    tokens = scorer.cache.sentences(scorer.model, sides, prompt).tokens
    if distributed.rank() == 0:
        allocate(file, np.float32, (len(tokens), scorer.model.get_embedding_dimension() or 0))
    distributed.barrier()
    embeddings = np.load(file, mmap_mode="r+")
    rows, own = tokens.share(distributed.rank(), distributed.world_size())
    scorer.embed_into(embeddings[rows], own)
    for start in range(rows.start, rows.stop, _BLOCK_ROWS):
        _make_unit(embeddings[start : min(start + _BLOCK_ROWS, rows.stop)], start, found.texts)
    embeddings.flush()
    distributed.barrier()
    return Corpus(**vars(found), embeddings=embeddings)


def _make_unit(block: np.ndarray, start: int, texts: Dataset) -> None:
    norms = np.linalg.norm(block, axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        raise InputError(
            f"the start's embedding of {texts[start + int(bad[0])]['text']!r} is not finite. The model is damaged or "
            "overflows: try precision fp32, or another start"
        )
    block /= np.maximum(norms, 1e-12)


def plain_words(text: str) -> str:
    """Return the text's letters, marks and digits in one form and case, with one space where there was anything else.

    Compatible characters are one (NFKC), upper and lower case too; marks that only steer the layout, such as those of
    right-to-left text and soft hyphens, go. A text without letters and digits stays as it is.
    """
    words = " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_plain).split())
    return words or text


def terms(text: str) -> list[str]:
    """Split a text into what BM25 counts: words, or two or three characters in scripts without spaces between words."""
    found: list[str] = []
    for part in _PARTS.finditer(plain_words(text)):
        width = {"pairwise": 2, "by_threes": 3}.get(part.lastgroup or "")
        if width is None:
            found.append(part[0])
        else:
            found += [part[0][i : i + width] for i in range(max(1, len(part[0]) - width + 1))]
    return found


class _Plain(dict[int, str | None]):
    """Characters as `plain_words` has them, found out when they are first met."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        self[code] = chr(code) if category[0] in "LMN" else None if category == "Cf" else " "
        return self[code]


_plain = _Plain()
