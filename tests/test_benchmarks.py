"""Benchmarks that are not run here: what they make of their measurements, on records made by hand."""

import argparse
import gzip
import importlib
import json
import tomllib
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

FOLDER = Path(__file__).parent.parent / "benchmarks"
SIZES = {
    "student": {"sts": [70.0, 72.0], "parameters": 4_000_000, "megabytes": 16.4, "sentences_a_second": {"fp32": 800.0}},
    "teacher": {
        "sts": [80.0],
        "parameters": 22_700_000,
        "megabytes": 90.8,
        "sentences_a_second": {"fp32": 100.4, "bf16": 200.0},
    },
}


@pytest.fixture
def load(monkeypatch):
    """Imports a benchmark by its name, as running it finds its neighbours."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


def test_the_table_of_sizes_has_the_best_first_and_gaps_where_nothing_was_measured(load):
    about = {"threads": 1, "sentences": 500, "has_bf16": False}
    header, _, *rows, _, how, end = load("sizes").table(SIZES, about).split("\n")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (header, *rows)]
    assert cells[0] == ["", "STS average", "million parameters", "MB", *load("sizes").RUNTIMES]
    assert cells[1:] == [
        ["teacher", "80.00", "22.7", "91", "100", "200", "–", "–", "–"],
        ["student", "71.00 ± 1.41", "4.0", "16", "800", "–", "–", "–", "–"],
    ]
    assert how.startswith("Sentences a second: 500 of STS-B's test set, one thread") and "no bf16" in how
    assert end == ""


def test_the_plot_of_sizes_is_a_picture(load, tmp_path):
    load("sizes").plot(SIZES, tmp_path / "sizes.png")
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")


def test_queues_are_compared_by_size_and_by_way_at_the_largest(load):
    def row(size: int, way: str, **measured: float) -> dict[str, object]:
        return {"size": size, "way": way, **measured}

    ratios = load("queues")._ratios(
        [
            row(64, "in place", step_seconds=3.0, comparison_seconds=1.0, peak_gb=2.0),
            row(64, "concatenated", step_seconds=9.0, comparison_seconds=9.0, peak_gb=9.0),
            row(16, "concatenated", step_seconds=9.0, comparison_seconds=9.0, peak_gb=9.0),
            row(16, "in place", step_seconds=2.0, comparison_seconds=0.25, peak_gb=1.5),
        ]
    )
    assert ratios == {
        "step_seconds, largest to smallest": 1.5,
        "comparison_seconds, largest to smallest": 4.0,
        "peak_gb, largest to smallest": 1.33,
        "step_seconds, concatenated to in place": 3.0,
        "comparison_seconds, concatenated to in place": 9.0,
        "peak_gb, concatenated to in place": 4.5,
    }


def of_seed(scores: dict[str, dict[str, float]], **more: object) -> dict[str, object]:
    return {"scores": {"": scores}, **more}


LABELLED = {
    "trans-encoder/twin-few": {
        "n_labelled=50 seed=1": of_seed({"bi": {"stsb": 71.0}, "cross": {"stsb": 60.0}}),
        "n_labelled=50 seed=2": of_seed({"bi": {"stsb": 73.0}, "cross": {"stsb": 62.0}}),
        "n_labelled=500 seed=1": of_seed({"bi": {"stsb": 75.0}, "cross": {"stsb": 64.0}}),
    },
    "trans-encoder/twin-few-none": {"seed=1": of_seed({"bi": {"stsb": 70.0}, "cross": {"stsb": 59.0}})},
    "dvbert/twin-few-after": {"n_labelled=50 seed=1": of_seed({"start": {"stsb": 70.5}, "bi": {"stsb": 72.0}})},
    "dvbert/twin-few-sbert": {"n_labelled=50 seed=1": of_seed({"start": {"stsb": 65.0}, "bi": {"stsb": 66.0}})},
    "dvbert/twin-weights": {
        "seed=1 soft_share=0.1": of_seed({"bi": {"sts12": 40.0, "stsb": 50.0}}),
        "seed=2 soft_share=0.1": of_seed({"bi": {"sts12": 42.0, "stsb": 50.0}}),
        "seed=1 soft_share=1.0": of_seed({"bi": {"sts12": 30.0, "stsb": 40.0}}),
    },
    "dvbert/twin": {
        "seed=1": of_seed(
            {"start": {"sts12": 40.0, "stsb": 60.0}},
            analysis={"bi": [[1, 50, {"sts12": 50.0, "stsb": 60.0}], [1, 100, {"sts12": 52.0, "stsb": 60.0}]]},
        )
    },
}


def test_what_labels_give_is_read_from_the_runs_by_what_varies(load):
    labels = load("labels")
    assert labels.by_labels(LABELLED) == {
        "Trans-Encoder, cross": {0.0: [59.0], 50.0: [60.0, 62.0], 500.0: [64.0]},
        "Trans-Encoder, bi": {0.0: [70.0], 50.0: [71.0, 73.0], 500.0: [75.0]},
        "Trans-Encoder, then fine-tuning, bi": {0.0: [70.0], 50.0: [72.0]},
        "fine-tuning alone, bi": {0.0: [65.0], 50.0: [66.0]},
    }
    assert labels.by_share(LABELLED) == {0.1: [45.0, 46.0], 1.0: [35.0]}
    assert labels.by_step(LABELLED) == {"DvBERT": {0.0: [50.0], 50.0: [55.0], 100.0: [56.0]}}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"environment": {"commit": "abc"}}, "was started with --set or by hand: put the values into a recipe"),
        ({"environment": {"commit": "abc-dirty"}, "recipe": "sct/twin-3"}, "from abc-dirty: run it again"),
        ({"environment": {"commit": None}, "recipe": "sct/twin-3"}, "from no commit: run it again"),
    ],
)
def test_a_record_takes_runs_of_unchanged_recipes_and_clean_commits(result, message, load, tmp_path, monkeypatch):
    twins = load("twins")
    monkeypatch.setattr(twins, "read_result", lambda folder: result)
    with pytest.raises(SystemExit, match=message):
        twins.kept_with([tmp_path], tmp_path / "twins.json")
    assert not (tmp_path / "twins.json").exists()


def test_the_plot_of_labels_is_a_picture_whatever_has_run(load, tmp_path):
    for n_th, record in enumerate((LABELLED, {}), 1):
        load("labels").plot(record, tmp_path / f"{n_th}.png")
        assert (tmp_path / f"{n_th}.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_of_crashes_has_a_row_for_each_command_and_way_to_crash_it(load):
    ways = {"killed": {"same": 3, "said": 1}, "power cut": {"whole": 2, "fault": 1}}
    rows = load("chaos").page({"mine": {"operations": 9, "states": 8, "counts": ways}}).splitlines()[-2:]
    assert rows == ["| mine | 9 | 8 | killed | 4 | 3 | 1 | 0 | 0 |", "| mine | 9 | 8 | power cut | 3 | 0 | 0 | 2 | 1 |"]


def test_no_text_of_a_domains_test_is_in_any_domains_training_text(load, tmp_path, monkeypatch):
    data = load("domain_data")
    shared = [{"a": f"Text {i % 7}", "b": f"text, {i}!", "y": i % 2} for i in range(20)]
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in [*shared, shared[0], {"a": " ", "b": "empty", "y": -1}])
    source = data.Source(path="rows", columns=("a", "b", "y"), positive=0)
    domains = {name: data.Domain(about="", pairs=(source,), tests=(source,)) for name in ("one", "two")}
    monkeypatch.setattr(data, "DOMAINS", domains)
    monkeypatch.setattr(data, "N_TEST", 3)
    text, tests = data.text_of("one", tmp_path), data.tests(tmp_path)
    seen = {data.key(row[side]) for test in tests.values() for row in test for side in ("sentence1", "sentence2")}
    assert {len(test) for test in tests.values()} == {3} and data.test_keys(tmp_path) == seen
    assert set(tests["one"]["score"]) <= {0.0, 1.0} and "score" not in text.pairs.column_names
    assert text.pairs and not {data.key(sentence) for sentence in text.texts["text"]} & seen


def of_cell(domain: str, way: str, seed: int, gains: dict[str, list[float]], form: str = "bi") -> dict[str, object]:
    base = {test: 50.0 if test == domain else 45.0 for test in gains}  # elsewhere on a part of the test
    return {
        **{"domain": domain, "way": way, "base": "minilm", "seed": seed, "processor_seconds": 90.0 * seed},
        **{"scores": {"base": base}, "gains": {form: gains}, "commit": {"commit": "0123456789"}},
    }


def test_the_table_of_domains_has_means_intervals_the_worst_and_what_is_lost_elsewhere(load):
    lines = [
        of_cell("one", "way", 1, {"one": [4.0, 1.0, 7.0], "two": [-1.0, -2.0, 0.0]}),
        of_cell("one", "way", 2, {"one": [2.0, -1.0, 5.0], "two": [-2.0, -2.0, 0.0]}),
        of_cell("two", "way", 1, {"one": [0.0, 0.0, 0.0], "two": [-3.0, -7.0, -1.0]}),
        of_cell("one", "other", 1, {"one": [1.0, 0.5, 2.0], "two": [0.5, 0.0, 1.0]}, "cross")
        | {"device": "NVIDIA H200"},
        of_cell("one", "teacher", 1, {"one": [9.0, 8.0, 10.0], "two": [0.0, 0.0, 0.0]}),
    ]
    development, metrics = {"one": True, "two": True, "three": False}, {"one": "spearman", "two": "roc_auc"}
    chosen = ("way", "bi")
    page = load("domain_table").page(lines, development, metrics, ("other", "way", "teacher"), chosen)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    assert rows[2:4] == [
        ["other", "cross", "+1.0 [+0.5, +2.0] (1)", "–", "–", "one +1.0", "1, 0 of 1", "+0.50", "–"],
        ["way", "bi", "+0.0 [-2.5, +1.8]", "–", "–", "two -3.0", "0, 1 of 2", "-1.00", "1.5"],
    ]
    assert rows[-2:] == [
        ["one", "spearman", "50.0", "+1.0 [+0.5, +2.0]", "+3.0 [+0.0, +6.0]", "+9.0 [+8.0, +10.0]"],
        ["two", "roc_auc", "50.0", "–", "-3.0 [-7.0, -1.0]", "–"],
    ]
    assert "over 2 domains: +0.0 [-2.5, +1.8], worst two -3.0, elsewhere -1.00." in page
    assert "labels: +1.5; so the regret is 1.5, at most 3.0 (two)." in page


def test_half_of_a_training_has_the_weights_between(load, tiny_bi_encoder, tmp_path):
    trained = SentenceTransformer(tiny_bi_encoder, device="cpu")
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter += 1.0
    trained.save(str(tmp_path / "trained"))
    half = load("domains").halfway(tiny_bi_encoder, str(tmp_path / "trained")).state_dict()
    moved = {name for name, tensor in half.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name, _ in trained.named_parameters()}
    assert all(torch.allclose(half[name], before[name] + 0.5, atol=1e-6) for name in moved)


def test_the_table_of_tokens_has_gains_of_each_set_their_means_and_the_worst(load, monkeypatch):
    tokens = load("tokens")
    monkeypatch.setattr(tokens, "DOMAINS", {"devices": None})
    found = {"model": [(50.0, 1.0, -2.0), (60.0, 3.0, 4.0), (70.0, -1.0, 0.5)]}
    lines = tokens.table(found, ["2012 a", "2013 b", "devices"]).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] == [
        ["2012 a", "50.0", "+1.0", "-2.0"],
        ["2013 b", "60.0", "+3.0", "+4.0"],
        ["devices", "70.0", "-1.0", "+0.5"],
        ["mean of genres", "55.0", "+2.0", "+1.0"],
        ["worst of genres", "", "+1.0", "-2.0"],
        ["mean of domains", "70.0", "-1.0", "+0.5"],
        ["worst of domains", "", "-1.0", "+0.5"],
    ]


def test_a_cell_of_domains_that_has_its_line_is_not_trained_again(load, tmp_path, monkeypatch):
    domains, trained = load("domains"), []

    def measured(domain, way, base, seed, options):
        trained.append(domain)
        return {"domain": domain, "way": way, "base": base, "seed": seed}

    monkeypatch.setattr(domains, "measured", measured)
    options = argparse.Namespace(seeds=[1], bases=["minilm"], ways=["paper"], domains=["qqp"], results=tmp_path)
    domains.run(options)
    options.domains = ["qqp", "snli"]
    domains.run(options)
    assert trained == ["qqp", "snli"]


def test_released_models_stand_beside_what_their_authors_report_or_why_they_cannot_be_had(
    load, tmp_path, monkeypatch, data_folder
):
    monkeypatch.setenv("TRANSENCODER_DATA", str(data_folder))
    released = load("released")
    models = tomllib.loads((released.RESULTS / "released.toml").read_text())["model"]
    assert len(models) == 16 and all(70 < each["expected"] < 85 for each in models)
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text("{}")
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"")
    pickled = {"model": str(tmp_path / "pickled"), "expected": 70.0}
    reason = released.measured(pickled)
    assert "has no .safetensors file of its weights" in reason
    page = released.page([models[0], pickled], [76.2, reason])
    assert f"| `transencoder evaluate {models[0]['model']} --pooling cls --tasks sts` | 76.21 | 76.20 |" in page
    assert "| 70.00 | " in page and "has no .safetensors" in page.splitlines()[-1]
