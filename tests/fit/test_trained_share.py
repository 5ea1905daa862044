"""What is kept between the base model's weights and the trained ones."""

from pathlib import Path

import pytest
import torch

from tests.fit.fitting import LOAD, Stopped, same, scripted, stopping
from transencoder import FitConfig, TransEncoder
from transencoder.errors import InputError


def between(first, second, share):
    return {name: torch.lerp(tensor, second[name], share) for name, tensor in first.items()}


@pytest.fixture
def start(tiny_bi_encoder):
    return LOAD["bi"](Path(tiny_bi_encoder), device="cpu").state_dict()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_last_weights_are_kept_in_part(start, fit_tiny, share):
    trained = fit_tiny("bi", folder="whole")[0].state_dict()
    kept = fit_tiny("bi", folder="part", trained_share=share)[0].state_dict()
    assert same(kept, between(start, trained, share))
    assert not same(start, trained)


def test_evaluations_measure_what_would_be_kept_and_leave_the_training_alone(start, fit_tiny):
    whole, part = [], []
    values = [1, 2, 9, 3, 9, 4]
    fit_tiny("bi", folder="whole", dev=scripted(values, whole))
    kept, fitted = fit_tiny("bi", folder="part", dev=scripted(values, part), trained_share=0.5)
    assert len(part) == len(whole) == 6
    assert all(same(seen, between(start, trained, 0.5)) for seen, trained in zip(part, whole, strict=True))
    assert fitted.best_step == 6
    assert same(kept.state_dict(), part[2])


def test_stopped_and_resumed_it_ends_with_the_same_weights(fit_tiny):
    undisturbed = fit_tiny("bi", folder="whole", dev=scripted([1, 2, 3, 2, 1, 0]), trained_share=0.5)[0].state_dict()
    with pytest.raises(Stopped):
        fit_tiny("bi", dev=stopping([1, 2, 3]), trained_share=0.5)
    resumed = fit_tiny("bi", dev=scripted([2, 1, 0]), trained_share=0.5)[0].state_dict()
    assert same(resumed, undisturbed)


def test_stages_from_before_it_keep_their_keys():
    assert "trained_share" not in FitConfig().key_settings
    assert FitConfig(trained_share=0.5).key_settings["trained_share"] == 0.5


def test_it_is_of_bi_encoders_and_not_of_adapters(fit_tiny):
    with pytest.raises(InputError, match="head starts from random weights"):
        fit_tiny("cross", trained_share=0.5)
    with pytest.raises(InputError, match=r"cross\.trained_share is 0\.5"):
        TransEncoder(pairs="pairs.tsv", output="run", cross=FitConfig(trained_share=0.5))
    with pytest.raises(InputError, match="give one of them"):
        FitConfig(trained_share=0.5, lora_rank=2)
    with pytest.raises(InputError, match="0 to 1"):
        FitConfig(trained_share=1.5)
