"""`views`: pairs of texts of one meaning, made of sentences; and how far views are from each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

from rich.table import Table

from transencoder.cli.files import STDOUT, Rows, Where, check_output, check_texts, write_rows
from transencoder.cli.flags import OneOf, flag_of, option, part
from transencoder.cli.terminal import show
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.scorers import Scorer
    from transencoder.views import Comparison, View

Kind = Literal["as-is", "span-mask", "word-deletion", "synonyms", "mlm", "back-translation"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_READS = {
    "mask_token": ("span-mask",),
    "share": ("word-deletion", "mlm"),
    "synonyms": ("synonyms",),
    "mlm": ("mlm",),
    "translations": ("back-translation",),
    "translate": ("back-translation",),
    "translate_back": ("back-translation",),
    "beams": ("back-translation",),
}
"""Option -> the kinds of views that read it."""
_SOURCE = OneOf(is_required=True)


@dataclass(frozen=True, kw_only=True)
class Making:
    """What views are made with."""

    mask_token: str | None = option(None, metavar="TEXT")
    """span-mask: what stands for the span (default: [MASK])"""
    share: float | None = None
    """share of the words that go, in word-deletion (default: 0.2) and mlm (default: 0.15)"""
    synonyms: str | None = option(None, metavar="PATH")
    """synonyms: file of lines word<TAB>synonym, or folder of WordNet's data files"""
    mlm: str | None = option(None, metavar="MODEL")
    """mlm: masked language model, a folder or hub id"""
    translations: tuple[str, ...] = option((), metavar="FILE")
    """back-translation: file of texts and their back-translations; two: of --first and of --second"""
    translate: tuple[str, ...] = option((), metavar="MODEL")
    """back-translation: translation model, a folder or hub id; two: of --first and of --second"""
    translate_back: tuple[str, ...] = option((), metavar="MODEL")
    """back-translation: its way back; two: of --first and of --second"""
    beams: int | None = None
    """back-translation: beams of the models (default: 1)"""
    device: str | None = None
    """such as cpu or cuda:0, for all models (default: the best there is)"""


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """How views are compared."""

    stats: bool = False
    """show the edit distance in characters, mean ± standard deviation, and with --model the mean cosine"""
    model: tuple[str, ...] = option((), metavar="MODEL")
    """bi-encoders: folder, hub id, or minilm"""
    json: bool = False
    """print JSON instead of a table"""


