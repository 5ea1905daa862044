"""Masked language modelling: runs from a start and from nothing, resumption, and what comes after."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM, AutoTokenizer, RobertaConfig, RobertaForMaskedLM

from transencoder import MLM, SimCSE, train
from transencoder.cli import main
from transencoder.errors import InputError

FAST = {"batch_size": 8, "epochs": 2, "max_length": 16, "checkpoint_steps": 5}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory, tiny_sentences) -> str:
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("\n".join(tiny_sentences["text"]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def make(sentences, tiny_plm, tiny_files, tmp_path_factory):
    def make_config(**changes):
        fields = {
            "sentences": sentences,
            "start": None if changes.get("from_scratch") else tiny_plm,
            "output": str(tmp_path_factory.mktemp("runs") / "run"),
            "tests": (str(tiny_files / "test.tsv"),),
            "precision": "fp32",
            "device": "cpu",
            "held_out": 0.1,
            "fit": replace(MLM.fit, learning_rate=3e-3, **FAST),
        }
        return MLM(**(fields | changes))

    return make_config


@pytest.fixture(scope="module", params=["start", "from-scratch"])
def trained(request, make):
    fit = replace(MLM.fit, learning_rate=1e-2, **FAST | {"epochs": 12})
    scratch = {"from_scratch": True, "layers": 1, "width": 64, "vocabulary": 150, "fit": fit}
    return train(make(**(scratch if request.param == "from-scratch" else {"fit": fit})))


def test_it_learns_to_guess_words_of_text_it_has_not_read(trained):
    before, after = trained.result["pretraining"]["held_out"]
    assert after < before - 0.2
    assert trained.result["pretraining"]["steps"] > 10


def test_a_run_leaves_a_plain_model_its_record_and_a_report(trained, tiny_files):
    folder = trained.folder / "masked-lm"
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert tokenizer.mask_token_id < model.config.vocab_size
    assert tokenizer.model_max_length >= 16
    bi = SentenceTransformer(str(folder), device="cpu")
    assert bi.encode("balo bama").shape == (model.config.hidden_size,)
    result = trained.result
    assert list(result["best"]) == ["mlm"]
    assert list(result["scores"]) == ["start", "mlm"]
    report, card = (trained.folder / "report.md").read_text(), (folder / "README.md").read_text()
    assert "It learned to guess masked words" in report
    assert "on held-out text" in report
    assert "bi-encoder" not in report
    assert "pipeline_tag: fill-mask" in card
    assert "AutoModelForMaskedLM" in card


@pytest.mark.parametrize("from_scratch", [False, True])
def test_interrupted_it_ends_with_the_same_bytes(make, from_scratch, interrupt, weights):
    shape = {"from_scratch": True, "layers": 1, "width": 64, "vocabulary": 150} if from_scratch else {}
    whole, config = train(make(**shape)), make(**shape)
    interrupt(config)
    again = train(config)
    assert weights(again.folder) == weights(whole.folder)
    assert again.result["pretraining"] == whole.result["pretraining"]


def test_dropout_is_the_one_that_is_asked_for(make, weights):
    one, other = (train(make(fit=replace(MLM.fit, dropout=share, **FAST), tests=())) for share in (0.0, 0.5))
    assert weights(one.folder) != weights(other.folder)


def test_a_roberta_reads_fewer_tokens_than_it_has_positions(make, tiny_plm, tmp_path):
    config = RobertaConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=18
    )
    RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    AutoTokenizer.from_pretrained(tiny_plm).save_pretrained(tmp_path / "roberta")
    with pytest.raises(InputError, match="fit.max_length is 17, but .* reads at most 16 tokens"):
        train(make(start=str(tmp_path / "roberta"), fit=replace(MLM.fit, **FAST | {"max_length": 17})))


def test_a_tokenizer_with_more_tokens_than_its_model_is_refused(make, tiny_plm, tmp_path):
    shutil.copytree(tiny_plm, tmp_path / "more")
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(tmp_path / "more")
    with pytest.raises(InputError, match="of which the model knows"):
        train(make(start=str(tmp_path / "more")))


def test_its_run_is_the_start_of_a_bi_encoder(make, sentences, tmp_path):
    first = train(make(tests=()))
    fit = replace(SimCSE.fit, batch_size=16, learning_rate=1e-3, max_length=16)
    second = train(
        SimCSE(sentences=sentences, start=str(first.folder), output=str(tmp_path / "next"), device="cpu", fit=fit)
    )
    assert list(second.result["best"]) == ["bi"]


def test_a_start_without_a_head_can_have_a_new_one(make, tiny_bi_encoder):
    with pytest.raises(InputError, match="is no masked language model .it lacks"):
        train(make(start=tiny_bi_encoder))
    trained = train(make(start=tiny_bi_encoder, new_head=True, tests=()))
    before, after = trained.result["pretraining"]["held_out"]
    assert after < before


def test_from_the_command_line(sentences, tmp_path, capsys):
    options = ["train", "mlm", "--sentences", sentences, "--from-scratch", "--layers", "1", "--width", "64"]
    options += ["--vocabulary", "150", "--fit.batch-size", "8", "--fit.max-length", "16", "--device", "cpu"]
    options += ["--output", str(tmp_path / "run")]
    assert main([*options, "--dry-run"]) == 0
    assert "96 sentences; train a new BERT of 1 layers x 64 about" in capsys.readouterr().out
    assert main(options) == 0
    out = capsys.readouterr().out
    assert "mlm: " in out
    assert "Nothing was measured" in out
    assert "It learned to guess masked words" in out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["config"]["fit"]["learning_rate"] == 5e-4
    assert math.isfinite(result["pretraining"]["losses"][-1][1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"from_scratch": True, "vocabulary": 100, "sentences": "many"}, "vocabulary is 100, but the text has 300"),
        (
            {"fit": replace(MLM.fit, batch_size=8, max_length=500)},
            "fit.max_length is 500, but .* reads at most 128 tokens",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(make, changes, message, tmp_path):
    if changes.get("sentences") == "many":
        (tmp_path / "many.txt").write_text("".join(f"{chr(0x4E00 + i)} {chr(0x4E00 + i)}\n" for i in range(300)))
        changes = changes | {"sentences": str(tmp_path / "many.txt")}
    with pytest.raises(InputError, match=message):
        train(make(**changes))
