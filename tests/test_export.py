"""Exported models and the runtimes that read them give what PyTorch gives; a model goes to the hub with its card."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from tests.rounding import model_rounding
from transencoder import export
from transencoder.cli import main
from transencoder.errors import InputError
from transencoder.export import ExportedEncoder, export_model, export_onnx, push

TEXTS = ["balo", "kama balo dalo gelo", "x", "felo lelo balo " * 4] * 20


@pytest.fixture(scope="module")
def cross_folder(tiny_plm, tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("cross") / "model"
    CrossEncoder(tiny_plm, num_labels=1, device="cpu").save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def exported(tiny_bi_encoder, tmp_path_factory):
    """Folder of a bi-encoder in ONNX, and how it agrees with the model."""
    for name in ("onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="the extra `export` is not installed")
    folder = tmp_path_factory.mktemp("onnx") / "exported"
    return folder, export_model(Path(tiny_bi_encoder), "onnx", folder)


@pytest.fixture(scope="module")
def file(exported):
    return exported[0] / "model.onnx"


@pytest.mark.parametrize("prompts", [{}, {"query": "gelo "}])
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_embeddings_are_pytorchs_for_any_number_and_length_of_texts(bi, file, runtime, prompts):
    pytest.importorskip(runtime)
    bi.prompts, bi.default_prompt_name = prompts, next(iter(prompts), None)
    encoder = ExportedEncoder(bi, file, runtime, threads=1)
    for texts in (TEXTS, TEXTS[:1]):
        expected = bi.encode(texts)
        np.testing.assert_allclose(encoder.encode(texts), expected, rtol=0, atol=model_rounding(bi, expected))
    assert encoder.encode([]).shape == (0, 32)


def test_onnxruntime_computes_in_fp32_alone(bi, file):
    pytest.importorskip("onnxruntime")
    with pytest.raises(InputError, match="precision is bf16; onnxruntime computes an fp32 model in fp32"):
        ExportedEncoder(bi, file, "onnxruntime", precision="bf16")


def test_missing_packages_are_named(bi, tmp_path, monkeypatch, tiny_bi_encoder):
    for name in ("onnxscript", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"model.onnx cannot be written: .* pip install 'transencoder\[export\]'"):
        export_onnx(bi, tmp_path / "model.onnx")
    with pytest.raises(
        InputError, match="cannot be read by openvino: it needs the packages onnx, onnxscript and openvino"
    ):
        ExportedEncoder(bi, tmp_path / "model.onnx", "openvino")
    with pytest.raises(InputError, match="cannot be written"):
        export_model(Path(tiny_bi_encoder), "openvino", tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("form", "to"), [("bi", "onnx"), ("cross", "openvino")])
def test_a_folder_is_all_that_a_runtime_needs(form, to, cross_folder, tiny_bi_encoder, tmp_path, exported):
    """Read with the runtime and the tokenizers package alone, as the docs show it."""
    pytest.importorskip(to if to == "openvino" else "onnxruntime", reason="the extra `export` is not installed")
    from tokenizers import Tokenizer

    folder, found = exported
    if form == "cross":
        found = export_model(cross_folder, to, folder := tmp_path / "exported")
    plain = (
        CrossEncoder(str(cross_folder), device="cpu")
        if form == "cross"
        else SentenceTransformer(tiny_bi_encoder, device="cpu")
    )
    assert found.max_difference < model_rounding(plain) and found.longest == (128 if form == "cross" else 64)
    about = json.loads((folder / "export.json").read_text())
    assert about["form"] == form and about["agreement"]["max_difference"] == found.max_difference
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(about["max_length"])
    tokenizer.enable_padding()
    inputs = [("balo kama", "gelo"), ("dalo", "felo lelo")] if form == "cross" else ["balo kama", "dalo"]
    encoded = tokenizer.encode_batch(inputs)
    features = {
        "input_ids": np.array([each.ids for each in encoded]),
        "attention_mask": np.array([each.attention_mask for each in encoded]),
        "token_type_ids": np.array([each.type_ids for each in encoded]),
    }
    if to == "onnx":
        import onnxruntime

        (values,) = onnxruntime.InferenceSession(folder / "model.onnx").run(None, features)
    else:
        import openvino

        values = openvino.compile_model(folder / "model.xml", "CPU")(features)[0]
    expected = plain.predict(inputs) if form == "cross" else plain.encode(inputs)
    atol = 1e-2 if to == "openvino" else model_rounding(plain, expected)  # openvino may take bf16
    np.testing.assert_allclose(values, expected, rtol=0, atol=atol)


def test_scores_that_differ_leave_nothing_behind(tiny_bi_encoder, tmp_path, monkeypatch):
    """As if what was exported were another model."""
    monkeypatch.setattr(export, "export_onnx", lambda model, file: file.write_text("x"))
    monkeypatch.setattr(ExportedEncoder, "__init__", lambda *_: None)
    for values, message in (
        ([[1.0], [-1.0]] * 16, r"by up to \d\.\d+, 0.0001 is allowed"),
        ([[np.nan]] * 32, "by up to nan"),
    ):
        monkeypatch.setattr(ExportedEncoder, "encode", lambda self, _, values=values: np.array(values, np.float32))
        with pytest.raises(InputError, match=f"scores differ from PyTorch's {message}"):
            export_model(Path(tiny_bi_encoder), "onnx", tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="is there already; give a new folder"):
        export_model(Path(tiny_bi_encoder), "onnx", tmp_path)
    with pytest.raises(InputError, match="there is no folder .*no. Make it first"):
        export_model(Path(tiny_bi_encoder), "onnx", tmp_path / "no" / "exported")


def test_several_outputs_are_not_exported(tiny_plm, tmp_path):
    with pytest.raises(InputError, match="the cross-encoder has 3 outputs"):
        export_onnx(CrossEncoder(tiny_plm, num_labels=3, device="cpu"), tmp_path / "model.onnx")


class Unreachable(Exception):
    """What the hub's client raises without a network is no OSError."""


