"""Models are found or refused clearly, known by their content, and become bi-encoders and cross-encoders."""

import logging
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from tests.rounding import model_rounding
from transencoder.encoders import (
    add_projection,
    count_parameters,
    fetch,
    load_bi,
    load_cross,
    load_trained,
    transplant,
    weights_fingerprint,
)
from transencoder.encoders.files import has_pooler
from transencoder.encoders.saving import save
from transencoder.errors import InputError

PAIRS = [("balo bama", "dalo"), ("kama", "kama x"), ("gelo lelo memo", "balo dioma")]
QUERY = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def bi_folder(tiny_bi_encoder):
    return Path(tiny_bi_encoder)


@pytest.fixture
def plm_folder(tiny_plm):
    return Path(tiny_plm)


@pytest.fixture
def copied(bi_folder, tmp_path):
    return Path(shutil.copytree(bi_folder, tmp_path / "copy"))


def weights(model: torch.nn.Module, part: str) -> dict[str, torch.Tensor]:
    found = {name: value.clone() for name, value in model.state_dict().items() if part in name}
    assert found
    return found


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Equal values in one order, whatever the prefixes."""
    return len(first) == len(second) and all(map(torch.equal, first.values(), second.values()))


# Finding a model


def test_a_file_that_no_library_reads_may_be_anything(copied):
    """all-MiniLM-L6-v2 has a data_config.json, a list of its training data."""
    (copied / "data_config.json").write_text('[{"name": "reddit"}]')
    assert fetch(str(copied)) == copied


def test_a_folder_is_taken_as_it_is(bi_folder, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    assert fetch(str(bi_folder)) == bi_folder
    monkeypatch.setenv("MODELS", str(bi_folder.parent))
    assert fetch("$MODELS/tiny-bi-encoder") == bi_folder


def test_a_hub_id_is_downloaded_with_its_options(bi_folder, monkeypatch):
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(bi_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert fetch("some/model", revision="abc", token="t", cache_folder="c") == bi_folder
    assert (asked["name"], asked["revision"], asked["token"], asked["cache_dir"]) == ("some/model", "abc", "t", "c")
    fetch("some/model@refs/pr/4")
    assert (asked["name"], asked["revision"]) == ("some/model", "refs/pr/4")
    fetch("some/model")
    assert asked["revision"] is None
    assert not any("bin" in pattern or "pt" in pattern for pattern in asked["allow_patterns"]), "no pickles"
    assert "README.md" in asked["allow_patterns"], "whose licence and language hold for what is trained from it"


@pytest.mark.parametrize("error", [OSError("offline\nsecond line"), ValueError("bad id"), KeyError()])
def test_no_such_model(monkeypatch, error):
    def download(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(InputError) as caught:
        fetch("no/such-model")
    message = str(caught.value)
    assert "'no/such-model' is no local folder" in message
    assert (str(error).splitlines() or ["KeyError"])[0] in message
    assert "second line" not in message
    assert "Give a folder" in message


@pytest.mark.parametrize("path", ["./nomodel", "../a/b", "/nowhere/model", "runs/mine/bi-encoder"])
def test_the_path_of_no_folder_is_not_asked_of_the_hub(monkeypatch, path):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    with pytest.raises(InputError, match=r"is no local folder, and no hub id\. Give a folder"):
        fetch(path)


def test_pickled_weights_are_refused(copied):
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"no \.safetensors file.*pickled weights are not loaded.*save_pretrained"):
        fetch(str(copied))


def test_a_folder_without_a_config_is_refused(copied):
    (copied / "config.json").unlink()
    with pytest.raises(InputError, match=r"no config\.json"):
        fetch(str(copied))


# What it is


def test_the_fingerprint_is_the_contents(bi_folder, copied):
    start = weights_fingerprint(bi_folder)
    assert weights_fingerprint(copied) == start
    (copied / "README.md").write_text("notes")
    assert weights_fingerprint(copied) == start


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "1_Pooling/config.json"])
def test_the_fingerprint_changes_with_any_file_that_counts(bi_folder, copied, name):
    content = bytearray((copied / name).read_bytes())
    content[-3] ^= 1
    (copied / name).write_bytes(content)
    assert weights_fingerprint(copied) != weights_fingerprint(bi_folder)


def test_the_fingerprint_changes_with_one_weight(bi_folder, tmp_path):
    model = load_bi(bi_folder, device="cpu")
    model.save(str(tmp_path / "same"), create_model_card=False)
    with torch.no_grad():
        model[0].model.embeddings.word_embeddings.weight[5, 5] += 1e-3
    model.save(str(tmp_path / "other"), create_model_card=False)
    assert weights_fingerprint(tmp_path / "same") != weights_fingerprint(tmp_path / "other")


def test_parameters_are_counted_from_the_files(bi_folder):
    model = load_bi(bi_folder, device="cpu")
    assert count_parameters(bi_folder) == sum(value.numel() for value in model.parameters())


# Bi-encoders


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_of_a_bi_encoder(bi_folder, pooling):
    model = load_bi(bi_folder, pooling=pooling, device="cpu")
    features = dict(model.preprocess(["balo bama dalo"]))
    with torch.no_grad():
        tokens = model.eval()[0].model(features["input_ids"], features["attention_mask"]).last_hidden_state[0]
    expected = {"mean": tokens.mean(0), "cls": tokens[0], "max": tokens.max(0).values}[pooling]
    np.testing.assert_allclose(
        model.encode("balo bama dalo"), expected.numpy(), rtol=0, atol=model_rounding(model, expected)
    )


def test_pooling_by_the_pretrained_pooler(plm_folder, bi_folder, tmp_path):
    transformer = AutoModel.from_pretrained(plm_folder)
    assert not has_pooler(plm_folder)
    with pytest.raises(
        InputError, match="has no weights of a pooler, as BERT has; pooling pooler and on_pooler need them"
    ):
        load_bi(plm_folder, pooling="pooler", device="cpu")
    transformer.save_pretrained(tmp_path / "own")
    AutoTokenizer.from_pretrained(plm_folder).save_pretrained(tmp_path / "own")
    model = load_bi(tmp_path / "own", pooling="pooler", device="cpu")
    features = dict(model.preprocess(["balo bama dalo"]))
    with torch.no_grad():
        expected = transformer.eval()(features["input_ids"], features["attention_mask"]).pooler_output[0].numpy()
    rounding = {"rtol": 0, "atol": model_rounding(model, expected)}
    np.testing.assert_allclose(model.encode("balo bama dalo"), expected, **rounding)
    save(model, tmp_path / "saved")
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(plain.encode("balo bama dalo"), expected, **rounding)
    with pytest.raises(InputError, match="has a dense layer behind its pooling; leave pooling out"):
        load_bi(tmp_path / "saved", pooling="pooler", device="cpu")


def test_a_bi_encoder_keeps_its_own_pooling_and_length(bi_folder, tmp_path):
    load_bi(bi_folder, pooling="max", max_length=20, device="cpu").save(str(tmp_path), create_model_card=False)
    model = load_bi(tmp_path, device="cpu")
    assert (model[1].pooling_mode, model.max_seq_length) == ("max", 20)
    assert load_bi(tmp_path, max_length=9, device="cpu").max_seq_length == 9


def test_a_plain_pretrained_model_pools_by_mean(plm_folder, bi_folder):
    model = load_bi(plm_folder, device="cpu")
    assert model[1].pooling_mode == "mean"
    own = load_bi(bi_folder, device="cpu")
    expected = own.encode("balo bama")
    np.testing.assert_allclose(model.encode("balo bama"), expected, rtol=0, atol=model_rounding(own, expected))


def test_a_pooling_for_a_model_that_has_none_is_refused(plm_folder, tmp_path):
    """Was: StopIteration."""
    tokenizer = AutoTokenizer.from_pretrained(plm_folder).backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save(str(tmp_path))
    with pytest.raises(InputError, match="has no pooling layer"):
        load_bi(tmp_path, pooling="mean", device="cpu")


def test_a_saved_model_is_loaded_with_another_pooling(plm_folder):
    assert load_trained(plm_folder, pooling="cls", device="cpu")[1].pooling_mode == "cls"


# Cross-encoders


@pytest.mark.parametrize("start", ["tiny_plm", "tiny_bi_encoder"])
@pytest.mark.parametrize("head", ["pooler", "linear"])
def test_a_saved_cross_encoder_is_itself_in_plain_sentence_transformers(start, head, request, tmp_path):
    model = load_cross(Path(request.getfixturevalue(start)), head=head, max_length=20, device="cpu")
    assert model.num_labels == 1
    scores = model.predict(PAIRS)
    assert np.ptp(scores) > 0
    model.save_pretrained(str(tmp_path), create_model_card=False)
    plain = CrossEncoder(str(tmp_path), device="cpu")
    assert plain.max_seq_length == 20
    np.testing.assert_allclose(plain.predict(PAIRS), scores, rtol=0, atol=model_rounding(model))
    again = load_trained(tmp_path, device="cpu")
    assert isinstance(again, CrossEncoder)
    np.testing.assert_allclose(again.predict(PAIRS), scores, rtol=0, atol=model_rounding(model))
    for wanted in ("pooler", "linear"):
        reloaded = load_cross(tmp_path, head=wanted, seed=5, device="cpu").predict(PAIRS)
        np.testing.assert_allclose(reloaded, scores, rtol=0, atol=model_rounding(model))


@pytest.mark.parametrize("head", ["pooler", "linear"])
def test_the_head_is_the_models_own_classifier_or_one_layer_on_cls(plm_folder, head):
    model = load_cross(plm_folder, head=head, device="cpu").eval()
    bert = model.transformers_model
    features = dict(model.preprocess(PAIRS))
    inputs = {name: features[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    with torch.no_grad():
        if head == "pooler":
            logits = bert.classifier(bert.bert(**inputs).pooler_output).view(-1)
        else:
            logits = model[2].linear(bert(**inputs).last_hidden_state[:, 0]).view(-1)
            assert sum(value.numel() for value in model[2].parameters()) == 33
    np.testing.assert_allclose(model.predict(PAIRS), torch.sigmoid(logits).numpy(), rtol=0, atol=model_rounding(model))


@pytest.mark.parametrize(("head", "new"), [("pooler", "classifier"), ("linear", "2.linear")])
def test_the_seed_decides_the_new_parts_only(plm_folder, head, new):
    first, again, other = (load_cross(plm_folder, head=head, seed=seed, device="cpu") for seed in (1, 1, 2))
    assert same(weights(first, f"{new}.weight"), weights(again, f"{new}.weight"))
    assert not same(weights(first, f"{new}.weight"), weights(other, f"{new}.weight"))
    assert same(weights(first, "encoder.layer"), weights(other, "encoder.layer"))


def test_saved_models_come_back_in_their_form(bi_folder, plm_folder, tmp_path):
    assert isinstance(load_trained(bi_folder, device="cpu"), SentenceTransformer)
    assert isinstance(load_trained(plm_folder, device="cpu"), SentenceTransformer)
    model = load_cross(bi_folder, device="cpu")
    model.transformers_model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    plain = load_trained(tmp_path, device="cpu")
    assert isinstance(plain, CrossEncoder), "a transformers checkpoint for sequence classification"


# Sequential initialisation


@pytest.fixture
def trained(bi_folder):
    """A bi-encoder whose encoder is not the start's."""
    model = load_bi(bi_folder, device="cpu")
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.01 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
    return model


