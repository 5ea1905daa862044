"""The share of gold over a fit's steps: 0 at the first, 1 at the last, also where it was interrupted."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save

from transencoder.configs import FitConfig
from transencoder.encoders import load_bi, load_cross
from transencoder.fit import Material, Session, fit
from transencoder.losses import CosineRegressionLoss, SoftCrossEntropyLoss

STEPS = 12
CONFIG = FitConfig(
    learning_rate=3e-3, batch_size=16, epochs=3, max_length=24, warmup_ratio=0.1, eval_steps=3, checkpoint_steps=2
)
FORMS = {"bi": (load_bi, CosineRegressionLoss), "cross": (load_cross, SoftCrossEntropyLoss)}


class Stopped(Exception):
    pass


@pytest.fixture
def fit_with_gold(tiny_bi_encoder, tiny_pairs, tmp_path):
    """Fits on a few gold scores beside a teacher's; returns the weights, and the shares that the loss had."""

    def run(form, *, folder, stop_at=None, gold_rows=slice(None, None, 3)):
        load, loss_class = FORMS[form]
        pairs = tiny_pairs.select(range(64))
        labels = np.random.default_rng(0).random(64)
        if gold_rows is not None:
            gold = np.full(64, np.nan)
            gold[gold_rows] = np.array(pairs["score"])[gold_rows] / 5
            labels = np.stack([gold, labels], axis=1)
        shares = []

        class Watched(loss_class):
            def forward(self, *inputs, **more):
                if len(shares) == stop_at:
                    raise Stopped
                shares.append(self.gold_share)
                return super().forward(*inputs, **more)

        student = load(Path(tiny_bi_encoder), device="cpu")
        session = Session(folder=tmp_path / folder, seed=1, precision="fp32")
        fit(student, Watched, Material(pairs=pairs, targets=labels), None, CONFIG, session)
        return save(student.state_dict()), shares

    return run


@pytest.mark.parametrize("form", FORMS)
def test_it_goes_from_0_to_exactly_1_also_when_it_is_resumed(form, fit_with_gold):
    whole, shares = fit_with_gold(form, folder="whole")
    assert shares == [step / (STEPS - 1) for step in range(STEPS)]
    with pytest.raises(Stopped):
        fit_with_gold(form, folder="stopped", stop_at=7)
    resumed, rest = fit_with_gold(form, folder="stopped")
    assert rest == shares[6:]
    assert rest[-1] == 1.0
    assert resumed == whole


def test_where_there_is_no_gold_the_teacher_is_learned(fit_with_gold):
    taught, _ = fit_with_gold("bi", folder="taught", gold_rows=None)
    assert fit_with_gold("bi", folder="none", gold_rows=slice(0))[0] == taught
    assert fit_with_gold("bi", folder="some")[0] != taught
