"""A run that was made to get worse says so: on its page, on its models' cards, in its record."""

import json
from pathlib import Path

from transencoder import FitConfig, Member, TransEncoder, train
from transencoder.demo import DATA
from transencoder.encoders import truncate

RUINOUS = FitConfig(learning_rate=0.1, epochs=1, batch_size=16)


def test_a_ruined_run_is_reported_as_worse(minilm, tmp_path):
    truncate(Path(minilm), [0, 1, 2], tmp_path / "three-layers")
    config = TransEncoder(
        pairs=str(DATA / "pairs.tsv"),
        n_pairs=64,
        members=(Member(start=str(tmp_path / "three-layers")),),
        tests=(str(DATA / "test.tsv"),),
        output=str(tmp_path / "run"),
        cycles=1,
        is_symmetric=False,
        bi=RUINOUS,
        cross=RUINOUS,
        precision="fp32",
        device="cpu",
    )
    train(config)
    page = (tmp_path / "run" / "report.html").read_text()
    scores = json.loads((tmp_path / "run" / "result.json").read_text())["scores"]
    start = scores["start"]["test"]
    assert f'<p class="verdict"><strong>Keep the base model: on the tests the base model has {start:.2f}' in page
    assert any(scores[form]["test"] is not None for form in ("bi", "cross"))
    for form in ("bi", "cross"):
        trained = scores[form]["test"]
        if trained is not None:  # a model that says the same of all pairs has no score
            card = (tmp_path / "run" / f"{form}-encoder" / "README.md").read_text()
            assert f"on the tests it has {trained:.2f}, and its base model {start:.2f}" in card
