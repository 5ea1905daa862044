"""A view by a masked language model: some words become others that it expects in their places."""

import random as python_random
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transencoder.errors import InputError
from transencoder.views.texts import Randoms, like

if TYPE_CHECKING:
    from transencoder.views.fillers import Filler, Masked, Word


@dataclass(frozen=True, kw_only=True)
class MaskedWords:
    """A share of the words is masked, and a masked language model puts other words there (SCT, section 5.3.3: MLM).

    Words that are one token of the model are replaced, by others that are; pieces of words, punctuation and what the
    model does not know stay, and the text around them keeps its characters. Texts without spaces between words stay.

    A row's words are drawn by its own generator. The rows of a call go through the model together, in their order,
    which changes the last digits of its probabilities: only a draw at the very edge of two words can turn with it.
    """

    folder: Path
    """A plain pretrained model with its language-modelling head and a fast tokenizer; loaded when first needed."""
    share: float = 0.15
    """Of the words that can be replaced, above 0 to 1; at least one is (SCT, section 5.3.3: 15 %)."""
    n_best: int = 10
    """The word is drawn, by the model's probabilities, from so many that it likes best; 1: the best. SCT: silent."""
    max_length: int = 128
    """Tokens of a text, those behind them stay; or fewer, where the model has no more positions."""
    device: str | None = None
    """Such as `cpu` or `cuda:0`; None: the best there is."""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn from."""
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"share is {self.share}; it is a share of the words, above 0 to 1")
        if self.n_best < 1:
            raise InputError(f"n_best is {self.n_best}; it must be at least 1")

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Replace some words of each text where any can be."""
        rows = [self._mask(text, random) for text, random in zip(texts, randoms, strict=True)]
        best = self._filler.best(rows, self.n_best)
        made = []
        for text, row, random in zip(texts, rows, randoms, strict=True):
            others = [random.choices(*next(best))[0] for _ in row.words]
            made.append(_replaced(text, row.words, others))
        return made

    def __repr__(self) -> str:
        """Name the model by its content."""
        from transencoder.encoders import weights_fingerprint

        model = weights_fingerprint(self.folder)[:16]
        return f"MaskedWords({model}, share={self.share}, n_best={self.n_best}, max_length={self.max_length})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the loaded model: another process loads its own."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _filler(self) -> "Filler":
        from transencoder.views.fillers import Filler

        return Filler(self.folder, max_length=self.max_length, device=self.device)

    def _mask(self, text: str, random: python_random.Random) -> "Masked":
        row = self._filler.read(text)
        n_words = max(1, round(self.share * len(row.words)))
        return row._replace(words=sorted(random.sample(row.words, n_words))) if row.words else row


def _replaced(text: str, words: "list[Word]", others: list[str]) -> str:
    for word, other in reversed(list(zip(words, others, strict=True))):  # from the end: places before it stay
        text = text[: word.start] + like(text[word.start], other) + text[word.stop :]
    return text
