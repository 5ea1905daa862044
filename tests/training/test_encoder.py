"""Starting encoders: whole runs of a tiny model on sentences, their records, plans and commands."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from tests.rounding import model_rounding
from transencoder import BiScorer, SimCSE, read_pairs, train
from transencoder.cli import main
from transencoder.configs.run import Given
from transencoder.encoders import load_bi
from transencoder.errors import InputError
from transencoder.evaluation import evaluate
from transencoder.recipes import load_recipe
from transencoder.settings import recipe_toml
from transencoder.training import plan
from transencoder.training.parts import make_loss, pair_maker


@pytest.fixture(scope="module")
def trained(method, tiny_start):
    return train(tiny_start(method))


def test_a_run_leaves_a_model_that_plain_sentence_transformers_scores_alike(trained, tiny_files):
    plain = SentenceTransformer(str(trained.folder / "bi-encoder"), device="cpu")
    test = read_pairs(str(tiny_files / "test.tsv"))
    first, second = plain.encode(test["sentence1"][:]), plain.encode(test["sentence2"][:])
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    ours = BiScorer(trained.bi_encoder, precision="fp32").score(test.select_columns(["sentence1", "sentence2"]))
    np.testing.assert_allclose(ours, cosines, rtol=0, atol=model_rounding(plain))
    assert evaluate(BiScorer(plain, precision="fp32"), test) == pytest.approx(
        trained.result["scores"]["bi"]["test"], abs=1e-6
    )
    assert plain.max_seq_length == 128, "as many as its base model, though it was trained with 16"
    assert [type(module).__name__ for module in plain] == ["Transformer", "Pooling"]


def test_the_record_and_the_report_speak_of_one_form(trained):
    result = trained.result
    assert set(result["best"]) == {"bi"}
    assert list(result["scores"]) == ["start", "start_as_is", "bi"]
    of_method = {"declutr": ("documents", 32), "dvbert": ("pairs", 96)}
    kind, rows = of_method.get(result["method"], ("sentences", 96))
    assert result["data"][kind]["rows"] == rows
    crosses = ["teacher-1/cross-encoder", "teacher-1/labels"] if result["method"] == "dvbert" else []
    taught = ["teacher-embeddings"] if result["config"].get("teacher") and not crosses else []
    made = [] if result["method"] in ("ckd", "embedding-mse", "dvbert") else ["pairs"]  # single sentences are no pairs
    assert [stage["name"] for stage in result["stages"]] == [
        *made,
        *crosses,
        *taught,
        "bi-encoder",
        "scores/start",
        "scores/start-as-is",
        "scores/bi",
        "scores/dev/start",
        "neighbours",
        *(["sizes"] if taught else []),
        "texts",
        "gold",
    ]
    assert len(result["cycles"][0]["bi"]["curve"]) >= 2
    report = (trained.folder / "report.md").read_text()
    card = (trained.folder / "bi-encoder" / "README.md").read_text()
    assert "| cross" not in report and ("cross-encoder" in report.lower()) == bool(crosses)
    assert "| | base model | bi | gain |" in report.replace("|  |", "| |")
    (line,) = (line for line in report.splitlines() if f"training {kind}" in line and f"{rows} rows" in line)
    assert ("with 96 gold labels" if crosses else "unlabelled") in line
    assert "The checkpoint was chosen on the dev set" in report
    assert f"{rows} rows" in card
    assert ("cross-encoder" in card.lower()) == bool(crosses)
    assert (trained.folder / "plots" / "dev-bi.png").exists()


def test_without_a_dev_set_the_last_checkpoint_is_kept_and_the_report_says_so(tiny_start):
    trained = train(tiny_start("simcse", dev=None, tests=()))
    assert trained.result["dev"] is None
    assert "There was no dev set: the last checkpoint was kept" in (trained.folder / "report.md").read_text()


def test_from_the_command_line(tiny_start, sentences, tiny_plm, tiny_files, tmp_path, capsys, weights):
    options = ["--sentences", sentences, "--start", tiny_plm, "--output", str(tmp_path / "run")]
    options += ["--dev", str(tiny_files / "dev.tsv"), "--precision", "fp32", "--device", "cpu", "--pooling", "mean"]
    fit = {"learning-rate": "1e-3", "batch-size": "16", "eval-steps": "3", "checkpoint-steps": "3", "max-length": "16"}
    options += [word for name, value in fit.items() for word in (f"--fit.{name}", value)]
    assert main(["train", "simcse", *options, "--dry-run"]) == 0
    assert "96 sentences; train a bi-encoder 6 steps on 96 pairs" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert main(["train", "simcse", *options]) == 0
    out = capsys.readouterr().out
    assert "bi: " in out
    assert "cross" not in out
    in_python = train(tiny_start("simcse", tests=()))
    assert weights(tmp_path / "run") == weights(in_python.folder)
    assert main(["runs", "list", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["method"] == "simcse"


def test_a_config_comes_back_from_its_recipe(tiny_start, method, tmp_path):
    config = tiny_start(method)
    path = tmp_path / "recipe.toml"
    path.write_text(recipe_toml(config))
    assert load_recipe(path) == config


def test_one_overridden_setting_leaves_the_methods_other_defaults(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('method = "simcse"\nsentences = "s.txt"\nstart = "x"\noutput = "run"\n[fit]\nepochs = 2\n')
    fit = load_recipe(path).fit
    assert (fit.epochs, fit.learning_rate, fit.weight_decay, fit.eval_steps) == (2, 3e-5, 0.0, 125)


def test_recipes_run_one_after_the_other_and_the_second_starts_from_the_firsts_run(
    tiny_start, tiny_plm, tiny_files, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    first = tiny_start("simcse", output="runs/first", tests=())
    (tmp_path / "first.toml").write_text(recipe_toml(first))
    fit = "learning_rate = 1e-3\nbatch_size = 16\nepochs = 1\nmax_length = 16\n"
    (tmp_path / "second.toml").write_text(
        f'method = "trans-encoder"\npairs = "{tiny_files / "pairs.tsv"}"\noutput = "runs/second"\ncycles = 1\n'
        f'dev = "{tiny_files / "dev.tsv"}"\nprecision = "fp32"\ndevice = "cpu"\n'
        f'[[members]]\nstart = "runs/first"\ncross_start = "{tiny_plm}"\n[bi]\n{fit}[cross]\n{fit}'
    )
    assert main(["recipes", "run", "first.toml", "second.toml", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "starts from runs/first, which is planned above" in shown
    assert shown.count("GB of disk in runs/") == 2 and not (tmp_path / "runs").exists()
    assert main(["recipes", "run", "first.toml", "second.toml"]) == 0
    assert "bi: runs/first/bi-encoder" in capsys.readouterr().out
    results = [json.loads((tmp_path / "runs" / name / "result.json").read_text()) for name in ("first", "second")]
    assert results[1]["dev"]["start"] == pytest.approx(results[0]["dev"]["bi"], abs=1e-4)
    assert main(["recipes", "run", "first.toml", "second.toml", "--output", "elsewhere"]) == 2
    assert "belong to one recipe" in capsys.readouterr().err


def test_a_recipe_runs_those_that_it_comes_after_first(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(
        "transencoder.cli.recipes.train_and_show",
        lambda config, recipe=None: seen.append((config.output, recipe)),
    )
    text = 'method = "simcse"\nsentences = "s.txt"\nstart = "x"\noutput = "runs/{0}"\nafter = {1}\n'
    for name, after in {"a": "[]", "b": '["a.toml"]', "c": '["a.toml", "b.toml"]', "x": '["x.toml"]'}.items():
        Path(f"{name}.toml").write_text(text.format(name, after))
    assert main(["recipes", "run", "c.toml", "--output", "mine"]) == 0
    assert [output for output, _ in seen] == ["runs/a", "runs/b", "mine"]
    assert main(["recipes", "run", "x.toml"]) == 2
    assert "x.toml comes after itself" in capsys.readouterr().err
    Path("x.toml").write_text(text.format("x", '"a.toml"'))
    assert main(["recipes", "run", "x.toml"]) == 2
    assert "after is 'a.toml'. It must be a list of recipes" in capsys.readouterr().err
    seen.clear()
    assert main(["recipes", "run", "plm-mini-chain"]) == 0
    assert [name for _, name in seen] == ["simcse/plm-mini", "trans-encoder/plm-mini-chain"]


def test_a_recipe_writes_the_smaller_models_that_it_starts_from(monkeypatch, tmp_path, tiny_bi_encoder, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transencoder.cli.recipes.train_and_show", lambda config, recipe=None: None)
    text = 'method = "simcse"\nsentences = "s.txt"\nstart = "small"\noutput = "run"\n[truncate]\nsmall = {0}\n'
    Path("a.toml").write_text(text.format(f'{{ model = "{tiny_bi_encoder}", layers = [1] }}'))
    for _ in range(2):  # the second time it is there
        assert main(["recipes", "run", "a.toml"]) == 0
        assert load_bi(tmp_path / "small", device="cpu").transformers_model.config.num_hidden_layers == 1
    assert main(["recipes", "show", "a.toml", "--full"]) == 0
    assert "# truncated: small, [1] of" in capsys.readouterr().out
    for wrong in ("3", '{ model = "x" }', '{ model = "x", layers = ["a"] }', "{ model = 1, layers = [1], more = 2 }"):
        Path("b.toml").write_text(text.format(wrong))
        assert main(["recipes", "run", "b.toml"]) == 2
        assert "It must be a table of folders" in capsys.readouterr().err


def test_the_plan_has_the_steps_that_are_taken(trained, tiny_start, method):
    planned = plan(tiny_start(method))
    steps = planned.stages["bi-encoder"].n_steps
    assert steps > 0 and planned.seconds > 0 and planned.disk_bytes > 0
    (stage,) = trained.folder.glob("stages/bi-encoder-*/stage.json")
    assert json.loads(stage.read_text())["result"]["n_steps"] == steps
    assert planned.stages["bi-encoder"].key == trained.result["cycles"][0]["bi"]["stage"]


def test_the_second_time_everything_is_reused(trained, weights):
    before = weights(trained.folder)
    config = load_recipe(trained.folder / "recipe.toml")
    again = train(replace(config, device="cpu"))
    assert all(stage["reused"] for stage in again.result["stages"])
    assert weights(again.folder) == before


def test_the_plan_of_declutr_counts_spans_and_one_encoder(tiny_start):
    declutr, simcse = plan(tiny_start("declutr")), plan(tiny_start("simcse"))
    assert "train a bi-encoder 6 steps on 96 rows" in str(declutr)
    assert declutr.disk_bytes < 3 * simcse.disk_bytes
    assert plan(tiny_start("contrastive-tension")).disk_bytes > 1.5 * simcse.disk_bytes


@pytest.mark.parametrize("pooling", [None, "cls"])
def test_the_complements_pooling_is_what_is_asked_for(tiny_start, tiny_plm, pooling):
    """Was: mean for a plain model, as released SimCSE models are, whose [CLS] is their embedding."""
    config = tiny_start("dclr", complement=tiny_plm, complement_pooling=pooling)
    loss = make_loss(config, load_bi(Path(tiny_plm), max_length=16, pooling="mean", device="cpu"), Given())
    assert loss.complement[1].pooling_mode == (pooling or "mean")


@pytest.mark.parametrize(
    ("method", "changes", "name", "value"),
    [
        ("dclr", {"loss_form": "elementwise"}, "form", "elementwise"),
        ("diffcse", {"counts_padding": True}, "counts_padding", True),
    ],
)
def test_a_parity_switch_reaches_the_loss(tiny_start, tiny_plm, method, changes, name, value):
    student = load_bi(Path(tiny_plm), max_length=16, pooling="mean", device="cpu")
    assert getattr(make_loss(tiny_start(method, **changes), student, Given()), name) == value
    assert getattr(make_loss(tiny_start(method), student, Given()), name) != value


def test_the_released_codes_mask_is_written_into_the_second_view(tiny_start, tiny_plm):
    letters = repr(pair_maker(tiny_start("mirror-bert", mask_token="<mask>"), Path(tiny_plm)))
    assert "<mask>" in letters and "[MASK]" in repr(pair_maker(tiny_start("mirror-bert"), Path(tiny_plm)))


def test_the_plan_of_varied_runs_counts_a_shared_stage_once(tiny_method, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(recipe_toml(tiny_method(output="run", cycles=1)))
    assert main(["recipes", "run", "sweep.toml", "--vary", "bi.epochs=1,2", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "run-bi.epochs-1:" in shown and "run-bi.epochs-2:" in shown
    assert "5 stages of 6 taken from the runs above" in " ".join(shown.split())
    assert not (tmp_path / "run-bi.epochs-1").exists()


def test_tests_may_be_read_at_another_length(tiny_start, tmp_path):
    """As the released codes of SimCSE, DiffCSE and DCLR test; the base model is read at it too."""
    long = tmp_path / "long.tsv"
    same = "balo bama " * 12
    rows = [f"{same}{word}\t{same}gelo\t{i}\n" for i, word in enumerate(["gelo", "kama", "bama"])]
    long.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    fit = replace(SimCSE.fit, batch_size=16, max_length=16)
    shared = {"tests": (str(long),), "output": str(tmp_path / "run"), "fit": fit}
    runs = [train(tiny_start("simcse", **shared, test_length=length)) for length in (None, 96)]
    keys = [{stage["name"]: stage["key"] for stage in run.result["stages"]} for run in runs]
    assert {name for name in keys[0] if keys[0][name] != keys[1][name]} == {"scores/start", "scores/bi"}
    for name in ("start", "bi"):
        cut, whole = (
            np.load(tmp_path / "run" / "stages" / f"scores-{name}-{key[f'scores/{name}'][:12]}" / "long.npy")
            for key in keys
        )
        assert np.ptp(cut) < 1e-6 < np.ptp(whole), "at 16 tokens the three pairs are the same"
    assert "on the first 96 tokens of a text" in (runs[1].folder / "report.md").read_text()
    with pytest.raises(InputError, match="test_length is 5000, but .* reads at most 128 tokens"):
        train(tiny_start("simcse", **shared, test_length=5000))
