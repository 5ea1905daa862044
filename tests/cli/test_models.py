"""What models say of pairs, with models that look at the length of the texts."""

import csv
import gzip
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from transencoder.cli.files import write_pairs
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError
from transencoder.labels import Teacher
from transencoder.metrics import METRICS, RANKING_METRICS, metric_draws, row_intervals
from transencoder.pairs import read_pairs
from transencoder.scorers import BiScorer, CrossScorer
from transencoder.tokens import TokenCache

PAIRS = "sentence1\tsentence2\tscore\na\tbb\t1\nccc\td\t3\nee\tffff\t5\n"
SCORES = {"long": [0.25, 0.5, 1.0], "short": [0.75, 0.5, 1.0 / 3.0]}


class Fixed:
    def __init__(self, name):
        self.name = name

    def score(self, pairs):
        return np.array(SCORES[self.name], np.float32)


@pytest.fixture
def loaded(monkeypatch):
    calls = []

    def load_teacher(name, scoring, where, token_folder):
        calls.append((name, scoring))
        return Teacher(name=name, scorer=Fixed(name))

    monkeypatch.setattr("transencoder.cli.scoring._load_teacher", load_teacher)
    return calls


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSENCODER_DATA", raising=False)
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS)
    return path


def test_score_writes_tsv_to_stdout(run, loaded, pairs):
    code, out, err = run("score", "long", "--pairs", pairs)
    assert code == 0, err
    assert out == "sentence1\tsentence2\tscore\na\tbb\t0.25\nccc\td\t0.5\nee\tffff\t1.0\n"
    assert [name for name, _ in loaded] == ["long"]


def test_score_reads_pairs_from_stdin(run, loaded, pairs, monkeypatch):
    _, expected, _ = run("score", "long", "--pairs", pairs)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PAIRS.encode())))
    code, out, err = run("score", "long", "--pairs", "-")
    assert (code, out) == (0, expected), err


def test_score_writes_the_mean_of_several_models_in_the_format_of_the_name(run, loaded, pairs, tmp_path):
    mean = np.mean([SCORES["long"], SCORES["short"]], axis=0, dtype=np.float32)
    for name, read in (
        ("out.jsonl", lambda path: [json.loads(line)["score"] for line in path.read_text().splitlines()]),
        (
            "out.csv",
            lambda path: [float(row["score"]) for row in csv.DictReader(path.read_text().splitlines())],
        ),
        (
            "out.parquet",
            lambda path: Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "c"))["score"][:],
        ),
    ):
        assert run("score", "long", "short", "--pairs", pairs, "--output", tmp_path / name)[:2] == (0, "")
        np.testing.assert_array_equal(np.float32(read(tmp_path / name)), mean)
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--output", "out.txt"), "'out.txt'. Its name must end in .tsv or .csv or .jsonl or .parquet"),
        (("--output", "no/out.tsv"), "there is no folder no"),
        (("--pairs", "none.tsv"), "none.tsv"),
    ],
)
def test_score_refuses_before_a_model_is_loaded(typed, message, run, loaded, pairs):
    code, out, err = run("score", "long", "--pairs", pairs, *typed)
    assert (code, out) == (2, "")
    assert message in err
    assert loaded == []


def test_score_refuses_texts_that_tsv_cannot_hold_before_it_scores(run, loaded, pairs, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"query": "a", "document": "b\nc"}) + "\n")
    code, out, err = run("score", "long", "--pairs", rows)
    assert (code, out, loaded) == (2, "", []) and "a text holds a tab or a line end" in err


def test_score_knows_queries_and_documents_by_their_header(run, loaded, pairs):
    pairs.write_text("query\tdocument\nhow to zip\tzip it\nx\ty\nz\tz\n")
    code, out, err = run("score", "long", "--pairs", pairs)
    assert code == 0, err
    assert out.splitlines()[1] == "how to zip\tzip it\t0.25"


def test_bad_rows_go_to_the_file_that_was_named(run, loaded, pairs, tmp_path):
    pairs.write_text(PAIRS.replace("ee\tffff\t5", "alone\nee\tffff\t5"))
    code, out, err = run("score", "long", "--pairs", pairs, "--skip-bad-rows", "--bad-rows-file", tmp_path / "bad.tsv")
    assert code == 0, err
    assert out.count("\n") == 4
    assert "pairs.tsv:4" in (tmp_path / "bad.tsv").read_text()
    assert "alone" in (tmp_path / "bad.tsv").read_text()


