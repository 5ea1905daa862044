import gzip

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """A cache folder of its own for each test, and no data folder."""
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("TRANSENCODER_DATA", raising=False)


@pytest.fixture
def write(tmp_path):
    """Write bytes or text to a file, gzipped where its name says so; returns its path."""

    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file
