"""Whole runs of a tiny model; the first is shared, and others go on from copies of its folder."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer, util
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, TensorBoardCallback

from tests.rounding import model_rounding
from transencoder import BiScorer, CrossScorer, Member, PretrainingConfig, read_pairs, train
from transencoder.cli import main
from transencoder.errors import InputError, RunError
from transencoder.evaluation import evaluate
from transencoder.records import Result
from transencoder.results import read_result
from transencoder.runs import Run
from transencoder.runs.files import read_checked_json, write_checked_json
from transencoder.tokens import TokenCache
from transencoder.training import plan

STAGES = [
    "start/scores",
    "cycle-1/labels-for-cross",
    "cycle-1/cross-encoder",
    "cycle-1/cross-encoder/scores",
    "cycle-1/labels-for-bi",
    "cycle-1/bi-encoder",
    "cycle-1/bi-encoder/scores",
    "cycle-2/labels-for-cross",
    "cycle-2/cross-encoder",
    "cycle-2/cross-encoder/scores",
    "cycle-2/labels-for-bi",
    "cycle-2/bi-encoder",
    "scores/start",
    "scores/start-as-is",
    "scores/cross",
    "scores/bi",
    "scores/dev/start",
    "sample",
    "neighbours",
    "texts",
    "gold",
]


def weights(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for form in ("bi-encoder", "cross-encoder")
        for path in sorted((Path(folder) / form).rglob("*.safetensors"))
    }


def reused(result):
    return {stage["name"]: stage["reused"] for stage in result["stages"]}


TOKEN = "hf_TheSecretToken"


@pytest.fixture(scope="module")
def config(tiny_method, tiny_files):
    return tiny_method(cycles=2, is_symmetric=True, tests=(str(tiny_files / "test.tsv"),), token=TOKEN)


@pytest.fixture(scope="module")
def trained(config):
    return train(config)


@pytest.fixture
def copied(config, trained, tmp_path):
    """The config in a copy of the finished run's folder."""
    shutil.copytree(trained.folder, tmp_path / "copy")
    return replace(config, output=str(tmp_path / "copy"))


def test_the_result_is_whole_and_on_disk(config, trained):
    result = trained.result
    assert set(result) >= Result.__required_keys__
    on_disk = read_result(trained.folder)
    assert on_disk == json.loads(json.dumps(result)) | {"format": 2, "recipe_sha256": on_disk["recipe_sha256"]}
    assert (result["method"], result["seed"], result["metric"]) == ("trans-encoder", 2021, "spearman")
    assert [stage["name"] for stage in result["stages"]] == STAGES
    assert not any(reused(result).values())
    assert result["analysis"] is None
    assert set(result["scores"]) == {"start", "start_as_is", "bi", "cross"}
    assert all(set(scores) == {"test"} for scores in result["scores"].values())
    assert set(result["dev"]) == {"start", "bi", "cross"}
    assert [cycle["cycle"] for cycle in result["cycles"]] == [1, 2]
    assert result["data"]["pairs"]["rows"] == 96
    assert result["environment"]["device"] == "cpu"
    names = {path.name for path in trained.folder.iterdir()}
    assert names >= {
        "recipe.toml",
        "environment.json",
        "log.jsonl",
        "result.json",
        "report.html",
        "report.md",
        "plots",
        "stages",
    }
    assert trained.folder == Path(config.output)


def test_every_default_is_written_out(trained):
    values = trained.result["config"]
    assert (values["bi"]["max_length"], values["cross"]["max_length"]) == (32, 64)
    assert (values["bi"]["warmup_ratio"], values["cross"]["warmup_ratio"]) == (0.0, 0.1)
    assert (values["precision"], values["device"]) == ("fp32", "cpu")
    assert "warmup_ratio = 0.1" in (trained.folder / "recipe.toml").read_text()


@pytest.mark.parametrize("form", ["bi", "cross"])
def test_the_best_cycle_of_each_form_is_chosen_by_dev(form, trained):
    devs = [cycle[form]["dev"] for cycle in trained.result["cycles"]]
    best = trained.result["best"][form]
    assert best["dev"] == max(devs) == trained.result["dev"][form]
    assert best["cycle"] == 1 + devs.index(max(devs))
    name = f"cycle-{best['cycle']}/{form}-encoder"
    key = next(stage["key"] for stage in trained.result["stages"] if stage["name"] == name)
    (stage,) = trained.folder.glob(f"stages/*-{key[:12]}/model/model.safetensors")
    assert stage.read_bytes() == (trained.folder / best["path"] / "model.safetensors").read_bytes()


