"""Search over real sentences: time to build, time per query with and without re-ranking, equality after a reload.

    python benchmarks/search.py                                   # 80,000 sentences: half an hour on two idle cores
    python benchmarks/search.py --sentences 5000 --queries 50     # a trial

Corpus and queries are different random sentences. The kinds of index hold the same embeddings: floats with exact
search, floats in clusters (as `search build` makes for more than 100,000 sentences), bytes and bits. The results of
each are compared with those of exact search. The cross-encoder that re-ranks is the bi-encoder with a new head: its
scores are meaningless, but its time is real.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from transencoder.encoders import fetch, load_cross
from transencoder.pairs import read_sentences
from transencoder.runs.files import folder_bytes
from transencoder.runs.log import source_commit
from transencoder.scorers import CrossScorer
from transencoder.search import Hit, SearchIndex, build_index, load_embedder, open_index, vectors
from transencoder.search.vectors import VectorPrecision, Vectors, make_vectors
from transencoder.tokens import TokenCache

TOP_K = 10
PACKAGES = ("torch", "sentence-transformers", "faiss-cpu", "numpy")


def main() -> None:
    """Build, search, reload, search again; write the record and print the table."""
    options = _options()
    torch.set_num_threads(options.threads)
    corpus, queries = _sentences(options)
    with tempfile.TemporaryDirectory(prefix="transencoder-search-", dir=options.work) as name:
        record = _settings(options) | measure(corpus, queries, options, Path(name))
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "search.json").write_text(json.dumps(record, indent=2) + "\n")
    (options.results / "search.md").write_text(page(record))
    print(page(record))


def measure(corpus: Dataset, queries: list[str], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Build an index of the corpus, search it, and return all measurements."""
    embedder = load_embedder(options.model, device="cpu")
    started = time.perf_counter()
    build_index(corpus, embedder, folder / "index")
    build_seconds = time.perf_counter() - started
    index = open_index(folder / "index", device="cpu")
    scorer = CrossScorer(load_cross(fetch(options.model, form="bi"), device="cpu"), cache=TokenCache(folder / "tokens"))
    few = queries[: options.reranked_queries]
    record = {
        "build_seconds": build_seconds,
        "index_bytes": folder_bytes(folder / "index"),
        "embed_query_ms": _median_ms(lambda query: embedder.queries([query]), queries),
        "query_ms": _median_ms(lambda query: list(index.search([query], TOP_K)), queries),
        "queries_together_ms": 1000 * _timed(lambda: list(index.search(queries, TOP_K))) / len(queries),
        "reranked_query_ms": _median_ms(lambda query: list(index.search([query], TOP_K, reranker=scorer)), few),
        "kinds": kinds(index, embedder.queries(queries), folder),
    }
    return record | {"same_after_reload": _is_same_after_reload(folder / "index", index, queries, few, scorer)}


def kinds(index: SearchIndex, queries: np.ndarray, folder: Path) -> dict[str, dict[str, Any]]:
    """Return for each kind of index its bytes, its build and search times, and its share of the exact results."""
    embeddings = index.vectors.index.reconstruct_n(0, len(index.vectors))
    found: dict[str, dict[str, Any]] = {}
    exact: np.ndarray | None = None
    for name, precision, up_to in (
        ("exact", "float32", len(embeddings)),
        ("clusters", "float32", 0),
        ("bytes", "int8", len(embeddings)),
        ("bits", "binary", len(embeddings)),
    ):
        made, seconds = _made(embeddings, precision, up_to, folder / f"{name}.lists")
        made.save(folder / name)
        times = [_timed(lambda query=query, made=made: made.search(query[None], TOP_K)) for query in queries]
        _, rows = made.search(queries, TOP_K)
        exact = rows if exact is None else exact  # the first kind is exact
        found[name] = {
            "seconds": seconds,
            "bytes": sum(path.stat().st_size for path in (folder / name, made.lists) if path is not None),
            "search_ms": 1000 * statistics.median(times),
            "found_of_exact": float(np.mean([len({*a} & {*b}) / TOP_K for a, b in zip(rows, exact, strict=True)])),
            "approximation": asdict(made.approximation) if made.approximation else None,
        }
    return found


