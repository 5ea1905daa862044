"""A model with checksums: a damaged file is named, whatever became of it."""

import errno
import shutil
from pathlib import Path

import pytest

from transencoder.encoders import fetch, files, write_checksums
from transencoder.errors import InputError, RunError


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [flip, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "modules.json"])
def test_a_damaged_file_is_named(name, harm, tiny_bi_encoder, tmp_path):
    """Was: without its weights a model was said to have pickled ones."""
    folder = shutil.copytree(tiny_bi_encoder, tmp_path / "model")
    write_checksums(folder)
    assert fetch(str(folder)) == folder
    harm(folder / name)
    with pytest.raises(InputError, match=f"is damaged: .*{name} is not what SHA256SUMS in .* says"):
        fetch(str(folder))


def test_a_file_that_the_system_does_not_give_is_not_called_damaged(tiny_bi_encoder, tmp_path, monkeypatch):
    def closed(path, framework):
        raise OSError(errno.EMFILE, "Too many open files", path)

    folder = shutil.copytree(tiny_bi_encoder, tmp_path / "model")
    monkeypatch.setattr(files, "safe_open", closed)
    with pytest.raises(RunError, match="Too many open files.*ulimit -n"):
        fetch(str(folder))
