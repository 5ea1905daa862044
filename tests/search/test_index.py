"""What is found, re-ranked and measured is what plain sentence-transformers finds; a reload changes nothing."""

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import semantic_search

from tests.rounding import model_rounding
from transencoder.errors import InputError
from transencoder.pairs import DOCUMENTS, RELEVANCE, Source, read_rows
from transencoder.scorers import BiScorer
from transencoder.search import build_index, index, load_embedder, measure, open_index, relevance_of

METRICS = {
    "ndcg_at_10": "ndcg@10",
    "mrr_at_10": "mrr@10",
    "map_at_100": "map@100",
    **{f"recall_at_{k}": f"recall@{k}" for k in (1, 5, 10, 100)},
}


@pytest.fixture(scope="module")
def opened(folder):
    return open_index(folder, device="cpu", precision="fp32")


@pytest.fixture
def index_of(embedder, tmp_path):
    """Build an index of texts and open it."""

    def build(texts):
        build_index(Dataset.from_dict({"text": texts}), embedder, tmp_path / "index")
        return open_index(tmp_path / "index", device="cpu")

    return build


def assert_cosines(hits, expected, model):
    """The hits' cosines are those that `semantic_search` gives."""
    cosines = [hit.cosine for hit in hits]
    np.testing.assert_allclose(cosines, [each["score"] for each in expected], rtol=0, atol=model_rounding(model))


def test_it_finds_what_sentence_transformers_finds(opened, corpus, tiny_bi_encoder):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    queries = [text.split(" ", 1)[1] for text in corpus["text"][:40]]
    plain = semantic_search(model.encode(queries), model.encode(list(corpus["text"])), top_k=5)
    for hits, expected in zip(opened.search(queries, 5), plain, strict=True):
        assert [hit.row for hit in hits] == [each["corpus_id"] for each in expected]
        assert_cosines(hits, expected, model)
        assert all((hit.id, hit.document) == (f"d{hit.row}", corpus[hit.row]["text"]) for hit in hits)


def test_a_reload_finds_the_same(opened, folder, corpus):
    queries = corpus["text"][:3]
    assert list(opened.search(queries)) == list(open_index(folder, device="cpu", precision="fp32").search(queries))


def test_bf16_is_nearly_the_same(opened, folder, corpus):
    rounded = open_index(folder, device="cpu", precision="bf16")
    both = (next(each.search([corpus[5]["text"]], 5)) for each in (opened, rounded))
    for exact, near in zip(*both, strict=True):
        assert 0 < abs(exact.cosine - near.cosine) < 0.05


def test_a_scorer_ranks_the_candidates(opened, corpus, common_words):
    query = corpus[7]["text"]
    (plain,) = opened.search([query], 20)
    (hits,) = opened.search([query], 4, reranker=common_words, n_candidates=20)
    words = {*query.split()}
    expected = sorted(plain, key=lambda hit: -len(words & {*hit.document.split()}))[:4]
    assert [hit.row for hit in hits] == [hit.row for hit in expected]
    assert [hit.score for hit in hits] == [len(words & {*hit.document.split()}) for hit in hits]
    assert [hit.cosine for hit in hits] == [hit.cosine for hit in expected]


def test_queries_go_some_at_a_time(opened, corpus, common_words, monkeypatch):
    queries = corpus["text"][:10]
    at_once = [[hit.row for hit in hits] for hits in opened.search(queries, 3, reranker=common_words)]
    monkeypatch.setattr(index, "_QUERIES_AT_ONCE", 3)
    assert [[hit.row for hit in hits] for hits in opened.search(queries, 3, reranker=common_words)] == at_once


def test_numbers_that_do_not_go_together_are_refused_at_once(opened, common_words):
    with pytest.raises(InputError, match="top_k is 0; give at least 1"):
        opened.search(["x"], 0)
    with pytest.raises(InputError, match="top_k is 11, but 10 candidates are re-ranked"):
        opened.search(["x"], 11, reranker=common_words, n_candidates=10)
    assert len(next(opened.search(["x"], 1000))) == 96, "all documents, where there are fewer"


BY_NAME = {"query_prompt_name": "ask", "document_prompt_name": "answer"}
BY_TEXT = {"query_prompt": "kama ", "document_prompt": "balo dalo "}


@pytest.mark.parametrize("options", [BY_NAME, BY_TEXT, {}])
def test_queries_and_documents_have_prompts_of_their_own(options, corpus, tiny_bi_encoder, tmp_path):
    prompts = {"query": "gelo ", "document": "felo ", "ask": "kama ", "answer": "balo dalo "}
    model = SentenceTransformer(tiny_bi_encoder, device="cpu", prompts=prompts)
    model.save(str(tmp_path / "model"), create_model_card=False)
    some, query = corpus.select(range(20)), "lelo balo"
    build_index(
        some, load_embedder(str(tmp_path / "model"), device="cpu", precision="fp32", **options), tmp_path / "index"
    )
    (hits,) = open_index(tmp_path / "index", device="cpu", precision="fp32").search([query], 20)
    texts = some["text"][:]
    asked = model.encode([query], prompt="kama ") if options else model.encode_query([query])
    answers = model.encode(texts, prompt="balo dalo ") if options else model.encode_document(texts)
    (expected,) = semantic_search(asked, answers, top_k=20)
    assert_cosines(hits, expected, model)


