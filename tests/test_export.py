"""ONNX files of bi-encoders and the runtimes that read them give the embeddings that PyTorch gives."""

import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from transencoder.errors import InputError
from transencoder.export import ExportedEncoder, export_onnx

TEXTS = ["balo", "kama balo dalo gelo", "x", "felo lelo balo " * 4] * 20


@pytest.fixture(scope="module")
def model(tiny_bi_encoder):
    return SentenceTransformer(tiny_bi_encoder, device="cpu")


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(model, path)
    return path


def test_the_default_prompt_is_read_too(model, file):
    pytest.importorskip("onnxruntime")
    model.prompts, model.default_prompt_name = {"query": "gelo "}, "query"
    try:
        encoder = ExportedEncoder(model, file, "onnxruntime")
        np.testing.assert_allclose(encoder.encode(TEXTS[:4]), model.encode(TEXTS[:4]), atol=1e-5)
    finally:
        model.prompts, model.default_prompt_name = {}, None
    assert ExportedEncoder(model, file, "onnxruntime").encode([]).shape == (0, 32)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_embeddings_are_pytorchs_for_any_number_and_length_of_texts(model, file, runtime):
    pytest.importorskip(runtime)
    encoder = ExportedEncoder(model, file, runtime, threads=1)
    for texts in (TEXTS, TEXTS[:1]):
        np.testing.assert_allclose(encoder.encode(texts), model.encode(texts), atol=1e-5)


def test_onnxruntime_computes_in_fp32_alone(model, file):
    pytest.importorskip("onnxruntime")
    with pytest.raises(InputError, match="precision is bf16; onnxruntime computes an fp32 model in fp32"):
        ExportedEncoder(model, file, "onnxruntime", precision="bf16")


def test_missing_packages_are_named(model, tmp_path, monkeypatch):
    for name in ("onnxscript", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"model.onnx cannot be written: .* pip install '\.\[export\]'"):
        export_onnx(model, tmp_path / "model.onnx")
    with pytest.raises(
        InputError, match="cannot be read by openvino: it needs the packages onnx, onnxscript and openvino"
    ):
        ExportedEncoder(model, tmp_path / "model.onnx", "openvino")
