"""What a text is made of in any script: its words, and short stretches of characters where words are not set apart."""

import re
import unicodedata

from transencoder.scripts import HAN_AND_KANA, HANGUL, SOUTH_EAST_ASIAN

_PAIRWISE = HAN_AND_KANA + HANGUL
"""Two characters at a time, as search engines take them."""

_PARTS = re.compile(
    f"(?P<pairwise>[{_PAIRWISE}]+)|(?P<by_threes>[{SOUTH_EAST_ASIAN}]+)|[^ {_PAIRWISE}{SOUTH_EAST_ASIAN}]+"
)


def plain_words(text: str) -> str:
    """The text's letters, marks and digits in one form and case, with one space where there was anything else.

    Compatible characters are one (NFKC), upper and lower case too; marks that only steer the layout, such as those of
    right-to-left text and soft hyphens, go. A text without letters and digits stays as it is.
    """
    words = " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_plain).split())
    return words or text


def terms(text: str) -> list[str]:
    """What BM25 counts: words, or two or three characters at a time in scripts that set no spaces between words."""
    found: list[str] = []
    for part in _PARTS.finditer(plain_words(text)):
        width = {"pairwise": 2, "by_threes": 3}.get(part.lastgroup or "")
        found += [part[0]] if width is None else _stretches(part[0], width)
    return found


def _stretches(text: str, width: int) -> list[str]:
    return [text[i : i + width] for i in range(max(1, len(text) - width + 1))]


class _Plain(dict[int, str | None]):
    """Characters as `plain_words` has them, found out when they are first met."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        self[code] = chr(code) if category[0] in "LMN" else None if category == "Cf" else " "
        return self[code]


_plain = _Plain()
