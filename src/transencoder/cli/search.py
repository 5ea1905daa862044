"""The commands `search build|query|evaluate` and `duplicates`: search a corpus, and find near-duplicates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.table import Table

import transencoder
from transencoder.cli import files
from transencoder.cli.flags import argument, option
from transencoder.cli.scoring import Sharding
from transencoder.cli.terminal import goes_on_from, show
from transencoder.configs.ranges import Config, Contradictions, Pooling
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder import scorers, search, shards

_BAR = 40
"""Length of the longest bar in characters."""
_BIN = 0.05


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Options for the bi-encoder that embeds documents: parameters of `load_embedder`."""

    name: str = option(flag="--model", metavar="BI")
    """bi-encoder: folder, run, hub id, or minilm"""
    revision: str | None = None
    """hub revision of the model"""
    device: str | None = None
    """device, such as cpu or cuda:0 (default: the best one available)"""
    max_length: int | None = option(None, metavar="TOKENS")
    """tokens after which texts are cut (default: the model's own)"""
    pooling: Pooling | None = None
    """how a plain checkpoint's tokens become an embedding (default: the model's own, mean where it has none)"""
    dimensions: int | None = None
    """number of leading dimensions to keep of an embedding, for models trained with Matryoshka (default: all)"""
    document_prompt: str | None = option(None, metavar="TEXT", one_of="document prompt")
    """text put before every document (default: the model's own, if any)"""
    document_prompt_name: str | None = option(None, metavar="NAME", one_of="document prompt")
    """name of that prompt among the model's prompts, instead of its text"""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Embed a corpus and write an index of it; run it again to resume an interrupted build."""

    corpus: str = argument("CORPUS")
    """documents: TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    output: str = option(metavar="INDEX")
    """folder of the index"""
    column: str | None = option(None, flag=files.COLUMN, metavar="NAME")
    """the documents' column (default: text, body and other known names, else the only one)"""
    id_column: str | None = option(None, metavar="NAME")
    """the column of the documents' ids (default: documents have no ids)"""
    precision: Literal["float32", "int8", "binary"] = "float32"
    """how embeddings are stored: int8 takes a quarter of the memory, binary 1/32"""
    embedding: Embedding
    query_prompt: str | None = option(None, metavar="TEXT", one_of="query prompt")
    """text put before every query (default: the model's own for queries, if any)"""
    query_prompt_name: str | None = option(None, metavar="NAME", one_of="query prompt")
    """name of that prompt among the model's prompts, instead of its text"""
    sharding: Sharding
    rows: files.Rows

    def __call__(self) -> None:
        output = Path(self.output)
        if not output.absolute().parent.is_dir():
            raise InputError(f"--output is {self.output!r}, but there is no folder {output.parent}. Make it first.")
        from transencoder import distributed, search

        distributed.start()
        shard, merge = self.sharding.own, self.sharding.merge
        with goes_on_from(self.output):
            corpus, embedder = self._given()
            if shard is not None:
                search.embed_shard(corpus, embedder, output, shard, precision=self.precision)
                show(f"{output}: shard {shard} is embedded")
                return
            if self.sharding.engine == "ray":
                from transencoder import on_ray

                parts = search.embedding_parts(corpus, embedder, output, precision=self.precision)
                on_ray.make_all(parts, _part_maker, self)
                merge = True
            record = search.build_index(corpus, embedder, output, precision=self.precision, merge=merge)
        show(f"{output}: {record.n_documents:,} documents, {record.recipe.dimensions} dimensions in {self.precision}")
        if record.approximation:
            found = f"{100 * record.approximation.recall_at_10:.1f} % of the ten nearest are found"
            show(f"it is searched approximately: {found}, measured on its own documents")

    def _given(self) -> tuple[Dataset, search.Embedder]:
        """Return the documents, and the model."""
        from transencoder import search

        corpus = self._corpus()
        return corpus, search.load_embedder(
            **vars(self.embedding),
            query_prompt=self.query_prompt,
            query_prompt_name=self.query_prompt_name,
            **self.rows.hub,
        )

    def _corpus(self) -> Dataset:
        if self.id_column is None:
            return files.read_texts(self.corpus, self.column, self.rows)
        from transencoder import pairs

        source = pairs.Source(self.corpus, columns=(self.id_column, self.column or "text"), **vars(self.rows))
        return pairs.read_rows(source, pairs.DOCUMENTS)


def _part_maker(options: Build) -> Callable[[shards.Shard], None]:
    """Load a command's corpus and model in another process, and return a function that embeds a shard."""
    from transencoder import search

    corpus, embedder = options._given()
    return lambda shard: search.embed_shard(corpus, embedder, options.output, shard, precision=options.precision)


