"""What models say of pairs, with models that look at the length of the texts."""

import csv
import gc
import io
import json
import os
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import multiprocessing

from transencoder import BiScorer, CrossScorer, read_pairs, scorers, sharded, tokens
from transencoder.cli import main
from transencoder.cli.files import PairRows, write_pairs, write_table
from transencoder.cli.scoring import Models, Score, Sharding, _part_maker
from transencoder.errors import InputError
from transencoder.mining import candidates
from transencoder.runs.folder import release_lock, take_lock
from transencoder.search import build, duplicates, vectors
from transencoder.shards import Parts, Shard

PAIRS = "sentence1\tsentence2\tscore\na\tbb\t1\nccc\td\t3\nee\tffff\t5\n"


def test_score_writes_tsv_to_stdout(done, loaded, pairs, monkeypatch):
    expected = "sentence1\tsentence2\tscore\na\tbb\t0.25\nccc\td\t0.5\nee\tffff\t1.0\n"
    assert done("score", "long", "--pairs", pairs) == expected
    assert loaded == ["long"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PAIRS.encode())))
    assert done("score", "long", "--pairs", "-") == expected


def jsonl_scores(path):
    return [json.loads(line)["score"] for line in path.read_text().splitlines()]


def csv_scores(path):
    return [float(row["score"]) for row in csv.DictReader(path.read_text().splitlines())]


def parquet_scores(path):
    return pq.read_table(path)["score"].to_pylist()


@pytest.mark.parametrize("read", [jsonl_scores, csv_scores, parquet_scores])
def test_score_writes_the_mean_of_several_models_in_the_format_of_the_name(read, done, loaded, pairs, tmp_path):
    output = tmp_path / f"out.{read.__name__.partition('_')[0]}"
    assert done("score", "long", "short", "--pairs", pairs, "--output", output) == ""
    np.testing.assert_array_equal(np.float32(read(output)), np.float32([0.5, 0.5, 2 / 3]))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--output", "out.txt"), "'out.txt'. Its name must end in .tsv or .csv or .jsonl or .parquet"),
        (("--output", "no/out.tsv"), "there is no folder no"),
        (
            ("--output", "s3://there/out.tsv"),
            "'s3://there/out.tsv'; it is written on this machine: give a path, and copy",
        ),
        (("--pairs", "none.tsv"), "none.tsv"),
    ],
)
def test_score_refuses_before_a_model_is_loaded(typed, message, refused, loaded, pairs):
    refused(message, "score", "long", "--pairs", pairs, *typed)
    assert loaded == []


def test_a_model_that_is_given_twice_is_refused(refused, loaded, pairs):
    refused("the models are long, long; give each once", "score", "long", "long", "--pairs", pairs)
    assert loaded == []


def test_score_refuses_texts_that_tsv_cannot_hold_before_it_scores(refused, loaded, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"query": "a", "document": "b\nc"}) + "\n")
    refused("a text holds a tab or a line end", "score", "long", "--pairs", "rows.jsonl")
    assert loaded == []


def test_score_knows_queries_and_documents_by_their_header(done, loaded, pairs):
    pairs.write_text("query\tdocument\nhow to zip\tzip it\nx\ty\nz\tz\n")
    assert done("score", "long", "--pairs", pairs).splitlines()[1] == "how to zip\tzip it\t0.25"


def test_bad_rows_go_to_the_file_that_was_named(done, loaded, pairs, tmp_path):
    pairs.write_text(PAIRS.replace("ee\tffff\t5", "alone\nee\tffff\t5"))
    out = done("score", "long", "--pairs", pairs, "--skip-bad-rows", "--bad-rows-file", tmp_path / "bad.tsv")
    assert out.count("\n") == 4
    bad = (tmp_path / "bad.tsv").read_text()
    assert "pairs.tsv:4" in bad and "alone" in bad


@pytest.mark.parametrize("command", ["score", "label"])
def test_the_file_that_is_read_is_not_overwritten(command, refused, loaded, pairs, tmp_path):
    rows = tmp_path / "rows.parquet"
    read_pairs(pairs).to_parquet(rows)
    before = rows.read_bytes()
    refused("which is the file that is read", command, "long", "--pairs", rows, "--output", rows)
    assert rows.read_bytes() == before


