"""Views: a sentence -> another text of the same meaning, or of nearly the same; and training pairs made of them.

A view takes texts and one random generator for each, and gives as many texts back: what comes out depends on the seed
and the row, not on how the rows were cut into chunks or spread over processes. What a model writes may turn with the
batch where two of its choices are all but equal; the batches of a process are those of one that works alone.
"""

from transencoder.views.pairs import Comparison, Contrasts, PairMaker, Spans, TwoViews, compare
from transencoder.views.texts import MaskedWords, Randoms, SpanMask, Synonyms, View, WordDeletion, as_is, read_synonyms
from transencoder.views.translation import BackTranslation, GivenTranslations, Translator, read_translations

__all__ = [
    "BackTranslation",
    "Comparison",
    "Contrasts",
    "GivenTranslations",
    "MaskedWords",
    "PairMaker",
    "Randoms",
    "SpanMask",
    "Spans",
    "Synonyms",
    "Translator",
    "TwoViews",
    "View",
    "WordDeletion",
    "as_is",
    "compare",
    "read_synonyms",
    "read_translations",
]