@pytest.mark.parametrize("command", ["score", "label"])
def test_the_file_that_is_read_is_not_overwritten(command, run, loaded, pairs, tmp_path):
    rows = tmp_path / "rows.parquet"
    read_pairs(pairs).to_parquet(rows)
    before = rows.read_bytes()
    code, _, err = run(command, "long", "--pairs", rows, "--output", rows)
    assert code == 2 and "which is the file that is read" in err
    assert rows.read_bytes() == before


def test_a_text_with_a_tab_is_refused_for_tsv_and_leaves_no_file(tmp_path):
    rows = Dataset.from_dict({"sentence1": ["a", "b\tc"], "sentence2": ["d", "e"]})
    with pytest.raises(InputError, match=r"tab or a line end.*'b\\tc'.*\.jsonl"):
        write_pairs(rows, str(tmp_path / "out.tsv"))
    assert list(tmp_path.iterdir()) == []
    write_pairs(rows, str(tmp_path / "out.jsonl"))
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])["sentence1"] == "b\tc"


def test_evaluate_measures_scored_pairs(run, loaded, pairs):
    code, out, err = run("evaluate", "long", "--pairs", pairs)
    assert code == 0, err
    assert "100.00 [100.0, 100.0]" in out and "3 pairs" in out and "better" not in out
    record = json.loads(run("evaluate", "short", "--pairs", pairs, "--json")[1])
    assert record["scores"] == {str(pairs): pytest.approx(-100.0)}
    assert record["models"] == ["short"]
    assert (record["n_pairs"], record["n_queries"]) == ({str(pairs): 3}, {})
    assert record["intervals"] == {str(pairs): {"scores": {"short": pytest.approx([-100, -100])}, "gains": {}}}


@pytest.fixture
def tasks(monkeypatch):
    """Every task has the three pairs, but for the gold of those in `gold`; what was asked for is kept."""
    gold, asked = {}, []

    def load(task, role, **where):
        asked.append((task.name, role, where))
        scores = gold.get(task.name, [1.0, 3.0, 5.0])
        return Dataset.from_dict({"sentence1": ["a"] * 3, "sentence2": ["b"] * 3, "score": scores})

    monkeypatch.setattr("transencoder.evaluation.load", load)
    return SimpleNamespace(gold=gold, asked=asked)


def test_evaluate_measures_tasks_and_their_average(run, loaded, tasks):
    tasks.gold["stsb"] = [2.0, 2.0, 2.0]
    code, out, err = run("evaluate", "long", "short", "--tasks", "sts12", "stsb", "--data-dir", "d", "--json")
    assert code == 0, err
    where = {"data_folder": "d", "cache_folder": None, "token": None}
    assert tasks.asked == [("sts12", "test", where), ("stsb", "test", where)], "each task is read once"
    record = json.loads(out)
    assert record["each"]["long"]["scores"] == {"sts12": pytest.approx(100.0), "stsb": None}
    assert record["gains"]["average"] == {"short": None, "ensemble": None}
    assert record["intervals"]["stsb"] == {"scores": {}, "gains": {}} == record["intervals"]["average"]
    assert "average" in run("evaluate", "long", "--tasks", "sts12", "stsb")[1]


def test_an_average_has_the_interval_of_its_tests_draws(run, loaded, tasks):
    command = ("evaluate", "long", "short", "--tasks", "sts12", "stsb")
    record = json.loads(run(*command, "--json")[1])
    assert list(record["intervals"]) == ["sts12", "stsb", "average"]
    assert record["intervals"]["average"]["gains"]["short"] == pytest.approx([-200, -200])
    assert record["gains"]["average"]["short"] == pytest.approx(-200)
    assert "-200.00 [-200.0, -200.0]" in run(*command)[1]
    *_, row = csv.DictReader(run(*command, "--csv")[1].splitlines())
    assert (row["set"], row["metric"], row["n_pairs"]) == ("average", "", "")
    assert [float(row[name]) for name in ("long", "short", "short gain")] == pytest.approx([100, -100, -200])
    assert [float(row[f"short gain {end}"]) for end in ("low", "high")] == pytest.approx([-200, -200])


