"""`search build|query|evaluate`: an index of a corpus, what is found in it, and how well."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from transencoder.cli.files import STDOUT, Batch, Rows, Where, check_output, nine_digits, read_texts, write_table
from transencoder.cli.flags import OneOf, argument, option
from transencoder.cli.scoring import Models, load_scorer
from transencoder.cli.terminal import goes_on_from, show
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.scorers import Scorer
    from transencoder.search import Hit, SearchIndex

_HITS_AT_ONCE = 1_000
_QUERY_PROMPT, _DOCUMENT_PROMPT = OneOf(), OneOf()


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Which bi-encoder embeds documents, and how: parameters of `load_embedder`."""

    name: str = option(flag="--model", metavar="BI")
    """bi-encoder: folder, run, hub id, or minilm"""
    revision: str | None = None
    """hub revision of the model"""
    device: str | None = None
    """such as cpu or cuda:0 (default: the best there is)"""
    max_length: int | None = option(None, metavar="TOKENS")
    """cut longer texts (default: the model's)"""
    dimensions: int | None = None
    """keep the first N numbers of an embedding, for models trained so (Matryoshka; default: all)"""
    document_prompt: str | None = option(None, metavar="TEXT", one_of=_DOCUMENT_PROMPT)
    """put before every document (default: the model's own, if any)"""
    document_prompt_name: str | None = option(None, metavar="NAME", one_of=_DOCUMENT_PROMPT)
    """the same, by its name among the model's prompts"""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Options of `search build`."""

    corpus: str = argument("CORPUS")
    """documents: TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    output: str = option(metavar="INDEX")
    """folder of the index"""
    column: str | None = option(None, metavar="NAME")
    """the documents' column (default: text, else the first)"""
    id_column: str | None = option(None, metavar="NAME")
    """their ids' column (default: documents have no ids)"""
    precision: Literal["float32", "int8", "binary"] = "float32"
    """how embeddings are kept: int8 takes a quarter of the memory, binary 1/32"""
    embedding: Embedding
    query_prompt: str | None = option(None, metavar="TEXT", one_of=_QUERY_PROMPT)
    """put before every query (default: the model's own for queries, if any)"""
    query_prompt_name: str | None = option(None, metavar="NAME", one_of=_QUERY_PROMPT)
    """the same, by its name among the model's prompts"""
    rows: Rows
    where: Where


def build(options: Build) -> None:
    """Embed a corpus and write an index of it; run again, it goes on where it stopped."""
    output = Path(options.output)
    if not output.absolute().parent.is_dir():
        raise InputError(f"--output is {options.output!r}, but there is no folder {output.parent}. Make it first.")
    from transencoder.search import build_index, load_embedder

    with goes_on_from(options.output):
        corpus = _corpus(options)
        embedder = load_embedder(
            **vars(options.embedding),
            query_prompt=options.query_prompt,
            query_prompt_name=options.query_prompt_name,
            **options.where.hub,
        )
        record = build_index(corpus, embedder, output, precision=options.precision)
    show(f"{output}: {record.n_documents:,} documents, {record.recipe.dimensions} dimensions in {options.precision}")
    if record.approximation:
        found = 100 * record.approximation.recall_at_10
        show(f"it is searched approximately: {found:.1f} % of the ten nearest are found, measured on its own documents")


def _corpus(options: Build) -> Dataset:
    if options.id_column is None:
        return read_texts(options.corpus, options.column, options.rows, options.where)
    from transencoder.pairs import Source, read_documents

    columns = (options.id_column, options.column or "text")
    return read_documents(Source(options.corpus, columns=columns, **vars(options.rows), **vars(options.where)))


@dataclass(frozen=True, kw_only=True)
class Searching:
    """How an index is searched."""

    rerank: str | None = option(None, metavar="CROSS")
    """cross-encoder that ranks what is found: folder, run, hub id"""
    candidates: int = 100
    """documents a query that it ranks"""
    model: str | None = option(None, metavar="BI")
    """where the index's bi-encoder is now (default: where it was)"""
    device: str | None = None
    """such as cpu or cuda:0 (default: the best there is)"""

    def open(self, index: str, where: Where) -> SearchIndex:
        """Open the index of a folder."""
        from transencoder.search import open_index

        return open_index(index, model=self.model, device=self.device, **where.hub)

    @contextmanager
    def reranker(self, where: Where) -> Iterator[Scorer | None]:
        """Load the cross-encoder, its tokens in a folder that goes when all is done."""
        if self.rerank is None:
            yield None
            return
        from transencoder.devices import checked_device
        from transencoder.encoders import fetch, is_cross

        device = checked_device(self.device) if self.device else None
        folder = fetch(self.rerank, form="cross", **where.hub)
        if not is_cross(folder):
            raise InputError(f"--rerank is {self.rerank}, which is a bi-encoder; give a cross-encoder")
        with TemporaryDirectory(prefix="transencoder-") as tokens:
            yield load_scorer(self.rerank, folder, device, Models(models=(self.rerank,)), Path(tokens))


