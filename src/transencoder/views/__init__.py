"""Views, which turn a sentence into a text of the same or nearly the same meaning, and training pairs made of them.

A view takes texts and one random generator for each, and returns as many texts. The result depends on the seed and the
row, not on how the rows are cut into chunks or spread over processes. If two choices of a model are almost equally
likely, its output may change with the batch; but several processes form the same batches as a single one.
"""

from transencoder.views.pairs import Contrasts, PairMaker, Spans, TwoViews, ViewComparison, compare
from transencoder.views.texts import MaskedWords, Randoms, SpanMask, Synonyms, View, WordDeletion, as_is, read_synonyms
from transencoder.views.translation import BackTranslation, GivenTranslations, Translator, read_translations

__all__ = [
    "BackTranslation",
    "ViewComparison",
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
