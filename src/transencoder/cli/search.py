"""`search build|query|evaluate`: an index of a corpus, what is found in it, and how well."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.table import Table

from transencoder.cli.options import Commands, add_command, add_data_options, add_row_options, read_texts, reading
from transencoder.cli.rows import STDOUT, Batch, check_output, nine_digits, write_table
from transencoder.cli.terminal import show
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.scorers import Scorer
    from transencoder.search import Embedder, Hit, SearchIndex

_FILES = "TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"
_HITS_AT_ONCE = 1_000


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "embed a corpus into an index, search in it, and measure the search"
    parser = commands.add_parser("search", help=summary, description=summary)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_build(actions)
    _add_query(actions)
    _add_evaluate(actions)


def _add_build(actions: Commands) -> None:
    parser = add_command(
        actions, "build", _build, "embed a corpus and write an index of it; run again, it goes on where it stopped"
    )
    parser.add_argument("corpus", metavar="CORPUS", help=f"documents: {_FILES}")
    parser.add_argument("--output", required=True, metavar="INDEX", help="folder of the index")
    parser.add_argument("--column", metavar="NAME", help="the documents' column (default: text, else the first)")
    parser.add_argument("--id-column", metavar="NAME", help="their ids' column (default: documents have no ids)")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        default="float32",
        help="how embeddings are kept: int8 takes a quarter of the memory, binary 1/32 (default: float32)",
    )
    add_embedder_options(parser)
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--query-prompt", metavar="TEXT", help="put before every query (default: the model's own for queries, if any)"
    )
    prompts.add_argument("--query-prompt-name", metavar="NAME", help="the same, by its name among the model's prompts")
    add_row_options(parser)
    add_data_options(parser)


def add_embedder_options(parser: argparse.ArgumentParser) -> None:
    """Which bi-encoder embeds documents, and how."""
    parser.add_argument("--model", required=True, metavar="BI", help="bi-encoder: folder, run, hub id, or minilm")
    parser.add_argument("--revision", help="hub revision of the model")
    parser.add_argument("--device", help="such as cpu or cuda:0 (default: the best there is)")
    parser.add_argument("--max-length", type=int, metavar="TOKENS", help="cut longer texts (default: the model's)")
    parser.add_argument(
        "--dimensions",
        type=int,
        metavar="N",
        help="keep the first N numbers of an embedding, for models trained so (Matryoshka; default: all)",
    )
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--document-prompt", metavar="TEXT", help="put before every document (default: the model's own, if any)"
    )
    prompts.add_argument(
        "--document-prompt-name", metavar="NAME", help="the same, by its name among the model's prompts"
    )


def embedder_of(
    args: argparse.Namespace, query_prompt: str | None = None, query_prompt_name: str | None = None
) -> Embedder:
    """The bi-encoder that `add_embedder_options` asks for."""
    from transencoder.search import load_embedder

    return load_embedder(
        args.model,
        query_prompt=query_prompt,
        query_prompt_name=query_prompt_name,
        document_prompt=args.document_prompt,
        document_prompt_name=args.document_prompt_name,
        dimensions=args.dimensions,
        max_length=args.max_length,
        device=args.device,
        revision=args.revision,
        token=args.token,
        cache_folder=args.cache_dir,
    )


def _add_query(actions: Commands) -> None:
    parser = add_command(actions, "query", _query, "find the documents of queries: query, rank, score, document")
    parser.add_argument("index", metavar="INDEX", help="folder that `search build` wrote")
    parser.add_argument("texts", nargs="*", metavar="QUERY", help="a query")
    parser.add_argument("--queries", metavar="FILE", help=f"many queries: {_FILES}")
    parser.add_argument("--column", metavar="NAME", help="the column of --queries (default: text, else the first)")
    parser.add_argument("--top-k", type=int, default=10, metavar="K", help="documents a query (default: 10)")
    parser.add_argument("--output", default=STDOUT, metavar="FILE", help=".tsv, .csv, .jsonl or .parquet (default: -)")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of TSV")
    _add_search_options(parser)
    add_row_options(parser)
    add_data_options(parser)


def _add_evaluate(actions: Commands) -> None:
    parser = add_command(
        actions, "evaluate", _evaluate, "measure the search on labelled queries: nDCG@10, MRR@10, MAP@100, recall"
    )
    parser.add_argument("index", metavar="INDEX", help="folder that `search build` wrote")
    parser.add_argument(
        "--relevance",
        required=True,
        metavar="FILE",
        help="rows of query, document and, where there are negatives, score; texts, or with --queries ids",
    )
    parser.add_argument(
        "--columns",
        nargs=2,
        metavar=("QUERY", "DOCUMENT"),
        help="its columns (default: known names, else the first two)",
    )
    parser.add_argument(
        "--score-column", help="its relevance, above 0 for an answer (default: score, relevance or label)"
    )
    parser.add_argument("--queries", metavar="FILE", help="ids and texts of the queries, whose ids --relevance has")
    parser.add_argument(
        "--query-columns", nargs=2, metavar=("ID", "TEXT"), help="columns of --queries (default: id or _id, and text)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_search_options(parser)
    add_row_options(parser)
    add_data_options(parser)


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rerank", metavar="CROSS", help="cross-encoder that ranks what is found: folder, run, hub id")
    parser.add_argument(
        "--candidates", type=int, default=100, metavar="N", help="documents a query that it ranks (default: 100)"
    )
    parser.add_argument("--model", metavar="BI", help="where the index's bi-encoder is now (default: where it was)")
    parser.add_argument("--device", help="such as cpu or cuda:0 (default: the best there is)")


def _build(args: argparse.Namespace) -> None:
    output = Path(args.output)
    if not output.absolute().parent.is_dir():
        raise InputError(f"--output is {args.output!r}, but there is no folder {output.parent}. Make it first.")
    from transencoder.search import build_index

    args.run_folder = args.output  # where an interrupted build goes on
    corpus = _corpus(args)
    embedder = embedder_of(args, args.query_prompt, args.query_prompt_name)
    record = build_index(corpus, embedder, output, precision=args.precision)
    show(f"{output}: {record.n_documents:,} documents, {record.recipe.dimensions} dimensions in {args.precision}")
    if record.approximation:
        found = 100 * record.approximation.recall_at_10
        show(f"it is searched approximately: {found:.1f} % of the ten nearest are found, measured on its own documents")


def _corpus(args: argparse.Namespace) -> Dataset:
    if args.id_column is None:
        return read_texts(args.corpus, args)
    from transencoder.pairs import Source, read_documents

    return read_documents(Source(args.corpus, columns=(args.id_column, args.column or "text"), **reading(args)))


def _query(args: argparse.Namespace) -> None:
    _check_query(args)
    from transencoder.search import open_index

    queries = _queries(args)
    index = open_index(args.index, model=args.model, device=args.device, token=args.token, cache_folder=args.cache_dir)
    is_tsv = args.output.endswith(".tsv") or (args.output == STDOUT and not args.json)
    if is_tsv and not index.record.is_one_line:
        raise InputError(
            "documents of this index have tabs or line ends, which TSV cannot hold. Give --json, or --output with a "
            "name that ends in .jsonl, .csv or .parquet"
        )
    with _reranker(args) as reranker:
        found = index.search(queries, args.top_k, reranker=reranker, n_candidates=args.candidates)
        write_table(_rows(index, queries, found, reranker is not None), args.output, as_json=args.json)


def _check_query(args: argparse.Namespace) -> None:
    if bool(args.texts) == bool(args.queries):
        raise InputError("give queries as arguments, or a file of them as --queries (- for stdin), one of the two")
    if args.texts and (args.column or args.header is not None or args.split or args.file_format or args.skip_bad_rows):
        raise InputError("--column, --header, --split, --file-format and --skip-bad-rows are for --queries")
    empty = [text for text in args.texts if not text.strip()]
    if empty:
        raise InputError(f"a query is {empty[0]!r}; every query must have a character that is not white space")
    if args.json and args.output != STDOUT:
        raise InputError("--json is for stdout; with --output the name decides the format. Leave one out.")
    check_output(args.output, source=args.queries or STDOUT)


def _queries(args: argparse.Namespace) -> Sequence[str]:
    if args.texts:
        return list(args.texts)
    return read_texts(args.queries, args)["text"]  # type: ignore[no-any-return]


@contextmanager
def _reranker(args: argparse.Namespace) -> Iterator[Scorer | None]:
    """The cross-encoder, its tokens in a folder that goes when all is done."""
    if args.rerank is None:
        yield None
        return
    from sentence_transformers import CrossEncoder

    from transencoder.encoders import fetch, gives_logits, is_cross, load_trained
    from transencoder.inference import checked_device
    from transencoder.scorers import CrossScorer
    from transencoder.tokens import TokenCache

    device = checked_device(args.device) if args.device else None
    folder = fetch(args.rerank, form="cross", token=args.token, cache_folder=args.cache_dir)
    if not is_cross(folder):
        raise InputError(f"--rerank is {args.rerank}, which is a bi-encoder; give a cross-encoder")
    model = load_trained(folder, device)
    assert isinstance(model, CrossEncoder)
    with TemporaryDirectory(prefix="transencoder-") as tokens:
        yield CrossScorer(model, cache=TokenCache(Path(tokens)), as_logit=gives_logits(model))


def _rows(index: SearchIndex, queries: Sequence[str], found: Iterator[list[Hit]], is_reranked: bool) -> Iterator[Batch]:
    """A row for each document that was found, some queries at a time."""
    columns = ("query", "rank", "score", *(["cosine"] if is_reranked else []), _name(index), "document")
    batch: Batch = {name: [] for name in columns}
    for query, hits in zip(queries, found, strict=True):
        for rank, hit in enumerate(hits, start=1):
            scores = (hit.score, hit.cosine) if is_reranked else (hit.score,)
            name = hit.id if index.record.has_ids else hit.row + 1
            for column, value in zip(
                columns, (query, rank, *map(nine_digits, scores), name, hit.document), strict=True
            ):
                batch[column].append(value)
        if len(batch["query"]) >= _HITS_AT_ONCE:
            yield batch
            batch = {name: [] for name in columns}
    yield batch


def _name(index: SearchIndex) -> str:
    return "id" if index.record.has_ids else "number"


def _evaluate(args: argparse.Namespace) -> None:
    if args.query_columns and not args.queries:
        raise InputError("--query-columns is for --queries; give that too, or leave it out")
    from transencoder.pairs import Source, read_documents, read_relevance
    from transencoder.search import measure, open_index, relevance_of

    options = {"columns": args.columns, "score_column": args.score_column, **reading(args)}
    rows = read_relevance(Source(args.relevance, **options))
    queries = None
    if args.queries:
        where = {"cache_folder": args.cache_dir, "data_folder": args.data_dir, "token": args.token}
        queries = read_documents(Source(args.queries, columns=args.query_columns, **where))
    relevance = relevance_of(rows, queries)
    index = open_index(args.index, model=args.model, device=args.device, token=args.token, cache_folder=args.cache_dir)
    with _reranker(args) as reranker:
        found = {"bi-encoder": measure(index, relevance)}
        if reranker:
            found["re-ranked"] = measure(index, relevance, reranker=reranker, n_candidates=args.candidates)
    if args.json:
        show(json.dumps({"index": args.index, "n_queries": len(relevance.queries), "scores": found}))
    else:
        show(_table(found, len(relevance.queries)))


def _table(found: dict[str, dict[str, float]], n_queries: int) -> Table:
    table = Table(caption=f"{n_queries:,} queries")
    table.add_column("metric x 100")
    for name in found:
        table.add_column(name, justify="right")
    for metric in next(iter(found.values())):
        table.add_row(metric, *(f"{scores[metric]:.2f}" for scores in found.values()))
    return table
