"""What the tests of fits share."""

from pathlib import Path

import numpy as np
import pytest

from tests.fit.fitting import CONFIG, LOAD, LOSS
from transencoder.configs import FitConfig
from transencoder.fit import Session, TrainingData, fit
from transencoder.tokens import TokenCache


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return TokenCache(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(params=["bi", "cross"])
def form(request):
    return request.param


@pytest.fixture
def fit_tiny(tiny_bi_encoder, tiny_pairs, cache, tmp_path):
    """Fit a fresh tiny model: returns it and what `fit` returned."""

    def run(
        form,
        *,
        dev=None,
        folder="checkpoints",
        seed=1,
        loss=None,
        pairs=None,
        targets=None,
        precision="fp32",
        both_orders=False,
        **options,
    ):
        student = LOAD[form](Path(tiny_bi_encoder), device="cpu")
        pairs = tiny_pairs.select(range(64)) if pairs is None else pairs
        targets = np.array(pairs["score"], np.float32) / 5 if targets is None else targets
        fitted = fit(
            student,
            loss or LOSS[form],
            TrainingData(pairs=pairs, targets=targets, both_orders=both_orders),
            dev,
            FitConfig(**(CONFIG | options)),
            Session(folder=tmp_path / folder, seed=seed, precision=precision, cache=cache),
        )
        return student, fitted

    return run


@pytest.fixture
def saved(tmp_path):
    """The safetensors bytes of a model saved as users save it."""

    def read(model):
        model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
        return [path.read_bytes() for path in sorted((tmp_path / "saved").rglob("*.safetensors"))]

    return read
