import pytest

from transencoder.config import FitConfig, Member
from transencoder.methods import TransEncoder
from transencoder.recipes import load_recipe, recipe_toml

BASE = ("--pairs", "a.tsv", "--start", "x", "--output", "run")


def test_flags_recipe_and_api_give_equal_configs(run, training, tmp_path):
    api = TransEncoder(
        pairs="a.tsv",
        members=(Member(start="x", cross_start="y", pooling="cls"),),
        output="run",
        dev="stsb",
        tests=("sts12", "mine.tsv"),
        is_symmetric=False,
        cycles=2,
        label_policy="raw",
        start_weight=0.5,
        skip_bad_rows=True,
        columns=("a", "b"),
        header=False,
        file_format="tsv",
        split="train",
        bi=FitConfig(epochs=3, learning_rate=1e-4, gradient_checkpointing=True),
        cross=FitConfig(warmup_ratio=0.0),
    )
    path = tmp_path / "recipe.toml"
    path.write_text(recipe_toml(api))
    flags = """--pairs a.tsv --cross-start y --start x --pooling cls --output run --dev stsb --tests sts12 mine.tsv
        --no-is-symmetric --cycles 2 --label-policy raw --start-weight 0.5 --skip-bad-rows --columns a b
        --no-header --file-format tsv --split train
        --bi.epochs 3 --bi.learning-rate 1e-4 --bi.gradient-checkpointing --cross.warmup-ratio 0"""
    assert run("train", "trans-encoder", *flags.split())[0] == 0
    assert run("train", "trans-encoder", "--recipe", path)[0] == 0
    assert run("recipes", "run", path)[0] == 0
    assert training.seen == [api, api, api]
    assert load_recipe(path) == api


def test_flags_win_over_set_and_set_over_the_recipe(run, training, recipe):
    code, _, err = run(
        *("train", "trans-encoder", "--recipe", recipe, "--set", "bi.epochs=3", "--set", "cycles=3"),
        *("--set", "members.1.pooling=cls", "--bi.epochs", "4", "--cross-start", "none"),
    )
    assert code == 0, err
    assert training.seen == [
        TransEncoder(
            pairs="a.tsv",
            members=(Member(start="x", pooling="cls"),),
            output="run",
            cycles=3,
            bi=FitConfig(epochs=4),
        )
    ]


def test_a_start_begins_new_members_and_drops_the_recipes(run, training, recipe):
    assert run("train", "trans-encoder", "--recipe", recipe, "--start", "z")[0] == 0
    assert training.seen[0].members == (Member(start="z"),)


def test_flags_after_a_start_belong_to_it(run, training):
    typed = ("--start", "z", "--pooling", "cls", "--cross-start", "y", "--weight", "2", "--policy", "quantile")
    assert run("train", "trans-encoder", *BASE, *typed)[0] == 0
    assert training.seen[0].members == (
        Member(start="x"),
        Member(start="z", pooling="cls", cross_start="y", weight=2.0, policy="quantile"),
    )


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--pairs", "a", "--start", "x"), "options: output is not set. It must be a text: The run folder"),
        (("--pairs", "a", "--output", "b"), "options: members is not set"),
        ((*BASE, "--bi.epochs", "three"), "--bi.epochs is 'three'. It must be a whole number."),
        ((*BASE, "--bi.epochs", "0"), "options: bi.epochs is 0; it must be at least 1"),
        (
            (*BASE, "--label-policy", "row"),
            "label_policy is 'row'. It must be one of: clip, affine, quantile, raw",
        ),
        (
            (*BASE, "--bi.epoch", "3"),
            "--bi.epoch is not an option of transencoder train trans-encoder; the nearest is --bi.epochs",
        ),
        ((*BASE, "--cross-start", "y", "--cross-start", "z"), "--cross-start is given twice for one --start"),
        (("--cross-start", "y"), "--cross-start belongs to a --start, and none is given"),
        ((*BASE, "extra"), "'extra' is one argument too many"),
        ((*BASE, "--recipe", "nowhere"), "nowhere is neither a file nor a recipe"),
        ((*BASE, "--patience-cycles", "1"), "patience_cycles needs a dev set"),
        (
            (*BASE, "--set", "bi.epoch=3"),
            "--set bi.epoch: there is no such setting; the nearest is bi.epochs",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_exit_code_2(typed, message, run, training):
    code, out, err = run("train", "trans-encoder", *typed)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert training.seen == []


def test_the_summary_goes_to_stdout(run, training):
    code, out, err = run("train", "trans-encoder", *BASE)
    assert (code, err) == (0, "")
    assert all(text in out for text in ("start", "stsb", "80.00", "+1.50", "+2.00", "run/bi-encoder", "report.md"))
    assert "There was no dev set: the last checkpoint of the last cycle was kept" in out


def test_other_ranks_are_silent(run, training, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert run("train", "trans-encoder", *BASE) == (0, "", "")


def test_a_dry_run_plans_and_does_not_train(run, training, recipe):
    training.train = None
    code, out, _ = run("train", "trans-encoder", *BASE, "--dry-run")
    assert (code, out) == (0, "the plan of run\n")
    assert run("recipes", "run", recipe, "--dry-run", "--output", "other")[1] == "the plan of other\n"


def test_recipes_run_takes_overrides(run, training, recipe):
    assert run("recipes", "run", recipe, "--set", "cycles=2", "--output", "none")[0] == 0
    assert (training.seen[0].cycles, training.seen[0].output) == (2, "none")


def test_a_run_of_an_unchanged_recipe_bears_its_name(run, training, recipe):
    assert run("recipes", "run", "minilm-sts")[0] == 0
    assert run("recipes", "run", "minilm-sts", "--set", "seed=1")[0] == 0
    assert run("recipes", "run", recipe)[0] == 0
    assert training.recipes == ["trans-encoder/minilm-sts", None, None]
