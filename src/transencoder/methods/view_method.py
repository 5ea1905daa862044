"""What the configs of methods of two views have: the views, or sentences that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from transencoder.config import Texts
from transencoder.errors import InputError
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from pathlib import Path

    from datasets import Dataset

    from transencoder.views import PairMaker, View

ViewKind = Literal["as-is", "span-mask", "word-deletion", "synonyms", "mlm"]


@dataclass(frozen=True, kw_only=True)
class ViewMethod(Sentences, StartMethod):
    """A bi-encoder from two views of each sentence."""

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

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        if (self.sentences is None) == (self.views is None):
            raise InputError("give either sentences, of which views are made, or views, two texts a row")
        if self.views is not None and len(self.columns) == 1:
            raise InputError(f"columns is {self.columns[0]}, but views have two; name both, or leave columns out")
        if self.is_paired and self.view_kind != "as-is":
            raise InputError(f"view_kind is {self.view_kind}, but the views are given; leave it out, or give sentences")
        if self.view_kind == "synonyms" and self.synonyms is None:
            raise InputError("view_kind is synonyms; give synonyms, a file of words and synonyms or WordNet's folder")
        for name in ("synonyms", "mlm"):
            if getattr(self, name) is not None and self.view_kind != name:
                raise InputError(f"{name} is for view_kind {name}, which is {self.view_kind}; leave one of them out")

        if self.prune_vocabulary and self.view_kind in ("synonyms", "mlm"):
            raise InputError(
                f"prune_vocabulary keeps the words of the text, and view_kind {self.view_kind} writes others; leave "
                "one of them out"
            )

    @property
    def is_paired(self) -> bool:
        """Whether the views are given."""
        return self.views is not None or super().is_paired

    @property
    def text(self) -> tuple[Texts, str | Dataset]:
        """The sentences or the views."""
        source = self.sentences if self.views is None else self.views
        assert source is not None, "one of them is given"
        return "sentences", source

    @property
    def text_fields(self) -> tuple[str, ...]:
        """What views are made of, and how."""
        return ("sentences", "views", "view_kind", "synonyms", "mlm")

    def check_start(self, folder: Path) -> None:
        """Refuse what views cannot be made with."""
        from transencoder.views import read_synonyms

        if self.view_kind == "mlm":
            self._masked_model()
        if self.synonyms is not None:
            read_synonyms(self.synonyms)

    def pair_maker(self, mask_token: str | None) -> PairMaker:
        """The sentence, and its view."""
        from transencoder.views import TwoViews, as_is

        return TwoViews(first=as_is, second=self._view(mask_token))

    def _view(self, mask_token: str | None) -> View:
        from transencoder.views import MaskedWords, SpanMask, Synonyms, WordDeletion, as_is, read_synonyms

        if self.view_kind == "span-mask":
            if mask_token is None:
                raise InputError(f"the tokenizer of {self.start} has no mask token; take another view_kind")
            return SpanMask(mask_token=mask_token)
        if self.view_kind == "synonyms":
            assert self.synonyms is not None, "checked when the config was made"
            return Synonyms(table=read_synonyms(self.synonyms))
        if self.view_kind == "mlm":
            return MaskedWords(folder=self._masked_model(), device=self.device)
        return WordDeletion() if self.view_kind == "word-deletion" else as_is

    def _masked_model(self) -> Path:
        from transencoder.encoders import fetch

        revision = None if self.mlm else self.revision
        return fetch(self.mlm or self.start, revision=revision, token=self.token, cache_folder=self.cache_dir)