def test_a_text_with_a_tab_is_refused_for_tsv_and_leaves_no_file(tmp_path):
    rows = Dataset.from_dict({"sentence1": ["a", "b\tc"], "sentence2": ["d", "e"]})
    with pytest.raises(InputError, match=r"tab or a line end.*'b\\tc'.*\.jsonl"):
        write_pairs(rows, str(tmp_path / "out.tsv"))
    assert list(tmp_path.iterdir()) == []
    write_pairs(rows, str(tmp_path / "out.jsonl"))
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])["sentence1"] == "b\tc"


@pytest.mark.parametrize("n_rows", [0, 3, 4])
def test_rows_of_any_number_of_batches_are_written(n_rows, tmp_path, monkeypatch):
    """Was: after whole batches came an empty one of other types, which Parquet refused."""
    monkeypatch.setattr("transencoder.cli.files._BATCH_ROWS", 2)
    rows = [(f"text {number}", number) for number in range(n_rows)]
    write_table(("text", "number"), rows, str(tmp_path / "out.parquet"))
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "out.parquet").to_pylist()] == rows


def test_a_file_that_cannot_be_written_is_the_users_to_solve(refused, loaded, pairs, tmp_path):
    (tmp_path / "out.tsv").mkdir()
    refused("out.tsv cannot be written (Is a directory)", "score", "long", "--pairs", pairs, "--output", "out.tsv")


def test_a_second_command_does_not_write_the_same_output(run, loaded, pairs, tmp_path):
    """Was: the second one emptied what the first was reading, whose scores were then 0."""
    parts = tmp_path / "out.tsv.parts"
    parts.mkdir()
    lock = take_lock(parts)
    try:
        code, _, err = run("score", "long", "--pairs", pairs, "--output", tmp_path / "out.tsv")
    finally:
        release_lock(lock)
    assert code == 3 and "out.tsv.parts" in err and "Traceback" not in err and not (tmp_path / "out.tsv").exists()


def test_label_writes_pseudo_labels_that_datasets_reads(done, refused, loaded, pairs, tmp_path):
    command, output = ("label", "long", "short", "--pairs", pairs, "--output"), tmp_path / "labels.parquet"
    assert "3 pairs labelled by long, short, policy clip" in done(*command, output, "--policy", "clip")
    labels = Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "c"))
    np.testing.assert_allclose(labels["label"][:], [0.5, 0.5, 2.0 / 3.0], rtol=1e-6)
    assert labels.column_names == ["sentence1", "sentence2", "label"]
    raw = pq.read_table(tmp_path / "labels.raw.parquet")
    expected = {"long": [0.25, 0.5, 1.0], "short": [0.75, 0.5, 1.0 / 3.0]}
    assert raw.to_pydict() == {name: np.float32(scores).tolist() for name, scores in expected.items()}
    done(*command, output, "--weights", 3, 1)
    np.testing.assert_allclose(pq.read_table(output)["label"].to_numpy(), [0.375, 0.5, 2.5 / 3], rtol=1e-6)
    refused("--weights has 1 numbers for 2 models", *command, output, "--weights", 3)
    refused("Its name must end in .parquet", *command, "labels.tsv")


@pytest.mark.parametrize(
    ("more", "both_orders", "prompt"),
    [((), False, None), (("--both-orders",), True, None), (("--prompt", "bo "), False, "bo ")],
)
def test_real_models_score_as_in_python_each_in_its_own_form(
    more, both_orders, prompt, done, pairs, cross, tiny_bi_encoder
):
    bi, cross_encoder = SentenceTransformer(tiny_bi_encoder, device="cpu"), CrossEncoder(str(cross), device="cpu")
    for name, scorer in (
        (tiny_bi_encoder, BiScorer(bi, precision="fp32", prompt=prompt)),
        (cross, CrossScorer(cross_encoder, precision="fp32", both_orders=both_orders, prompt=prompt)),
    ):
        typed = ("--pairs", pairs, "--device", "cpu", "--precision", "fp32", *more)
        scores = [float(line.split("\t")[2]) for line in done("score", name, *typed, "--quiet").splitlines()[1:]]
        np.testing.assert_allclose(np.float32(scores), scorer.score(read_pairs(pairs)), rtol=1e-6)


