"""Views, which turn a sentence into a text of the same or nearly the same meaning, and training pairs made of them.

A view takes texts and one random generator for each, and returns as many texts. The result depends on the seed and the
row, not on how the rows are cut into chunks or spread over processes. If two choices of a model are almost equally
likely, its output may change with the batch; but several processes form the same batches as a single one.
"""

from transencoder.views.pairs import Contrasts as Contrasts
from transencoder.views.pairs import PairMaker as PairMaker
from transencoder.views.pairs import Spans as Spans
from transencoder.views.pairs import TwoViews as TwoViews
from transencoder.views.pairs import ViewComparison as ViewComparison
from transencoder.views.pairs import compare as compare
from transencoder.views.texts import MaskedWords as MaskedWords
from transencoder.views.texts import SpanMask as SpanMask
from transencoder.views.texts import Synonyms as Synonyms
from transencoder.views.texts import View as View
from transencoder.views.texts import WordDeletion as WordDeletion
from transencoder.views.texts import as_is as as_is
from transencoder.views.texts import read_synonyms as read_synonyms
from transencoder.views.translation import BackTranslation as BackTranslation
from transencoder.views.translation import GivenTranslations as GivenTranslations
from transencoder.views.translation import Translator as Translator
from transencoder.views.translation import read_translations as read_translations