@dataclass(frozen=True, kw_only=True)
class Searching:
    """Options for searching an index."""

    rerank: str | None = option(None, metavar="CROSS")
    """cross-encoder that re-ranks the documents found: folder, run, or hub id"""
    candidates: int = 100
    """number of documents per query to re-rank"""
    model: str | None = option(None, metavar="BI")
    """folder or hub id where the index's bi-encoder is now (default: where it was)"""
    device: str | None = None
    """device, such as cpu or cuda:0 (default: the best one available)"""

    def open(self, index: str, rows: files.Rows) -> search.SearchIndex:
        """Open the index of a folder."""
        from transencoder import search

        return search.open_index(index, model=self.model, device=self.device, **rows.hub)

    def reranker(self, rows: files.Rows) -> scorers.Scorer | None:
        """Load the cross-encoder."""
        if self.rerank is None:
            return None
        from transencoder import encoders, inference

        model = encoders.fetch(self.rerank, form="cross", **rows.hub)
        scorer = inference.load_scorer(model, device=self.device)
        if not isinstance(scorer, transencoder.CrossScorer):
            raise InputError(f"--rerank is {self.rerank}, which is a bi-encoder; give a cross-encoder")
        return scorer


@dataclass(frozen=True, kw_only=True)
class Query(Config):
    """Find the documents for queries and write query, rank, score, document."""

    index: str = argument("INDEX")
    """folder that `search build` wrote"""
    texts: tuple[str, ...] = argument("QUERY", ())
    """a query"""
    queries: str | None = option(None, metavar="FILE")
    """many queries: TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    column: str | None = option(None, flag=files.COLUMN, metavar="NAME")
    """the column of --queries (default: as for documents)"""
    top_k: int = option(10, metavar="K")
    """number of documents per query"""
    output: str = option(files.STDOUT, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet"""
    json: bool = False
    """print JSON lines instead of TSV"""
    searching: Searching
    rows: files.Rows

    def contradictions(self) -> Contradictions:
        if bool(self.texts) == bool(self.queries):
            yield "give queries as arguments, or a file of them as --queries (- for stdin), one of the two"
        if self.texts and (self.column or self.rows.is_said):
            yield "--columns, --header, --split, --file-format and --skip-bad-rows are for --queries"
        for text in self.texts:
            if not text.strip():
                yield f"a query is {text!r}; every query must have a character that is not white space"
        if self.json and self.output != files.STDOUT:
            yield "--json is for stdout; with --output the name decides the format. Leave one out."

    def __call__(self) -> None:
        files.check_output(self.output, source=self.queries or files.STDOUT)
        queries: Sequence[str] = self.texts
        if self.queries is not None:
            queries = files.read_texts(self.queries, self.column, self.rows)["text"]
        index = self.searching.open(self.index, self.rows)
        is_tsv = self.output.endswith(".tsv") or (self.output == files.STDOUT and not self.json)
        if is_tsv and not index.record.is_one_line:
            raise InputError(
                "documents of this index have tabs or line ends, which TSV cannot hold. Give --json, or --output with "
                "a name that ends in .jsonl, .csv or .parquet"
            )
        n_candidates = self.searching.candidates
        reranker = self.searching.reranker(self.rows)
        scores = ("score",) if reranker is None else ("score", "cosine")
        columns = ("query", "rank", *scores, "id" if index.record.has_ids else "number", "document")
        found = index.search(queries, self.top_k, reranker=reranker, n_candidates=n_candidates)
        files.write_table(columns, _hit_rows(queries, found, scores), self.output, as_json=self.json)


def _hit_rows(
    queries: Sequence[str], found: Iterator[list[search.Hit]], scores: tuple[str, ...]
) -> Iterator[files.Row]:
    """Yield a row for each document that was found, with its id or else its number."""
    for text, hits in zip(queries, found, strict=True):
        for rank, hit in enumerate(hits, start=1):
            numbers = (files.nine_digits(getattr(hit, name)) for name in scores)
            yield (text, rank, *numbers, hit.row + 1 if hit.id is None else hit.id, hit.document)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Config):
    """Measure the search on labelled queries: nDCG@10, MRR@10, MAP@100, recall."""

    index: str = argument("INDEX")
    """folder that `search build` wrote"""
    relevance: str = option(metavar="FILE")
    """file of rows with query, document and, if there are negatives, score; as texts, or with --queries as ids"""
    columns: tuple[str, str] | None = option(None, metavar=("QUERY", "DOCUMENT"))
    """columns of --relevance (default: known names, else the only two)"""
    score_column: str | None = None
    """column of --relevance with a number above 0 for an answer (default: score, relevance or label)"""
    queries: str | None = option(None, metavar="FILE")
    """file with ids and texts of the queries, if --relevance has ids"""
    query_columns: tuple[str, str] | None = option(None, metavar=("ID", "TEXT"))
    """columns of --queries (default: id or _id, and text)"""
    json: bool = False
    """print JSON instead of a table"""
    searching: Searching
    rows: files.Rows

    def contradictions(self) -> Contradictions:
        if self.query_columns and not self.queries:
            yield "--query-columns is for --queries; give that too, or leave it out"

    def __call__(self) -> None:
        from transencoder import pairs, search

        reading: dict[str, Any] = {"score_column": self.score_column, **vars(self.rows)}
        source = pairs.Source(self.relevance, columns=self.columns, **reading)
        rows, queries = pairs.read_rows(source, pairs.RELEVANCE), None
        if self.queries:
            where = {"data_folder": self.rows.data_folder, **self.rows.hub}
            source = pairs.Source(self.queries, columns=self.query_columns, **where)
            queries = pairs.read_rows(source, pairs.DOCUMENTS)
        relevance = search.relevance_of(rows, queries)
        index = self.searching.open(self.index, self.rows)
        reranker = self.searching.reranker(self.rows)
        found = {"bi-encoder": search.measure(index, relevance)}
        if reranker:
            n_candidates = self.searching.candidates
            found["re-ranked"] = search.measure(index, relevance, reranker=reranker, n_candidates=n_candidates)
        n_queries = len(relevance.queries)
        if self.json:
            show(json.dumps({"index": self.index, "n_queries": n_queries, "scores": found}), as_it_is=True)
            return
        table = Table("metric x 100", caption=f"{n_queries:,} queries")
        for name in found:
            table.add_column(name, justify="right")
        for metric in found["bi-encoder"]:
            table.add_row(metric, *(f"{scores[metric]:.2f}" for scores in found.values()))
        show(table)


