"""Starting encoders: whole runs of a tiny model on sentences, their records, and what they refuse."""

import json
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from transencoder import DCLR, BiScorer, ContrastiveTension, DeCLUTR, DiffCSE, MirrorBERT, SimCSE, read_pairs, train
from transencoder.checkpoints import KeepBest
from transencoder.cli import main
from transencoder.errors import InputError
from transencoder.evaluation import evaluate
from transencoder.fit import pseudo_labels
from transencoder.losses import DropHead, drophead
from transencoder.methods import start_training
from transencoder.methods.contrastive_tension import ContrastiveTensionFit
from transencoder.methods.data import read_start_data
from transencoder.methods.dclr import DCLRFit
from transencoder.methods.declutr import DeCLUTRFit
from transencoder.methods.diffcse import DiffCSEFit
from transencoder.methods.mirror_bert import MirrorBERTFit
from transencoder.methods.simcse import SimCSEFit
from transencoder.pairs import read_sentences
from transencoder.recipes import load_recipe, recipe_toml

WORDS = [f"{first}a{last}" for first in "bdfgklmn" for last in ("lo", "ma")]
FAST = {"batch_size": 16, "epochs": 1, "eval_steps": 3, "checkpoint_steps": 3, "max_length": 16}
CONFIGS = {
    "simcse": (SimCSE, {"fit": SimCSEFit(learning_rate=1e-3, **FAST), "pooling": "mean"}),
    "mirror-bert": (MirrorBERT, {"fit": MirrorBERTFit(learning_rate=1e-3, **FAST)}),
    "contrastive-tension": (
        ContrastiveTension,
        {"fit": ContrastiveTensionFit(learning_rate=1e-4, **FAST), "n_negatives": 1},
    ),
    "diffcse": (DiffCSE, {"fit": DiffCSEFit(learning_rate=1e-3, **FAST), "pooling": "mean", "generator": "tiny_plm"}),
    "declutr": (
        DeCLUTR,
        {"fit": DeCLUTRFit(learning_rate=1e-3, **FAST), "documents": "documents", "document_words": 32, "n_samples": 3},
    ),
    "dclr": (DCLR, {"fit": DCLRFit(learning_rate=1e-3, **FAST), "pooling": "mean", "complement": "tiny_bi_encoder"}),
}
DROPHEAD = {"drophead": 0.5, "fit": MirrorBERTFit(learning_rate=1e-3, dropout=0.0, **FAST)}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory, tiny_sentences) -> str:
    """A file of 96 sentences, most of them longer than Mirror-BERT's 30 characters."""
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("\n".join(tiny_sentences["text"]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def documents(tmp_path_factory, tiny_sentences) -> str:
    """A file of 32 documents of three sentences each, 33 words or more."""
    path = tmp_path_factory.mktemp("documents") / "documents.txt"
    texts = tiny_sentences["text"][:]
    path.write_text("\n".join(" ".join(texts[i : i + 3] * 2) for i in range(0, len(texts), 3)) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def make(sentences, documents, tiny_plm, tiny_bi_encoder, tiny_files, tmp_path_factory):
    """Makes a config that trains in a second; any field can be changed."""
    models = {"tiny_plm": tiny_plm, "tiny_bi_encoder": tiny_bi_encoder, "documents": documents}

    def make_config(method: str, **changes):
        config_class, own = CONFIGS[method]
        own = {name: models.get(value, value) if isinstance(value, str) else value for name, value in own.items()}
        fields = {
            **({} if "documents" in own else {"sentences": sentences}),
            "start": tiny_plm,
            "output": str(tmp_path_factory.mktemp("runs") / "run"),
            "dev": str(tiny_files / "dev.tsv"),
            "tests": (str(tiny_files / "test.tsv"),),
            "precision": "fp32",
            "device": "cpu",
        }
        return config_class(**(fields | own | changes))

    return make_config


@pytest.fixture(scope="module", params=list(CONFIGS))
def trained(request, make):
    return train(make(request.param))


def weights(folder) -> bytes:
    return (Path(folder) / "bi-encoder" / "model.safetensors").read_bytes()


def test_a_run_leaves_a_model_that_plain_sentence_transformers_scores_alike(trained, tiny_files):
    plain = SentenceTransformer(str(trained.folder / "bi-encoder"), device="cpu")
    test = read_pairs(str(tiny_files / "test.tsv"))
    first, second = plain.encode(test["sentence1"][:]), plain.encode(test["sentence2"][:])
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    ours = BiScorer(trained.bi_encoder, precision="fp32").score(test.select_columns(["sentence1", "sentence2"]))
    np.testing.assert_allclose(ours, cosines, atol=1e-5)
    assert evaluate(BiScorer(plain, precision="fp32"), test) == pytest.approx(
        trained.result["scores"]["bi"]["test"], abs=1e-6
    )
    assert plain.max_seq_length == 16
    assert [type(module).__name__ for module in plain] == ["Transformer", "Pooling"]


def test_the_record_and_the_report_speak_of_one_form(trained):
    result = trained.result
    assert set(result["best"]) == {"bi"}
    assert list(result["scores"]) == ["start", "start_as_is", "bi"]
    kind, rows = ("documents", 32) if result["method"] == "declutr" else ("sentences", 96)
    assert result["data"][kind]["rows"] == rows
    assert [stage["name"] for stage in result["stages"]] == [
        "pairs",
        "bi-encoder",
        "scores/start",
        "scores/start-as-is",
        "scores/bi",
        "scores/start-on-dev",
    ]
    assert len(result["cycles"][0]["bi"]["curve"]) >= 2
    report = (trained.folder / "report.md").read_text()
    card = (trained.folder / "bi-encoder" / "README.md").read_text()
    assert "cross" not in report
    assert "| | start | bi | gain |" in report.replace("|  |", "| |")
    assert f"training {kind}, unlabelled: {rows} rows" in report
    assert "The checkpoint was chosen on the dev set" in report
    assert f"{rows} rows" in card
    assert "cross-encoder" not in card
    assert (trained.folder / "curves.png").exists()


def test_the_second_time_everything_is_reused(trained):
    before = weights(trained.folder)
    config = load_recipe(trained.folder / "recipe.toml")
    again = train(replace(config, device="cpu"))
    assert all(stage["reused"] for stage in again.result["stages"])
    assert weights(again.folder) == before


@pytest.mark.parametrize(("method", "changes"), [*((method, {}) for method in CONFIGS), ("mirror-bert", DROPHEAD)])
def test_interrupted_it_ends_with_the_same_bytes(make, method, changes, monkeypatch):
    """What the loss trains besides the encoder is part of it. Without dev: the best on it may be the checkpoint's."""
    whole = train(make(method, dev=None, **changes))
    config = make(method, dev=None, **changes)
    save = KeepBest.on_save

    def stop_after_save(self, args, state, control, **kwargs):
        save(self, args, state, control, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(KeepBest, "on_save", stop_after_save)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    (checkpoint,) = Path(config.output).glob("stages/bi-encoder-*/checkpoints/checkpoint-3")
    assert (checkpoint / "loss.safetensors").exists() == (method != "mirror-bert")
    monkeypatch.setattr(KeepBest, "on_save", save)
    assert weights(train(config).folder) == weights(whole.folder)


def test_a_resumed_run_without_the_projectors_state_would_differ(make, monkeypatch):
    whole, config = train(make("simcse")), make("simcse")
    save = KeepBest.on_save

    def stop_after_save(self, args, state, control, **kwargs):
        save(self, args, state, control, **kwargs)
        (self.folder / "checkpoint-3" / "loss.safetensors").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(KeepBest, "on_save", stop_after_save)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.setattr(KeepBest, "on_save", save)
    assert weights(train(config).folder) != weights(whole.folder)


def test_each_setting_makes_a_stage_of_its_own(make):
    config = make("simcse", dev=None, tests=())
    keys = [
        train(replace(config, **change)).result["cycles"][0]["bi"]["stage"]
        for change in ({}, {"temperature": 0.1}, {"projector": False}, {"pooling": "cls"}, {"seed": 1})
    ]
    assert len(set(keys)) == 5


def test_the_projector_is_in_the_loss_and_not_in_the_model(make, monkeypatch):
    seen = []
    fit = pseudo_labels.KeepBest

    class Watch(fit):
        def __init__(self, model, folder, loss=None):
            super().__init__(model, folder, loss)
            seen.append({name for name, _ in loss.named_parameters() if not name.startswith("model.")})

    monkeypatch.setattr(pseudo_labels, "KeepBest", Watch)
    train(make("simcse"))
    train(make("simcse", projector=False))
    assert seen == [{"projector.0.weight", "projector.0.bias"}, set()]


def test_mirror_bert_masks_the_second_view_with_the_tokenizers_own_token(make):
    run = train(make("mirror-bert", dev=None, tests=())).folder
    (path,) = run.glob("stages/pairs-*/pairs.arrow")
    views = Dataset.from_file(str(path))
    texts = read_sentences(make("mirror-bert").sentences)["text"][:]
    assert views["sentence1"][:] == texts
    assert all(
        (" [MASK] " in masked) == (len(text) >= 30) for text, masked in zip(texts, views["sentence2"], strict=True)
    )


def test_drophead_changes_the_weights_and_nothing_else_of_what_is_saved(make, monkeypatch):
    drawn = []
    draw = DropHead.forward

    def watch(self, heads):
        drawn.append(self.training)
        return draw(self, heads)

    monkeypatch.setattr(DropHead, "forward", watch)
    fit = DROPHEAD["fit"]
    plain, dropping = train(make("mirror-bert", fit=fit)), train(make("mirror-bert", **DROPHEAD))
    saved = [
        {path.relative_to(run.folder): path.read_bytes() for path in (run.folder / "bi-encoder").rglob("*.*")}
        for run in (plain, dropping)
    ]
    differ = {path.name for path in saved[0] if saved[0][path] != saved[1][path]}
    assert saved[0].keys() == saved[1].keys()
    assert differ == {"model.safetensors", "README.md"}
    assert {True, False} == set(drawn)  # while training, and on dev
    assert not any(isinstance(part, DropHead) for part in dropping.bi_encoder.modules())


def test_drophead_alone_makes_two_views_and_a_start_of_unknown_heads_is_refused(make, monkeypatch):
    config = make("mirror-bert", span_characters=0, dev=None, tests=(), **DROPHEAD)
    assert train(config).result["best"]["bi"]
    monkeypatch.setattr(drophead, "_PROJECTIONS", {})
    with pytest.raises(InputError, match=r"drophead is 0\.5, but the attention heads of BertModel .* give drophead 0"):
        train(replace(config, seed=1, output=config.output + "-other"))


def test_without_a_dev_set_the_last_checkpoint_is_kept_and_the_report_says_so(make):
    trained = train(make("simcse", dev=None, tests=()))
    assert trained.result["dev"] is None
    assert "There was no dev set: the last checkpoint was kept" in (trained.folder / "report.md").read_text()


def test_test_sentences_can_be_left_out(make, tiny_files, tiny_pairs, tmp_path):
    held_out = read_pairs(str(tiny_files / "test.tsv"))["sentence1"][:3]
    path = tmp_path / "more.txt"
    path.write_text("\n".join([*held_out, *tiny_pairs["sentence1"][:16]]) + "\n")
    kept = train(make("simcse", sentences=str(path), dev=None, exclude_test_sentences=True))
    assert kept.result["data"]["sentences"]["transductive"] is False
    assert kept.result["data"]["sentences"]["excluded_rows"] >= 3
    assert "were left out of training (inductive)" in (kept.folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("simcse", {"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ("simcse", {"fit": SimCSEFit(dropout=0.0)}, "both views of a sentence are the same"),
        ("mirror-bert", {"temperature": -1.0}, "temperature is -1.0"),
        ("mirror-bert", {"span_characters": -1}, "span_characters is -1"),
        ("mirror-bert", {"span_characters": 0, "fit": MirrorBERTFit(dropout=0.0)}, "both views are the same"),
        ("mirror-bert", {"drophead": 1.0}, "drophead is 1.0; it is a share of the heads, 0 to below 1"),
        ("mirror-bert", {"drophead": -0.1}, "drophead is -0.1"),
        ("simcse", {"test_every_eval": True, "dev": None}, "test_every_eval needs tests and dev"),
    ],
)
def test_contradictions_are_refused(make, method, changes, message):
    with pytest.raises(InputError, match=message):
        make(method, **changes)


def test_from_the_command_line(make, sentences, tiny_plm, tiny_files, tmp_path, capsys):
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
    in_python = train(make("simcse", tests=()))
    assert weights(tmp_path / "run") == weights(in_python.folder)
    assert main(["runs", "list", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["method"] == "simcse"


@pytest.mark.parametrize("method", CONFIGS)
def test_a_config_comes_back_from_its_recipe(make, method, tmp_path):
    config = make(method)
    path = tmp_path / "recipe.toml"
    path.write_text(recipe_toml(config))
    assert load_recipe(path) == config


def test_one_overridden_setting_leaves_the_methods_other_defaults(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('method = "simcse"\nsentences = "s.txt"\nstart = "x"\noutput = "run"\n[fit]\nepochs = 2\n')
    fit = load_recipe(path).fit
    assert (fit.epochs, fit.learning_rate, fit.weight_decay, fit.eval_steps) == (2, 3e-5, 0.0, 125)


def test_contrasts_are_the_sentence_itself_and_pairs_of_others(make):
    run = train(make("contrastive-tension", dev=None, tests=(), n_negatives=3)).folder
    (path,) = run.glob("stages/pairs-*/pairs.arrow")
    rows = Dataset.from_file(str(path))
    texts = read_sentences(make("simcse").sentences)["text"][:]
    assert len(rows) == 4 * len(texts)
    assert [row["sentence1"] for row in rows if row["label"]] == texts
    assert all((row["sentence1"] == row["sentence2"]) == bool(row["label"]) for row in rows)


@pytest.mark.parametrize("winner", [0, 1])
def test_of_the_two_copies_the_better_on_dev_is_kept(make, monkeypatch, winner):
    measured, kept = [], []

    def measure(scored, scorer):
        measured.append(len(measured) + (100.0 if len(measured) % 2 == winner else 0.0))
        return measured[-1]

    class Watch(KeepBest):
        def on_evaluate(self, *args, **kwargs):
            super().on_evaluate(*args, **kwargs)
            copies = [copy.state_dict() for copy in self.candidates]
            kept.append([all(torch.equal(self._weights[name], copy[name]) for name in copy) for copy in copies])

    monkeypatch.setattr(start_training, "measure", measure)
    monkeypatch.setattr(pseudo_labels, "KeepBest", Watch)
    trained = train(make("contrastive-tension", tests=()))
    assert [value for _, value in trained.result["cycles"][0]["bi"]["curve"]] == measured[winner::2]
    assert kept == [[winner == 0, winner == 1]] * len(kept) and kept


@pytest.mark.parametrize(("method", "field"), [("diffcse", "generator"), ("dclr", "complement")])
def test_a_helper_of_another_vocabulary_is_refused(make, method, field, tiny_plm, tmp_path):
    from transformers import AutoTokenizer

    shutil.copytree(tiny_plm, tmp_path / "other")
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="another vocabulary than the start"):
        train(make(method, **{field: str(tmp_path / "other")}))


def test_recipes_run_one_after_the_other_and_the_second_starts_from_the_firsts_run(
    make, tiny_plm, tiny_files, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    first = make("simcse", output="runs/first", tests=())
    (tmp_path / "first.toml").write_text(recipe_toml(first))
    fit = "learning_rate = 1e-3\nbatch_size = 16\nepochs = 1\nmax_length = 16\n"
    (tmp_path / "second.toml").write_text(
        f'method = "trans-encoder"\npairs = "{tiny_files / "pairs.tsv"}"\noutput = "runs/second"\ncycles = 1\n'
        f'dev = "{tiny_files / "dev.tsv"}"\nprecision = "fp32"\ndevice = "cpu"\n'
        f'[[members]]\nstart = "runs/first"\ncross_start = "{tiny_plm}"\n[bi]\n{fit}[cross]\n{fit}'
    )
    assert main(["recipes", "run", "first.toml", "second.toml", "--dry-run"]) == 0
    assert "runs/second: starts from runs/first, which is not there yet" in capsys.readouterr().out
    assert main(["recipes", "run", "first.toml", "second.toml"]) == 0
    assert "bi: runs/first/bi-encoder" in capsys.readouterr().out
    results = [json.loads((tmp_path / "runs" / name / "result.json").read_text()) for name in ("first", "second")]
    assert results[1]["dev"]["start"] == pytest.approx(results[0]["dev"]["bi"], abs=1e-4)
    assert main(["recipes", "run", "first.toml", "second.toml", "--output", "elsewhere"]) == 2
    assert "belong to one recipe" in capsys.readouterr().err


def test_given_pairs_are_the_two_views(make, tiny_files):
    trained = train(make("simcse", sentences=str(tiny_files / "pairs.tsv"), columns=("sentence1", "sentence2")))
    assert "pairs" not in {stage["name"] for stage in trained.result["stages"]}
    assert trained.result["data"]["pairs"]["rows"] == 96
    assert "training pairs, unlabelled: 96 rows" in (trained.folder / "report.md").read_text()
    with pytest.raises(InputError, match="makes its pairs itself"):
        make("contrastive-tension", columns=("sentence1", "sentence2"))
    with pytest.raises(InputError, match="columns names 3 columns"):
        make("simcse", columns=("a", "b", "c"))


@pytest.mark.parametrize("method", CONFIGS)
def test_the_plan_has_the_steps_that_are_taken(make, method):
    config = make(method, dev=None, tests=())
    plan = config.plan()
    record = train(config).result["cycles"][0]["bi"]
    assert plan.steps > 0 and plan.seconds > 0 and plan.disk_bytes > 0
    (stage,) = Path(config.output).glob("stages/bi-encoder-*/stage.json")
    assert json.loads(stage.read_text())["result"]["n_steps"] == plan.steps, record


@pytest.mark.parametrize("has_dropout", [True, False])
def test_with_dropout_too_both_copies_resume_to_the_same_bytes(make, has_dropout, monkeypatch):
    """Was: the second copy had dropout only after the first dev evaluation, and none after a resume."""
    rising = count()
    monkeypatch.setattr(start_training, "measure", lambda scored, scorer: float(next(rising)))  # the last are the best
    fit = ContrastiveTensionFit(learning_rate=1e-4, dropout=0.1 if has_dropout else 0.0, **FAST)
    whole, config = (
        train(make("contrastive-tension", fit=fit, tests=())),
        make("contrastive-tension", fit=fit, tests=()),
    )
    save, n_saved = KeepBest.on_save, []

    def stop_after_second_save(self, args, state, control, **kwargs):
        save(self, args, state, control, **kwargs)
        n_saved.append(state.global_step)
        if len(n_saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(KeepBest, "on_save", stop_after_second_save)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.setattr(KeepBest, "on_save", save)
    assert weights(train(config).folder) == weights(whole.folder)


@pytest.mark.parametrize("method", ["simcse", "diffcse", "dclr"])
def test_another_seed_draws_another_projector(make, method, monkeypatch):
    drawn = []

    class Watch(KeepBest):
        def __init__(self, model, folder, loss=None):
            super().__init__(model, folder, loss)
            drawn.append(loss.projector[0].weight.detach().clone())

    monkeypatch.setattr(pseudo_labels, "KeepBest", Watch)
    for seed in (1, 2):
        train(make(method, seed=seed, dev=None, tests=()))
    assert not (drawn[0] == drawn[1]).any()


def test_clipping_counts_what_the_loss_trains(make, monkeypatch):
    from accelerate import Accelerator

    clipped, clip = [], Accelerator.clip_grad_norm_

    def watch(self, parameters, max_norm, norm_type=2):
        parameters = list(parameters)
        clipped.append(len(parameters))
        return clip(self, parameters, max_norm, norm_type)

    monkeypatch.setattr(Accelerator, "clip_grad_norm_", watch)
    for has_projector in (False, True):
        train(make("simcse", projector=has_projector, dev=None, tests=()))
    assert clipped[-1] == clipped[0] + 2


def test_helpers_have_the_trainers_precision(make, monkeypatch):
    seen = set()
    run = pseudo_labels.run_trainer

    def watch(trainer, *args):
        embeddings = trainer.loss.twin[0].model.embeddings.register_forward_hook(
            lambda module, inputs, output: seen.add(torch.is_autocast_enabled("cpu"))
        )
        run(trainer, *args)
        embeddings.remove()

    monkeypatch.setattr(pseudo_labels, "run_trainer", watch)
    train(make("contrastive-tension", precision="bf16", dev=None, tests=()))
    assert seen == {True}


@pytest.mark.parametrize(
    ("method", "changes"), [("simcse", {}), ("diffcse", {}), ("dclr", {}), ("mirror-bert", {"span_characters": 0})]
)
def test_a_start_without_dropout_is_refused(make, method, changes, tiny_plm, tmp_path):
    shutil.copytree(tiny_plm, tmp_path / "dry")
    config = json.loads((tmp_path / "dry" / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "dry" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="has no dropout, and then both views of a sentence are the same"):
        train(make(method, start=str(tmp_path / "dry"), **changes))


def test_the_plan_of_declutr_counts_spans_and_one_encoder(make):
    plan, simcse = make("declutr").plan(), make("simcse").plan()
    assert "train a bi-encoder 6 steps on 96 rows" in str(plan)
    assert plan.disk_bytes < 3 * simcse.disk_bytes
    assert make("contrastive-tension").plan().disk_bytes > 1.5 * simcse.disk_bytes


def test_so_many_sentences_are_left_when_those_of_the_tests_are_out(make, tiny_files, tiny_pairs, tmp_path):
    held_out = read_pairs(str(tiny_files / "test.tsv"))["sentence1"][:]
    path = tmp_path / "more.txt"
    path.write_text("\n".join([*held_out, *tiny_pairs["sentence1"][:30]]) + "\n")
    kept = train(make("simcse", sentences=str(path), dev=None, exclude_test_sentences=True, n_sentences=20))
    assert kept.result["data"]["sentences"]["rows"] == 20


def test_only_sentences_that_were_drawn_make_a_run_transductive(make, tiny_files, tmp_path):
    """Was: a test sentence anywhere in the file did."""
    held_out = read_pairs(str(tiny_files / "test.tsv"))["sentence1"][0]
    path = tmp_path / "more.txt"
    path.write_text("\n".join([held_out, *(f"balo dama {word} felo" for word in WORDS)]) + "\n")
    records = [
        read_start_data(make("simcse", sentences=str(path), dev=None, n_sentences=n, seed=1), None).record
        for n in (2, 1 + len(WORDS))
    ]
    assert [record["transductive"] for record in records] == [False, True]


def test_so_many_sentences_can_be_drawn(make):
    keep = {"tests": (), "dev": None}
    first, again, other = (train(make("simcse", n_sentences=40, seed=seed, **keep)) for seed in (1, 1, 2))
    assert weights(first.folder) == weights(again.folder)
    records = [run.result["data"]["sentences"] for run in (first, again, other)]
    assert [(record["rows"], record["drawn_from"]) for record in records] == [(40, 96)] * 3
    assert records[0]["fingerprint"] == records[1]["fingerprint"] != records[2]["fingerprint"]
    assert "40 rows drawn from the 96 of" in (first.folder / "report.md").read_text()
    with pytest.raises(InputError, match="n_sentences is 97, but .* has 96; give at most that"):
        train(make("simcse", n_sentences=97, **keep))
    with pytest.raises(InputError, match="n_sentences is 0; it must be at least 1"):
        make("simcse", n_sentences=0)


def test_documents_that_are_too_short_are_refused_or_left_out(make, sentences, documents, tmp_path):
    with pytest.raises(InputError, match=r"96 of 96 documents have fewer than document_words, 64; the first .* longer"):
        make("declutr", documents=sentences, document_words=64).plan()
    path = tmp_path / "mixed.txt"
    path.write_text("balo dama\n" + Path(documents).read_text())
    with pytest.raises(
        InputError, match="1 of 33 documents have fewer .* first is document 1, with 2, the shortest has 2"
    ):
        train(make("declutr", documents=str(path)))
    kept = train(make("declutr", documents=str(path), skip_bad_rows=True))
    assert (kept.result["data"]["documents"]["rows"], kept.result["data"]["documents"]["short_rows"]) == (32, 1)
    assert "1 document of too few words were left out" in (kept.folder / "report.md").read_text()


@pytest.mark.parametrize(("method", "helper"), [("diffcse", "generator"), ("dclr", "complement")])
def test_the_plan_needs_the_helper(make, method, helper, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        make(method, **{helper: str(tmp_path / "nowhere")}).plan()


def test_one_sentence_has_no_negatives(make, tmp_path):
    (tmp_path / "one.txt").write_text("balo dama felo\n")
    with pytest.raises(InputError, match="has 1 row; there must be at least 2"):
        train(make("simcse", sentences=str(tmp_path / "one.txt")))


def test_the_card_of_given_pairs_does_not_speak_of_dropout(make, tiny_files):
    trained = train(make("simcse", sentences=str(tiny_files / "pairs.tsv"), columns=("sentence1", "sentence2")))
    assert "contrastive tuning on pairs" in (trained.folder / "bi-encoder" / "README.md").read_text()
    assert "dropout changed it" not in trained.result["about"]


def test_a_start_without_a_language_modelling_head_needs_no_masks(make, tiny_bi_encoder):
    with pytest.raises(InputError, match="is no masked language model.* as start, or mask_ratio 0"):
        train(make("declutr", start=tiny_bi_encoder))
    assert train(make("declutr", start=tiny_bi_encoder, mask_ratio=0.0)).result["best"]["bi"]["dev"] is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ("a", "b")}, "columns names 2 columns; documents have one"),
        ({"mask_ratio": 1.0}, "mask_ratio is 1.0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"document_words": 4}, "document_words is 4"),
        ({"exclude_test_sentences": True}, "exclude_test_sentences is for sentences"),
    ],
)
def test_contradictions_of_declutr_are_refused(make, changes, message):
    with pytest.raises(InputError, match=message):
        make("declutr", **changes)