@dataclass(frozen=True, kw_only=True)
class Views(Config):
    """Options of `views`."""

    sentences: str | None = option(None, one_of=_SOURCE)
    """TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    pairs: str | None = option(None, one_of=_SOURCE)
    """with --stats: views that are there, two columns of such a file"""
    first: Kind | None = None
    """what makes sentence1 (default: as-is, the sentence itself)"""
    second: tuple[Kind, ...] = option((), metavar="KIND")
    """what makes sentence2: %(choices)s; without --output several, to be compared"""
    output: str | None = option(None, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    seed: int = 2021
    """with the row, it decides what comes out"""
    processes: int = 1
    """processes that make views, with the same result; each loads a model of its own"""
    making: Making = part("views", "what they are made with")
    comparing: Comparing = part("comparison")
    columns: tuple[str, ...] = option((), metavar="NAME")
    """the column of --sentences, the two of --pairs"""
    rows: Rows
    where: Where

    def contradictions(self) -> Contradictions:
        """Yield what does not go together."""
        comparing, n_kinds, n_columns = self.comparing, len(self.second), 2 if self.pairs else 1
        if self.pairs and (self.first or self.second or self.output or not comparing.stats):
            yield "--pairs are views already; --stats compares them. Give --sentences to make others."
        if self.sentences and not self.second:
            yield f"--second is missing: what makes sentence2, one of {', '.join(KINDS)}."
        if not (self.output or comparing.stats):
            yield "there is nothing to do. Give --output to write the views, or --stats."
        if (comparing.model or comparing.json) and not comparing.stats:
            yield "--model and --json are for --stats. Give it, or leave them out."
        if self.output and n_kinds > 1:
            yield f"--second has {n_kinds} kinds, and --output takes one. Give one, or leave --output out."
        if self.output == STDOUT and comparing.stats:
            yield "--output - and --stats both go to stdout. Leave one out."
        if self.processes < 1:
            yield f"--processes is {self.processes}; it must be at least 1."
        if self.columns and len(self.columns) != n_columns:
            yield f"--columns has {len(self.columns)} names. Give {n_columns}."
        yield from self._unread()

    def _unread(self) -> Contradictions:
        """Yield options that no view reads, and two values where one side alone is a back-translation."""
        sides = (self.first or "as-is", *self.second)
        for name, readers in sorted(_READS.items()):
            if getattr(self.making, name) not in (None, ()) and not set(sides) & set(readers):
                yield f"{flag_of(name)} is for {' and '.join(readers)}, which is not among the views. Leave it out."
        n_allowed = 2 if self.first == "back-translation" and self.first in self.second else 1
        for name in ("translations", "translate", "translate_back"):
            n_values = len(getattr(self.making, name))
            if n_values > n_allowed:
                yield (
                    f"{flag_of(name)} has {n_values} values for {n_allowed} of the sides --first and --second. Give "
                    "one for both, or one for each that is a back-translation."
                )


def views(options: Views) -> None:
    """Make two views of each sentence, or compare views: pairs to train on."""
    for source in (options.sentences, options.making.synonyms, *options.making.translations):
        if options.output and source:
            check_output(options.output, source=source)
    from transencoder.pairs.store import cache_folder_for_rows
    from transencoder.views import compare

    found: dict[str, Comparison] = {}
    with TemporaryDirectory(prefix="views-", dir=cache_folder_for_rows(options.where.cache_folder)) as folder:
        scorers = _scorers(options, Path(folder))
        for name, pairs in _given_pairs(options) if options.pairs else _made_pairs(options, Path(folder)):
            if options.output:
                write_rows(pairs, options.output)
                if options.output != STDOUT and not options.comparing.json:
                    sides = f"sentence1 {options.first or 'as-is'}, sentence2 {name}"
                    show(f"{options.output}: {len(pairs)} pairs, {sides}")
            if options.comparing.stats:
                found[name] = compare(pairs, scorers)
    if options.comparing.json:
        show(json.dumps({name: asdict(comparison) for name, comparison in found.items()}))
    elif options.comparing.stats:
        show(_table(found, options))


def _given_pairs(options: Views) -> Iterator[tuple[str, Dataset]]:
    from transencoder.pairs import read_pairs

    pairs = str(options.pairs)
    yield pairs, read_pairs(pairs, columns=options.columns or None, **vars(options.rows), **vars(options.where))


def _made_pairs(options: Views, folder: Path) -> Iterator[tuple[str, Dataset]]:
    """Yield the pairs of each kind of second view, under its name."""
    from transencoder.pairs import read_sentences
    from transencoder.views import TwoViews

    first = _view(options.first or "as-is", 0, options)
    seconds = {kind: _view(kind, -1, options) for kind in options.second}
    column = options.columns[0] if options.columns else None
    sentences = read_sentences(str(options.sentences), column=column, **vars(options.rows), **vars(options.where))
    check_texts(sentences, options.output)
    for kind, second in seconds.items():
        maker = TwoViews(first=first, second=second)
        yield kind, maker(sentences, folder / f"{kind}.arrow", options.seed, options.processes)


def _view(kind: Kind, side: int, options: Views) -> View:
    """Make a view; `side` is 0 for `--first`, -1 for `--second`.

    Raises:
        InputError: An option is missing or cannot be used.
    """
    from transencoder import views as kinds
    from transencoder.encoders import fetch

    making, hub = options.making, options.where.hub
    share = _given(share=making.share)
    if kind == "span-mask":
        return kinds.SpanMask(mask_token="[MASK]" if making.mask_token is None else making.mask_token)
    if kind == "word-deletion":
        return kinds.WordDeletion(**share)
    if kind == "synonyms":
        return kinds.Synonyms(table=kinds.read_synonyms(_required("synonyms", making.synonyms)))
    if kind == "mlm":
        return kinds.MaskedWords(folder=fetch(_required("mlm", making.mlm), **hub), device=making.device, **share)
    if kind == "back-translation":
        return _back_translation(side, options)
    return kinds.as_is


def _back_translation(side: int, options: Views) -> View:
    from transencoder.encoders import fetch
    from transencoder.views import BackTranslation, Translator, read_translations

    making = options.making
    names = (making.translate, making.translate_back)
    if bool(making.translations) == any(names) or any(names) != all(names):
        raise InputError(
            "back-translation needs either --translations, a file, or --translate and --translate-back, two models. "
            "Give one of these."
        )
    if making.translations:
        return read_translations(making.translations[side], cache_folder=options.where.cache_folder)
    folders = [fetch(models[side], **options.where.hub) for models in names]
    beams = _given(n_beams=making.beams)
    return BackTranslation(steps=tuple(Translator(folder=folder, device=making.device, **beams) for folder in folders))


def _given(**options: Any) -> dict[str, Any]:
    """Return those that were typed; the others keep the view's default."""
    return {name: value for name, value in options.items() if value is not None}


def _required(kind: Kind, value: str | None) -> str:
    """Return the value of the option that is called as the kind of view that needs it."""
    if value is None:
        raise InputError(f"the view {kind} needs {flag_of(kind)}. `transencoder views --help` says what it is.")
    return value


def _scorers(options: Views, folder: Path) -> dict[str, Scorer]:
    if not options.comparing.model:
        return {}
    from transencoder.devices import checked_device
    from transencoder.encoders import fetch, load_bi
    from transencoder.scorers import BiScorer
    from transencoder.tokens import TokenCache

    cache, device = TokenCache(folder), checked_device(options.making.device) if options.making.device else None
    folders = {name: fetch(name, form="bi", **options.where.hub) for name in options.comparing.model}
    return {name: BiScorer(load_bi(model, device=device), cache=cache) for name, model in folders.items()}


def _table(found: dict[str, Comparison], options: Views) -> Table:
    table = Table(caption=None if options.pairs else f"against {options.first or 'as-is'}")
    table.add_column("views")
    for title in ("edit distance", *(f"cosine, {name}" for name in options.comparing.model)):
        table.add_column(title, justify="right")
    for name, each in found.items():
        cosines = (f"{cosine:.3f}" for cosine in each.similarity.values())
        table.add_row(name, f"{each.edit_distance:.2f} ± {each.edit_distance_std:.2f}", *cosines)
    return table