@pytest.mark.parametrize("head", ["pooler", "linear"])
def test_transplant_copies_the_encoder_and_leaves_the_head(trained, plm_folder, head):
    cross = load_cross(plm_folder, head=head, device="cpu")
    part = "classifier" if head == "pooler" else "2.linear"
    own_head = weights(cross, part)
    assert not same(weights(trained, "encoder.layer"), weights(cross, "encoder.layer"))
    transplant(trained, cross)
    for name in ("encoder.layer", "embeddings"):
        assert same(weights(trained, name), weights(cross, name))
    assert same(own_head, weights(cross, part))
    with torch.no_grad():
        trained[0].model.embeddings.word_embeddings.weight.zero_()
    assert not same(weights(trained, "word_embeddings"), weights(cross, "word_embeddings")), (
        "a copy, not the same tensor"
    )


def test_transplant_leaves_a_pooler_that_only_one_has(trained, plm_folder):
    cross = load_cross(plm_folder, device="cpu")
    own_pooler = weights(cross, "pooler")
    trained[0].model.pooler = None
    transplant(trained, cross)
    assert same(own_pooler, weights(cross, "pooler"))
    assert same(weights(trained, "encoder.layer"), weights(cross, "encoder.layer"))
    with torch.no_grad():
        for value in cross.parameters():
            value.mul_(1.1)
    transplant(cross, trained)
    assert same(weights(trained, "encoder.layer"), weights(cross, "encoder.layer")), "back into a bi-encoder"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"num_hidden_layers": 3}, "layer.2"),
        ({"num_hidden_layers": 1}, "layer.1"),
        ({"hidden_size": 16}, "embeddings"),
        ({"vocab_size": 400}, "word_embeddings"),
    ],
)
def test_transplant_refuses_another_architecture(trained, plm_folder, tmp_path, change, where):
    """Was: more layers in the target were kept without a word, other sizes ended in a RuntimeError half-way."""
    config = BertConfig.from_pretrained(plm_folder)
    for name, value in change.items():
        setattr(config, name, value)
    BertModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(plm_folder).save_pretrained(tmp_path)
    other = load_cross(tmp_path, device="cpu")
    before = weights(other, "encoder")
    with pytest.raises(InputError, match=rf"needs starts of one architecture; .*{where}.*refreshing"):
        transplant(trained, other)
    assert same(before, weights(other, "encoder"))