@dataclass(frozen=True, kw_only=True)
class FindDuplicates(Config):
    """Find clusters of near-duplicate sentences and write cluster, score, number, sentence."""

    sentences: str = argument("SENTENCES")
    """TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    output: str = option(metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    kept: str | None = option(None, metavar="FILE")
    """also write the sentences without near-duplicates, keeping only the centre of each cluster"""
    column: str | None = option(None, flag=files.COLUMN, metavar="NAME")
    """the sentences' column (default: text, body and other known names, else the only one)"""
    threshold: float | None = None
    """least score with a cluster's centre (default: the lowest point between the two peaks of the scores
    with nearest neighbours)"""
    embedding: Embedding
    rows: files.Rows

    def contradictions(self) -> Contradictions:
        for output in self._outputs:
            files.check_output(output, source=self.sentences)
        if self.threshold is not None and not 0.0 < self.threshold <= 1.0:
            yield f"--threshold is {self.threshold}; give a number above 0 and at most 1"

    @property
    def _outputs(self) -> list[str]:
        return [self.output, *filter(None, (self.kept,))]

    def __call__(self) -> None:
        from transencoder import distributed, search

        distributed.start()
        sentences = files.read_texts(self.sentences, self.column, self.rows)
        for output in self._outputs:
            files.check_texts(sentences, output)
        embedder = search.load_embedder(**vars(self.embedding), **self.rows.hub)
        found = search.find_duplicates(sentences, embedder, self.threshold)
        files.write_table(("cluster", "score", "number", "sentence"), _member_rows(sentences, found), self.output)
        repeated = np.fromiter(found.repeated(), np.int64)
        if self.kept:
            kept = sentences.select(np.setdiff1d(np.arange(len(sentences)), repeated))
            files.write_table(("text",), files.rows_of(kept, ["text"]), self.kept)
        if self.output == files.STDOUT:
            return
        show(_histogram(found))
        show(_threshold_said(found.threshold))
        counts = f"{len(found.clusters):,} clusters; {len(repeated):,} of {len(sentences):,} sentences repeat another"
        show(f"{self.output}: {counts}")


def _member_rows(sentences: Dataset, found: search.Duplicates) -> Iterator[files.Row]:
    members = [(number, *member) for number, cluster in enumerate(found.clusters, start=1) for member in cluster]
    texts = files.rows_of(sentences.select([row for _, row, _ in members]), ["text"])
    for (number, row, score), (text,) in zip(members, texts, strict=True):
        yield (number, files.nine_digits(score), row + 1, text)


def _histogram(found: search.Duplicates) -> Table:
    """Draw a histogram of the sentences' scores with their nearest neighbours."""
    table, threshold = Table("score with the nearest", "sentences", ""), found.threshold.score
    table.columns[1].justify = "right"
    low = _BIN * np.floor(np.clip(found.nearest.min(initial=1.0), -1.0, 1.0 - _BIN) / _BIN)
    edges = np.arange(round((1.0 - low) / _BIN) + 1) * _BIN + low
    counts, _ = np.histogram(np.clip(found.nearest, low, 1.0), edges)
    for count, start in zip(counts[::-1], edges[-2::-1], strict=True):
        has_threshold = start <= threshold < start + _BIN
        bar = "█" * round(_BAR * count / max(counts.max(), 1)) or ("▏" if count else "")
        mark = f"{bar} ← threshold {threshold:.3f}" if has_threshold else bar
        table.add_row(f"{start:.2f} to {start + _BIN:.2f}", f"{count:,}", mark)
    return table


def _threshold_said(threshold: search.Threshold) -> str:
    if threshold.peaks:
        low, high = threshold.peaks
        return (
            f"threshold {threshold.score:.3f}: the lowest point between the peaks at {low:.2f} and {high:.2f} of the "
            "smoothed histogram; --threshold sets another"
        )
    if threshold.is_given:
        return f"threshold {threshold.score:.3f}, as given"
    return (
        "no threshold was found (no second peak near 1 in the histogram), so only sentences that are the same to the "
        "model are clustered; --threshold sets one, such as 0.9"
    )
