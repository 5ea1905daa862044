"""A finished run without dev and tests, of tiny models."""

import pytest

from transencoder import train


@pytest.fixture(scope="session")
def finished_run(tiny_method, tiny_files):
    return train(tiny_method(dev=None, pairs=str(tiny_files / "pairs.tsv"))).folder
