"""The rate of what is trained around a pretrained transformer."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fit.fitting import CONFIG, LOAD, same
from transencoder import MLM, FitConfig, TransEncoder
from transencoder.errors import InputError
from transencoder.losses import DualViewLoss, SCTLoss, ViewComparison


def dual_view(kept):
    """Three classes; the loss is kept for a look at its classifier."""
    kept.append(None)

    def make(model):
        torch.manual_seed(0)
        kept[0] = DualViewLoss(model, 3)
        return kept[0]

    return make


CLASSES = np.arange(64, dtype=np.float32) % 3


def test_at_rate_zero_the_classifier_alone_learns(fit_tiny, tiny_bi_encoder):
    found = []
    model, _ = fit_tiny("bi", loss=dual_view(found), targets=CLASSES, learning_rate=0.0, head_learning_rate=1e-2)
    at_first = []
    fit_tiny("bi", folder="still", loss=dual_view(at_first), targets=CLASSES, learning_rate=0.0)
    assert same(model.state_dict(), LOAD["bi"](Path(tiny_bi_encoder), device="cpu").state_dict())
    assert (found[0].classifier.weight - at_first[0].classifier.weight).abs().max() > 1e-3


def test_a_cross_encoders_head_has_it_too(fit_tiny):
    still, _ = fit_tiny("cross", folder="still", learning_rate=0.0)
    model, _ = fit_tiny("cross", learning_rate=0.0, head_learning_rate=1e-2)
    before, after = still.state_dict(), model.state_dict()
    moved = {name for name, tensor in after.items() if not tensor.equal(before[name])}
    assert moved and all("classifier" in name for name in moved)


def test_the_encoders_rate_given_for_both_changes_nothing(fit_tiny):
    rate = CONFIG["learning_rate"]
    one = fit_tiny("bi", folder="one", loss=dual_view([]), targets=CLASSES)[0]
    two = fit_tiny("bi", folder="two", loss=dual_view([]), targets=CLASSES, head_learning_rate=rate)[0]
    assert same(one.state_dict(), two.state_dict())


def test_encoders_in_a_loss_keep_the_rate_of_the_student(fit_tiny):
    def make(model):
        return SCTLoss(model, ViewComparison(32, 64, 0.05, 0.04), momentum=0.5)

    with pytest.raises(InputError, match="nothing is trained here but a pretrained transformer"):
        fit_tiny("bi", loss=make, head_learning_rate=1e-3)


def test_where_there_is_no_head_it_is_refused():
    with pytest.raises(InputError, match=r"bi\.head_learning_rate is 0\.001"):
        TransEncoder(pairs="pairs.tsv", output="run", bi=FitConfig(head_learning_rate=1e-3))
    with pytest.raises(InputError, match="of encoders"):
        MLM(sentences="text.txt", start="model", output="run", fit=FitConfig(max_length=64, head_learning_rate=1e-3))
    with pytest.raises(InputError, match="above 0"):
        FitConfig(head_learning_rate=0.0)


def test_stages_from_before_it_keep_their_keys():
    assert "head_learning_rate" not in FitConfig().key_settings
