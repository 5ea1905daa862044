"""Views: a sentence -> another text of the same meaning, or of nearly the same; and training pairs made of them.

A view takes texts and one random generator for each, and gives as many texts back: what comes out depends on the seed
and the row, not on how the rows were cut into chunks or spread over processes. What a model writes may turn with the
batch where two of its choices are all but equal; the batches of a process are those of one that works alone.
"""

from pathlib import Path
from typing import Any, Literal

from transencoder.views.masked import MaskedWords
from transencoder.views.pairs import Comparison, Contrasts, PairMaker, Spans, TwoViews, compare
from transencoder.views.texts import Randoms, SpanMask, Synonyms, View, WordDeletion, as_is, read_synonyms
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
    "make_view",
    "read_synonyms",
    "read_translations",
]


def make_view(
    kind: Literal["as-is", "span-mask", "word-deletion", "synonyms", "mlm", "back-translation"],
    *,
    mask_token: str = "[MASK]",
    n_characters: int | None = None,
    share: float | None = None,
    synonyms: str | None = None,
    mlm: Path | None = None,
    translators: tuple[Path, Path] | None = None,
    n_beams: int | None = None,
    translations: str | None = None,
    device: str | None = None,
    cache_folder: str | None = None,
) -> View:
    """Make a view by its kind, of the options that it reads; None keeps the view's default.

    `span-mask` reads mask_token and n_characters; `word-deletion` share; `synonyms` what `read_synonyms` takes; `mlm`
    the model's folder and share; `back-translation` a file, or the folders of two models and n_beams.

    Raises:
        InputError: A file or a value that the view cannot be made with.
    """
    if kind == "span-mask":
        return SpanMask(mask_token=mask_token, **_given(n_characters=n_characters))
    if kind == "word-deletion":
        return WordDeletion(**_given(share=share))
    if kind == "synonyms" and synonyms is not None:
        return Synonyms(table=read_synonyms(synonyms))
    if kind == "mlm" and mlm is not None:
        return MaskedWords(folder=mlm, device=device, **_given(share=share))
    if kind == "back-translation" and translations is not None:
        return read_translations(translations, cache_folder=cache_folder)
    if kind == "back-translation" and translators is not None:
        steps = (Translator(folder=folder, device=device, **_given(n_beams=n_beams)) for folder in translators)
        return BackTranslation(steps=tuple(steps))
    assert kind == "as-is", f"{kind} needs a file or a model"
    return as_is


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
