"""Synonyms from files: two columns, or WordNet's own database. Nothing is downloaded."""

import os
from collections.abc import Iterator
from pathlib import Path

from transencoder.errors import InputError
from transencoder.views.texts import WORD
from transencoder.wording import shorten

_WORDNET = ("data.noun", "data.verb", "data.adj", "data.adv")


def read_synonyms(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """The table that `Synonyms` takes.

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


_ALLOWED = (
    f"Synonyms are a file of lines word<TAB>synonym, or a folder with WordNet's {', '.join(_WORDNET[:-1])} and "
    f"{_WORDNET[-1]}"
)


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
    """The single-word lemmas of a synset: `offset file type w_cnt word lex_id [word lex_id...] p_cnt ...`.

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
    """Line numbers, from 1, and lines without their ends."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise _fault(path, number, line, "not UTF-8", "Save the file as UTF-8") from error


def _fault(path: Path, number: int, read: str | bytes, reason: str, advice: str) -> InputError:
    return InputError(f"{path}:{number}: {reason}. Read: {shorten(read)}. {advice}.")
