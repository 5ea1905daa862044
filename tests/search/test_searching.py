"""What is found is what plain sentence-transformers finds; scorers re-rank it; a reload changes nothing."""

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search

from tests.rounding import model_rounding
from transencoder.errors import InputError
from transencoder.search import build_index, index, load_embedder, open_index


@pytest.fixture(scope="module")
def opened(folder):
    return open_index(folder, device="cpu", precision="fp32")


def test_it_finds_what_sentence_transformers_finds(opened, corpus, tiny_bi_encoder):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    queries = [text.split(" ", 1)[1] for text in corpus["text"][:40]]
    plain = semantic_search(model.encode(queries), model.encode(list(corpus["text"])), top_k=5)
    for hits, expected in zip(opened.search(queries, 5), plain, strict=True):
        assert [hit.row for hit in hits] == [each["corpus_id"] for each in expected]
        np.testing.assert_allclose(
            [hit.cosine for hit in hits], [each["score"] for each in expected], rtol=0, atol=model_rounding(model)
        )
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


@pytest.mark.parametrize(
    "options",
    [
        {"query_prompt_name": "ask", "document_prompt_name": "answer"},
        {"query_prompt": "kama ", "document_prompt": "balo dalo "},
        {},
    ],
)
def test_queries_and_documents_have_prompts_of_their_own(options, corpus, tiny_bi_encoder, tmp_path):
    prompts = {"query": "gelo ", "document": "felo ", "ask": "kama ", "answer": "balo dalo "}
    model = SentenceTransformer(tiny_bi_encoder, device="cpu", prompts=prompts)
    model.save(str(tmp_path / "model"), create_model_card=False)
    some, query = corpus.select(range(20)), "lelo balo"
    build_index(some, load_embedder(str(tmp_path / "model"), device="cpu", **options), tmp_path / "index")
    (hits,) = open_index(tmp_path / "index", device="cpu").search([query], 20)
    own = {"prompt": "kama "}, {"prompt": "balo dalo "}
    asked = model.encode([query], **own[0]) if options else model.encode_query([query])
    answers = model.encode(some["text"][:], **own[1]) if options else model.encode_document(some["text"][:])
    (expected,) = semantic_search(asked, answers, top_k=20)
    np.testing.assert_allclose(
        [hit.cosine for hit in hits], [each["score"] for each in expected], rtol=0, atol=model_rounding(model)
    )


def test_dimensions_are_sentence_transformers_truncation(corpus, tiny_bi_encoder, tmp_path):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu", truncate_dim=8)
    embedder = load_embedder(tiny_bi_encoder, device="cpu", dimensions=8)
    build_index(corpus, embedder, tmp_path / "index")
    opened = open_index(tmp_path / "index", device="cpu")
    assert opened.vectors.index.d == 8
    query = corpus[3]["text"]
    (expected,) = semantic_search(model.encode([query]), model.encode(corpus["text"][:]), top_k=6)
    (hits,) = opened.search([query], 6)
    np.testing.assert_allclose(
        [hit.cosine for hit in hits], [each["score"] for each in expected], rtol=0, atol=model_rounding(model)
    )


def test_a_document_is_found_whatever_its_script_and_ends(embedder, tmp_path):
    texts = ["one\nline\tand more", "これは文です", "مرحبا بالعالم", "balo kama"]
    record = build_index(Dataset.from_dict({"text": texts}), embedder, tmp_path / "index")
    assert not record.is_one_line and not record.has_ids
    (hits,) = open_index(tmp_path / "index", device="cpu").search(["balo kama"], 4)
    assert {hit.document for hit in hits} == {*texts} and hits[0].document == "balo kama" and hits[0].id is None
