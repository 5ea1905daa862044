"""Teachers that are no members: models that label the pairs too, and scores that the file of pairs holds."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from transencoder import OtherTeacher, TransEncoder, load_scorer, plan, read_pairs, train
from transencoder.errors import InputError
from transencoder.recipes import load_recipe
from transencoder.settings import recipe_toml


@pytest.fixture(scope="module")
def cross_folder(tiny_plm, tmp_path_factory):
    from sentence_transformers import CrossEncoder

    folder = tmp_path_factory.mktemp("teacher") / "cross"
    CrossEncoder(tiny_plm, num_labels=1, max_length=32).save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def scored_file(tiny_files, tmp_path_factory):
    """The pairs with a column of scores in [0, 1], and one from 0 to 5."""
    pairs = read_pairs(str(tiny_files / "pairs.tsv"))
    path = tmp_path_factory.mktemp("scored") / "pairs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence1", "sentence2", "sure", "stars"])
        writer.writerows(
            (first, second, i / len(pairs), i % 6)
            for i, (first, second) in enumerate(zip(pairs["sentence1"], pairs["sentence2"], strict=True))
        )
    return str(path)


def labels_of(folder, form):
    (stage,) = folder.glob(f"stages/cycle-1-labels-for-{form}-*")
    raw = pq.read_table(stage / "raw.parquet")
    columns = {name: raw[name].to_numpy() for name in raw.column_names}
    return pq.read_table(stage / "labels.parquet")["label"].to_numpy(), columns


def test_labels_are_the_weighted_mean_of_members_and_other_teachers(tiny_method, cross_folder, scored_file):
    teachers = [{"teacher": cross_folder, "teacher_weight": 2.0}, OtherTeacher(teacher="column:sure")]
    config = tiny_method(pairs=scored_file, teachers=teachers)
    trained = train(config)
    scores = load_scorer(cross_folder, precision="fp32", device="cpu").score(read_pairs(scored_file))
    for form, own in (("cross", "start"), ("bi", "cycle-1/cross-encoder")):
        labels, raw = labels_of(trained.folder, form)
        assert list(raw) == [own, "teacher-1", "teacher-2"]
        assert raw["teacher-1"] == pytest.approx(scores, abs=1e-6), "it reads as many tokens as elsewhere"
        assert raw["teacher-2"] == pytest.approx(np.arange(len(labels)) / len(labels))
        mean = (np.clip(raw[own], 0, 1) + 2 * np.clip(raw["teacher-1"], 0, 1) + raw["teacher-2"]) / 4
        assert labels == pytest.approx(mean, abs=1e-6)
    assert f"{cross_folder} and the column 'sure' label the pairs too" in trained.result["about"]
    assert all(stage["reused"] for stage in train(config).result["stages"])


def test_a_bi_encoder_and_a_column_of_another_range(tiny_method, tiny_bi_encoder, scored_file):
    teachers = (
        OtherTeacher(teacher=tiny_bi_encoder),
        OtherTeacher(teacher="column:stars", teacher_policy="affine"),
    )
    trained = train(tiny_method(pairs=scored_file, teachers=teachers, same_form=True))
    labels, raw = labels_of(trained.folder, "bi")
    assert raw["teacher-1"] == pytest.approx(raw["start"], abs=1e-5), "the member's own base model"
    mean = (np.clip(raw["start"], 0, 1) + np.clip(raw["teacher-1"], 0, 1) + raw["teacher-2"] / 5) / 3
    assert labels == pytest.approx(mean, abs=1e-6)


def test_one_model_is_a_list_of_one(tmp_path):
    config = TransEncoder(pairs="a.tsv", teachers="some/model")
    assert config.teachers == (OtherTeacher(teacher="some/model"),)
    path = tmp_path / "recipe.toml"
    path.write_text(recipe_toml(config))
    assert load_recipe(path).teachers == config.teachers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teachers": ["column:stars"]}, r"column 'stars' has scores from 0 to 5, and the policy clip cuts off"),
        ({"teachers": ["column:absent"]}, r"absent"),
        ({"teachers": ["column:sure", "column:sure"]}, r"teacher column:sure is given twice"),
        ({"teachers": [3]}, r"a teacher is 3; give a model"),
        ({"teachers": [{"teacher": "a", "weight": 2}]}, r"no setting teachers\.1\.weight; the nearest is"),
        ({"teachers": ["a"], "share_labels": False}, r"share_labels is false"),
        (
            {"teachers": ["column:sure"], "pairs": None, "sentences": ["a", "b"]},
            r"a column of pairs, and there are none",
        ),
        ({"teachers": ["/no/such/model"]}, r"/no/such/model"),
    ],
)
def test_what_cannot_teach_is_refused(changes, message, tiny_method, scored_file):
    with pytest.raises(InputError, match=message):
        plan(tiny_method(**({"pairs": scored_file} | changes)))


def test_extra_pairs_have_no_column(tiny_method, scored_file):
    extra = [("a new text", "another one")]
    with pytest.raises(InputError, match=r"1 training pair of \d+, such as \('a new text', 'another one'\)"):
        plan(tiny_method(pairs=scored_file, extra_pairs=extra, teachers=["column:sure"]))


def test_a_cross_encoder_of_classes_is_refused(tiny_method, tiny_plm, tmp_path):
    from sentence_transformers import CrossEncoder

    CrossEncoder(tiny_plm, num_labels=3).save_pretrained(str(tmp_path / "classes"))
    with pytest.raises(InputError, match=r"teacher .*classes: .*3 outputs"):
        plan(tiny_method(teachers=[str(tmp_path / "classes")]))


def test_flags_name_teachers(tmp_path, monkeypatch, tiny_files, tiny_bi_encoder):
    from transencoder.cli import main

    monkeypatch.chdir(tmp_path)
    command = ["train", "trans-encoder", "--pairs", str(tiny_files / "pairs.tsv"), "--start", tiny_bi_encoder]
    command += ["--teacher", tiny_bi_encoder, "--teacher-weight", "3", "--teacher", "column:score", "--output", "run"]
    planned = []
    monkeypatch.setattr("transencoder.cli.train.show_plan", planned.extend)
    assert main([*command, "--dry-run"]) == 0
    assert planned[0].teachers == (
        OtherTeacher(teacher=tiny_bi_encoder, teacher_weight=3.0),
        OtherTeacher(teacher="column:score"),
    )