def test_a_prompt_by_its_name_is_that_text(done, refused, pairs, tmp_path, tiny_bi_encoder):
    model = SentenceTransformer(tiny_bi_encoder, prompts={"query": "balo bama: "}, device="cpu")
    model.save_pretrained(str(tmp_path / "prompted"), create_model_card=False)
    score = ("score", tmp_path / "prompted", "--pairs", pairs, "--device", "cpu")
    by_name, by_text, without = (
        done(*score, *more) for more in (("--prompt-name", "query"), ("--prompt", "balo bama: "), ())
    )
    assert by_name == by_text != without
    documents = done(*score, "--document-prompt-name", "query")
    assert documents == done(*score, "--prompt", "", "--document-prompt", "balo bama: ") not in (by_name, without)
    refused("no prompt 'qury'; it has query", *score, "--prompt-name", "qury")


def test_a_cross_encoder_has_no_prompt_for_one_side(refused, pairs, cross):
    message = "reads both texts at once: document_prompt (--document-prompt) is not for it"
    refused(message, "score", cross, "--pairs", pairs, "--device", "cpu", "--document-prompt", "x")


def test_a_model_that_is_not_there_is_the_users_to_solve(refused, pairs, tmp_path):
    (tmp_path / "empty").mkdir()
    refused("has no config.json in", "score", tmp_path / "empty", "--pairs", pairs)


@pytest.fixture
def long_file(tmp_path):
    """Ten pairs of unlike lengths."""
    words = "balo bama dalo domo gelo gemo"
    lines = [f"{words[: 5 + 2 * i]}\t{words[3 * i :] or 'balo'}" for i in range(10)]
    (tmp_path / "ten.tsv").write_text("sentence1\tsentence2\n" + "\n".join(lines) + "\n")
    return tmp_path / "ten.tsv"


def test_shards_of_several_processes_are_what_one_writes(done, refused, long_file, tmp_path, tiny_bi_encoder, cross):
    typed = ("--pairs", long_file, "--device", "cpu", "--precision", "fp32", "--quiet")
    score = ("score", tiny_bi_encoder, cross, *typed, "--output", "out.jsonl")
    label = ("label", tiny_bi_encoder, cross, *typed, "--output", "labels.parquet", "--policy", "quantile")
    for command, output in ((score, "out.jsonl"), (label, "labels.parquet")):
        for number in (3, 1):
            assert f"{output}.parts: shard {number}/3" in done(*command, "--shard", f"{number}/3")
        refused("2-of-3.safetensors is missing: run the same command with --shard 2/3", *command, "--merge")
        refused("of other max_length: run the", *command, "--merge", "--max-length", 8)
        assert not (tmp_path / output).exists()
        done(*command, "--shard", "2/3")
        done(*command, "--merge")
        assert (tmp_path / output).exists() and not (tmp_path / f"{output}.parts").exists()
    merged = jsonl_scores(tmp_path / "out.jsonl")
    raw = pq.read_table(tmp_path / "labels.raw.parquet")
    bi, both = SentenceTransformer(tiny_bi_encoder, device="cpu"), CrossEncoder(str(cross), device="cpu")
    pairs = read_pairs(long_file)
    expected = [BiScorer(bi, precision="fp32").score(pairs), CrossScorer(both, precision="fp32").score(pairs)]
    np.testing.assert_allclose(merged, np.mean(expected, 0), atol=1e-6)
    np.testing.assert_allclose([column.to_numpy() for column in raw.columns], expected, atol=1e-6)
    ranks = np.mean([scores.argsort().argsort() + 0.5 for scores in expected], 0) / 10
    np.testing.assert_allclose(pq.read_table(tmp_path / "labels.parquet")["label"], ranks, atol=1e-6)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--shard", "4/3", "--output", "out.tsv"), "--shard is '4/3'; give a number from 1 on"),
        (("--shard", "3", "--output", "out.tsv"), "--shard is '3'; give a number from 1 on"),
        (("--shard", "1/" + "9" * 5000, "--output", "out.tsv"), "--shard is '1/99"),
        (("--shard", "1/3"), "parts lie beside the output, and that is stdout; give --output FILE"),
        (("--merge",), "parts lie beside the output"),
        (("--merge", "--output", "out.tsv"), "out.tsv.parts has no parts: run the same command with --shard I/N"),
        (("--shard", "1/4", "--output", "out.tsv"), "4 shards of 3 rows would be empty"),
    ],
)
def test_shards_that_cannot_be_are_refused(typed, message, refused, loaded, pairs):
    refused(message, "score", "long", "--pairs", pairs, *typed)


