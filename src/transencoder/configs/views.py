"""What the configs of methods of two views have: the views, or sentences that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from transencoder.configs.encoder import SentenceEncoder
from transencoder.configs.parts import SecondView, Text, TrainingRows, ViewKind
from transencoder.configs.ranges import Contradictions

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True)
class ViewEncoder(SentenceEncoder):
    """A bi-encoder from two views of each sentence, given or made."""

    inputs: ClassVar[tuple[str, ...]] = ("views", "view_kind", "synonyms", "mlm")

    sentences: str | Dataset | None = None
    """Unlabelled sentences, of which views are made: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub
    id. Or give `views`."""
    views: str | Dataset | None = None
    """Two texts of one meaning a row, such as two back-translations (paper): a TSV, CSV, JSONL or Parquet file, a hub
    id. `transencoder views` writes such files."""
    view_kind: ViewKind = "as-is"
    """What makes the second view of `sentences`; `as-is`: dropout alone. SCT, Table 4: dropout, synonyms and a masked
    language model do worse than two back-translations."""
    synonyms: str | None = None
    """For `synonyms`: a file of lines word<TAB>synonym, or a folder of WordNet's data files."""
    mlm: str | None = None
    """For `mlm`: the masked language model, a folder or a hub id; None: the start."""

    def contradictions(self) -> Contradictions:
        """Yield what fields say against each other."""
        kind = self.view_kind
        if (self.sentences is None) == (self.views is None):
            yield "give either sentences, of which views are made, or views, two texts a row"
        yield from super().contradictions()
        if self.views is not None and len(self.columns) == 1:
            yield f"columns is {' '.join(self.columns)}, but views have two; name both, or leave columns out"
        if self.is_paired and kind != "as-is":
            yield f"view_kind is {kind}, but the views are given; leave it out, or give sentences"
        if kind == "synonyms" and self.synonyms is None:
            yield "view_kind is synonyms; give synonyms, a file of words and synonyms or WordNet's folder"
        for name in ("synonyms", "mlm"):
            if getattr(self, name) is not None and kind != name:
                yield f"{name} is for view_kind {name}, which is {kind}; leave one of them out"
        if self.prune_vocabulary and kind in ("synonyms", "mlm"):
            yield (
                f"prune_vocabulary keeps the words of the text, and view_kind {kind} writes others; leave one of them "
                "out"
            )

    @property
    def is_paired(self) -> bool:
        """Whether the views are given."""
        return self.views is not None or super().is_paired

    @property
    def text(self) -> Text:
        """The sentences or the views."""
        source = self.sentences if self.views is None else self.views
        return replace(super().text, source=source)

    @property
    def rows(self) -> TrainingRows:
        """The sentence, and its view."""
        second = SecondView(kind=self.view_kind, synonyms=self.synonyms, model=self.mlm)
        return TrainingRows(text=self.text, made=second)
