"""`train` and `recipes run`: which configs they make of what is typed, and what they do around the trainings."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from sentence_transformers import SentenceTransformer

from transencoder import cli, demo
from transencoder.configs import FitConfig, Member
from transencoder.errors import RunInUseError
from transencoder.methods import SimCSE, TransEncoder
from transencoder.recipes import load_recipe, value_from_text
from transencoder.settings import recipe_toml, settings_of

BASE = "--pairs a.tsv --start x --output run"


def test_flags_recipe_and_api_give_equal_configs(done, training, tmp_path):
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
    done("train", "trans-encoder", *flags.split())
    done("train", "trans-encoder", "--recipe", path)
    done("recipes", "run", path)
    assert training.seen == [api, api, api]
    assert load_recipe(path) == api


def test_flags_win_over_set_and_set_over_the_recipe(done, training, recipe):
    overrides = ("--set", "bi.epochs=3", "--set", "cycles=3", "--set", "members.1.pooling=cls")
    done("train", "trans-encoder", "--recipe", recipe, *overrides, "--bi.epochs", "4", "--cross-start", "none")
    member = Member(start="x", pooling="cls")
    config = TransEncoder(pairs="a.tsv", members=(member,), output="run", cycles=3, bi=FitConfig(epochs=4))
    assert training.seen == [config]


def test_a_start_begins_new_members_and_drops_the_recipes(done, training, recipe):
    done("train", "trans-encoder", "--recipe", recipe, "--start", "z")
    assert training.seen[0].members == (Member(start="z"),)


def test_flags_after_a_start_belong_to_it(done, training):
    typed = ("--start", "z", "--pooling", "cls", "--cross-start", "y", "--weight", "2", "--policy", "quantile")
    done("train", "trans-encoder", *BASE.split(), *typed)
    assert training.seen[0].members == (
        Member(start="x"),
        Member(start="z", pooling="cls", cross_start="y", weight=2.0, policy="quantile"),
    )


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            "--start x",
            "pairs and sentences are both missing; give sentences to mine pairs from (--sentences), or pairs",
        ),
        ("--sentences nosuchfile.txt --dev a.tsv", "nosuchfile.txt: no such file (looked in "),
        (f"{BASE} --bi.epochs three", "--bi.epochs is 'three'. It must be a whole number."),
        (f"{BASE} --bi.epochs 0", "transencoder: bi.epochs is 0; it must be at least 1"),
        (
            f"{BASE} --label-policy row",
            "--label-policy is 'row'. It must be one of: clip, affine, quantile, raw; the nearest is raw.",
        ),
        (
            f"{BASE} --bi.epoch 3",
            "--bi.epoch is not an option of transencoder train trans-encoder; the nearest is --bi.epochs",
        ),
        (f"{BASE} --cross-start y --cross-start z", "--cross-start is given twice for one --start"),
        ("--cross-start y", "--cross-start belongs to a --start, and none is given"),
        (f"{BASE} extra", "'extra' is one argument too many"),
        (f"{BASE} --recipe nowhere", "nowhere is neither a file nor a recipe"),
        (
            f"{BASE} --patience-cycles 1 --bi.selection last --cross.selection last",
            "patience_cycles needs a way to choose checkpoints",
        ),
        (f"{BASE} --set bi.epoch=3", "bi.epoch: there is no such setting; the nearest is bi.epochs"),
    ],
)
def test_what_does_not_fit_is_refused_with_exit_code_2(typed, message, refused, training):
    refused(message, "train", "trans-encoder", *typed.split())
    assert training.seen == []


@pytest.mark.parametrize(
    ("typed", "preset"),
    [
        ("", "standard"),
        ("--preset paper", "paper"),
        ("--set preset=paper", "paper"),
        ("trans-encoder", None),
        ("--recipe recipe.toml", None),
    ],
)
def test_train_needs_nothing_but_a_text(typed, preset, run, training, recipe):
    code, _, err = run("train", *typed.split(), "--pairs", "a.tsv", "--verbose")
    assert code == 0, err
    assert training.seen[0].preset == preset
    is_default = "--recipe" not in typed
    assert ("base model minilm, the default; --start gives another" in err) == is_default
    assert ("output transencoder-run, the default; --output gives another" in err) == is_default


def test_missing_settings_are_named_as_they_are_typed(refused):
    refused("--teacher and --sentences and --start missing; `transencoder train ckd --help`", "train", "ckd")


@pytest.mark.parametrize("method", ["ckd", "embedding-mse", "simcse"])
def test_methods_without_views_name_what_they_have_for_them(method, refused):
    said = f"of transencoder train {method}; give two texts a row as --sentences FILE --columns a b"
    refused(said, "train", method, "--views", "v.tsv")
    refused("the nearest is", "train", "mlm", "--views", "v.tsv")


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("student_layers", ["0,2,5"], [0, 2, 5]),
        ("student_layers", ["0", "2", "5"], [0, 2, 5]),
        ("student_layers", ["0,", "2,", "5"], [0, 2, 5]),
        ("tests", ["a,b.tsv", "stsb"], ["a,b.tsv", "stsb"]),
    ],
)
def test_numbers_of_a_list_may_have_commas_between_them_and_texts_keep_theirs(name, typed, value):
    assert value_from_text(settings_of(SimCSE)[name], typed, name) == value


def test_flags_of_both_forms_share_an_entry_and_set_their_own(done, training):
    typed = "--cross.epochs 2 --no-cross.gradient-checkpointing --bi.gradient-checkpointing --bi.learning-rate=1e-4"
    done("train", "trans-encoder", *BASE.split(), *typed.split())
    bi, cross = training.seen[0].bi, training.seen[0].cross
    assert (bi.epochs, bi.learning_rate, bi.gradient_checkpointing) == (None, 1e-4, True)
    assert (cross.epochs, cross.learning_rate, cross.gradient_checkpointing) == (2, None, False)


def test_the_flag_of_a_list_may_come_several_times(done, training):
    done("train", "trans-encoder", *BASE.split(), "--tests", "sts12", "--tests", "sts13", "mine.tsv")
    assert training.seen[0].tests == ("sts12", "sts13", "mine.tsv")


def test_the_summary_goes_to_stdout(run, training):
    code, out, err = run("train", "trans-encoder", *BASE.split())
    assert (code, err) == (0, "")
    shown = ("base model", "stsb", "80.00", "+1.50", "+2.00", "run/bi-encoder", "report.html")
    assert all(text in out for text in shown)
    assert "There was no dev set: the last checkpoint of the last cycle was kept" in out


def test_other_ranks_are_silent(run, training, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert run("train", "trans-encoder", *BASE.split()) == (0, "", "")


def test_a_dry_run_plans_and_does_not_train(done, training, recipe):
    training.train = None
    assert done("train", "trans-encoder", *BASE.split(), "--dry-run") == "the plan of run\n"
    assert done("recipes", "run", recipe, "--dry-run", "--output", "other") == "the plan of other\n"


def test_recipes_run_takes_overrides(done, training, recipe):
    done("recipes", "run", recipe, "--set", "cycles=2", "--output", "none")
    assert (training.seen[0].cycles, training.seen[0].output) == (2, "none")


def test_parity_is_the_released_code_in_a_folder_of_its_own(done, training, recipe):
    recipe.write_text(recipe.read_text() + '[parity]\nlabel_policy = "raw"\ncross_test_length = 512\n')
    done("recipes", "run", recipe)
    done("recipes", "run", recipe, "--parity")
    done("recipes", "run", recipe, "--parity", "--vary", "seed=1,2", "--output", "o")
    assert [config.label_policy for config in training.seen] == ["clip", "raw", "raw", "raw"]
    assert training.seen[1].cross_test_length == 512
    assert [config.output for config in training.seen] == ["run", "run-parity", "o-parity-seed-1", "o-parity-seed-2"]


def test_parity_of_a_recipe_without_a_released_code_is_refused(refused, training, recipe):
    refused("has no table [parity]", "recipes", "run", recipe, "--parity")
    recipe.write_text("parity = 3\n" + recipe.read_text())
    refused("parity is 3. It must be a table of settings", "recipes", "run", recipe, "--parity")
    assert training.seen == []


def test_varied_settings_are_runs_of_their_own_and_a_table(done, training, recipe):
    out = done("recipes", "run", recipe, "--vary", "seed=1,2", "--vary", "bi.epochs=3,5", "--output", "o")
    assert [(config.seed, config.bi.epochs) for config in training.seen] == [(1, 3), (1, 5), (2, 3), (2, 5)]
    assert [config.output for config in training.seen][:2] == ["o-seed-1,bi.epochs-3", "o-seed-1,bi.epochs-5"]
    assert training.seen[2].reuse_from == ("o-seed-1,bi.epochs-3", "o-seed-1,bi.epochs-5")
    assert all(text in out for text in ("seed-2,bi.epochs-5", "mean of 2 seeds, bi.epochs-3", "81.50 ± 0.00"))
    assert "seeds" not in done("recipes", "run", recipe, "--vary", "bi.epochs=3,5")


def test_a_recipe_may_vary_settings_itself(done, refused, training, recipe):
    recipe.write_text(recipe.read_text() + "\n[vary]\nseed = [1, 2]\nlabel_policy = ['raw', 'clip']\n")
    done("recipes", "run", recipe)
    expected = [(1, "raw"), (1, "clip"), (2, "raw"), (2, "clip")]
    assert [(each.seed, each.label_policy) for each in training.seen] == expected
    assert training.recipes == [None] * 4
    training.seen.clear()
    refused("Run: transencoder recipes run", "train", "trans-encoder", "--recipe", recipe)
    refused("--sweep cannot choose", "recipes", "run", recipe, "--sweep", "cycles=1,2")
    assert "# varied: seed = 1, 2" in done("recipes", "show", recipe, "--full")
    done("recipes", "run", recipe, "--vary", "seed=7", "--dry-run")
    assert [(each.seed, each.reuse_from) for each in training.seen] == [(7, ()), (7, ())]  # none is missed in a plan
    recipe.write_text(recipe.read_text().replace("[1, 2]", "3"))
    refused("vary is {'seed': 3", "recipes", "run", recipe)


@pytest.mark.parametrize(
    ("typed", "options"), [((), " --vary seed=2021"), (("--vary", "seed=2022"), " --vary seed=2022")]
)
def test_a_run_that_a_recipe_varies_bears_its_name_and_what_makes_it(typed, options, done, training):
    done("recipes", "run", "simcse-bert-base-seeds", *typed)
    assert training.recipes[0] == f"trans-encoder/simcse-bert-base-seeds{options}"
    done("recipes", "run", "simcse-bert-base-seeds", "--vary", "seed=7")
    assert training.recipes[-1] is None


def test_a_sweep_chooses_on_dev_and_scores_the_tests_of_its_choice_alone(done, training, recipe):
    result = training.train(SimpleNamespace(output="x")).result
    training.seen.clear()

    def train(config, recipe=None):
        training.seen.append(config)
        dev = {"start": 60.0, "bi": {3: 70.0, 5: 72.0, 9: 71.0}[config.bi.epochs], "cross": 65.0}
        return SimpleNamespace(result=result | {"dev": dev}, folder=Path(config.output))

    training.train = train
    options = ("--set", "dev=d.tsv", "--set", "tests=stsb", "--output", "o")
    out = done("recipes", "run", recipe, "--sweep", "bi.epochs=3,5,9", *options)
    expected = [(3, False), (5, False), (9, False), (5, True)]
    assert [(each.bi.epochs, each.score_tests) for each in training.seen] == expected
    assert len({each.output for each in training.seen}) == 3
    assert all(each.tests == ("stsb",) for each in training.seen)
    assert "best on dev: bi.epochs-5" in out


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--sweep seed=1,2 --set dev=none", "--sweep chooses on the dev set, and there is none"),
        ("--sweep seed=1,2 --vary cycles=1,2", "--vary makes a table and --sweep a choice"),
        ("--engine ray", "--engine ray trains several runs side by side, and there is one"),
        ("--vary seed", "--vary seed: give a setting and values"),
        ("--vary seed=1,,2", "--vary seed=1,,2: give a setting and values"),
        ("--vary seed=1 --vary seed=2", "--vary seed is given twice. Give all values at once"),
        ("--sweep seed=1,2 --set dev=d --set tests=t --set test_every_eval=true", "out of sight"),
        ("--vary sede=1", "sede: there is no such setting; the nearest is seed"),
        ("--vary members.1.start=a/b,a-b", "two of the varied runs would lie in one folder, members.1.start-a-b"),
    ],
)
def test_what_cannot_be_varied_is_refused(refused, training, recipe, typed, message):
    refused(message, "recipes", "run", recipe, *typed.split())
    assert not training.seen


def test_a_run_of_an_unchanged_recipe_bears_its_name(done, training, recipe):
    done("recipes", "run", "minilm-sts")
    done("recipes", "run", "minilm-sts", "--set", "seed=1")
    done("recipes", "run", recipe)
    assert training.recipes == ["trans-encoder/minilm-sts", None, None]


CHAINED = """method = "simcse"
sentences = "s.txt"
start = "x"
output = "runs/{0}"
after = {1}
"""


@pytest.fixture
def in_use(monkeypatch, training, tmp_path):
    """The run `runs/first` is another process's until it has been waited for; returns what was waited for."""
    waited = []

    def train_and_show(config, recipe=None):
        if config.output == "runs/first" and len(waited) < 2:
            raise RunInUseError("runs/first is in use by process 7; one process at a time may work on a run")
        waited.append(config.output)

    monkeypatch.setattr(cli.recipes, "train_and_show", train_and_show)
    monkeypatch.setattr(cli.recipes, "wait_until_free", lambda folder: waited.append(f"waited for {folder}"))
    for name, after in {"first": "[]", "second": '["first.toml"]'}.items():
        (tmp_path / f"{name}.toml").write_text(CHAINED.format(name, after))
    return waited