def test_a_folder_that_is_not_ours_is_left_alone(done, refused, loaded, pairs, tmp_path):
    """Was: it went, with all that was in it."""
    (tmp_path / "out.tsv.parts").mkdir()
    (tmp_path / "out.tsv.parts" / "notes.txt").write_text("x")
    refused(
        "out.tsv.parts is for parts of the output, and holds notes.txt too",
        "score",
        "long",
        "--pairs",
        pairs,
        "--output",
        "out.tsv",
    )
    assert (tmp_path / "out.tsv.parts" / "notes.txt").exists()
    (tmp_path / "out.tsv.parts" / "notes.txt").unlink()
    done("score", "long", "--pairs", pairs, "--output", "out.tsv")
    assert not (tmp_path / "out.tsv.parts").exists()


def test_scoring_that_was_stopped_goes_on_and_other_pairs_begin_anew(
    done, run, long_file, tmp_path, cross, monkeypatch
):
    monkeypatch.setitem(Parts.__init__.__kwdefaults__, "shard_rows", 4)
    own, seen = CrossScorer.score_tokens, []

    def score(self, orders):
        seen.append(len(orders[0]))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return own(self, orders)

    monkeypatch.setattr(CrossScorer, "score_tokens", score)
    typed = ("score", cross, "--pairs", "ten.tsv", "--device", "cpu", "--precision", "fp32", "--output", "out.jsonl")
    code, _, err = run(*typed)
    assert code == 130 and "run the same command again: it goes on from out.jsonl.parts" in err
    done(*typed)
    assert seen == [3, 3, 3, 4]
    scores = jsonl_scores(tmp_path / "out.jsonl")
    monkeypatch.setattr(CrossScorer, "score_tokens", own)
    done(*typed[:-1], "other.jsonl")
    assert scores == jsonl_scores(tmp_path / "other.jsonl")


def test_what_another_process_loads_stays_loaded(long_file, tmp_path, tiny_bi_encoder, monkeypatch):
    """Was: the folder of tokens went with the context that had made it, which Python collected."""
    closed = []

    @contextmanager
    def scratch_folder():
        (tmp_path / "scratch").mkdir()
        try:
            yield tmp_path / "scratch"
        finally:
            closed.append("scratch")

    monkeypatch.setattr("transencoder.cli.scoring.scratch_folder", scratch_folder)
    scoring = Models(models=(str(tiny_bi_encoder),), device="cpu", precision="fp32")
    options = Score(scoring=scoring, pairs="ten.tsv", output="out.tsv", sharding=Sharding(), rows=PairRows())
    make = _part_maker(options)
    gc.collect()
    for number in (1, 2):
        make(Shard(number, 2))
    gc.collect()
    assert closed == []
    assert len(list((tmp_path / "out.tsv.parts").iterdir())) == 2


