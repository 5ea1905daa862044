"""The share of gold over a fit's steps: 0 at the first, 1 at the last, also where it was interrupted."""

import numpy as np
import pytest

from tests.fit.fitting import LOSS, Stopped

STEPS = 12


@pytest.fixture
def fit_with_gold(fit_tiny, saved, tiny_pairs):
    """Fits on a few gold scores beside a teacher's; returns the weights, and the shares that the loss had."""

    def run(form, *, folder, stop_at=None, gold_rows=slice(None, None, 3)):
        labels = np.random.default_rng(0).random(64)
        if gold_rows is not None:
            gold = np.full(64, np.nan)
            gold[gold_rows] = np.array(tiny_pairs["score"][:64])[gold_rows] / 5
            labels = np.stack([gold, labels], axis=1)
        shares = []

        class Watched(LOSS[form]):
            def forward(self, *inputs, **more):
                if len(shares) == stop_at:
                    raise Stopped
                shares.append(self.gold_share)
                return super().forward(*inputs, **more)

        return saved(fit_tiny(form, loss=Watched, targets=labels, folder=folder)[0]), shares

    return run


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