@pytest.fixture
def hundred(tmp_path, monkeypatch):
    """A hundred graded pairs and three models: the first two score at random, the third agrees with the grades."""
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, 100)
    scores = np.float32([rng.normal(size=100), rng.normal(size=100), gold + rng.normal(size=100)])
    found = dict(zip(("minilm-1", "runs/a/bi-encoder", "runs/a/cross-encoder"), scores, strict=True))

    def load_teacher(name, scoring, where, token_folder):
        return Teacher(name=name, scorer=SimpleNamespace(score=lambda pairs: found[name]))

    monkeypatch.setattr("transencoder.cli.scoring._load_teacher", load_teacher)
    rows = [f"a{i}\tb\t{grade}\n" for i, grade in enumerate(gold)]
    Path("dev.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return SimpleNamespace(gold=gold, scores=scores, command=("evaluate", *found, "--pairs", "dev.tsv"))


def test_evaluate_says_which_gains_are_not_significant(run, hundred, monkeypatch):
    monkeypatch.setattr("transencoder.cli.terminal._WIDTH_OF_FILES", 80)
    out = run(*hundred.command)[1]
    said = "no significant difference between runs/a/bi-encoder and minilm-1 on these 100 pairs."
    assert f"dev.tsv: {said}" in out and "both models are measured on the same samples" in out
    number = r"-?\d+\.\d\d \[-?\d+\.\d, -?\d+\.\d\]"
    row = rf"│100 pairs │ runs/a/cross-encoder │ +{number} │ +\+{number}│"
    assert re.search(row, out), f"no unbroken row in 80 columns:\n{out}"


def test_evaluate_gives_intervals_and_gains_to_machines(run, hundred):
    record = json.loads(run(*hundred.command, "--json")[1])
    intervals, gains = record["intervals"]["dev.tsv"], record["gains"]["dev.tsv"]
    assert list(intervals["scores"]) == ["minilm-1", "runs/a/bi-encoder", "runs/a/cross-encoder", "ensemble"]
    assert list(intervals["gains"]) == list(gains) == list(intervals["scores"])[1:]
    assert all(intervals["gains"][name][0] < gain < intervals["gains"][name][1] for name, gain in gains.items())
    (row,) = csv.DictReader(run(*hundred.command, "--csv")[1].splitlines())
    assert (row["n_pairs"], row["n_queries"]) == ("100", "")
    assert [float(row[f"ensemble {end}"]) for end in ("low", "high")] == intervals["scores"]["ensemble"]
    found = [float(row[f"ensemble gain{end}"]) for end in ("", " low", " high")]
    assert found == [gains["ensemble"], *intervals["gains"]["ensemble"]]


def test_evaluate_draws_as_the_report_of_a_run_with_the_default_seed(run, hundred):
    draws = metric_draws("spearman", hundred.gold, hundred.scores, name="dev", seed=RunConfig.seed)
    expected = row_intervals(draws, ["minilm-1", "bi", "cross"])["gains"]["cross"]
    found = json.loads(run(*hundred.command, "--json")[1])["intervals"]["dev.tsv"]["gains"]["runs/a/cross-encoder"]
    assert found == list(expected)


def test_evaluate_measures_several_models_each_and_together(run, loaded, pairs):
    command = ("evaluate", "long", "short", "--pairs", pairs)
    record = json.loads(run(*command, "--weights", "1", "3", "--json")[1])
    assert {name: each["average"] for name, each in record["each"].items()} == {
        "long": pytest.approx(100.0),
        "short": pytest.approx(-100.0),
    }
    assert record["average"] == pytest.approx(-100 * 0.75**0.5)  # of 0.625, 0.5, 0.5
    assert [name for name, _ in loaded] == ["long", "short"], "each model scores once"
    rows = list(csv.reader(run(*command, "--weights", "3", "1", "--csv")[1].splitlines()))
    assert rows[0][:7] == ["set", "metric", "long", "short", "ensemble", "n_pairs", "n_queries"]
    assert rows[1][:2] == [str(pairs), "spearman"] and float(rows[1][4]) == pytest.approx(100.0)
    assert all(title in run(*command)[1] for title in ("long", "short", "ensemble"))
    assert "--weights has 1 numbers for 2 models" in run(*command, "--weights", "1")[2]


def test_evaluate_gives_no_average_over_different_metrics(run, loaded, tasks):
    tasks.gold.update(askubuntu=[0.0, 1.0, 0.0], scidocs=[0.0, 0.0, 1.0])
    command = ("evaluate", "long", "--tasks", "stsb", "reranking")
    record = json.loads(run(*command, "--json")[1])
    assert record["metrics"] == {"stsb": "spearman", "askubuntu": "map", "scidocs": "map"}
    assert record["average"] is None
    assert (record["n_pairs"]["scidocs"], record["n_queries"]) == (3, {"askubuntu": 1, "scidocs": 1})
    out = run(*command)[1]
    assert "map" in out and "1 query" in out and "average" not in out


def test_evaluate_ranks_the_pairs_of_equal_first_sentences(run, loaded, tmp_path, monkeypatch):
    """The scores are 0.25, 0.5, 1: the first of `a` is its positive, ranked second; `b` has no negative."""
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "ranked.tsv"
    path.write_text("sentence1\tsentence2\tscore\na\tx\t1\na\ty\t0\nb\tz\t1\n")
    for metric in ("map", "mrr_at_10"):
        code, out, err = run("evaluate", "long", "--pairs", path, "--metric", metric, "--json")
        assert code == 0, err
        record = json.loads(out)
        assert (record["metrics"], record["scores"]) == ({str(path): metric}, {str(path): 50.0})


def test_evaluate_measures_re_ranking_tasks_by_map_or_mrr(run, tiny_reranking, tiny_bi_encoder, tmp_path):
    folders = ("--data-dir", tiny_reranking, "--cache-dir", tmp_path / "cache")
    command = ("evaluate", tiny_bi_encoder, "--tasks", "reranking", *folders, "--device", "cpu", "--json")
    code, out, err = run(*command)
    assert code == 0, err
    by_map, by_mrr = json.loads(out), json.loads(run(*command, "--metric", "mrr_at_10")[1])
    assert by_map["metrics"] == {"askubuntu": "map", "scidocs": "map"}
    assert by_mrr["metrics"] == {"askubuntu": "mrr_at_10", "scidocs": "mrr_at_10"}
    assert all(0 < score < 100 for record in (by_map, by_mrr) for score in record["scores"].values())
    assert by_map["average"] == pytest.approx(sum(by_map["scores"].values()) / 2)
    assert by_map["scores"] != by_mrr["scores"]


def test_every_metric_can_be_asked_for(run):
    out = run("evaluate", "--help")[1]
    assert "{" + ",".join([*METRICS, *RANKING_METRICS]) + "}" in out


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--tasks", "sts99"), "unknown task 'sts99'"),
        (("--tasks", "sts12", "--columns", "a", "b"), "are for --pairs"),
        (("--tasks", "sts12", "--pairs", "a.tsv"), "not allowed with argument"),
        ((), "one of the arguments --tasks --pairs is required"),
        (("long", "--tasks", "sts12"), "give each once"),
        (("ensemble", "--tasks", "sts12"), "give it as ./ensemble"),
    ],
)
def test_evaluate_refuses_what_does_not_go_together(typed, message, run, loaded):
    code, out, err = run("evaluate", "long", *typed)
    assert (code, out) == (2, "")
    assert message in err