@dataclass(frozen=True, kw_only=True)
class Query(Config):
    """Options of `search query`."""

    index: str = argument("INDEX")
    """folder that `search build` wrote"""
    texts: tuple[str, ...] = argument("QUERY", ())
    """a query"""
    queries: str | None = option(None, metavar="FILE")
    """many queries: TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    column: str | None = option(None, metavar="NAME")
    """the column of --queries (default: text, else the first)"""
    top_k: int = option(10, metavar="K")
    """documents a query"""
    output: str = option(STDOUT, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet"""
    json: bool = False
    """print JSON lines instead of TSV"""
    searching: Searching
    rows: Rows
    where: Where

    def contradictions(self) -> Contradictions:
        """Yield what does not go together."""
        if bool(self.texts) == bool(self.queries):
            yield "give queries as arguments, or a file of them as --queries (- for stdin), one of the two"
        if self.texts and (self.column or self.rows != Rows()):
            yield "--column, --header, --split, --file-format and --skip-bad-rows are for --queries"
        for text in self.texts:
            if not text.strip():
                yield f"a query is {text!r}; every query must have a character that is not white space"
        if self.json and self.output != STDOUT:
            yield "--json is for stdout; with --output the name decides the format. Leave one out."


def query(options: Query) -> None:
    """Find the documents of queries: query, rank, score, document."""
    check_output(options.output, source=options.queries or STDOUT)
    queries: Sequence[str] = options.texts
    if options.queries is not None:
        queries = read_texts(options.queries, options.column, options.rows, options.where)["text"]
    index = options.searching.open(options.index, options.where)
    is_tsv = options.output.endswith(".tsv") or (options.output == STDOUT and not options.json)
    if is_tsv and not index.record.is_one_line:
        raise InputError(
            "documents of this index have tabs or line ends, which TSV cannot hold. Give --json, or --output with a "
            "name that ends in .jsonl, .csv or .parquet"
        )
    with options.searching.reranker(options.where) as reranker:
        found = index.search(queries, options.top_k, reranker=reranker, n_candidates=options.searching.candidates)
        rows = _rows(index, queries, found, is_reranked=reranker is not None)
        write_table(rows, options.output, as_json=options.json)


def _rows(
    index: SearchIndex, queries: Sequence[str], found: Iterator[list[Hit]], *, is_reranked: bool
) -> Iterator[Batch]:
    """Yield a row for each document that was found, some queries at a time."""
    has_ids = index.record.has_ids
    scores = ("score", "cosine") if is_reranked else ("score",)
    columns = ("query", "rank", *scores, "id" if has_ids else "number", "document")
    batch: Batch = {name: [] for name in columns}
    for text, hits in zip(queries, found, strict=True):
        for rank, hit in enumerate(hits, start=1):
            numbers = [nine_digits(getattr(hit, name)) for name in scores]
            row = (text, rank, *numbers, hit.id if has_ids else hit.row + 1, hit.document)
            for column, value in zip(columns, row, strict=True):
                batch[column].append(value)
        if len(batch["query"]) >= _HITS_AT_ONCE:
            yield batch
            batch = {name: [] for name in columns}
    yield batch


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Options of `search evaluate`."""

    index: str = argument("INDEX")
    """folder that `search build` wrote"""
    relevance: str = option(metavar="FILE")
    """rows of query, document and, where there are negatives, score; texts, or with --queries ids"""
    columns: tuple[str, str] | None = option(None, metavar=("QUERY", "DOCUMENT"))
    """its columns (default: known names, else the first two)"""
    score_column: str | None = None
    """its relevance, above 0 for an answer (default: score, relevance or label)"""
    queries: str | None = option(None, metavar="FILE")
    """ids and texts of the queries, whose ids --relevance has"""
    query_columns: tuple[str, str] | None = option(None, metavar=("ID", "TEXT"))
    """columns of --queries (default: id or _id, and text)"""
    json: bool = False
    """print JSON instead of a table"""
    searching: Searching
    rows: Rows
    where: Where


def evaluate(options: Evaluate) -> None:
    """Measure the search on labelled queries: nDCG@10, MRR@10, MAP@100, recall."""
    if options.query_columns and not options.queries:
        raise InputError("--query-columns is for --queries; give that too, or leave it out")
    from transencoder.pairs import Source, read_documents, read_relevance
    from transencoder.search import measure, relevance_of

    reading = {**vars(options.rows), **vars(options.where)}
    source = Source(options.relevance, columns=options.columns, score_column=options.score_column, **reading)
    rows = read_relevance(source)
    queries = None
    if options.queries:
        queries = read_documents(Source(options.queries, columns=options.query_columns, **vars(options.where)))
    relevance = relevance_of(rows, queries)
    index = options.searching.open(options.index, options.where)
    with options.searching.reranker(options.where) as reranker:
        found = {"bi-encoder": measure(index, relevance)}
        if reranker:
            n_candidates = options.searching.candidates
            found["re-ranked"] = measure(index, relevance, reranker=reranker, n_candidates=n_candidates)
    n_queries = len(relevance.queries)
    if options.json:
        show(json.dumps({"index": options.index, "n_queries": n_queries, "scores": found}))
        return
    table = Table(caption=f"{n_queries:,} queries")
    table.add_column("metric x 100")
    for name in found:
        table.add_column(name, justify="right")
    for metric in found["bi-encoder"]:
        table.add_row(metric, *(f"{scores[metric]:.2f}" for scores in found.values()))
    show(table)
