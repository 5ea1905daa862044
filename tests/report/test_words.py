"""What a report says in words."""

from dataclasses import asdict, replace

from transencoder import SimCSE
from transencoder.report.words import changed_settings


def test_a_setting_that_differs_is_told_with_its_methods_own_default_and_text():
    """Was: those of Trans-Encoder, whatever the method."""
    config = {"fit": asdict(replace(SimCSE.fit, learning_rate=1e-4)), "temperature": 0.05}
    (change,) = changed_settings({"method": "simcse", "config": config})
    assert (change.name, change.value, change.default) == ("fit.learning_rate", "0.0001", "3e-05")
    assert "Table 16" not in change.about


def test_a_setting_that_was_chosen_for_the_user_is_told_with_its_reason():
    choices = [{"setting": "bi.epochs", "value": 2, "because": "budget 5m: all of it would take an hour"}]
    config = {"bi": {"epochs": 2}, "seed": 2021}
    (change,) = changed_settings({"method": "trans-encoder", "config": config, "choices": choices})
    assert change.about == "Chosen for you: budget 5m: all of it would take an hour."
    (change,) = changed_settings({"method": "trans-encoder", "config": config})
    assert change.about.startswith("Number of passes over the pairs")
