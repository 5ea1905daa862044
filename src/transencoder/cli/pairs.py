"""The commands `pairs`, `mine` and `views`: training pairs from tasks, from plain sentences, and as views of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from rich.table import Table

import transencoder
from transencoder.cli.files import COLUMN, STDOUT, Rows, Where, check_output, check_texts, read_texts, write_pairs
from transencoder.cli.flags import argument, flag_of, option, part
from transencoder.cli.terminal import show
from transencoder.configs import Pooling, Precision
from transencoder.configs.ranges import Config, Contradictions, at_least
from transencoder.errors import InputError
from transencoder.files import scratch_folder

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder import scorers, views


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Write the unlabelled, deduplicated training pairs of tasks."""

    tasks: tuple[str, ...] = argument("TASK")
    """task or suite, such as sts or sickr"""
    output: str = option(metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    exclude_test_sentences: bool = False
    """leave out pairs that hold a sentence of a test set"""
    where: Where

    def __call__(self) -> None:
        check_output(self.output)
        from transencoder.tasks import unlabelled_pairs

        is_inductive = self.exclude_test_sentences
        found, about = unlabelled_pairs(self.tasks, exclude_test_sentences=is_inductive, **vars(self.where))
        write_pairs(found, self.output)
        if self.output == STDOUT:
            return
        show(f"{self.output}: {about['rows']} pairs of {', '.join(about['tasks'])}, from {about['source']}")
        if about["missing_rows"]:
            show(f"{about['missing_rows']} pairs of the paper's set could not be had")
        if is_inductive:
            show(f"{about['excluded_rows']} pairs with a sentence of a test set were left out")


@dataclass(frozen=True, kw_only=True)
class Starting:
    """Options for how the base model reads texts: parameters of `mine`."""

    revision: str | None = None
    """hub revision of the base model"""
    pooling: Pooling | None = None
    """pooling of the base model (default: its own)"""
    prompt: str | None = option(None, metavar="TEXT")
    """text put before every text (default: its own default prompt, if any)"""
    document_prompt: str | None = option(None, metavar="TEXT")
    """text put before every document instead (default: the same)"""
    max_length: int | None = option(None, metavar="TOKENS")
    """tokens after which texts are cut; the paper trains with 32 (default: its own)"""
    device: str | None = None
    """device, such as cpu or cuda:0 (default: the best one available)"""
    precision: Precision = "auto"
    """number format; auto takes bf16 where the hardware supports it"""


@dataclass(frozen=True, kw_only=True)
class Mine(Config):
    """Mine training pairs from plain sentences, spread evenly over the scores of the base model."""

    sentences: str = argument("SENTENCES")
    """TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    output: str = option(metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    start: str = option(metavar="MODEL")
    """the bi-encoder to train from: folder, hub id, or minilm"""
    n_pairs: int | None = at_least(1, None)
    """number of pairs (default: 5 for each sentence up to 10,000, or 2 for each up to 50,000 if that is more)"""
    max_pairs_per_sentence: int = at_least(1, 20)
    """maximum number of pairs that a sentence may be in"""
    documents: str | None = option(None, metavar="FILE")
    """file of documents, read as SENTENCES is: pair each sentence, as a query, with documents"""
    column: str | None = option(None, flag=COLUMN, metavar="NAME")
    """the text column (default: text, body and other known names, else the only one)"""
    document_column: str | None = option(None, metavar="NAME")
    """the text column of --documents (default: as for --columns)"""
    seed: int = 2021
    """seed of the random choice of pairs"""
    json: bool = False
    """print the record as JSON instead of one line of text"""
    starting: Starting = part("start")
    rows: Rows

    def contradictions(self) -> Contradictions:
        for source in filter(None, (self.sentences, self.documents)):
            check_output(self.output, source=source)
        if self.output == STDOUT and self.json:
            yield "--output - and --json both go to stdout. Leave one out."
        if self.documents and self.documents == self.sentences:
            yield "--documents are SENTENCES. Leave --documents out."
        if self.starting.document_prompt is not None and not self.documents:
            yield "--document-prompt is for --documents. Give both, or leave it out."
        if self.document_column and not self.documents:
            yield "--document-column is for --documents. Give both, or leave it out."
        if self.documents and self.rows.bad_rows_file:
            yield "--bad-rows-file is for one file, and --documents is another."

    def __call__(self) -> None:
        from transencoder import distributed, encoders, mining
        from transencoder.report.words import mining_text

        distributed.start()
        rows, column = self.rows, self.document_column
        encoders.fetch(self.start, form="bi", revision=self.starting.revision, **rows.hub)  # before long texts are read
        mined = mining.mine(
            _texts(self.sentences, self.column, rows, self.output),
            self.start,
            documents=_texts(self.documents, column, rows, self.output) if self.documents else None,
            n_pairs=self.n_pairs,
            max_pairs_per_sentence=self.max_pairs_per_sentence,
            seed=self.seed,
            **vars(self.starting),
            **rows.hub,
        )
        write_pairs(mined.pairs, self.output)
        if self.json:
            show(json.dumps(mined.record), as_it_is=True)
        elif self.output != STDOUT:
            show(f"{self.output}: {mining_text(mined.record)}")


def _texts(source: str, column: str | None, rows: Rows, output: str | None) -> Dataset:
    texts = read_texts(source, column, rows)
    check_texts(texts, output)
    return texts


Kind = Literal["as-is", "span-mask", "word-deletion", "synonyms", "mlm", "back-translation"]

_READS = {
    "mask_token": ("span-mask",),
    "share": ("word-deletion", "mlm"),
    "synonyms": ("synonyms",),
    "mlm": ("mlm",),
    **dict.fromkeys(("translations", "translate", "translate_back", "beams"), ("back-translation",)),
}
"""Option -> kinds of views that use it."""


@dataclass(frozen=True, kw_only=True)
class Making:
    """Options for making views."""

    mask_token: str | None = option(None, metavar="TEXT")
    """span-mask: token that replaces the span (default: [MASK])"""
    share: float | None = None
    """share of words that word-deletion deletes (default: 0.2) or mlm replaces (default: 0.15)"""
    synonyms: str | None = option(None, metavar="PATH")
    """synonyms: file of lines word<TAB>synonym, or folder of WordNet's data files"""
    mlm: str | None = option(None, metavar="MODEL")
    """mlm: masked language model, a folder or hub id"""
    translations: tuple[str, ...] = option((), metavar="FILE")
    """back-translation: file of texts and their back-translations; two files for --first and --second"""
    translate: tuple[str, ...] = option((), metavar="MODEL")
    """back-translation: translation model, a folder or hub id; two models for --first and --second"""
    translate_back: tuple[str, ...] = option((), metavar="MODEL")
    """back-translation: model that translates back; two models for --first and --second"""
    beams: int | None = None
    """back-translation: number of beams of the models (default: 1)"""
    device: str | None = None
    """device for all models, such as cpu or cuda:0 (default: the best one available)"""


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """Options for comparing views."""

    stats: bool = False
    """show the edit distance in characters, mean ± standard deviation, and with --model the mean cosine"""
    model: tuple[str, ...] = option((), metavar="MODEL")
    """bi-encoders to compare views with: folder, hub id, or minilm"""
    json: bool = False
    """print JSON instead of a table"""


@dataclass(frozen=True, kw_only=True)
class Views(Config):
    """Make training pairs from two views of each sentence, or compare views."""

    sentences: str | None = option(None, one_of="source!")
    """TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    pairs: str | None = option(None, one_of="source!")
    """with --stats: existing views to compare, in two columns of such a file"""
    first: Kind | None = None
    """view for sentence1 (default: as-is, the sentence itself)"""
    second: tuple[Kind, ...] = option((), metavar="KIND")
    """view for sentence2: %(choices)s; without --output, several kinds to compare"""
    output: str | None = option(None, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    seed: int = 2021
    """seed of the views, together with the row"""
    processes: int = 1
    """number of processes that make views; the result is the same, and each loads its own model"""
    making: Making = part("views", "what they are made with")
    comparing: Comparing = part("comparison")
    columns: tuple[str, ...] = option((), metavar="NAME")
    """the text column of --sentences, or the two text columns of --pairs"""
    rows: Rows

    def contradictions(self) -> Contradictions:
        comparing, n_kinds, n_columns = self.comparing, len(self.second), 2 if self.pairs else 1
        if self.pairs and (self.first or self.second or self.output or not comparing.stats):
            yield "--pairs are views already; --stats compares them. Give --sentences to make others."
        if self.sentences and not self.second:
            yield f"--second is missing: what makes sentence2, one of {', '.join(get_args(Kind))}."
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
        """Yield errors about options that no view uses, and about two values if only one side is a back-translation."""
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

    def __call__(self) -> None:
        for source in (self.sentences, self.making.synonyms, *self.making.translations):
            if self.output and source:
                check_output(self.output, source=source)
        from transencoder import views
        from transencoder.pairs.store import cache_folder_for_rows

        found: dict[str, views.ViewComparison] = {}
        with scratch_folder(cache_folder_for_rows(self.rows.cache_folder)) as folder:
            scorers = _scorers(self, folder)
            for name, pairs in _given_pairs(self) if self.pairs else _made_pairs(self, folder):
                if self.output:
                    write_pairs(pairs, self.output)
                    if self.output != STDOUT and not self.comparing.json:
                        sides = f"sentence1 {self.first or 'as-is'}, sentence2 {name}"
                        show(f"{self.output}: {len(pairs)} pairs, {sides}")
                if self.comparing.stats:
                    found[name] = views.compare(pairs, scorers)
        if self.comparing.json:
            show(json.dumps({name: asdict(comparison) for name, comparison in found.items()}), as_it_is=True)
        elif self.comparing.stats:
            show(_table(found, self))


def _given_pairs(options: Views) -> Iterator[tuple[str, Dataset]]:
    pairs = str(options.pairs)
    yield pairs, transencoder.read_pairs(pairs, columns=options.columns or None, **vars(options.rows))


def _made_pairs(options: Views, folder: Path) -> Iterator[tuple[str, Dataset]]:
    """Yield the pairs of each kind of second view, under its name."""
    from transencoder import views

    first = _view(options.first or "as-is", 0, options)
    seconds = {kind: _view(kind, -1, options) for kind in options.second}
    column = options.columns[0] if options.columns else None
    sentences = _texts(str(options.sentences), column, options.rows, options.output)
    for kind, second in seconds.items():
        maker = views.TwoViews(first=first, second=second)
        yield kind, maker(sentences, folder / f"{kind}.arrow", options.seed, options.processes)


def _view(kind: Kind, side: int, options: Views) -> views.View:
    """Make a view; `side` is 0 for `--first`, -1 for `--second`."""
    from transencoder import encoders, views

    making, hub = options.making, options.rows.hub
    share: dict[str, Any] = {} if making.share is None else {"share": making.share}
    if kind in ("synonyms", "mlm") and getattr(making, kind) is None:
        raise InputError(f"the view {kind} needs {flag_of(kind)}. `transencoder views --help` says what it is.")
    if kind == "span-mask":
        return views.SpanMask(mask_token="[MASK]" if making.mask_token is None else making.mask_token)
    if kind == "word-deletion":
        return views.WordDeletion(**share)
    if kind == "synonyms":
        return views.Synonyms(table=views.read_synonyms(str(making.synonyms)))
    if kind == "mlm":
        return views.MaskedWords(folder=encoders.fetch(str(making.mlm), **hub), device=making.device, **share)
    return _back_translation(side, options) if kind == "back-translation" else views.as_is


def _back_translation(side: int, options: Views) -> views.View:
    from transencoder import encoders, views

    making = options.making
    models = (making.translate, making.translate_back)
    if bool(making.translations) == any(models) or any(models) != all(models):
        raise InputError(
            "back-translation needs either --translations, a file, or --translate and --translate-back, two models. "
            "Give one of these."
        )
    if making.translations:
        return views.read_translations(making.translations[side], cache_folder=options.rows.cache_folder)
    beams: dict[str, Any] = {} if making.beams is None else {"n_beams": making.beams}
    folders = [encoders.fetch(names[side], **options.rows.hub) for names in models]
    steps = (views.Translator(folder=folder, device=making.device, **beams) for folder in folders)
    return views.BackTranslation(steps=tuple(steps))


def _scorers(options: Views, folder: Path) -> dict[str, scorers.Scorer]:
    if not options.comparing.model:
        return {}
    from transencoder import devices, encoders, tokens

    cache, device = (
        tokens.TokenCache(folder),
        devices.checked_device(options.making.device) if options.making.device else None,
    )
    folders = {name: encoders.fetch(name, form="bi", **options.rows.hub) for name in options.comparing.model}
    return {
        name: transencoder.BiScorer(encoders.load_bi(model, device=device), cache=cache)
        for name, model in folders.items()
    }


def _table(found: dict[str, views.ViewComparison], options: Views) -> Table:
    table = Table(caption=None if options.pairs else f"against {options.first or 'as-is'}")
    table.add_column("views")
    for title in ("edit distance", *(f"cosine, {name}" for name in options.comparing.model)):
        table.add_column(title, justify="right")
    for name, each in found.items():
        cosines = (f"{cosine:.3f}" for cosine in each.similarity.values())
        table.add_row(name, f"{each.edit_distance:.2f} ± {each.edit_distance_std:.2f}", *cosines)
    return table