def one_of_two_ranks(rank, commands, port):
    """Run the commands in a fork; what it counts of each goes to a file, as does what it prints."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(rank)}
    torch.set_num_threads(1)  # a fork has no others
    sys.stdout, sys.stderr = open(f"{rank}.out", "w"), open(f"{rank}.err", "w")
    sharded._SENTENCES_A_SHARD = candidates._SHARD_ROWS = 3
    Parts.__init__.__kwdefaults__["shard_rows"] = build._SHARD_ROWS = duplicates._SHARD_ROWS = 3
    load, write = np.load, tokens._write_tokens

    def slow_load(*given, **options):
        if rank == 1 and ".building" in str(given[0]):
            time.sleep(1)  # was: the first had then removed it
        return load(*given, **options)

    np.load = slow_load
    seen, tokenised = {}, {}

    def counted(owner, name, place):
        own = getattr(owner, name)

        def count(*given):
            seen[now] = seen.get(now, 0) + len(given[place])
            return own(*given)

        setattr(owner, name, count)

    def write_tokens(model, texts, total, *given):
        tokenised[now] = tokenised.get(now, 0) + total
        write(model, texts, total, *given)

    counted(scorers._Computed, "compute", 2)
    counted(vectors.Vectors, "search", 1)
    counted(candidates, "_index", 0)
    tokens._write_tokens = write_tokens
    for command in commands:
        now = command[0]
        assert main(command) == 0
    with open(f"{rank}.json", "w") as file:
        json.dump([seen, tokenised], file)
    sys.stdout.flush()


def test_two_ranks_do_half_each(done, long_file, tmp_path, tiny_bi_encoder):
    """Was: each of them did all of it, and both wrote the output."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gold = [f"{line}\t{i % 4}" for i, line in enumerate(long_file.read_text().splitlines()[1:])]
    (tmp_path / "gold.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *gold]) + "\n")
    (tmp_path / "texts.txt").write_text("\n".join(line.split("\t")[0] for line in gold) + "\n")
    of_pairs = ["--device", "cpu", "--precision", "fp32", "--quiet", "--pairs"]
    of_texts = ["--model", tiny_bi_encoder, "--device", "cpu", "--quiet"]

    def commands(name):
        yield ["score", tiny_bi_encoder, *of_pairs, "ten.tsv", "--output", f"{name}.jsonl"]
        yield ["label", tiny_bi_encoder, *of_pairs, "ten.tsv", "--output", f"{name}.parquet"]
        yield ["evaluate", tiny_bi_encoder, *of_pairs, "gold.tsv", "--csv"]
        yield ["duplicates", "texts.txt", *of_texts, "--threshold", "0.5", "--output", f"{name}.tsv"]
        mined = ["--n-pairs", "4", "--device", "cpu", "--precision", "fp32", "--quiet", "--output", f"{name}.csv"]
        yield ["mine", "texts.txt", "--start", tiny_bi_encoder, *mined]
        yield ["search", "build", "texts.txt", *of_texts, "--output", f"{name}-index"]

    arguments = (list(commands("two")), str(port))
    multiprocessing.start_processes(one_of_two_ranks, arguments, nprocs=2, start_method="fork")
    (first, texts), (second, others) = (json.loads(Path(f"{rank}.json").read_text()) for rank in (0, 1))
    assert [*first] == ["score", "label", "evaluate", "duplicates", "mine", "search"] == [*second]
    assert all(abs(first[name] - second[name]) <= 4 for name in first), (first, second)
    assert first["search"] + second["search"] == 10 and first["duplicates"] + second["duplicates"] == 20
    assert all(10 <= each[name] < 15 for each in (texts, others) for name in ("score", "label")), "of 20"
    assert Path("1.out").read_text() == ""
    alone = [done(*typed) for typed in commands("one")]
    assert alone[2] in Path("0.out").read_text()
    np.testing.assert_allclose(jsonl_scores(tmp_path / "two.jsonl"), jsonl_scores(tmp_path / "one.jsonl"), atol=1e-6)
    labels = (pq.read_table(tmp_path / f"{name}.parquet")["label"] for name in ("one", "two"))
    np.testing.assert_allclose(*labels, atol=1e-6)
    members = ((tmp_path / f"{name}.tsv").read_text().splitlines()[1:] for name in ("one", "two"))
    one, two = (sorted((line.split("\t")[0], *line.split("\t")[2:]) for line in lines) for lines in members)
    assert one == two
    assert (tmp_path / "two-index" / "index.json").exists() and not (tmp_path / "two-index" / ".building").exists()
