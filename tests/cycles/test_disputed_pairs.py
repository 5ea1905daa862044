"""Students that learn the pairs on which their teachers differ most."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformer

from transencoder import FitConfig, Member, plan, read_pairs, train
from transencoder.cycles import stages
from transencoder.labels import disagreement
from transencoder.selection import hold_out
from transencoder.training import pairs as pipeline

FIT = FitConfig(learning_rate=1e-3, batch_size=16, epochs=2, eval_steps=100, checkpoint_steps=100)


@pytest.fixture
def second_teacher(tmp_path, tiny_bi_encoder):
    """The base model with another pooling: it ranks pairs in its own way."""
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    model[1].pooling_mode = "cls"
    model.save_pretrained(str(tmp_path / "cls"))
    return str(tmp_path / "cls")


@pytest.fixture
def learned_rows(monkeypatch):
    """Which pairs each student learns, in the order of the trainings."""
    rows, fit = [], stages.fit

    def watched(student, loss, training_data, *others):
        rows.append(training_data.rows)
        return fit(student, loss, training_data, *others)

    monkeypatch.setattr(stages, "fit", watched)
    return rows


def raw_of(run):
    (stage,) = run.folder.glob("stages/cycle-1-labels-for-bi-*")
    table = pq.read_table(stage / "raw.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def weights_of(run):
    return (run.folder / "bi-encoder" / "model.safetensors").read_bytes()


def test_disagreement_is_the_weighted_deviation_of_ranks():
    raw = {"a": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "b": np.array([9.0, 2.0, 3.0, 1.0], np.float32)}
    # quantiles 1/8, 3/8, 5/8, 7/8 and 7/8, 3/8, 5/8, 1/8; of two numbers with shares p and q the deviation is sqrt(pq)
    # times their difference
    assert disagreement(raw, {"a": 1.0, "b": 1.0}) == pytest.approx([0.375, 0, 0, 0.375])
    assert disagreement(raw, {"a": 3.0, "b": 1.0}) == pytest.approx([0.1875**0.5 * 0.75, 0, 0, 0.1875**0.5 * 0.75])
    third = raw | {"c": raw["a"] ** 3}
    assert disagreement(third, {"a": 1.0, "b": 2.0, "c": 1.0}) == pytest.approx(disagreement(raw, {"a": 1.0, "b": 1.0}))


def test_a_student_learns_as_from_a_file_of_the_disputed_pairs(tiny_method, tiny_files, second_teacher, tmp_path):
    own = {"same_form": True, "teachers": [second_teacher], "bi": FIT}
    half = train(tiny_method(**own, disputed_share=0.5))
    raw, pairs = raw_of(half), read_pairs(str(tiny_files / "pairs.tsv"))
    apart = np.abs(rankdata(raw["start"]) - rankdata(raw["teacher-1"]))
    chosen = np.sort(np.argsort(-apart, kind="stable")[: round(len(pairs) / 2)])
    lines = (f"{row['sentence1']}\t{row['sentence2']}\n" for row in pairs.select(chosen))
    (tmp_path / "half.tsv").write_text("sentence1\tsentence2\n" + "".join(lines))
    by_hand, whole = (
        train(tiny_method(**own, output=str(tmp_path / name), **more))
        for name, more in (("by-hand", {"pairs": str(tmp_path / "half.tsv")}), ("whole", {}))
    )
    assert weights_of(half) == weights_of(by_hand)
    assert weights_of(half) != weights_of(whole)
    assert "Students learn 50 % of the pairs, those on which their teachers differ most." in half.result["about"]
    assert "Students learn" not in whole.result["about"]


def test_held_out_pairs_stay_out_and_labelled_ones_in(
    tiny_method, tiny_files, second_teacher, learned_rows, monkeypatch
):
    held_out = []
    monkeypatch.setattr(pipeline, "LEAST_PAIRS", 50)
    monkeypatch.setattr(pipeline, "hold_out", lambda *of: held_out.append(hold_out(*of)) or held_out[0])
    labelled = {"labelled": str(tiny_files / "dev.tsv"), "n_labelled": 10, "score_range": (0, 5)}
    train(tiny_method(dev=None, **labelled, teachers=[second_teacher], disputed_share=0.25))
    n_pairs = len(read_pairs(str(tiny_files / "pairs.tsv"))) + 10
    assert len(learned_rows) == 2, "a cross-encoder and a bi-encoder"
    for rows in learned_rows:
        assert len(rows) == round((n_pairs - len(held_out[0].rows)) / 4)
        assert not set(rows) & set(held_out[0].rows)
        assert {*range(n_pairs - 10, n_pairs)} <= {*rows}, "labelled pairs come last in the data"


def test_members_differ_too(tiny_method, tiny_bi_encoder, learned_rows):
    members = (Member(start=tiny_bi_encoder), Member(start=tiny_bi_encoder, pooling="cls"))
    run = train(tiny_method(members=members, same_form=True, disputed_share=0.5))
    assert len(learned_rows) == 2
    assert np.array_equal(*learned_rows), "they share the labels"
    assert len(learned_rows[0]) == round(run.result["data"]["pairs"]["rows"] / 2)


def test_a_plan_counts_the_disputed_pairs_alone(tiny_method, second_teacher):
    config = tiny_method(same_form=True, teachers=[second_teacher], bi=replace(FIT, epochs=8))
    whole, half = (plan(replace(config, disputed_share=share)) for share in (1.0, 0.5))
    assert "48 steps" in str(whole) and "24 steps" in str(half)
