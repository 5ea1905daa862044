"""Search quality on labelled queries, measured with sentence-transformers' `InformationRetrievalEvaluator`."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from transencoder.errors import InputError, shorten
from transencoder.scorers import Scorer
from transencoder.search.index import N_CANDIDATES, Hit, SearchIndex

logger = logging.getLogger(__name__)

_RECALLS_AT = (1, 5, 10, 100)
_LAST_RANK = 100
_N_SHOWN = 3
"""Number of missing queries or answers that an error shows."""


@dataclass(frozen=True)
class Relevance:
    """Queries and the documents that answer them."""

    queries: Mapping[str, str]
    """Query's id -> its text; without ids, the text is its own id."""
    answers: Mapping[str, set[str]]
    """Query's id -> ids, or texts, of the documents that answer it."""
    is_by_id: bool
    """Whether documents are identified by their ids, not by their texts."""


def relevance_of(rows: Dataset, queries: Dataset | None = None) -> Relevance:
    """Group rows of `pairs.RELEVANCE` by query.

    Args:
        rows: `sentence1` (query), `sentence2` (document) and optionally `score`, above 0 for an answer.
        queries: `id` and `text`, rows of `pairs.DOCUMENTS`. If given, `rows` has ids of queries and documents
            instead of texts.

    Raises:
        InputError: No query has an answer, or a query has no text.
    """
    texts = None if queries is None else dict(zip(queries["id"][:], queries["text"][:], strict=True))
    answers: dict[str, set[str]] = defaultdict(set)
    others = set()
    scores = rows["score"][:] if "score" in rows.column_names else [1.0] * len(rows)
    for query, document, score in zip(rows["sentence1"][:], rows["sentence2"][:], scores, strict=True):
        if score > 0:
            answers[query].add(document)
        else:
            others.add(query)
    if not answers:
        raise InputError(
            "no query has a document of relevance above 0, so there is nothing to measure; is it the right column?"
        )
    if left_out := len(others - answers.keys()):
        logger.info("%d queries without an answer are left out", left_out)
    if texts is not None:
        _refuse_missing("queries", [query for query in answers if query not in texts], len(answers), "file of queries")
    return Relevance(
        queries={query: query if texts is None else texts[query] for query in answers},
        answers=dict(answers),
        is_by_id=queries is not None,
    )


def measure(
    index: SearchIndex, relevance: Relevance, *, reranker: Scorer | None = None, n_candidates: int = N_CANDIDATES
) -> dict[str, float]:
    """Search 100 documents for each labelled query, and measure the rankings.

    Relevance is binary. Documents with the same text, or id, count once.

    Args:
        index: The index.
        relevance: The queries and their answers.
        reranker: As in `SearchIndex.search`.
        n_candidates: As in `SearchIndex.search`.

    Returns:
        `ndcg_at_10`, `mrr_at_10`, `map_at_100` and `recall_at_1`, `_5`, `_10`, `_100`, times 100.

    Raises:
        InputError: An answer is not in the index, so that no search could find it.
    """
    _check_answers(index, relevance)
    queries = list(relevance.queries)
    found = index.search(
        [relevance.queries[query] for query in queries],
        min(_LAST_RANK, n_candidates) if reranker else _LAST_RANK,
        reranker=reranker,
        n_candidates=n_candidates,
    )
    evaluator = InformationRetrievalEvaluator(
        queries=dict(relevance.queries),
        corpus={},
        relevant_docs=dict(relevance.answers),
        precision_recall_at_k=list(_RECALLS_AT),
    )
    metrics = evaluator.compute_metrics([list(_ranking(hits, relevance.is_by_id)) for hits in found])
    named = {
        "ndcg_at_10": metrics["ndcg@k"][10],
        "mrr_at_10": metrics["mrr@k"][10],
        "map_at_100": metrics["map@k"][100],
        **{f"recall_at_{k}": metrics["recall@k"][k] for k in _RECALLS_AT},
    }
    return {name: 100.0 * float(value) for name, value in named.items()}


def _ranking(hits: Iterable[Hit], is_by_id: bool) -> Iterator[dict[str, str | float]]:
    """Yield each distinct document once, scored by its rank, so that ties keep the order in which they are shown."""
    names = dict.fromkeys((hit.id or "") if is_by_id else hit.document for hit in hits)
    return ({"corpus_id": name, "score": -rank} for rank, name in enumerate(names))


def _check_answers(index: SearchIndex, relevance: Relevance) -> None:
    if relevance.is_by_id and not index.record.has_ids:
        raise InputError(
            "the relevance names documents by their ids, and the index was built without ids. Build it with ids "
            "(--id-column), or give relevance by texts"
        )
    wanted = set().union(*relevance.answers.values())
    values = pa.array(sorted(wanted), pa.string())
    present: set[str] = set()
    for table in index.documents.with_format("arrow").iter(batch_size=1 << 14):
        column = table.column("id" if relevance.is_by_id else "text")
        present.update(column.filter(pc.is_in(column, value_set=values)).to_pylist())
    _refuse_missing("answers", sorted(wanted - present), len(wanted), "index")


def _refuse_missing(what: str, missing: list[str], n: int, where: str) -> None:
    if missing:
        raise InputError(
            f"{len(missing)} of {n} {what} are not in the {where}, such as {shorten(missing[:_N_SHOWN])}, so that they "
            "cannot be found. Do both files belong together?"
        )