@pytest.mark.parametrize("load", [load_bi, load_cross, load_trained])
def test_weights_saved_in_half_precision_are_loaded_in_full(load, tiny_bi_encoder, tmp_path):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu").half()
    model.save_pretrained(str(tmp_path / "half"), create_model_card=False)
    loaded = load(tmp_path / "half", device="cpu")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


def test_a_cross_encoder_start_scores_by_sigmoid_whatever_it_was_saved_with(tiny_bi_encoder, tmp_path):
    model = CrossEncoder(tiny_bi_encoder, num_labels=1, activation_fn=torch.nn.Identity(), device="cpu")
    model.save_pretrained(str(tmp_path / "identity"), create_model_card=False)
    start = load_cross(tmp_path / "identity", device="cpu")
    start.save_pretrained(str(tmp_path / "trained"), create_model_card=False)
    plain, again = (CrossEncoder(str(tmp_path / name), device="cpu").predict(PAIRS) for name in ("identity", "trained"))
    np.testing.assert_allclose(again, 1 / (1 + np.exp(-plain)), rtol=0, atol=model_rounding(model))


def test_a_cross_encoder_start_with_several_outputs_is_refused(tiny_bi_encoder, tmp_path):
    CrossEncoder(tiny_bi_encoder, num_labels=3, device="cpu").save_pretrained(str(tmp_path / "three"))
    with pytest.raises(InputError, match="cross-encoder with 3 outputs"):
        load_cross(tmp_path / "three", device="cpu")


