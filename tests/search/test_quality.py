"""Retrieval metrics are sentence-transformers' own, from files of texts or of ids."""

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from transencoder.errors import InputError
from transencoder.pairs import Source, read_documents, read_relevance
from transencoder.search import measure, open_index, relevance_of

METRICS = {
    "ndcg_at_10": "ndcg@10",
    "mrr_at_10": "mrr@10",
    "map_at_100": "map@100",
    **{f"recall_at_{k}": f"recall@{k}" for k in (1, 5, 10, 100)},
}


@pytest.fixture(scope="module")
def opened(folder):
    return open_index(folder, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def labelled(corpus):
    """Query's number -> text, and rows of its answers: the document that it is a part of, and others by chance."""
    queries = {f"q{row}": corpus[row]["text"].rsplit(" ", 3)[0] for row in range(0, 90, 9)}
    rows = [(f"q{row}", f"d{answer}") for row in range(0, 90, 9) for answer in (row, (7 * row + 5) % 96)]
    return queries, rows


@pytest.fixture(scope="module")
def expected(labelled, corpus, tiny_bi_encoder):
    queries, rows = labelled
    answers = {query: {document for other, document in rows if other == query} for query in queries}
    evaluator = InformationRetrievalEvaluator(
        queries, dict(zip(corpus["id"], corpus["text"], strict=True)), answers, precision_recall_at_k=[1, 5, 10, 100]
    )
    found = evaluator(SentenceTransformer(tiny_bi_encoder, device="cpu"))
    return {ours: 100 * found[f"cosine_{theirs}"] for ours, theirs in METRICS.items()}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))

    def write_lines(name, lines):
        (tmp_path / name).write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
        return tmp_path / name

    return write_lines


def test_by_ids_from_three_files(opened, labelled, expected, write):
    queries, rows = labelled
    negatives = [(query, "d95", 0) for query in queries]
    relevance = write("qrels.tsv", [("query-id", "corpus-id", "score"), *((*row, 1) for row in rows), *negatives])
    texts = write("queries.tsv", [("_id", "text"), *queries.items(), ("q-more", "not asked")])
    found = measure(opened, relevance_of(read_relevance(Source(relevance)), read_documents(Source(texts))))
    assert found == pytest.approx(expected)
    assert 0 < found["ndcg_at_10"] < 100 and found["recall_at_1"] < found["recall_at_10"] < found["recall_at_100"]


def test_by_texts_from_one_file(opened, labelled, expected, corpus, write):
    queries, rows = labelled
    texts = dict(zip(corpus["id"], corpus["text"], strict=True))
    lines = [("query", "document", "relevance"), *((queries[query], texts[document], 2) for query, document in rows)]
    lines.append(("nobody answers this", texts["d3"], 0))
    assert measure(opened, relevance_of(read_relevance(Source(write("one.tsv", lines))))) == pytest.approx(expected)


def test_re_ranking_is_measured_on_its_candidates(opened, labelled, common_words):
    queries, rows = labelled
    relevance = relevance_of(
        Dataset.from_dict({"sentence1": [query for query, _ in rows], "sentence2": [document for _, document in rows]}),
        Dataset.from_dict({"id": [*queries], "text": [*queries.values()]}),
    )
    found = measure(opened, relevance, reranker=common_words, n_candidates=40)
    assert found["mrr_at_10"] == 100, "its own words are in the answer"
    few = measure(opened, relevance, reranker=common_words, n_candidates=5)
    assert few["recall_at_5"] == few["recall_at_100"] <= found["recall_at_100"]


def test_equal_documents_count_once(embedder, tmp_path):
    from transencoder.search import build_index

    texts = ["balo kama", "balo kama", "balo kama", "gelo dalo felo"]
    build_index(Dataset.from_dict({"text": texts}), embedder, tmp_path / "index")
    rows = Dataset.from_dict({"sentence1": ["balo kama"], "sentence2": ["gelo dalo felo"]})
    assert measure(open_index(tmp_path / "index", device="cpu"), relevance_of(rows))["mrr_at_10"] == 50


@pytest.mark.parametrize(
    ("rows", "queries", "message"),
    [
        ([("x", "not there", 1)], None, r"1 of 1 answers are not in the index, such as \['not there'\]"),
        ([("x", "y", 0)], None, "no query has a document of relevance above 0"),
        ([("q1", "d1", 1), ("q2", "d1", 1)], [("q1", "x")], r"1 of 2 queries are not in the file of queries"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(opened, rows, queries, message):
    first, second, score = zip(*rows, strict=True)
    with pytest.raises(InputError, match=message):
        table = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": score})
        ids = None if queries is None else Dataset.from_list([{"id": name, "text": text} for name, text in queries])
        measure(opened, relevance_of(table, ids))


def test_an_index_without_ids_is_measured_by_texts_only(embedder, tmp_path):
    from transencoder.search import build_index

    build_index(Dataset.from_dict({"text": ["balo", "kama"]}), embedder, tmp_path / "index")
    rows = Dataset.from_dict({"sentence1": ["q"], "sentence2": ["d"]})
    with pytest.raises(InputError, match="the index was built without ids. Build it with ids"):
        measure(
            open_index(tmp_path / "index", device="cpu"),
            relevance_of(rows, Dataset.from_dict({"id": ["q"], "text": ["x"]})),
        )


def test_a_file_of_other_columns_says_so(write):
    with pytest.raises(InputError, match="cannot tell whether the first row is a header"):
        read_relevance(Source(write("odd.tsv", [("query", "candidate"), ("a b", "c d")])))
    path = write("odd.tsv", [("q", "c", "rel"), ("a b", "c d", 0)])
    rows = read_relevance(Source(path, columns=("q", "c"), score_column="rel"))
    assert rows[0] == {"sentence1": "a b", "sentence2": "c d", "score": 0.0}
