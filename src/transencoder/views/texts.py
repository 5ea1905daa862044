"""Views that need the text alone: itself, a span masked, words deleted, a word replaced by a synonym from a file."""

import hashlib
import os
import random as python_random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from transencoder.errors import InputError
from transencoder.scripts import join_words, split_words
from transencoder.wording import shorten

Randoms = list[python_random.Random]
View = Callable[[list[str], Randoms], list[str]]

WORD = re.compile(r"\w+(?:['’-]\w+)*")

_WORDNET = ("data.noun", "data.verb", "data.adj", "data.adv")
_ALLOWED = (
    f"Synonyms are a file of lines word<TAB>synonym, or a folder with WordNet's {', '.join(_WORDNET[:-1])} and "
    f"{_WORDNET[-1]}"
)


def as_is(texts: list[str], randoms: Randoms) -> list[str]:
    """Return the texts themselves: dropout alone then makes two views differ (SimCSE)."""
    return texts


class _EachText(ABC):
    """A view that makes each text on its own."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Make the view of each text."""
        return [self._make(text, random) for text, random in zip(texts, randoms, strict=True)]

    @abstractmethod
    def _make(self, text: str, random: python_random.Random) -> str: ...


@dataclass(frozen=True, kw_only=True)
class SpanMask(_EachText):
    """One span of characters becomes the mask token (Mirror-BERT, section 2.1).

    It is masked where it stands; the released code masks the first place where the same characters stand.
    """

    mask_token: str
    """The tokenizer's own; the released code writes `[MASK]` whatever the model."""
    n_characters: int = 5
    """Length of the span (released code: 5)."""
    min_characters: int = 30
    """Shorter texts stay as they are (released code: 30)."""

    def _make(self, text: str, random: python_random.Random) -> str:
        if len(text) < max(self.min_characters, self.n_characters):
            return text
        start = random.randrange(len(text) - self.n_characters + 1)
        return f"{text[:start]} {self.mask_token} {text[start + self.n_characters :]}"


@dataclass(frozen=True, kw_only=True)
class WordDeletion(_EachText):
    """Each word goes with the same probability; one of them always stays. Words of any script: `split_words`."""

    share: float = 0.2
    """Probability that a word goes, 0 to below 1."""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.0 <= self.share < 1.0:
            raise InputError(f"share is {self.share}; it is a share of the words, 0 to below 1")

    def _make(self, text: str, random: python_random.Random) -> str:
        words = split_words(text)
        if len(words) < 2:
            return text
        always = random.randrange(len(words))
        return join_words([word for i, word in enumerate(words) if random.random() >= self.share or i == always])


@dataclass(frozen=True, kw_only=True)
class Synonyms(_EachText):
    """One word, of those that have synonyms, is replaced by one of them (SCT, section 5.3.3)."""

    table: Mapping[str, tuple[str, ...]]
    """Lower-cased word -> its synonyms; `read_synonyms` reads one from files."""

    def __repr__(self) -> str:
        """Name the table by its size and content."""
        digest = hashlib.sha256(repr(sorted(self.table.items())).encode()).hexdigest()
        return f"Synonyms({len(self.table)} words, {digest[:16]})"

    def _make(self, text: str, random: python_random.Random) -> str:
        words = [match for match in WORD.finditer(text) if match.group().lower() in self.table]
        if not words:
            return text
        word = random.choice(words)
        synonym = random.choice(self.table[word.group().lower()])
        return text[: word.start()] + like(word.group(), synonym) + text[word.end() :]


def like(word: str, other: str) -> str:
    """Return the other word, with a capital if the first has one."""
    return other[0].upper() + other[1:] if word[0].isupper() else other


def name_of(view: object) -> str:
    """Name a view or another callable, without the address of a function."""
    return str(getattr(view, "__qualname__", None) or repr(view))


def read_synonyms(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Read the table that `Synonyms` takes; nothing is downloaded.

    Args:
        path: A UTF-8 file of lines `word<TAB>synonym`, without a header, a word on as many lines as it has synonyms;
            or a folder with WordNet 3's database: data.noun, data.verb, data.adj and data.adv.

    Returns:
        Lower-cased word -> its synonyms, each once, in the files' order. Of WordNet these are the other lemmas of a
        word's synsets that are one word.

    Raises:
        InputError: There is nothing at the path or something else; with `path:line` for a bad line.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        pairs = _wordnet(path)
    elif path.exists():
        pairs = _two_columns(path)
    else:
        raise InputError(f"{path}: there is no such file or folder. {_ALLOWED}.")
    table: dict[str, dict[str, None]] = {}
    for word, synonym in pairs:
        if synonym.lower() != word.lower():
            table.setdefault(word.lower(), {})[synonym] = None
    if not table:
        raise InputError(f"{path}: no synonyms. {_ALLOWED}.")
    return {word: tuple(synonyms) for word, synonyms in table.items()}


def _two_columns(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in _lines(path):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            raise _fault(path, number, line, "not a word and a synonym", "Each line is word<TAB>synonym")
        if not WORD.fullmatch(fields[0]):
            raise _fault(path, number, line, f"{fields[0]!r} is not one word", "Only single words are replaced")
        yield fields[0], fields[1]


def _wordnet(folder: Path) -> Iterator[tuple[str, str]]:
    missing = [name for name in _WORDNET if not (folder / name).is_file()]
    if missing:
        raise InputError(f"{folder}: there is no {' and no '.join(missing)}. {_ALLOWED}.")
    for path in (folder / name for name in _WORDNET):
        for number, line in _lines(path):
            if line.startswith("  "):  # the licence
                continue
            try:
                lemmas = _lemmas(line)
            except ValueError as error:
                raise _fault(path, number, line, "no synset of WordNet's database", "See its wndb(5WN)") from error
            yield from ((word, synonym) for word in lemmas for synonym in lemmas if synonym != word)


def _lemmas(line: str) -> list[str]:
    """Return the single-word lemmas of a synset: `offset file type w_cnt word lex_id [word lex_id...] p_cnt ...`.

    Raises:
        ValueError: The line is something else.
    """
    offset, file_number, kind, count, *rest = line.split(" ")
    n_lemmas = int(count, 16)
    if not (offset.isdecimal() and file_number.isdecimal() and kind in tuple("nvasr") and 0 < 2 * n_lemmas < len(rest)):
        raise ValueError(line)
    int(rest[2 * n_lemmas])  # p_cnt stands where the lemmas end
    lemmas = (lemma.partition("(")[0] for lemma in rest[: 2 * n_lemmas : 2])  # galore(ip): an adjective's place
    return [lemma for lemma in lemmas if "_" not in lemma]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines without their ends."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise _fault(path, number, line, "not UTF-8", "Save the file as UTF-8") from error


def _fault(path: Path, number: int, read: str | bytes, reason: str, advice: str) -> InputError:
    return InputError(f"{path}:{number}: {reason}. Read: {shorten(read)}. {advice}.")
