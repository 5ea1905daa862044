from pathlib import Path
from types import SimpleNamespace

import pytest

from transencoder.configs import FitConfig, Member
from transencoder.methods import SimCSE, TransEncoder
from transencoder.recipes import load_recipe, value_from_text
from transencoder.settings import recipe_toml, settings_of

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
            "--label-policy is 'row'. It must be one of: clip, affine, quantile, raw; the nearest is raw.",
        ),
        (
            (*BASE, "--bi.epoch", "3"),
            "--bi.epoch is not an option of transencoder train trans-encoder; the nearest is --bi.epochs",
        ),
        ((*BASE, "--cross-start", "y", "--cross-start", "z"), "--cross-start is given twice for one --start"),
        (("--cross-start", "y"), "--cross-start belongs to a --start, and none is given"),
        ((*BASE, "extra"), "'extra' is one argument too many"),
        ((*BASE, "--recipe", "nowhere"), "nowhere is neither a file nor a recipe"),
        (
            (*BASE, "--patience-cycles", "1", "--bi.selection", "last", "--cross.selection", "last"),
            "patience_cycles needs what to choose by",
        ),
        (
            (*BASE, "--set", "bi.epoch=3"),
            "bi.epoch: there is no such setting; the nearest is bi.epochs",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_exit_code_2(typed, message, run, training):
    code, out, err = run("train", "trans-encoder", *typed)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert training.seen == []


@pytest.mark.parametrize("method", ["ckd", "embedding-mse", "simcse"])
def test_methods_without_views_name_what_they_have_for_them(method, run):
    code, _, err = run("train", method, "--views", "v.tsv")
    assert code == 2
    assert f"of transencoder train {method}; give two texts a row as --sentences FILE --columns a b" in err
    assert "the nearest is" in run("train", "mlm", "--views", "v.tsv")[2]


@pytest.mark.parametrize("typed", [["0,2,5"], ["0", "2", "5"], ["0,", "2,", "5"]])
def test_numbers_of_a_list_may_have_commas_between_them(typed):
    assert value_from_text(settings_of(SimCSE)["student_layers"], typed, "--student-layers") == [0, 2, 5]


def test_the_flag_of_a_list_may_come_several_times(run, training):
    assert run("train", "trans-encoder", *BASE, "--tests", "sts12", "--tests", "sts13", "mine.tsv")[0] == 0
    assert training.seen[0].tests == ("sts12", "sts13", "mine.tsv")


def test_a_text_of_a_list_keeps_its_commas():
    assert value_from_text(settings_of(SimCSE)["tests"], ["a,b.tsv", "stsb"], "--tests") == ["a,b.tsv", "stsb"]


def test_the_summary_goes_to_stdout(run, training):
    code, out, err = run("train", "trans-encoder", *BASE)
    assert (code, err) == (0, "")
    assert all(
        text in out for text in ("base model", "stsb", "80.00", "+1.50", "+2.00", "run/bi-encoder", "report.html")
    )
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


def test_parity_is_the_released_code_in_a_folder_of_its_own(run, training, recipe):
    recipe.write_text(recipe.read_text() + '[parity]\nlabel_policy = "raw"\ncross_test_length = 512\n')
    assert run("recipes", "run", recipe)[0] == 0
    assert run("recipes", "run", recipe, "--parity")[0] == 0
    assert run("recipes", "run", recipe, "--parity", "--vary", "seed=1,2", "--output", "o")[0] == 0
    assert [config.label_policy for config in training.seen] == ["clip", "raw", "raw", "raw"]
    assert training.seen[1].cross_test_length == 512
    assert [config.output for config in training.seen] == ["run", "run-parity", "o-parity-seed-1", "o-parity-seed-2"]


def test_parity_of_a_recipe_without_a_released_code_is_refused(run, training, recipe):
    code, _, err = run("recipes", "run", recipe, "--parity")
    assert code == 2 and "has no table [parity]" in err and training.seen == []
    recipe.write_text("parity = 3\n" + recipe.read_text())
    code, _, err = run("recipes", "run", recipe, "--parity")
    assert code == 2 and "parity is 3. It must be a table of settings" in err


def test_varied_runs_that_would_share_a_folder_are_refused(run, training, recipe):
    code, _, err = run("recipes", "run", recipe, "--vary", "members.1.start=a/b,a-b")
    assert code == 2 and "two of the varied runs would lie in one folder, members.1.start-a-b" in err
    assert training.seen == []


def test_varied_settings_are_runs_of_their_own_and_a_table(run, training, recipe):
    code, out, _ = run("recipes", "run", recipe, "--vary", "seed=1,2", "--vary", "bi.epochs=3,5", "--output", "o")
    assert code == 0
    assert [(config.seed, config.bi.epochs) for config in training.seen] == [(1, 3), (1, 5), (2, 3), (2, 5)]
    assert [config.output for config in training.seen][:2] == ["o-seed-1,bi.epochs-3", "o-seed-1,bi.epochs-5"]
    assert training.seen[2].reuse_from == ("o-seed-1,bi.epochs-3", "o-seed-1,bi.epochs-5")
    assert all(text in out for text in ("seed-2,bi.epochs-5", "81.50", "standard deviation", "0.00"))


def test_a_recipe_may_vary_settings_itself(run, training, recipe):
    recipe.write_text(recipe.read_text() + "\n[vary]\nseed = [1, 2]\nlabel_policy = ['raw', 'clip']\n")
    assert run("recipes", "run", recipe)[0] == 0
    assert [(each.seed, each.label_policy) for each in training.seen] == [
        (1, "raw"),
        (1, "clip"),
        (2, "raw"),
        (2, "clip"),
    ]
    assert training.recipes == [None] * 4
    training.seen.clear()
    assert run("recipes", "run", "simcse-bert-base-seeds")[0] == 0
    assert training.recipes[-5] == "trans-encoder/simcse-bert-base-seeds --vary seed=2021"
    assert run("recipes", "run", "simcse-bert-base-seeds", "--vary", "seed=2022,2023")[0] == 0
    assert training.recipes[-1] == "trans-encoder/simcse-bert-base-seeds --vary seed=2023"
    assert run("recipes", "run", "simcse-bert-base-seeds", "--vary", "seed=7")[0] == 0
    assert training.recipes[-1] is None
    training.seen.clear()
    assert "Use: transencoder recipes run" in run("train", "trans-encoder", "--recipe", recipe)[2]
    assert "--sweep cannot choose" in run("recipes", "run", recipe, "--sweep", "cycles=1,2")[2]
    assert "# varied: seed = 1, 2" in run("recipes", "show", recipe, "--full")[1]
    assert run("recipes", "run", recipe, "--vary", "seed=7", "--dry-run")[0] == 0
    assert [(each.seed, each.reuse_from) for each in training.seen] == [(7, ()), (7, ())]  # none is missed in a plan
    recipe.write_text(recipe.read_text().replace("[1, 2]", "3"))
    assert "vary is {'seed': 3" in run("recipes", "run", recipe)[2]


def test_a_sweep_chooses_on_dev_and_scores_the_tests_of_its_choice_alone(run, training, recipe, monkeypatch):
    result = training.train(SimpleNamespace(output="x")).result
    training.seen.clear()

    def train(config, recipe=None):
        training.seen.append(config)
        dev = {"start": 60.0, "bi": {3: 70.0, 5: 72.0, 9: 71.0}[config.bi.epochs], "cross": 65.0}
        return SimpleNamespace(result=result | {"dev": dev}, folder=Path(config.output))

    monkeypatch.setattr(training, "train", train)
    options = ("--set", "dev=d.tsv", "--set", "tests=stsb", "--output", "o")
    code, out, err = run("recipes", "run", recipe, "--sweep", "bi.epochs=3,5,9", *options)
    assert (code, err) == (0, "")
    assert [(each.bi.epochs, each.score_tests) for each in training.seen] == [
        (3, False),
        (5, False),
        (9, False),
        (5, True),
    ]
    assert len({each.output for each in training.seen}) == 3
    assert all(each.tests == ("stsb",) for each in training.seen)
    assert "best on dev: bi.epochs-5" in out


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--sweep", "seed=1,2", "--set", "dev=none"), "--sweep chooses on the dev set, and there is none"),
        (("--sweep", "seed=1,2", "--vary", "cycles=1,2"), "--vary makes a table and --sweep a choice"),
        (("--vary", "seed"), "--vary seed: give a setting and values"),
        (("--vary", "seed=1,,2"), "--vary seed=1,,2: give a setting and values"),
        (("--vary", "seed=1", "--vary", "seed=2"), "--vary seed is given twice. Give all values at once"),
        (
            ("--sweep", "seed=1,2", "--set", "dev=d", "--set", "tests=t", "--set", "test_every_eval=true"),
            "out of sight",
        ),
        (("--vary", "sede=1"), "sede: there is no such setting; the nearest is seed"),
    ],
)
def test_what_cannot_be_varied_is_refused(run, training, recipe, typed, message):
    code, _, err = run("recipes", "run", recipe, *typed)
    assert code == 2 and message in err
    assert not training.seen


def test_a_run_of_an_unchanged_recipe_bears_its_name(run, training, recipe):
    assert run("recipes", "run", "minilm-sts")[0] == 0
    assert run("recipes", "run", "minilm-sts", "--set", "seed=1")[0] == 0
    assert run("recipes", "run", recipe)[0] == 0
    assert training.recipes == ["trans-encoder/minilm-sts", None, None]
