"""Distinct sentences, compared by their words in any script, and their embeddings: unit vectors on disk."""

import re
import unicodedata
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder import progress
from transencoder.errors import InputError
from transencoder.pairs import text_hashes
from transencoder.scorers import BiScorer
from transencoder.scripts import HAN_AND_KANA, HANGUL, SOUTH_EAST_ASIAN
from transencoder.sharded import embed_sharded

_BLOCK_ROWS = 4096
_PAIRWISE = HAN_AND_KANA + HANGUL
"""Characters of scripts that are split into pairs of characters, as in search engines."""

_PARTS = re.compile(
    f"(?P<pairwise>[{_PAIRWISE}]+)|(?P<by_threes>[{SOUTH_EAST_ASIAN}]+)|[^ {_PAIRWISE}{SOUTH_EAST_ASIAN}]+"
)


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """n sentences, no two with the same words."""

    texts: Dataset
    """The sentences, in the column `text`."""
    n_characters: np.ndarray
    """Number of characters of each sentence's plain words, int32 (n,)."""
    n_exact: int
    """Number of sentences that were left out because an earlier one is the same."""
    n_alike: int
    """Number of sentences that were left out because an earlier one has the same words in the same order, but another
    case, punctuation or spacing."""

    def __len__(self) -> int:
        return len(self.texts)


def distinct(sentences: Dataset) -> Distinct:
    """Keep the first of all sentences with the same words, in the original order.

    The texts, in the column `text`, are compared by 64-bit hashes; the probability that two of a million collide is
    3e-8. Memory: 20 bytes per sentence.
    """
    texts, words = np.empty(len(sentences), np.uint64), np.empty(len(sentences), np.uint64)
    n_characters = np.empty(len(sentences), np.int32)
    for rows in progress.blocks("compare sentences", len(sentences), _BLOCK_ROWS):
        block = sentences[rows]["text"]
        plain = [plain_words(text) for text in block]
        texts[rows] = text_hashes(block)
        words[rows] = text_hashes(plain)
        n_characters[rows] = [len(text) for text in plain]
    kept = np.sort(np.unique(words, return_index=True)[1])
    n_exact = len(sentences) - len(np.unique(texts))
    return Distinct(
        texts=sentences if len(kept) == len(sentences) else sentences.select(kept, keep_in_memory=True),
        n_characters=n_characters[kept],
        n_exact=n_exact,
        n_alike=len(sentences) - len(kept) - n_exact,
    )


@dataclass(frozen=True, kw_only=True)
class Corpus(Distinct):
    """Distinct sentences and their embeddings."""

    embeddings: np.ndarray
    """Embeddings of length 1, float32 (n, dim), memory-mapped."""


@dataclass(frozen=True)
class Corpora:
    """Corpora that the first and the second sentences of pairs come from."""

    first: Corpus
    second: Corpus

    @property
    def are_one(self) -> bool:
        """Whether both come from the same corpus; a pair then has no order."""
        return self.second is self.first


def embed(sentences: Dataset, documents: Dataset | None, scorer: BiScorer, folder: Path) -> Corpora:
    """Drop repeated texts and encode the others; under several ranks each encodes its share.

    Args:
        sentences: Data set with texts in `text`.
        documents: Data set with the second sentences of pairs in `text`; None: they come from `sentences` too.
        scorer: The base model.
        folder: Folder for the embeddings; all ranks see it.

    Raises:
        InputError: An embedding is not finite.
    """
    first = _embedded(sentences, scorer, scorer.prompt, folder / "sentences.npy")
    if documents is None:
        return Corpora(first, first)
    return Corpora(first, _embedded(documents, scorer, scorer.document_prompt, folder / "documents.npy"))


def _embedded(texts: Dataset, scorer: BiScorer, prompt: str | None, file: Path) -> Corpus:
    found = distinct(texts)
    sides = found.texts.select_columns("text").rename_column("text", "sentence1")
    tokens = scorer.cache.sentences(scorer.model, sides, prompt).tokens
    parts = file.with_suffix("")
    embeddings = embed_sharded(scorer, tokens, file, parts, finish=partial(_make_unit, found.texts))
    return Corpus(**vars(found), embeddings=embeddings)


def _make_unit(texts: Dataset, embeddings: np.ndarray, rows: slice) -> None:
    """Normalise the embeddings of some rows of the texts to length 1, in place.

    Raises:
        InputError: An embedding is not finite.
    """
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        raise InputError(
            f"the base model's embedding of {texts[rows.start + int(bad[0])]['text']!r} is not finite. The "
            "model is damaged or overflows: try precision fp32, or another base model"
        )
    embeddings /= np.maximum(norms, 1e-12)


def plain_words(text: str) -> str:
    """Return the text's letters, marks and digits in a normal form, with one space in place of anything else.

    Characters are normalised by NFKC and case folding. Format characters that only steer the layout, such as those of
    right-to-left text and soft hyphens, are removed. A text without letters and digits is returned as it is.
    """
    words = " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_plain).split())
    return words or text


def terms(text: str) -> list[str]:
    """Split a text into terms for BM25: words, or two or three characters in East and South-East Asian scripts."""
    found: list[str] = []
    for part in _PARTS.finditer(plain_words(text)):
        width = {"pairwise": 2, "by_threes": 3}.get(part.lastgroup or "")
        if width is None:
            found.append(part[0])
        else:
            found += [part[0][i : i + width] for i in range(max(1, len(part[0]) - width + 1))]
    return found


class _Plain(dict[int, str | None]):
    """Translation table of characters for `plain_words`, filled when a character is first met."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        self[code] = chr(code) if category[0] in "LMN" else None if category == "Cf" else " "
        return self[code]


_plain = _Plain()
