"""Models that are kept on the way."""

from dataclasses import replace

import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer

from tests.fit.fitting import same, scripted
from transencoder import FitConfig, SimCSE, train
from transencoder.errors import InputError

FORMS = {"bi": SentenceTransformer, "cross": CrossEncoder}


def test_every_so_many_steps_a_model_is_kept_as_it_then_is(fit_tiny, form, tmp_path):
    seen = []
    trained, _ = fit_tiny(form, dev=scripted([1, 2, 3, 4, 5, 6], seen), save_steps=3)
    kept = {path.name: FORMS[form](str(path), device="cpu") for path in (tmp_path / "checkpoints").glob("step-*")}
    assert kept.keys() == {"step-3", "step-6", "step-9", "step-12"}
    for step, at in ((3, 0), (6, 2), (9, 4), (12, 5)):  # of the evaluations at 3, 4, 6, 8, 9, 12
        assert same(kept[f"step-{step}"].state_dict(), seen[at])
    alone, _ = fit_tiny(form, folder="alone", dev=scripted([1, 2, 3, 4, 5, 6]))
    assert same(alone.state_dict(), trained.state_dict())


def test_they_lie_in_the_run_beside_its_stages(tiny_start):
    runs = [
        train(tiny_start("simcse", dev=None, tests=(), fit=replace(SimCSE.fit, batch_size=16, save_steps=steps)))
        for steps in (None, 2)
    ]
    assert not (runs[0].folder / "steps").exists()
    (kept,) = (runs[1].folder / "steps").glob("bi-encoder-*/step-2")
    assert SentenceTransformer(str(kept), device="cpu").encode("balo bama").shape == (32,)
    assert runs[0].result["stages"][-1]["key"] == runs[1].result["stages"][-1]["key"]


def test_what_is_made_at_the_end_has_none_on_the_way():
    for other in ({"lora_rank": 2}, {"trained_share": 0.5}):
        with pytest.raises(InputError, match="finish the model only at the end"):
            FitConfig(save_steps=10, **other)
    assert FitConfig(save_steps=10).key_settings == FitConfig().key_settings