def _made(embeddings: np.ndarray, precision: VectorPrecision, exact_up_to: int, lists: Path) -> tuple[Vectors, float]:
    own, vectors.EXACT_UP_TO = vectors.EXACT_UP_TO, exact_up_to
    try:
        started = time.perf_counter()
        return make_vectors(embeddings, precision, lists=lists), time.perf_counter() - started
    finally:
        vectors.EXACT_UP_TO = own


def _is_same_after_reload(
    folder: Path, index: SearchIndex, queries: list[str], few: list[str], scorer: CrossScorer
) -> bool:
    """Return whether the reloaded index gives the same rows and scores, to the last bit."""
    again = open_index(folder, device="cpu")

    def everything(each: SearchIndex) -> list[list[Hit]]:
        return [*each.search(queries, TOP_K), *each.search(few, TOP_K, reranker=scorer)]

    return everything(index) == everything(again)


def _median_ms(answer: Callable[[str], object], queries: Sequence[str]) -> float:
    """Return the median ms of a query, one after the other; the first one also runs before, to warm up."""
    answer(queries[0])
    return 1000 * statistics.median(_timed(lambda query=query: answer(query)) for query in queries)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _sentences(options: argparse.Namespace) -> tuple[Dataset, list[str]]:
    source = read_sentences(options.source)
    n = options.sentences + options.queries
    rows = np.random.default_rng(0).choice(len(source), n, replace=False)
    return source.select(np.sort(rows[: options.sentences])), source[rows[options.sentences :].tolist()]["text"]


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "sentences": options.sentences,
        "queries": options.queries,
        "reranked_queries": options.reranked_queries,
        "source": options.source,
        "model": options.model,
        "threads": options.threads,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "versions": {name: version(name) for name in PACKAGES},
        "commit": source_commit(),
    }


def page(record: dict[str, Any]) -> str:
    """Return the record as Markdown."""
    same = "the same, to the last bit" if record["same_after_reload"] else "NOT THE SAME"
    lines = [
        f"# Search over {record['sentences']:,} sentences",
        "",
        f"{record['source']}, {record['model']}, {record['threads']} threads, {record['machine']}. Ten documents a "
        "query; medians of queries one by one.",
        "",
        "| what | |",
        "|---|---|",
        f"| build, s (sentences a second) | {record['build_seconds']:.0f} "
        f"({record['sentences'] / record['build_seconds']:.0f}) |",
        f"| index on disk, MB | {record['index_bytes'] / 1e6:.1f} |",
        f"| a query, ms | {record['query_ms']:.1f}, of which its embedding {record['embed_query_ms']:.1f} |",
        f"| a query of {record['queries']} together, ms | {record['queries_together_ms']:.1f} |",
        f"| a query with 100 documents re-ranked, ms | {record['reranked_query_ms']:.0f} |",
        f"| after a reload | {same} |",
        "",
        "| embeddings | MB | made in, s | search alone, ms | found of the exact ten, % |",
        "|---|---|---|---|---|",
    ]
    for name, each in record["kinds"].items():
        about = each["approximation"]
        title = f"{name}, {about['n_probe']} of {about['n_lists']} searched" if about else name
        lines.append(
            f"| {title} | {each['bytes'] / 1e6:.1f} | {each['seconds']:.1f} | {each['search_ms']:.2f} "
            f"| {100 * each['found_of_exact']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=80_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--reranked-queries", type=int, default=20, help="queries that are re-ranked too")
    parser.add_argument("--source", default="sentences/english-mixed", help="sentences")
    parser.add_argument("--model", default="minilm", help="the bi-encoder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, help="folder for temporary files")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
