"""Views of a text: itself, a span masked, words deleted, a word replaced by a synonym or by a language model."""

import hashlib
import os
import random as python_random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from transencoder.configs import ranges
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError, shorten
from transencoder.scripts import WORD, join_words, split_words

if TYPE_CHECKING:
    from transencoder.views.fillers import Filler, Masked

Randoms = list[python_random.Random]
View = Callable[[list[str], Randoms], list[str]]

_WORDNET = ("data.noun", "data.verb", "data.adj", "data.adv")
_ALLOWED = (
    f"Synonyms are a file of lines word<TAB>synonym, or a folder with WordNet's {', '.join(_WORDNET[:-1])} and "
    f"{_WORDNET[-1]}"
)


def as_is(texts: list[str], randoms: Randoms) -> list[str]:
    """Return the texts unchanged: two views then differ by dropout alone (SimCSE)."""
    return texts


@dataclass(frozen=True, kw_only=True)
class SpanMask:
    """View that replaces one random span of characters by the mask token (Mirror-BERT, section 2.1).

    The drawn span itself is masked; the released code masks the first occurrence of the same characters.
    """

    mask_token: str
    """Mask token of the tokenizer; the released code writes `[MASK]` for every model."""
    n_characters: int = 5
    """Length of the span in characters (released code: 5)."""
    min_characters: int = 30
    """Least length of a text in characters; shorter texts stay unchanged (released code: 30)."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Mask a span of each text that is long enough."""
        return [self._mask(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _mask(self, text: str, random: python_random.Random) -> str:
        if len(text) < max(self.min_characters, self.n_characters):
            return text
        start = random.randrange(len(text) - self.n_characters + 1)
        return f"{text[:start]} {self.mask_token} {text[start + self.n_characters :]}"


@dataclass(frozen=True, kw_only=True)
class WordDeletion(Config):
    """View that deletes each word with equal probability, but always keeps one. Words of any script: `split_words`."""

    share: float = ranges.share(0.2, " of the words")
    """Probability that a word is deleted, 0 to below 1."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Delete some words of each text that has several."""
        return [self._delete(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _delete(self, text: str, random: python_random.Random) -> str:
        words = split_words(text)
        if len(words) < 2:
            return text
        always = random.randrange(len(words))
        return join_words([word for i, word in enumerate(words) if random.random() >= self.share or i == always])


@dataclass(frozen=True, kw_only=True)
class Synonyms:
    """View that replaces one random word by one of its synonyms, if any word has synonyms (SCT, section 5.3.3)."""

    table: Mapping[str, tuple[str, ...]]
    """Table of lower-cased words and their synonyms; `read_synonyms` reads one from files."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Replace one word of each text that has a word with synonyms."""
        return [self._replace(text, random) for text, random in zip(texts, randoms, strict=True)]

    def __repr__(self) -> str:
        """Return a text with the size of the table and a hash of its content."""
        digest = hashlib.sha256(repr(sorted(self.table.items())).encode()).hexdigest()
        return f"Synonyms({len(self.table)} words, {digest[:16]})"

    def _replace(self, text: str, random: python_random.Random) -> str:
        words = [match for match in WORD.finditer(text) if match.group().lower() in self.table]
        if not words:
            return text
        word = random.choice(words)
        synonym = random.choice(self.table[word.group().lower()])
        return text[: word.start()] + _like(word.group(), synonym) + text[word.end() :]


@dataclass(frozen=True, kw_only=True)
class MaskedWords(Config):
    """View that replaces a share of the words by predictions of a masked language model (SCT, section 5.3.3: MLM).

    Only words that are a single token of the model are replaced, by other such words. Pieces of words, punctuation and
    words that the model does not know stay, and the text around the replaced words keeps its characters. Texts without
    spaces between words stay unchanged.

    A row's words are drawn with its own generator. The rows of a call pass through the model together, in order, which
    changes the last digits of the probabilities: only a draw on the very boundary between two words can change with it.
    """

    folder: Path
    """Plain pretrained model with its language-modelling head and a fast tokenizer; loaded when first needed."""
    share: float = 0.15
    """Share of the replaceable words to replace, above 0 to 1; at least one is replaced (SCT, section 5.3.3: 15 %)."""
    n_best: int = ranges.at_least(1, 10)
    """Number of the most likely words to draw from, by the model's probabilities; 1: the best one. SCT gives none."""
    max_length: int = 128
    """Largest number of tokens read of a text; fewer if the model has fewer positions. Later words stay unchanged."""
    device: str | None = None
    """Device of the model, such as `cpu` or `cuda:0`; None: the best available."""

    def contradictions(self) -> Contradictions:
        """Yield an error if the share is out of range."""
        if not 0.0 < self.share <= 1.0:
            yield f"share is {self.share}; it is a share of the words, above 0 to 1"

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Replace some words of each text that has replaceable words."""
        rows = [self._mask(text, random) for text, random in zip(texts, randoms, strict=True)]
        best = self._filler.best(rows, self.n_best)
        made = []
        for text, row, random in zip(texts, rows, randoms, strict=True):
            view = text
            others = [random.choices(*next(best))[0] for _ in row.words]
            for word, other in reversed(list(zip(row.words, others, strict=True))):  # keeps earlier positions valid
                view = view[: word.start] + _like(view[word.start], other) + view[word.stop :]
            made.append(view)
        return made

    def __repr__(self) -> str:
        """Return a text with a hash of the model and the settings."""
        from transencoder.encoders import weights_fingerprint

        model = weights_fingerprint(self.folder)[:16]
        return f"MaskedWords({model}, share={self.share}, n_best={self.n_best}, max_length={self.max_length})"

    @cached_property
    def _filler(self) -> "Filler":
        from transencoder.views.fillers import Filler  # loads torch, which the other views do not need

        return Filler(self.folder, max_length=self.max_length, device=self.device)

    def _mask(self, text: str, random: python_random.Random) -> "Masked":
        row = self._filler.read(text)
        n_words = max(1, round(self.share * len(row.words)))
        return row._replace(words=sorted(random.sample(row.words, n_words))) if row.words else row


def _like(word: str, other: str) -> str:
    """Return the other word, with its first letter in upper case if that of `word` is."""
    return other[0].upper() + other[1:] if word[0].isupper() else other


def name_of(view: object) -> str:
    """Return the name of a view or another callable, without the address of a function."""
    return str(getattr(view, "__qualname__", None) or repr(view))


def read_synonyms(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Read a table for `Synonyms` from local files; nothing is downloaded.

    Args:
        path: A UTF-8 file of lines `word<TAB>synonym`, without a header, with one line per synonym; or a folder with
            WordNet 3's database: data.noun, data.verb, data.adj and data.adv.

    Returns:
        The synonyms of each lower-cased word, each once, in the files' order. For WordNet these are the other
        single-word lemmas of the word's synsets.

    Raises:
        InputError: The path does not exist or holds something else; for a bad line the message gives `path:line`.
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
        ValueError: The line is not a synset.
    """
    offset, file_number, kind, count, *rest = line.split(" ")
    n_lemmas = int(count, 16)
    if not (offset.isdecimal() and file_number.isdecimal() and kind in tuple("nvasr") and 0 < 2 * n_lemmas < len(rest)):
        raise ValueError(line)
    int(rest[2 * n_lemmas])  # raises unless p_cnt, a number, follows the lemmas
    lemmas = (lemma.partition("(")[0] for lemma in rest[: 2 * n_lemmas : 2])  # galore(ip): an adjective's position
    return [lemma for lemma in lemmas if "_" not in lemma]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number of each line, from 1, and the line without its end."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise _fault(path, number, line, "not UTF-8", "Save the file as UTF-8") from error


def _fault(path: Path, number: int, read: str | bytes, reason: str, advice: str) -> InputError:
    return InputError(f"{path}:{number}: {reason}. Read: {shorten(read)}. {advice}.")
