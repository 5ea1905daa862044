"""Runs whose bi-encoders read prompts: what they score, learn and leave is what plain sentence-transformers reads."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from tests.rounding import model_rounding
from transencoder import BiScorer, Member, read_pairs, train
from transencoder.cli import main
from transencoder.errors import InputError
from transencoder.fit import student
from transencoder.metrics import spearman
from transencoder.search import load_embedder

QUERY, DOCUMENT = "kama dima: ", "balo: "


@pytest.fixture(scope="module")
def start(tiny_bi_encoder, tmp_path_factory):
    """As E5: prompts for queries and passages, and no default one; and prompts are not pooled."""
    folder = tmp_path_factory.mktemp("start") / "e5"
    model = SentenceTransformer(tiny_bi_encoder, device="cpu", prompts={"query": QUERY, "passage": DOCUMENT})
    model[1] = Pooling(32, pooling_mode="mean", include_prompt=False)
    model.save(str(folder), create_model_card=False)
    return str(folder)


@pytest.fixture(scope="module")
def seen():
    """Tokens of the batches that students learned: sentence1's and sentence2's."""
    return []


@pytest.fixture(scope="module")
def trained(start, seen, tiny_method, tiny_files):
    class Collator(student.BiCollator):
        def __call__(self, examples):
            batch = super().__call__(examples)
            seen.append((batch["sentence1_input_ids"], batch["sentence2_input_ids"]))
            return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(student, "BiCollator", Collator)
        member = Member(start=start, prompt=QUERY, document_prompt=DOCUMENT)
        return train(tiny_method(members=(member,), tests=(str(tiny_files / "test.tsv"),)))


def plain_scores(model, pairs):
    """Cosines as plain sentence-transformers has them."""
    queries, documents = model.encode_query(pairs["sentence1"][:]), model.encode_document(pairs["sentence2"][:])
    return model.similarity_pairwise(queries, documents).numpy()


def test_the_runs_scores_are_those_of_plain_sentence_transformers(trained, start, tiny_files):
    test = read_pairs(tiny_files / "test.tsv")
    model = SentenceTransformer(str(trained.folder / "bi-encoder"), device="cpu")
    assert model.default_prompt_name is None
    stage = next(trained.folder.glob("stages/*scores*bi*/test.npy"))
    scores = np.load(stage)
    np.testing.assert_allclose(scores, plain_scores(model, test), rtol=0, atol=model_rounding(model))
    assert trained.result["scores"]["bi"]["test"] == pytest.approx(spearman(test["score"][:], scores))
    plain_start = SentenceTransformer(start, device="cpu", prompts={"query": QUERY, "document": DOCUMENT})
    plain_start.max_seq_length = 32
    labelled = next(path for path in trained.folder.glob("stages/*start*scores*/scores.npy"))
    np.testing.assert_allclose(
        np.load(labelled),
        plain_scores(plain_start, read_pairs(tiny_files / "pairs.tsv")),
        rtol=0,
        atol=model_rounding(plain_start),
    )


def test_the_dev_metric_that_chose_is_of_the_prompts_too(trained, tiny_files):
    dev = read_pairs(tiny_files / "dev.tsv")
    found = spearman(dev["score"][:], plain_scores(trained.bi_encoder, dev))
    assert trained.result["best"]["bi"]["dev"] == pytest.approx(found, abs=1e-6)


def test_each_side_is_learned_with_its_own_prompt(trained, seen):
    tokenizer = trained.bi_encoder.tokenizer
    assert seen
    for batch in seen:
        for ids, prompt in zip(batch, (QUERY, DOCUMENT), strict=True):
            own = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            assert (ids[:, 1 : 1 + len(own)] == ids.new_tensor(own)).all()


def test_cross_encoders_read_no_prompts(trained):
    assert not any(trained.cross_encoder.prompts.values()) and trained.cross_encoder.default_prompt_name is None


def test_evaluate_and_search_find_them_by_their_names(trained, tiny_files, capsys):
    names = ("--prompt-name", "query", "--document-prompt-name", "document")
    model = str(trained.folder / "bi-encoder")
    options = ("--pairs", str(tiny_files / "test.tsv"), "--precision", "fp32", "--device", "cpu")
    assert main(["evaluate", model, *options, *names]) == 0
    assert f"{trained.result['scores']['bi']['test']:.2f}" in capsys.readouterr().out
    assert main(["evaluate", model, *options]) == 0
    assert "so that texts are read without. Give prompt" in capsys.readouterr().err
    embedder = load_embedder(str(trained.folder), device="cpu")
    assert (embedder.query_prompt, embedder.document_prompt) == (QUERY, DOCUMENT)


def test_the_card_shows_how_each_side_is_encoded(trained):
    card = (trained.folder / "bi-encoder" / "README.md").read_text()
    assert "model.encode_query(" in card and "model.encode_document(" in card
    assert "model.predict(" in (trained.folder / "cross-encoder" / "README.md").read_text()


def test_one_prompt_for_both_texts_becomes_the_default(start, tiny_method, tiny_files, caplog):
    test = read_pairs(tiny_files / "test.tsv")
    config = tiny_method(members=(Member(start=start, prompt=QUERY),), is_symmetric=True)
    model = SentenceTransformer(str(train(config).folder / "bi-encoder"), device="cpu")
    scores = BiScorer(model, precision="fp32").score(test)
    np.testing.assert_allclose(scores, plain_scores(model, test), rtol=0, atol=model_rounding(model))
    np.testing.assert_array_equal(scores, BiScorer(model, precision="fp32", prompt=QUERY).score(test))
    assert "has prompts" not in caplog.text


def test_other_prompts_are_other_stages(trained, start, tiny_method, caplog):
    def keys(result):
        return {stage["name"]: stage["key"] for stage in result["stages"]}

    found = keys(trained.result)
    member = Member(start=start, prompt=QUERY, document_prompt="lelo: ")
    other = keys(train(tiny_method(members=(member,))).result)
    assert not {name for name in found.keys() & other.keys() - {"texts"} if found[name] == other[name]}
    train(tiny_method(members=(Member(start=start),)))
    assert caplog.text.count(f"{start} has prompts (passage {DOCUMENT!r}, query {QUERY!r}) and no default one") == 1


def test_criteria_that_choose_without_labels_read_them(start, tiny_method, tiny_pairs, tmp_path):
    texts = [f"{a}\t{b}" for a in tiny_pairs["sentence1"][:20] for b in tiny_pairs["sentence2"][:26]]
    (tmp_path / "many.tsv").write_text("\n".join(texts) + "\n")
    member = Member(start=start, prompt=QUERY, document_prompt=DOCUMENT)
    result = train(tiny_method(members=(member,), pairs=str(tmp_path / "many.tsv"), dev=None)).result
    assert result["data"]["pairs"]["held_out_rows"] == 52 and result["selection"]["criteria"]["bi"] != "last"


def test_released_ensembles_read_them(start, tiny_method, tiny_files):
    members = tuple(Member(start=start, prompt=QUERY, document_prompt=prompt) for prompt in (DOCUMENT, ""))
    config = tiny_method(members=members, tests=(str(tiny_files / "test.tsv"),), ensemble_metric="released")
    trained, test = train(config), read_pairs(tiny_files / "test.tsv")
    folders = [trained.folder / "members" / number / "bi-encoder" for number in "12"]
    models = [SentenceTransformer(str(folder), device="cpu") for folder in folders]
    assert [model.prompts["document"] for model in models] == [DOCUMENT, ""]
    for model, stage in zip(models, sorted(trained.folder.glob("stages/*similarities*bi*/test.npy")), strict=True):
        np.testing.assert_allclose(np.load(stage)[0], plain_scores(model, test), rtol=0, atol=model_rounding(model))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_symmetric": True}, "document_prompt is 'balo: '.*; set is_symmetric false, or leave document_prompt out"),
        ({"pairs": None, "sentences": "a.txt"}, "of sentences pairs are mined that have no order; give documents"),
    ],
)
def test_a_document_prompt_needs_pairs_with_an_order(changes, message, start, tiny_method):
    with pytest.raises(InputError, match=message):
        tiny_method(members=(Member(start=start, document_prompt=DOCUMENT),), **changes)