class FakeHub:
    """Stands in for the hub's client: keeps what it was asked, and the files it was given."""

    def __init__(self, token=None):
        FakeHub.calls, FakeHub.token = [], token

    def create_repo(self, repo_id, private, repo_type, exist_ok):
        self.calls.append(("create", repo_id, private, exist_ok))
        if repo_id == "me/taken" and not exist_ok:
            raise OSError("409 Conflict: you already created this repo\nmore")
        if repo_id == "me/far":
            raise Unreachable("[Errno 111] Connection refused")
        return type("Url", (), {"repo_id": repo_id})

    def create_branch(self, repo_id, branch, exist_ok):
        self.calls.append(("branch", branch))

    def upload_folder(self, repo_id, folder_path, revision, **_):
        self.calls.append(("upload", repo_id, revision))
        FakeHub.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir() if path.is_file()}
        return type("Commit", (), {"commit_url": f"hub/{repo_id}/commit/1"})


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("sentence_transformers.base.model.HfApi", FakeHub)
    return FakeHub


@pytest.fixture
def trained(tiny_bi_encoder, tmp_path):
    """A model with a card of its own."""
    folder = tmp_path / "bi-encoder"
    SentenceTransformer(tiny_bi_encoder, device="cpu").save(str(folder), create_model_card=False)
    (folder / "README.md").write_text("# My card\n")
    return folder


def test_a_model_is_pushed_as_it_is_and_private(hub, trained):
    assert push(trained, "me/model", token="secret") == "hub/me/model/commit/1"
    assert hub.calls == [("create", "me/model", True, False), ("upload", "me/model", None)]
    assert hub.token == "secret"
    assert hub.files == {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    assert hub.files["README.md"] == b"# My card\n"
    push(trained, "me/taken", is_private=False, is_update=True, branch="next")
    assert hub.calls == [("create", "me/taken", False, True), ("branch", "next"), ("upload", "me/taken", "next")]


def test_a_cross_encoder_is_pushed_too_and_a_missing_card_is_said(hub, cross_folder, caplog):
    (cross_folder / "README.md").unlink(missing_ok=True)
    push(cross_folder, "me/cross")
    assert "has no model card" in caplog.text and "model.safetensors" in hub.files


@pytest.mark.parametrize(
    ("repo_id", "message"),
    [
        ("me/my/model", "'me/my/model' is no id of a repository"),
        ("me/..", "is no id of a repository"),
        ("me/taken", r"me/taken could not be pushed \(409 Conflict: you already created this repo\).*--update"),
        ("me/far", r"me/far could not be pushed \(\[Errno 111\] Connection refused\).*the network"),
    ],
)
def test_what_the_hub_does_not_take(repo_id, message, hub, trained):
    with pytest.raises(InputError, match=message):
        push(trained, repo_id)


def test_only_sentence_transformers_models_are_pushed(hub, tiny_plm):
    with pytest.raises(InputError, match="is no sentence-transformers model"):
        push(Path(tiny_plm), "me/model")


def test_the_commands_do_as_python_does(hub, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")
    assert main(["push", str(trained), "me/model"]) == 0
    assert capsys.readouterr().out == "me/model: hub/me/model/commit/1\n"
    assert hub.calls[0] == ("create", "me/model", True, False)
    main(["push", str(trained), "me/model", "--public", "--update", "--branch", "next"])
    assert hub.calls[:2] == [("create", "me/model", False, True), ("branch", "next")]
    assert main(["push", "minilm", "me/model"]) == 2
    assert "minilm is no folder" in capsys.readouterr().err
    monkeypatch.setattr(export, "export_onnx", lambda model, file: file.write_text("x"))
    monkeypatch.setattr(ExportedEncoder, "__init__", lambda self, model, *_: setattr(self, "model", model))
    monkeypatch.setattr(ExportedEncoder, "encode", lambda self, texts: self.model.encode(texts))
    assert main(["export", str(trained), "--to", "onnx", "--output", str(tmp_path / "exported")]) == 0
    assert "scores of 32 pairs of up to 64 tokens differ by at most 0 from PyTorch's" in capsys.readouterr().out
    assert {"model.onnx", "tokenizer.json", "export.json"} <= {path.name for path in (tmp_path / "exported").iterdir()}
