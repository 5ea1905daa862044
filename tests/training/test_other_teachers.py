"""Teachers that are no members: models that label the pairs too, and scores that the file of pairs holds."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from transencoder import Member, OtherTeacher, TransEncoder, load_scorer, plan, read_pairs, train
from transencoder.errors import InputError
from transencoder.labels import POLICIES
from transencoder.recipes import load_recipe
from transencoder.settings import recipe_toml


@pytest.fixture(scope="module")
def cross_folder(tiny_plm, tmp_path_factory):
    from sentence_transformers import CrossEncoder

    folder = tmp_path_factory.mktemp("teacher") / "cross"
    CrossEncoder(tiny_plm, num_labels=1, max_length=6).save_pretrained(str(folder))
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
    assert f"labelled by {cross_folder} and the column 'sure' too" in trained.result["about"]
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


def raw_of(config, name):
    labels = next(iter(train(config).folder.glob("stages/cycle-1-labels-for-cross-*")))
    return pq.read_table(labels / "raw.parquet")[name].to_numpy()


def test_a_columns_scores_are_those_of_the_drawn_pairs(tiny_method, scored_file, tmp_path):
    """With another seed other pairs are drawn, and nothing is taken over from the first run but what is the same."""
    with open(scored_file) as file:
        sure = {tuple(row[:2]): float(row[2]) for row in list(csv.reader(file))[1:]}
    seen = []
    for seed in (1, 2):
        own = {"seed": seed, "output": str(tmp_path / str(seed)), "n_pairs": 50, "teachers": ["column:sure"]}
        config = tiny_method(pairs=scored_file, reuse_from=(str(tmp_path / "1"),) if seed == 2 else (), **own)
        seen.append(raw_of(config, "teacher-1"))
        labels = next(iter((tmp_path / str(seed)).glob("stages/cycle-1-labels-for-cross-*"))) / "labels.parquet"
        table = pq.read_table(labels)
        pairs = zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True)
        assert seen[-1] == pytest.approx([sure[pair] for pair in pairs])
    assert not np.array_equal(*seen)


def test_a_pair_that_stands_twice_has_the_mean_of_its_scores(tiny_method, tmp_path):
    rows = [("a b c", "d e f", 0.0), ("a b c", "d e f", 1.0), *((f"w{i} x", f"y w{i}", 0.25) for i in range(40))]
    with (tmp_path / "pairs.csv").open("w") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "sure"), *rows])
    scores = raw_of(tiny_method(pairs=str(tmp_path / "pairs.csv"), teachers=["column:sure"]), "teacher-1")
    assert scores[0] == 0.5


def test_members_share_other_teachers(tiny_method, tiny_bi_encoder, cross_folder):
    members = (Member(start=tiny_bi_encoder), Member(start=tiny_bi_encoder, pooling="cls", weight=3.0))
    config = tiny_method(members=members, teachers=[{"teacher": cross_folder, "teacher_policy": "quantile"}])
    labels, raw = labels_of(train(config).folder, "cross")
    assert list(raw) == ["member-1/start", "member-2/start", "teacher-1"]
    ranks = POLICIES["quantile"](raw["teacher-1"])
    own = 0.25 * np.clip(raw["member-1/start"], 0, 1) + 0.75 * np.clip(raw["member-2/start"], 0, 1)
    assert labels == pytest.approx((own + ranks) / 2, abs=1e-6)


def test_a_base_model_that_teaches_twice_counts_with_both_shares(tiny_method, cross_folder):
    """Bi from bi, with a share of the base model, which is the teacher itself."""
    config = tiny_method(same_form=True, start_weight=0.25, teachers=[cross_folder])
    labels, raw = labels_of(train(config).folder, "bi")
    assert labels == pytest.approx((np.clip(raw["start"], 0, 1) + raw["teacher-1"]) / 2, abs=1e-6)


def test_a_teacher_reads_its_prompt(tiny_method, tiny_bi_encoder):
    teacher = {"teacher": tiny_bi_encoder, "teacher_prompt": "gama gama"}
    labels, raw = labels_of(train(tiny_method(teachers=[teacher], same_form=True)).folder, "bi")
    assert np.abs(raw["teacher-1"] - raw["start"]).max() > 1e-3


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
        ({"teachers": [3]}, r"teachers\.1 is 3; give a model"),
        ({"teachers": [{"teacher": "a", "weight": 2}]}, r"no setting teachers\.1\.weight; the nearest is"),
        ({"teachers": ["column:sure"], "pairs": "-"}, r"can be read only once; give a file"),
        ({"teachers": ["column:sure"], "pairs": "stsb"}, r"has no such column or can be read only once"),
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
    with pytest.raises(InputError, match=r"1 training pair of \d+, such as \['a new text', 'another one'\]"):
        plan(tiny_method(pairs=scored_file, extra_pairs=extra, teachers=["column:sure"]))


def test_a_cross_encoder_of_classes_is_refused(tiny_method, tiny_plm, tmp_path):
    from sentence_transformers import CrossEncoder

    CrossEncoder(tiny_plm, num_labels=3).save_pretrained(str(tmp_path / "classes"))
    with pytest.raises(InputError, match=r"teacher .*classes gives 3 scores of a pair"):
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
