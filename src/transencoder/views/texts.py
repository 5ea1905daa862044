"""Views that need the text alone: itself, a span masked, words deleted, a word replaced by a synonym."""

import hashlib
import random as python_random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from transencoder.errors import InputError
from transencoder.scripts import join_words, split_words

Randoms = list[python_random.Random]
View = Callable[[list[str], Randoms], list[str]]

WORD = re.compile(r"\w+(?:['’-]\w+)*")


def as_is(texts: list[str], randoms: Randoms) -> list[str]:
    """The texts themselves: dropout alone then makes two views differ (SimCSE)."""
    return texts


@dataclass(frozen=True, kw_only=True)
class SpanMask:
    """One span of characters becomes the mask token (Mirror-BERT, section 2.1)."""

    mask_token: str
    """The tokenizer's own; the released code writes `[MASK]` whatever the model."""
    n_characters: int = 5
    """Length of the span (released code: 5)."""
    min_characters: int = 30
    """Shorter texts stay as they are (released code: 30)."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """The texts, each with a span masked where it stands.

        The released code masks the first place where the same characters stand instead.
        """
        return [self._mask(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _mask(self, text: str, random: python_random.Random) -> str:
        if len(text) < max(self.min_characters, self.n_characters):
            return text
        start = random.randrange(len(text) - self.n_characters + 1)
        return f"{text[:start]} {self.mask_token} {text[start + self.n_characters :]}"


@dataclass(frozen=True, kw_only=True)
class WordDeletion:
    """Each word goes with the same probability; one of them always stays. Words of any script: `split_words`."""

    share: float = 0.2
    """Probability that a word goes, 0 to below 1."""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.0 <= self.share < 1.0:
            raise InputError(f"share is {self.share}; it is a share of the words, 0 to below 1")

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """The texts, each with fewer words."""
        return [self._delete(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _delete(self, text: str, random: python_random.Random) -> str:
        words = split_words(text)
        if len(words) < 2:
            return text
        always = random.randrange(len(words))
        return join_words([word for i, word in enumerate(words) if random.random() >= self.share or i == always])


@dataclass(frozen=True, kw_only=True)
class Synonyms:
    """One word, of those that have synonyms, is replaced by one of them (SCT, section 5.3.3)."""

    table: Mapping[str, tuple[str, ...]]
    """Lower-cased word -> its synonyms; `read_synonyms` reads one from files."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """The texts, each with a word replaced where one can be."""
        return [self._replace(text, random) for text, random in zip(texts, randoms, strict=True)]

    def __repr__(self) -> str:
        """The table by its size and content."""
        digest = hashlib.sha256(repr(sorted(self.table.items())).encode()).hexdigest()
        return f"Synonyms({len(self.table)} words, {digest[:16]})"

    def _replace(self, text: str, random: python_random.Random) -> str:
        words = [match for match in WORD.finditer(text) if match.group().lower() in self.table]
        if not words:
            return text
        word = random.choice(words)
        synonym = random.choice(self.table[word.group().lower()])
        return text[: word.start()] + like(word.group(), synonym) + text[word.end() :]


def like(word: str, other: str) -> str:
    """The other word, with a capital if the first has one."""
    return other[0].upper() + other[1:] if word[0].isupper() else other


def name_of(view: object) -> str:
    """A view or another callable by name, without the address of a function."""
    return str(getattr(view, "__qualname__", None) or repr(view))