def test_what_a_recipe_comes_after_is_waited_for_while_another_process_trains_it(run, in_use):
    """Was: of two recipes after the same one, started side by side, one failed."""
    code, _, err = run("recipes", "run", "second.toml")
    assert (code, in_use) == (0, ["waited for runs/first"] * 2 + ["runs/first", "runs/second"])
    assert err.count("waiting: runs/first is in use by process 7\n") == 2


def test_parity_holds_for_what_a_recipe_comes_after_and_starts_from(done, training, tmp_path):
    """Was: the released code's second step began with a first step that was not the released code's."""
    parity = '[parity]\n"fit.optimizer" = "bert_adam"\n'
    first = CHAINED.format("first", "[]")
    (tmp_path / "first.toml").write_text(first + parity + "[vary]\nseed = [1, 2]\n")
    (tmp_path / "plain.toml").write_text(CHAINED.format("plain", "[]"))
    second = CHAINED.format("second", '["plain.toml", "first.toml"]').replace('"x"', '"runs/first-seed-1"')
    (tmp_path / "second.toml").write_text(second + parity)
    done("recipes", "run", "second.toml")
    done("recipes", "run", "second.toml", "--parity")
    outputs = ["runs/plain", "runs/first-seed-1", "runs/first-seed-2", "runs/second"]
    made_so = ["runs/plain", "runs/first-parity-seed-1", "runs/first-parity-seed-2", "runs/second-parity"]
    assert [config.output for config in training.seen] == outputs + made_so
    assert [config.start for config in training.seen[3::4]] == ["runs/first-seed-1", "runs/first-parity-seed-1"]
    assert [config.fit.optimizer for config in training.seen] == ["adamw"] * 5 + ["bert_adam"] * 3