def test_score_refuses_a_model_that_is_given_twice(run, loaded, pairs):
    code, out, err = run("score", "long", "long", "--pairs", pairs, "--output", "-")
    assert (code, out, loaded) == (2, "", [])
    assert "the models are long, long; give each once" in err


def test_label_writes_pseudo_labels_that_datasets_reads(run, loaded, pairs, tmp_path):
    output = tmp_path / "labels.parquet"
    code, out, err = run("label", "long", "short", "--pairs", pairs, "--policy", "clip", "--output", output)
    assert code == 0, err
    assert "3 pairs labelled by long, short, policy clip" in out
    labels = Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "c"))
    np.testing.assert_allclose(labels["label"][:], [0.5, 0.5, 2.0 / 3.0], rtol=1e-6)
    assert labels.column_names == ["sentence1", "sentence2", "label"]
    raw = pq.read_table(tmp_path / "labels.raw.parquet")
    assert raw.to_pydict() == {name: np.float32(scores).tolist() for name, scores in SCORES.items()}
    weighted = tmp_path / "weighted.parquet"
    assert run("label", "long", "short", "--pairs", pairs, "--weights", 3, 1, "--output", weighted)[0] == 0
    np.testing.assert_allclose(pq.read_table(weighted)["label"].to_numpy(), [0.375, 0.5, 2.5 / 3], rtol=1e-6)
    code, _, err = run("label", "long", "short", "--pairs", pairs, "--weights", 3, "--output", weighted)
    assert code == 2 and "--weights has 1 numbers for 2 models" in err
    assert run("label", "long", "--pairs", pairs, "--output", "labels.tsv")[0] == 2


