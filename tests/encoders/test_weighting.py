"""A bi-encoder whose tokens are weighted: plain sentence-transformers computes what is said, and all else takes it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

from tests.rounding import model_rounding
from transencoder import train
from transencoder.cli import main
from transencoder.encoders import load_bi, prune_vocabulary, weight_tokens
from transencoder.errors import InputError

TEXTS = ["a cat sleeps", "a dog sleeps", "a dog runs runs runs", "a dog"]


@pytest.fixture
def weighted(tiny_bi_encoder, tmp_path):
    output = tmp_path / "weighted"
    weight_tokens(Path(tiny_bi_encoder), Dataset.from_dict({"text": TEXTS}), output)
    return output


def token_means(model: SentenceTransformer, texts: list[str], corpus: list[str]) -> np.ndarray:
    """Average token embeddings of each text, weighted, in plain words; the model's own transformer alone."""
    ids = [set(model.preprocess([text])["input_ids"][0].tolist()) for text in corpus]
    rows = []
    for text in texts:
        features = model.preprocess([text])
        with torch.inference_mode():
            tokens = model[0](dict(features))["token_embeddings"][0].double().numpy()
        n_with = [sum(token in each for each in ids) for token in features["input_ids"][0].tolist()]
        weights = np.array([math.sqrt(math.log((len(corpus) + 1) / (n + 1))) for n in n_with])
        rows.append(weights @ tokens / weights.sum())
    return np.array(rows)


def test_plain_sentence_transformers_averages_with_the_weights(weighted, tiny_bi_encoder):
    base, model = (SentenceTransformer(str(folder), device="cpu") for folder in (tiny_bi_encoder, weighted))
    texts = [*TEXTS, "a bird sings"]
    expected = token_means(base, texts, TEXTS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = model.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=10 * model_rounding(base))
    assert np.abs(found - base.encode(texts, normalize_embeddings=True)).max() > 0.01


def test_it_is_saved_by_the_names_of_version_5(weighted):
    modules = json.loads((weighted / "modules.json").read_text())
    assert "sentence_transformers.models.WordWeights" in [each["type"] for each in modules]
    (weights,) = (each["path"] for each in modules if each["type"].endswith("WordWeights"))
    assert set(json.loads((weighted / weights / "config.json").read_text())) == {
        "vocab",
        "word_weights",
        "unknown_word_weight",
    }


def test_servers_find_a_plain_mean_where_they_look_for_pooling(weighted, tiny_bi_encoder):
    pooling, own = (
        json.loads((Path(each) / "1_Pooling/config.json").read_text()) for each in (weighted, tiny_bi_encoder)
    )
    assert pooling["pooling_mode_mean_tokens"] is True
    assert pooling["word_embedding_dimension"] == own.get("word_embedding_dimension", own.get("embedding_dimension"))


def test_other_poolings_and_smaller_vocabularies_are_refused(weighted, tmp_path):
    with pytest.raises(InputError, match="only a mean takes"):
        load_bi(weighted, pooling="cls", device="cpu")
    assert load_bi(weighted, pooling="mean", device="cpu").encode(TEXTS).any()
    with pytest.raises(InputError, match="weights its tokens, which prune_vocabulary"):
        prune_vocabulary(weighted, [TEXTS], len(TEXTS), tmp_path / "pruned")


def test_tokens_of_prompts_have_no_weight_and_ids_without_a_token_are_kept(tiny_bi_encoder, tmp_path):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    model.prompts = {"query": "dog: ", "document": ""}
    model.save(str(tmp_path / "prompted"))
    weight_tokens(tmp_path / "prompted", Dataset.from_dict({"text": TEXTS}), tmp_path / "made")
    made = SentenceTransformer(str(tmp_path / "made"), device="cpu")
    (module,) = (module for module in made if isinstance(module, WordWeights))
    prompted = {
        made.tokenizer.convert_ids_to_tokens(i) for i in made.tokenizer("dog: ", add_special_tokens=False)["input_ids"]
    }
    assert prompted and all(module.word_weights[token] == 0.0 for token in prompted)
    assert len(module.vocab) == 1 + max(made.tokenizer.get_vocab().values())


def test_the_same_text_makes_the_same_files(weighted, tiny_bi_encoder, tmp_path):
    weight_tokens(Path(tiny_bi_encoder), Dataset.from_dict({"text": TEXTS}), tmp_path / "again")
    files = sorted(path.relative_to(weighted) for path in weighted.rglob("*") if path.is_file())
    assert files
    assert all((weighted / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)


def test_a_run_that_starts_from_it_trains_all_but_the_weights(weighted, tiny_method):
    trained = train(tiny_method(start=str(weighted), members=(), same_form=True))
    given = load_bi(weighted, device="cpu")
    (module,) = (module for module in given if isinstance(module, WordWeights))
    assert not any(parameter.requires_grad for parameter in module.parameters())
    after, before = trained.bi_encoder.state_dict(), given.state_dict()
    assert after.keys() == before.keys()
    same = {name for name in after if torch.equal(after[name], before[name])}
    (weights,) = (name for name in after if name.endswith("emb_layer.weight"))
    assert weights in same
    assert not any("attention.self.query.weight" in name for name in same)
    (stage,) = trained.folder.glob("stages/cycle-1-bi-encoder-*/model")
    kept = SentenceTransformer(str(stage), device="cpu")
    np.testing.assert_allclose(kept.encode(TEXTS), trained.bi_encoder.encode(TEXTS), atol=model_rounding(given))


def test_other_poolings_and_weighted_models_are_refused(weighted, tiny_bi_encoder, tmp_path):
    texts = Dataset.from_dict({"text": TEXTS})
    with pytest.raises(InputError, match="weights its tokens already"):
        weight_tokens(weighted, texts, tmp_path / "twice")
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    model[1] = Pooling(model[1].embedding_dimension, pooling_mode="cls")
    model.save(str(tmp_path / "cls"))
    with pytest.raises(InputError, match="has no mean pooling"):
        weight_tokens(tmp_path / "cls", texts, tmp_path / "other")
    with pytest.raises(InputError, match="is there already"):
        weight_tokens(Path(tiny_bi_encoder), texts, weighted)
    with pytest.raises(InputError, match="all sentences are the same"):
        weight_tokens(Path(tiny_bi_encoder), Dataset.from_dict({"text": ["a cat", "a cat"]}), tmp_path / "other")
    CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu").save_pretrained(str(tmp_path / "cross"))
    with pytest.raises(InputError, match="is a cross-encoder"):
        weight_tokens(tmp_path / "cross", texts, tmp_path / "other")
    assert not (tmp_path / "twice").exists() and not (tmp_path / "other").exists()


def test_the_command_reads_a_column_of_a_file(tiny_bi_encoder, weighted, tmp_path, capsys):
    (tmp_path / "texts.csv").write_text("id,question\n" + "".join(f"{i},{text}\n" for i, text in enumerate(TEXTS)))
    typed = ["--sentences", str(tmp_path / "texts.csv"), "--columns", "question", "--output", str(tmp_path / "made")]
    assert main(["weight", tiny_bi_encoder, *typed]) == 0
    assert "tokens weighted by their frequency in 4 sentences" in capsys.readouterr().out
    first, second = (SentenceTransformer(str(folder), device="cpu") for folder in (weighted, tmp_path / "made"))
    np.testing.assert_allclose(first.encode(TEXTS), second.encode(TEXTS), rtol=0, atol=model_rounding(first))
    assert main(["weight", tiny_bi_encoder, *typed]) == 2
