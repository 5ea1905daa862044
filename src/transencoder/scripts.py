"""Splitting of texts into words in any script, also in scripts without spaces between words."""

import re
import unicodedata
from collections.abc import Sequence

HAN_AND_KANA = (
    "\u3041-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffffー々〆〇"
)
"""Han, Kana and Bopomofo as a character class of regular expressions; words mostly have two characters."""
HANGUL = "\u1100-\u11ff\u3131-\u318f\ua960-\ua97f\uac00-\ud7ff"
"""Hangul as a character class; it has spaces, but between them stands a word together with its endings."""
SOUTH_EAST_ASIAN = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
"""Thai, Lao, Tibetan, Burmese, Khmer, Tai as a class; words are longer, vowels and tones are separate characters."""

WORD = re.compile(r"\w+(?:['’-]\w+)*")
"""Pattern of a word in running text, without the punctuation around it."""

_SPACELESS = re.compile(f"[{HAN_AND_KANA}{SOUTH_EAST_ASIAN}]")
_PARTS = re.compile(
    f"(?P<pairwise>[{HAN_AND_KANA}]+)|(?P<by_threes>[{SOUTH_EAST_ASIAN}]+)|[^{HAN_AND_KANA}{SOUTH_EAST_ASIAN}]+"
)


def split_words(text: str) -> list[str]:
    """Return the words of a text; each but the first begins with a space if white space stood before it.

    In scripts without spaces, a word is taken to be two characters, or three not counting marks (Thai, Lao, Khmer,
    Burmese, Tibetan). These are not the words of a dictionary, but parts of about their length.
    """
    words = text.split()
    if _SPACELESS.search(text) is None:
        return [*words[:1], *(f" {word}" for word in words[1:])]
    found: list[str] = []
    for word in words:
        parts = [part for match in _PARTS.finditer(word) for part in _parts(match)]
        found += [f" {parts[0]}" if found else parts[0], *parts[1:]]
    return found


def join_words(words: Sequence[str]) -> str:
    """Join words from `split_words`, in their order, into a text."""
    return "".join(words).removeprefix(" ")


def _parts(match: re.Match[str]) -> list[str]:
    n_characters = {"pairwise": 2, "by_threes": 3}.get(match.lastgroup or "")
    if n_characters is None:
        return [match[0]]
    characters: list[str] = []
    for character in match[0]:  # a mark is part of the character before it
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    return ["".join(characters[i : i + n_characters]) for i in range(0, len(characters), n_characters)]