def test_dimensions_are_sentence_transformers_truncation(corpus, tiny_bi_encoder, tmp_path):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu", truncate_dim=8)
    embedder = load_embedder(tiny_bi_encoder, device="cpu", dimensions=8, precision="fp32")
    build_index(corpus, embedder, tmp_path / "index")
    opened = open_index(tmp_path / "index", device="cpu", precision="fp32")
    assert opened.vectors.index.d == 8
    query = corpus[3]["text"]
    (expected,) = semantic_search(model.encode([query]), model.encode(corpus["text"][:]), top_k=6)
    (hits,) = opened.search([query], 6)
    assert_cosines(hits, expected, model)


def test_a_document_is_found_whatever_its_script_and_ends(index_of):
    texts = ["one\nline\tand more", "これは文です", "مرحبا بالعالم", "balo kama"]
    opened = index_of(texts)
    assert not opened.record.is_one_line and not opened.record.has_ids
    (hits,) = opened.search(["balo kama"], 4)
    assert {hit.document for hit in hits} == {*texts} and hits[0].document == "balo kama" and hits[0].id is None


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
    found = measure(opened, relevance_of(read_rows(Source(relevance), RELEVANCE), read_rows(Source(texts), DOCUMENTS)))
    assert found == pytest.approx(expected)
    assert 0 < found["ndcg_at_10"] < 100 and found["recall_at_1"] < found["recall_at_10"] < found["recall_at_100"]


def test_by_texts_from_one_file(opened, labelled, expected, corpus, write):
    queries, rows = labelled
    texts = dict(zip(corpus["id"], corpus["text"], strict=True))
    lines = [("query", "document", "relevance"), *((queries[query], texts[document], 2) for query, document in rows)]
    lines.append(("nobody answers this", texts["d3"], 0))
    assert measure(opened, relevance_of(read_rows(Source(write("one.tsv", lines)), RELEVANCE))) == pytest.approx(
        expected
    )


def test_re_ranking_is_measured_on_its_candidates(opened, labelled, common_words):
    queries, rows = labelled
    answers = Dataset.from_list([{"sentence1": query, "sentence2": document} for query, document in rows])
    relevance = relevance_of(answers, Dataset.from_dict({"id": [*queries], "text": [*queries.values()]}))
    found = measure(opened, relevance, reranker=common_words, n_candidates=40)
    assert found["mrr_at_10"] == 100, "its own words are in the answer"
    few = measure(opened, relevance, reranker=common_words, n_candidates=5)
    assert few["recall_at_5"] == few["recall_at_100"] <= found["recall_at_100"]


def test_equal_documents_count_once(index_of):
    rows = Dataset.from_dict({"sentence1": ["balo kama"], "sentence2": ["gelo dalo felo"]})
    opened = index_of(["balo kama", "balo kama", "balo kama", "gelo dalo felo"])
    assert measure(opened, relevance_of(rows))["mrr_at_10"] == 50


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


def test_an_index_without_ids_is_measured_by_texts_only(index_of):
    rows = Dataset.from_dict({"sentence1": ["q"], "sentence2": ["d"]})
    by_id = relevance_of(rows, Dataset.from_dict({"id": ["q"], "text": ["x"]}))
    with pytest.raises(InputError, match="the index was built without ids. Build it with ids"):
        measure(index_of(["balo", "kama"]), by_id)


def test_a_file_of_other_columns_says_so(write):
    with pytest.raises(InputError, match="which 2 of the columns 'query', 'candidate' have the texts"):
        read_rows(Source(write("odd.tsv", [("query", "candidate"), ("a b", "c d")])), RELEVANCE)
    path = write("odd.tsv", [("q", "c", "rel"), ("a b", "c d", 0)])
    rows = read_rows(Source(path, columns=("q", "c"), score_column="rel"), RELEVANCE)
    assert rows[0] == {"sentence1": "a b", "sentence2": "c d", "score": 0.0}


def test_a_model_that_overflows_is_named_with_the_text(index_of, monkeypatch):
    monkeypatch.setattr(BiScorer, "embed_into", lambda self, embeddings, tokens: embeddings.fill(np.nan))
    with pytest.raises(InputError, match="2 of 2 rows of embeddings are not finite numbers, the first for row 0: 'a'"):
        index_of(["a", "b"])