def test_plain_sentence_transformers_gives_the_same_scores(trained, tiny_files):
    pairs = read_pairs(str(tiny_files / "dev.tsv"))
    first, second = pairs["sentence1"][:], pairs["sentence2"][:]
    bi = SentenceTransformer(str(trained.folder / "bi-encoder"), device="cpu")
    cosines = util.pairwise_cos_sim(bi.encode(first), bi.encode(second)).numpy()
    ours = BiScorer(trained.bi_encoder, precision="fp32", cache=TokenCache()).score(pairs)
    np.testing.assert_allclose(ours, cosines, rtol=0, atol=model_rounding(bi))
    cross = CrossEncoder(str(trained.folder / "cross-encoder"), device="cpu")
    probabilities = cross.predict(list(zip(first, second, strict=True)))
    ours = CrossScorer(trained.cross_encoder, precision="fp32", cache=TokenCache()).score(pairs)
    np.testing.assert_allclose(ours, probabilities, rtol=0, atol=model_rounding(cross))
    assert (bi.max_seq_length, cross.max_seq_length) == (64, 64), "as their base model"
    assert "transencoder" in (trained.folder / "bi-encoder" / "README.md").read_text()


def test_the_recorded_metrics_are_those_of_the_saved_models(trained, tiny_files):
    dev, test = (read_pairs(str(tiny_files / f"{name}.tsv")) for name in ("dev", "test"))
    for form, scorer in (
        ("bi", BiScorer(trained.bi_encoder, precision="fp32")),
        ("cross", CrossScorer(trained.cross_encoder, precision="fp32")),
    ):
        assert evaluate(scorer, dev) == pytest.approx(trained.result["best"][form]["dev"], abs=0.1)
        assert evaluate(scorer, test) == pytest.approx(trained.result["scores"][form]["test"], abs=0.1)


def test_the_same_command_again_reuses_everything(copied, trained):
    again = train(copied)
    assert all(reused(again.result).values())
    assert [stage["key"] for stage in again.result["stages"]] == [stage["key"] for stage in trained.result["stages"]]
    for name in ("cycles", "best", "dev", "scores", "data", "metric"):
        assert again.result[name] == json.loads(json.dumps(trained.result[name])), name
    assert weights(again.folder) == weights(trained.folder)
    events = [json.loads(line)["event"] for line in (again.folder / "log.jsonl").read_text().splitlines()]
    assert events[events.index("run_finished") :].count("stage_reused") == len(STAGES)


def test_more_bi_encoder_epochs_reuse_all_that_comes_before(copied, trained):
    again = train(replace(copied, bi=replace(copied.bi, epochs=2)))
    flags = reused(again.result)
    assert [name for name, flag in flags.items() if flag] == [
        *STAGES[:5],
        "scores/start",
        "scores/start-as-is",
        *(["scores/cross"] if flags["scores/cross"] else []),  # when the first cycle's is the best
        "scores/dev/start",
        "texts",
        "gold",
    ]
    assert len(again.result["cycles"][0]["bi"]["curve"]) > len(trained.result["cycles"][0]["bi"]["curve"])


def test_a_damaged_stage_is_done_again_with_the_same_bytes(copied, trained):
    (damaged,) = Path(copied.output).glob("stages/cycle-1-cross-encoder-*/model/model.safetensors")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1])
    again = train(copied)
    assert [name for name, flag in reused(again.result).items() if not flag] == ["cycle-1/cross-encoder"]
    assert damaged.read_bytes() == content


def test_a_run_in_use_is_refused(copied):
    with (
        Run.open(copied.output, (Path(copied.output) / "recipe.toml").read_text(), "trans-encoder"),
        pytest.raises(RunError, match="is in use by process .* choose another output folder"),
    ):
        train(copied)


def test_a_folder_with_other_things_is_refused(tiny_method, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match="is not empty and is not a run"):
        train(tiny_method(output=str(tmp_path)))


def test_without_dev_and_tests_the_last_is_kept_and_the_output_says_so(tiny_method):
    trained = train(tiny_method(dev=None, cycles=2))
    result = trained.result
    assert [best["cycle"] for best in result["best"].values()] == [2, 2]
    assert result["dev"] is None
    assert result["scores"] == {}  # test scoring is off by default
    assert [stage["name"] for stage in result["stages"]] == [*STAGES[:12], "sample", "neighbours", "texts"]
    for path in ("report.md", "bi-encoder/README.md", "cross-encoder/README.md"):
        assert "no dev set" in (trained.folder / path).read_text().lower(), path


