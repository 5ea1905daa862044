"""A run that mines its own pairs: a stage like any other, its record in result.json and in the report."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from transencoder import FitConfig, Member, mine, train
from transencoder.encoders import load_bi
from transencoder.report.words import data_line
from transencoder.runs import stage_seed
from transencoder.scorers import BiScorer
from transencoder.training import mined as mined_module
from transencoder.training import plan
from transencoder.training.data import PairsReader
from transencoder.training.pairs import PairsPipeline

FAST = FitConfig(learning_rate=1e-3, batch_size=32, epochs=1, eval_steps=50, checkpoint_steps=50)
STANDARD = {"preset": "standard", "dev": None, "bi": FitConfig(), "cross": FitConfig()}


@pytest.fixture(scope="module")
def sentences_file(tiny_pairs, tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("\n".join([*tiny_pairs["sentence1"][:60], *tiny_pairs["sentence2"][:60]]) + "\n")
    return path


@pytest.fixture(scope="module")
def config(tiny_method, sentences_file):
    """Trains on 64 pairs that it mines."""

    def make(**changes):
        fields = {"pairs": None, "sentences": str(sentences_file), "n_pairs": 64, "bi": FAST, "cross": FAST}
        return tiny_method(**fields | changes)

    return make


@pytest.fixture(scope="module")
def run(config):
    given = config()
    return given, train(given)


def stages(result):
    return {stage["name"]: stage["reused"] for stage in result["stages"]}


def test_sentences_train_both_models(run, sentences_file):
    _, trained = run
    record = trained.result["data"]["pairs"]
    assert record["rows"] == 64 and record["source"] == str(sentences_file)
    assert record["mined"]["sentences"]["rows"] == 120
    assert sum(record["mined"]["histogram"]["pairs"]) == 64
    assert set(trained.result["best"]) == {"bi", "cross"}
    assert next(iter(stages(trained.result))) == "mining"


def test_the_report_shows_the_mix_and_the_histogram(run):
    given, trained = run
    report = (trained.folder / "report.md").read_text()
    assert "64 pairs mined from the 120 sentences of `" in report
    section = report.partition("## Mining")[2].partition("## Time")[0]
    assert "rare words in common (BM25)" in section and section.count("█") > 20
    page = (trained.folder / "report.html").read_text()
    section = page.partition("<h3>How the pairs were mined</h3>")[2].partition("</section>")[0]
    assert "64 pairs of " in section and "rare words in common (BM25)" in section and "<svg" in section
    assert (trained.folder / "plots" / "mined.png").is_file()
    assert (
        "- training pairs, no labels: 64 pairs mined from the 120 sentences"
        in (trained.folder / "bi-encoder" / "README.md").read_text()
    )


def test_the_same_command_mines_nothing_again(run, monkeypatch):
    given, trained = run
    monkeypatch.setattr(mined_module, "mine_pairs", lambda *_, **__: pytest.fail("mined again"))
    again = train(given).result
    assert all(stages(again).values())
    assert again["data"] == json.loads(json.dumps(trained.result["data"]))


class Mined(Exception):
    pass


@pytest.fixture
def mining_raises(monkeypatch):
    def mine_pairs(*_, **__):
        raise Mined

    monkeypatch.setattr(mined_module, "mine_pairs", mine_pairs)


@pytest.mark.parametrize("changes", [{"n_pairs": 32}, {"seed": 3}, {"bi": FitConfig(max_length=8)}])
@pytest.mark.usefixtures("mining_raises")
def test_what_changes_the_pairs_mines_anew(run, config, changes, tmp_path):
    shutil.copytree(run[1].folder, tmp_path / "run")
    with pytest.raises(Mined):
        train(config(output=str(tmp_path / "run"), **changes))


def test_the_mined_pairs_are_what_is_labelled(run):
    _, trained = run
    stage = next(trained.folder.glob("stages/*mining*"))
    pairs = Dataset.from_file(str(next(stage.glob("*.arrow"))))
    assert len(pairs) == 64 and pairs.column_names == ["sentence1", "sentence2"]
    assert not list(stage.rglob("*.npy")) == [] and not (stage / "checkpoints").exists()


def kept(trained, stage):
    (path,) = trained.folder.glob(f"stages/*{stage}-*/scores.npy")
    return np.load(path)


def test_the_base_models_scores_are_those_of_mining(run, tiny_bi_encoder):
    _, trained = run
    (file,) = trained.folder.glob("stages/*mining*/*.arrow")
    scores = kept(trained, "start-scores")
    np.testing.assert_array_equal(scores, kept(trained, "mining"))
    scorer = BiScorer(load_bi(Path(tiny_bi_encoder), max_length=32, device="cpu"), precision="fp32")
    np.testing.assert_allclose(scores, scorer.score(Dataset.from_file(str(file))), atol=1e-6)


def test_pairs_that_are_added_to_mined_ones_are_scored_too(config, tiny_files):
    trained = train(config(extra_pairs=str(tiny_files / "pairs.tsv")))
    n_pairs = trained.result["data"]["pairs"]["rows"]
    assert len(kept(trained, "mining")) == 64 < n_pairs == len(kept(trained, "start-scores"))


def test_test_sentences_are_left_out_before_mining(config, tiny_pairs, sentences_file, tmp_path):
    test = tmp_path / "held.tsv"
    rows = tiny_pairs.select(range(10))
    rows.to_csv(test, sep="\t", index=False)
    held = {*rows["sentence1"], *rows["sentence2"]}
    documents = tmp_path / "documents.txt"
    documents.write_text(sentences_file.read_text() + "tamo kama\n")
    given = {"tests": (str(test),), "exclude_test_sentences": True, "documents": str(documents)}
    reader = PairsReader(config(**given, is_symmetric=False), None)
    sentences, documents = reader.text(), reader.documents()
    for text in (sentences, documents):
        assert len(text.rows) and not set(text.rows["text"]) & held and not text.record["transductive"]
    assert "tamo kama" in documents.rows["text"]
    n_excluded = sentences.record["excluded_rows"]
    assert n_excluded >= 20 and sentences.left_out_with(documents)["excluded_rows"] == 2 * n_excluded


def test_so_many_sentences_are_drawn_and_mined(config):
    drawn = []
    for seed in (1, 1, 2):
        reader = PairsReader(config(n_sentences=50, seed=seed), None)
        text = reader.drawn(reader.text())
        assert text.record["drawn_from"] == 120
        drawn.append(text.rows["text"][:])
    assert list(map(len, drawn)) == [50, 50, 50] and drawn[0] == drawn[1] != drawn[2]
    assert "from 50 sentences" in str(plan(config(n_sentences=50)))


def test_a_plan_counts_pairs_without_mining_them(config, monkeypatch):
    monkeypatch.setattr(mined_module, "mine_pairs", lambda *_, **__: pytest.fail("a plan mined"))
    assert "mine 600 pairs from 120 sentences" in str(plan(config(n_pairs=None))).splitlines()[0]
    assert "mine 80 pairs" in str(plan(config(n_pairs=80)))


@pytest.mark.parametrize("max_length", [None, 32, "auto"])
def test_preset_standard_makes_a_bi_encoder_alone_at_any_length(max_length, config):
    """Was: `--max-length 64` set a length of the cross-encoder too, which then counted as asked for."""
    found = plan(config(preset="standard", cross=FitConfig(), max_length=max_length))
    assert found.config.same_form and not any("cross-encoder" in name for name in found.stages)
    assert any(line.startswith("tokens are weighted if the base model seems") for line in found.lines)


@pytest.mark.parametrize(
    ("changes", "epochs"),
    [
        ({}, 1),
        ({"bi": FitConfig(patience_epochs=1), "n_pairs": 600}, 2),
        ({"n_sentences": 100}, 1),
        ({"n_sentences": 99}, 2),
        ({"n_pairs": 499}, 2),
        ({"n_pairs": 500}, 1),
        ({"budget": "1h"}, 1),
        ({"budget": "1h", "n_pairs": 499}, 2),
        ({"bi": FitConfig(epochs=3)}, 3),
        ({"bi": FitConfig(learning_rate=2e-5)}, 2),
        ({"bi": FitConfig(batch_size=512)}, 2),
        ({"bi": FitConfig(selection="last")}, 1),
        ({"bi": FitConfig(selection="self_retrieval")}, 2),
        ({"cross": FitConfig(epochs=1)}, 4),
        ({"preset": "paper"}, 10),
    ],
)
def test_preset_standard_trains_one_epoch_where_there_are_many_pairs(changes, epochs, config, monkeypatch):
    monkeypatch.setattr("transencoder.training.pairs.MANY_PAIRS", 500)
    given = config(**STANDARD | {"n_pairs": None} | changes)
    found = plan(given)
    assert found.config.bi.epochs == epochs
    reasons = [line for line in found.lines if line.startswith("bi.epochs = ")]
    assert [line.split(":")[0] for line in reasons] == ([f"bi.epochs = {epochs}"] if epochs in {1, 2, 4} else [])
    assert plan(PairsPipeline(given).recipe).config.bi.epochs == epochs, "the recipe leaves it open"


def test_one_epoch_is_only_for_a_base_model_that_learns_alone(config, tiny_bi_encoder, monkeypatch):
    monkeypatch.setattr("transencoder.training.pairs.MANY_PAIRS", 64)
    member, slower = Member(start=tiny_bi_encoder), Member(start=tiny_bi_encoder, bi_learning_rate=2e-5)
    for members, epochs in (((member,), 1), ((member, member), 2), ((slower,), 2)):
        assert plan(config(**STANDARD | {"members": members})).config.bi.epochs == epochs


def test_extra_pairs_count_as_pairs(config, tiny_pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("transencoder.training.pairs.MANY_PAIRS", 64)
    tiny_pairs.select(range(30)).to_csv(tmp_path / "extra.tsv", sep="\t", index=False)
    for extra, epochs in ({}, 2), ({"extra_pairs": str(tmp_path / "extra.tsv"), "n_extra_pairs": 24}, 1):
        assert plan(config(**STANDARD | {"n_pairs": 40} | extra)).config.bi.epochs == epochs


def test_a_line_of_mined_pairs_says_so(run):
    assert data_line(run[1].result["data"]["pairs"]).startswith("64 pairs mined from the 120 sentences of `")


@pytest.fixture(scope="module")
def documents_file(tiny_pairs, tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "documents.txt"
    path.write_text("\n".join(f"lelo {text}" for text in tiny_pairs["sentence2"][:40]) + "\n")
    return path


PROMPTS = {"prompt": "kama: ", "document_prompt": "dima: "}


@pytest.fixture(scope="module")
def paired(config, documents_file, tiny_bi_encoder):
    """A config that pairs sentences with documents, and its run."""
    member = Member(start=str(tiny_bi_encoder), **PROMPTS)
    given = config(documents=str(documents_file), is_symmetric=False, members=(member,), precision="fp32")
    return given, train(given)


def test_sentences_and_documents_are_paired_as_mine_pairs_them(paired, sentences_file, documents_file, tiny_bi_encoder):
    given, trained = paired
    stage = next(trained.folder.glob("stages/*mining*"))
    pairs = Dataset.from_file(str(next(stage.glob("*.arrow"))))
    assert set(pairs["sentence1"]) <= set(sentences_file.read_text().splitlines())
    assert set(pairs["sentence2"]) <= set(documents_file.read_text().splitlines())
    own = mine(
        str(sentences_file),
        str(tiny_bi_encoder),
        documents=str(documents_file),
        n_pairs=64,
        seed=stage_seed(given.seed, "mining"),
        max_length=32,
        device="cpu",
        precision="fp32",
        **PROMPTS,
    )
    assert pairs[:] == own.pairs[:]
    record = trained.result["data"]["pairs"]
    assert record["mined"]["documents"]["rows"] == record["documents"]["rows"] == 40 and record["excluded_rows"] == 0
    assert f"120 sentences of `{'/'.join(sentences_file.parts[-2:])}` and the 40 documents of `" in data_line(record)
    assert trained.bi_encoder.prompts["document"] == "dima: "


@pytest.mark.usefixtures("mining_raises")
@pytest.mark.parametrize("changed", ["documents", "prompt", "document_prompt"])
def test_other_documents_and_prompts_are_mined_anew(changed, paired, documents_file, tmp_path):
    given, trained = paired
    shutil.copytree(trained.folder, tmp_path / "run")
    other = tmp_path / "other.txt"
    other.write_text(documents_file.read_text() + "tamo kama\n")
    change = {"documents": str(other)}
    if changed != "documents":
        change = {"members": (replace(given.members[0], **{changed: "tamo: "}),)}
    train(replace(given, output=str(tmp_path / "run")))
    with pytest.raises(Mined):
        train(replace(given, output=str(tmp_path / "run"), **change))


def test_each_file_has_its_own_column(config, tmp_path):
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(json.dumps({"id": "x", "body": f"{i} kama"}) + "\n" for i in range(30)))
    reader = PairsReader(config(documents=str(file), document_column="body", is_symmetric=False), None)
    assert reader.documents().rows["text"][0] == "0 kama"


def test_bad_documents_are_set_aside_and_both_files_are_counted(config, documents_file, tmp_path):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("sentences", "documents")}
    for file in files.values():
        file.write_text("".join(f'{{"text": "{file.stem} {i}"}}\n' for i in range(30)) + '{"text": 3}\n')
    names = {name: str(file) for name, file in files.items()}
    given = config(**names, is_symmetric=False, skip_bad_rows=True)
    reader = PairsReader(given, tmp_path)
    sentences, documents = reader.text(), reader.documents()
    assert (sentences.left_out_with(documents)["bad_rows"], documents.record["bad_rows"]) == (2, 1)
    assert (tmp_path / "bad-rows.tsv").exists() and "documents.jsonl" in (tmp_path / "bad-documents.tsv").read_text()


def test_a_plan_counts_documents(config, documents_file):
    given = config(documents=str(documents_file), is_symmetric=False)
    assert "mine 64 pairs from 120 sentences and 40 documents" in str(plan(given)).splitlines()[0]