def test_pairs_writes_a_tasks_pairs_and_says_counts(run, monkeypatch, tmp_path):
    rows = [
        {"sentence1": "a", "sentence2": "b", "score": 1.0},
        {"sentence1": "a", "sentence2": "c", "score": 2.0},
    ]
    for split in ("train", "validation", "test"):
        path = tmp_path / "data" / "mteb" / "stsbenchmark-sts" / f"{split}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    command = ("pairs", "stsb", "--data-dir", tmp_path / "data")
    code, out, err = run(*command, "--output", "pairs.tsv")
    assert code == 0, err
    assert out.startswith("pairs.tsv: 2 pairs of stsb")
    assert (tmp_path / "pairs.tsv").read_text() == "sentence1\tsentence2\na\tb\na\tc\n"
    assert run(*command, "--output", "-")[1] == "sentence1\tsentence2\na\tb\na\tc\n"
    code, _, err = run(*command, "--output", "pairs.tsv", "--exclude-test-sentences")
    assert code == 2
    assert "no unlabelled pair is left" in err


def test_a_file_that_cannot_be_written_is_the_users_to_solve(run, loaded, pairs, tmp_path):
    (tmp_path / "out.tsv").mkdir()
    code, _, err = run("score", "long", "--pairs", pairs, "--output", "out.tsv")
    assert code == 2
    assert "out.tsv cannot be written (Is a directory)" in err


@pytest.mark.parametrize(
    ("more", "both_orders", "prompt"),
    [((), False, None), (("--both-orders",), True, None), (("--prompt", "bo "), False, "bo ")],
)
def test_real_models_score_as_in_python_each_in_its_own_form(
    more, both_orders, prompt, run, pairs, tmp_path, tiny_bi_encoder, tiny_plm
):
    from sentence_transformers import CrossEncoder, SentenceTransformer

    cross = CrossEncoder(tiny_plm, num_labels=1, device="cpu")
    cross.save_pretrained(str(tmp_path / "cross"))
    bi = SentenceTransformer(tiny_bi_encoder, device="cpu")
    rows, cache = read_pairs(pairs), TokenCache(tmp_path / "tokens")
    for name, scorer in (
        (tiny_bi_encoder, BiScorer(bi, precision="fp32", cache=cache, prompt=prompt)),
        (tmp_path / "cross", CrossScorer(cross, precision="fp32", both_orders=both_orders, cache=cache, prompt=prompt)),
    ):
        typed = ("--pairs", pairs, "--device", "cpu", "--precision", "fp32", *more)
        code, out, err = run("score", name, *typed, "--quiet")
        assert code == 0, err
        scores = [float(line.split("\t")[2]) for line in out.splitlines()[1:]]
        np.testing.assert_allclose(np.float32(scores), scorer.score(rows), rtol=1e-6)


def test_a_prompt_by_its_name_is_that_text(run, pairs, tmp_path, tiny_bi_encoder):
    model = SentenceTransformer(tiny_bi_encoder, prompts={"query": "balo bama: "}, device="cpu")
    model.save_pretrained(str(tmp_path / "prompted"), create_model_card=False)
    score = ("score", tmp_path / "prompted", "--pairs", pairs, "--device", "cpu")
    by_name, by_text, without = (
        run(*score, *more)[1] for more in (("--prompt-name", "query"), ("--prompt", "balo bama: "), ())
    )
    assert by_name == by_text != without
    documents = run(*score, "--document-prompt-name", "query")[1]
    assert documents == run(*score, "--prompt", "", "--document-prompt", "balo bama: ")[1] not in (by_name, without)
    code, _, err = run(*score, "--prompt-name", "qury")
    assert code == 2 and "no prompt 'qury'; it has query" in err


def test_a_cross_encoder_has_no_prompt_for_one_side(run, pairs, tmp_path, tiny_plm):
    from sentence_transformers import CrossEncoder

    CrossEncoder(tiny_plm, num_labels=1, device="cpu").save_pretrained(str(tmp_path / "cross"))
    code, _, err = run("score", tmp_path / "cross", "--pairs", pairs, "--device", "cpu", "--document-prompt", "x")
    assert code == 2 and "reads both texts at once: --document-prompt is not for it" in err


def test_a_model_that_is_not_there_is_the_users_to_solve(run, pairs, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, err = run("score", tmp_path / "empty", "--pairs", pairs)
    assert (code, out) == (2, "")
    assert "has no .safetensors file" in err