def test_analysis_mode_records_test_curves_and_says_so(tiny_method, tiny_files, trained):
    config = tiny_method(tests=(str(tiny_files / "test.tsv"),), test_every_eval=True)
    result = train(config).result
    for form in ("cross", "bi"):
        steps = [step for step, _ in result["cycles"][0][form]["curve"]]
        assert [(cycle, step) for cycle, step, _ in result["analysis"][form]] == [(1, step) for step in steps]
        assert all(set(values) == {"test"} for _, _, values in result["analysis"][form])
    assert "Test sets were scored during training" in (Path(config.output) / "report.md").read_text()


def test_the_token_is_written_nowhere(trained):
    files = [path for path in trained.folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    assert TOKEN not in json.dumps(trained.result)


def test_the_token_is_not_in_a_checkpoint_either(tiny_method, monkeypatch):
    config = tiny_method(token=TOKEN)
    monkeypatch.setattr(SentenceTransformer, "save_pretrained", _stop)
    monkeypatch.setattr(CrossEncoder, "save_pretrained", _save_checkpoints_only)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    files = [path for path in Path(config.output).rglob("*") if path.is_file()]
    assert any("checkpoint-" in str(path) for path in files)
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_the_command_line_is_the_api_and_another_seed_has_other_bytes(
    tiny_method, tiny_files, tiny_bi_encoder, tmp_path, monkeypatch, capsys
):
    folders = []
    for name in ("api", "cli"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        if name == "api":
            train(tiny_method(output="run"))
        else:
            fit = "learning-rate=1e-3 batch-size=16 epochs=1 eval-steps=4 checkpoint-steps=4".split()
            options = [f"--{form}.{setting}" for form in ("bi", "cross") for setting in fit]
            base = f"--pairs {tiny_files}/pairs.tsv --start {tiny_bi_encoder} --output run --dev {tiny_files}/dev.tsv"
            more = "--cycles 1 --no-is-symmetric --precision fp32 --device cpu --quiet"
            code = main(["train", "trans-encoder", *base.split(), *more.split(), *options])
            assert code == 0, capsys.readouterr().err
        folders.append(Path("run").resolve())
    api, cli = folders
    assert (api / "recipe.toml").read_bytes() == (cli / "recipe.toml").read_bytes()
    assert weights(api) == weights(cli)
    other = weights(train(tiny_method(seed=1)).folder)
    assert all(other[name] != content for name, content in weights(api).items())


def test_a_plan_counts_the_steps_and_trains_nothing(tiny_method, trained, config):
    planned = plan(config)
    steps = {form: planned.stages[f"cycle-1/{form}-encoder"].n_steps for form in ("cross", "bi")}
    assert steps == {"cross": 12, "bi": 6}
    assert list(planned.stages) == [
        stage["name"] for stage in trained.result["stages"] if stage["name"] in planned.stages
    ]
    assert {name: stage.key for name, stage in planned.stages.items()}.items() <= {
        stage["name"]: stage["key"] for stage in trained.result["stages"]
    }.items()
    assert steps["cross"] == trained.result["cycles"][0]["cross"]["curve"][-1][0]
    assert planned.disk_bytes > 100_000
    trained_in = sum(stage.cost().operations for stage in planned.stages.values()) / 1e11
    assert planned.seconds > trained_in > 0  # the nearest texts are found after the training
    assert "96 pairs; 2 cycles; each cycle: label, train a cross-encoder 12 steps, label" in str(planned)
    assert "bi: learning rate 0.001, batches of 16, 1 epoch, 32 tokens" in str(planned)
    unstarted = tiny_method()
    plan(unstarted)
    assert not Path(unstarted.output).exists()


def test_a_plan_counts_pretraining(tiny_method):
    without, planned = plan(tiny_method()), plan(tiny_method(pretraining=PretrainingConfig(epochs=2, batch_size=16)))
    assert "cross-start/pretraining" not in without.stages
    assert planned.stages["cross-start/pretraining"].n_steps == 2 * 96 // 16
    assert planned.seconds > without.seconds and planned.disk_bytes > without.disk_bytes
    assert "before the cycles: 12 steps of masked language modelling" in str(planned)
    assert "masked" not in str(without)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": "/nowhere/pairs.tsv"}, "/nowhere/pairs.tsv"),
        ({"dev": "/nowhere/dev.tsv"}, "/nowhere/dev.tsv"),
        ({"members": (Member(start="/nowhere/model"),)}, "'/nowhere/model' is no local folder"),
        ({"tests": ("stsbb",)}, "stsbb"),
        ({"device": "cuda:1"}, "CUDA_VISIBLE_DEVICES=1"),
        ({"device": "gpu"}, "cannot be used here .*cpu, cuda or cuda:0"),
        ({"report_to": ("tensorbord",)}, "the nearest tracker is tensorboard"),
        ({"report_to": ("trackio",)}, "not installed; pip install trackio"),
    ],
)
@pytest.mark.parametrize("use", [train, plan])
def test_what_cannot_be_had_is_refused_before_training(use, tiny_method, changes, message, monkeypatch):
    monkeypatch.setattr("transencoder.training.pipeline.find_spec", lambda package: None)
    with pytest.raises(InputError, match=message):
        use(tiny_method(**changes))