def test_a_recipe_that_was_asked_for_is_not_waited_for(run, in_use):
    code, _, err = run("recipes", "run", "first.toml")
    assert (code, in_use) == (3, [])
    assert "runs/first is in use by process 7; one process at a time" in err


def test_the_demo_shows_a_loss_as_it_is_and_five_pairs_from_unrelated_to_same(
    done, training, tiny_bi_encoder, monkeypatch
):
    trained = training.train(SimpleNamespace(output="there"))
    trained.result["scores"]["bi"]["stsb"] = 77.25
    trained.bi_encoder = SentenceTransformer(tiny_bi_encoder, device="cpu")
    training.train = lambda config, recipe: trained if config == demo.demo_config("there") else None
    monkeypatch.setattr(demo, "resolve_model", lambda name: tiny_bi_encoder)
    monkeypatch.setattr(cli.terminal, "_WIDTH_OF_FILES", 400)
    shown = done("demo", "--output", "there")
    assert "77.25" in shown and "-2.75" in shown
    assert "Use only the cross-encoder and keep the base model for embeddings: on the tests" in " ".join(shown.split())
    lines = shown.partition("Five test pairs")[2].splitlines()
    gold = [line.split("│")[3].strip() for line in lines if line.count("│") == 6]
    assert gold == ["0", "1", "2", "4", "5"]