@pytest.mark.parametrize("load", [load_bi, load_cross, load_trained])
def test_more_tokens_than_positions_are_refused(load, tiny_bi_encoder):
    with pytest.raises(InputError, match="max_length is 129, but .* reads at most 128 tokens"):
        load(Path(tiny_bi_encoder), max_length=129, device="cpu")
    assert load(Path(tiny_bi_encoder), max_length=128, device="cpu").max_seq_length == 128


@pytest.fixture
def run_folder(tmp_path, tiny_bi_encoder):
    """Makes a run folder with some models."""

    def make(*names: str) -> str:
        (tmp_path / "stages").mkdir()
        (tmp_path / "recipe.toml").touch()
        for name in names:
            shutil.copytree(tiny_bi_encoder, tmp_path / name)
        return str(tmp_path)

    return make


def test_a_run_stands_for_its_model_of_a_form(run_folder):
    run = run_folder("bi-encoder", "cross-encoder")
    assert fetch(run, form="bi") == Path(run) / "bi-encoder"
    assert fetch(run, form="cross") == Path(run) / "cross-encoder"
    with pytest.raises(InputError, match=r"several models; it has .*/bi-encoder and .*/cross-encoder: give one"):
        fetch(run)


def test_a_run_of_one_form_stands_for_its_only_model(run_folder):
    run = run_folder("bi-encoder")
    assert fetch(run) == fetch(run, form="bi") == Path(run) / "bi-encoder"
    with pytest.raises(InputError, match=r"has no cross-encoder; it has .*/bi-encoder"):
        fetch(run, form="cross")


def test_an_unfinished_run_is_no_model(run_folder):
    with pytest.raises(InputError, match="is a run that is not finished; run its command again"):
        fetch(run_folder(), form="bi")


def test_loading_in_another_form_is_silent_and_other_warnings_are_not(tiny_plm, caplog):
    load_cross(Path(tiny_plm), device="cpu")
    load_bi(Path(tiny_plm), device="cpu")
    assert not caplog.records
    logging.getLogger("transformers.modeling_utils").warning("heard")
    assert "heard" in caplog.text


@pytest.mark.parametrize("tanh", [False, True])
def test_a_projection_comes_before_normalisation_and_is_saved(bi_folder, tanh, tmp_path):
    model = SentenceTransformer(str(bi_folder), device="cpu")
    plain = model.encode("balo dalo")
    model.append(Normalize())
    assert add_projection(model, 48, tanh=tanh) is model
    model.save(str(tmp_path / "wide"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "wide"), device="cpu")
    assert [type(module).__name__ for module in loaded] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert loaded.get_embedding_dimension() == 48
    expected = plain @ loaded[2].linear.weight.detach().numpy().T + loaded[2].linear.bias.detach().numpy()
    expected = np.tanh(expected) if tanh else expected
    np.testing.assert_allclose(
        loaded.encode("balo dalo"), expected / np.linalg.norm(expected), rtol=0, atol=model_rounding(loaded)
    )