def _stop(*_, **__):
    raise KeyboardInterrupt


def _save_checkpoints_only(model, path, *arguments, **options):
    if "checkpoint-" not in path:
        raise KeyboardInterrupt
    return model.save(path, *arguments, **options)


def test_tensorboards_events_stay_in_the_run(tiny_method, monkeypatch):
    written = []

    class Writer:
        def __init__(self, log_dir):
            self.folder = Path(log_dir)

        def add_text(self, name, text): ...

        def add_scalar(self, name, value, step):
            written.append((self.folder.name, name))

        def flush(self): ...

        def close(self): ...

    class Callback(TensorBoardCallback):
        def __init__(self):
            self.tb_writer, self.logging_dir, self._SummaryWriter = None, None, Writer

    monkeypatch.setattr("transencoder.training.pipeline.find_spec", lambda package: package)
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "tensorboard", Callback)
    method = tiny_method(report_to=("tensorboard",))
    train(method)
    assert {folder for folder, _ in written} == {"cycle-1-cross-encoder", "cycle-1-bi-encoder"}
    assert "eval/dev" in {name for _, name in written}


def test_another_recipes_models_are_set_aside_whole(copied, trained):
    """Also when the new recipe cannot run: nothing is lost, and nothing passes for the new one's."""
    folder, names = Path(copied.output), ("result.json", "report.html", "report.md", "recipe.toml", "bad-rows.tsv")
    (folder / "bad-rows.tsv").write_text("pairs.tsv:3")
    before = {name: (folder / name).read_bytes() for name in names} | weights(folder)
    with pytest.raises(InputError):
        train(replace(copied, pairs="absent.tsv"))
    for name in ("result.json", "bi-encoder", "cross-encoder", "report.html", "report.md", "plots", "bad-rows.tsv"):
        assert not (folder / name).exists(), name
    previous = folder / "previous"
    assert {name: (previous / name).read_bytes() for name in names} | weights(previous) == before
    with pytest.raises(InputError):
        train(replace(copied, pairs="absent.tsv"))  # once more: what was set aside stays
    assert weights(previous) == weights(Path(trained.folder))


def test_bad_rows_of_changed_data_stay_with_the_run(tiny_method, tmp_path):
    """Was: the new file, written before training, was set aside with the outputs of the old data."""
    path = tmp_path / "pairs.tsv"
    good = "".join(f"balo {i}\tdama {i}\n" for i in range(32))
    config = tiny_method(pairs=str(path), skip_bad_rows=True, same_form=True)
    for bad in ("first", "second"):
        path.write_text(f"sentence1\tsentence2\n{bad} only one\n{good}{bad} a\tb\n")
        folder = train(config).folder
        assert bad in (folder / "bad-rows.tsv").read_text()
    assert (folder / "previous" / "result.json").exists() and not (folder / "previous" / "bad-rows.tsv").exists()


def test_the_result_names_where_its_stages_were_computed(copied, monkeypatch):
    """Not where it was put together again."""
    for path in Path(copied.output).glob("stages/*/stage.json"):
        stage = read_checked_json(path)
        stage["environment"]["git"] = {"commit": "0" * 40, "is_changed": False}
        write_checked_json(path, stage)
    assert train(copied).result["environment"]["commit"] == "0" * 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "fast"}, "preset is 'fast'. It must be one of: standard, paper"),
        ({"cycles": "2"}, "cycles is '2'; it must be at least 1"),
        ({"cycles": "auto"}, "cycles is 'auto'; it must be at least 1"),
        ({"bi": {"epochs": 1.5}}, "bi.epochs is 1.5. It must be a whole number"),
        ({"seed": None}, "seed is None. It must be a whole number"),
        ({"label_both_orders": "yes"}, "label_both_orders is 'yes'. It must be true or false"),
        ({"epochs": 1}, "there is no setting epochs; the nearest is"),
        ({"learning_rate": 1e-5}, 'there is no setting learning_rate; the nearest is bi={"learning_rate": ...}'),
    ],
)
def test_python_values_of_another_kind_are_refused_before_anything_is_read(settings, message):
    with pytest.raises(InputError) as caught:
        plan(sentences=["a b", "b c"], **settings)
    assert message in str(caught.value)


def test_texts_without_a_name_are_no_config():
    with pytest.raises(
        InputError, match=r"\['a b', 'b c'\] is given in the place of a config; give texts by their name"
    ):
        train(["a b", "b c"], preset="paper")
