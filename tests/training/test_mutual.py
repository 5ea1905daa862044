"""Mutual distillation: members of other widths, vocabularies and poolings that learn from the mean of all."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SimilarityFunction
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from tests.rounding import rounding
from transencoder import BiScorer, CrossScorer, FitConfig, MeanScorer, Member, PretrainingConfig, read_pairs, train
from transencoder.context import Scored
from transencoder.encoders import load_bi
from transencoder.errors import InputError
from transencoder.evaluation import evaluate
from transencoder.metrics import spearman
from transencoder.results import read_result
from transencoder.training import plan
from transencoder.training.scoring import released_metrics

FAST = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=4, checkpoint_steps=4)


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> str:
    """Folder of a random BERT of another width and vocabulary than the tiny one: letters only."""
    folder = tmp_path_factory.mktemp("models") / "other"
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=128)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def members(tiny_bi_encoder, tiny_plm, other):
    return Member(start=tiny_bi_encoder, cross_start=tiny_plm), Member(start=other, pooling="cls")


@pytest.fixture(scope="module")
def config(tiny_method, tiny_files, members):
    return tiny_method(members=members, cycles=2, tests=(str(tiny_files / "test.tsv"),))


@pytest.fixture(scope="module")
def trained(config):
    return train(config)


def labels_of(folder, name):
    (path,) = Path(folder).glob(f"stages/{name}-*/labels.parquet")
    raw = pq.read_table(path.with_name("raw.parquet"))
    return pq.read_table(path)["label"].to_numpy(), {each: raw[each].to_numpy() for each in raw.column_names}


def test_every_member_learns_from_the_mean_of_all(trained):
    targets, raw = labels_of(trained.folder, "cycle-1-labels-for-cross")
    assert list(raw) == ["member-1/start", "member-2/start"]
    np.testing.assert_allclose(
        targets, sum(np.clip(scores, 0, 1) for scores in raw.values()) / 2, rtol=0, atol=rounding(2)
    )
    targets, raw = labels_of(trained.folder, "cycle-2-labels-for-bi")
    assert list(raw) == ["member-1/cycle-2/cross-encoder", "member-2/cycle-2/cross-encoder"]
    np.testing.assert_allclose(targets, sum(raw.values()) / 2, rtol=0, atol=rounding(2))


def test_the_stages_of_a_cycle(trained):
    names = [stage["name"] for stage in trained.result["stages"]]
    assert names[:8] == [
        "member-1/start/scores",
        "member-2/start/scores",
        "cycle-1/labels-for-cross",
        "member-1/cycle-1/cross-encoder",
        "member-2/cycle-1/cross-encoder",
        "member-1/cycle-1/cross-encoder/scores",
        "member-2/cycle-1/cross-encoder/scores",
        "cycle-1/labels-for-bi",
    ]
    assert len(set(names)) == len(names)


def test_each_member_keeps_its_own_best_and_the_run_the_best_members(trained):
    result = trained.result
    assert len(result["members"]) == 2
    for number, member in enumerate(result["members"], 1):
        for form in ("bi", "cross"):
            devs = [cycle[form]["dev"] for cycle in member["cycles"]]
            assert member["best"][form]["dev"] == member["dev"][form] == max(devs)
            assert member["best"][form]["path"] == f"members/{number}/{form}-encoder"
    devs = [member["dev"]["bi"] for member in result["members"]]
    best = result["members"][result["member"] - 1]
    assert best["dev"]["bi"] == max(devs)
    assert {name: result[name] for name in ("cycles", "dev", "scores")} == {
        name: best[name] for name in ("cycles", "dev", "scores")
    }
    for form in ("bi-encoder", "cross-encoder"):
        own = trained.folder / "members" / str(result["member"]) / form / "model.safetensors"
        assert own.read_bytes() == (trained.folder / form / "model.safetensors").read_bytes()
    assert read_result(trained.folder)["members"] == json.loads(json.dumps(result["members"]))


def test_members_keep_their_width_and_pooling(trained):
    bis = [SentenceTransformer(str(trained.folder / f"members/{i}/bi-encoder"), device="cpu") for i in (1, 2)]
    assert [bi.get_embedding_dimension() for bi in bis] == [32, 48]
    assert [bi[1].pooling_mode for bi in bis] == ["mean", "cls"]


def test_members_may_learn_from_their_own_scores_alone(config, tiny_method, tmp_path, trained, members):
    alone = train(replace(config, share_labels=False, cycles=1, output=str(tmp_path / "alone")))
    for number, member in enumerate(members, 1):
        _, raw = labels_of(alone.folder, f"member-{number}-cycle-1-labels-for-bi")
        assert list(raw) == [f"member-{number}/cycle-1/cross-encoder"]
        single = train(tiny_method(members=(member,), cycles=1, output=str(tmp_path / str(number))))
        targets, _ = labels_of(alone.folder, f"member-{number}-cycle-1-labels-for-cross")
        np.testing.assert_array_equal(targets, labels_of(single.folder, "cycle-1-labels-for-cross")[0])
    assert set(alone.result["ensemble"]["scores"]) >= {"start", "bi", "cross"}
    card = (alone.folder / "members" / "2" / "bi-encoder" / "README.md").read_text()
    assert "each learning from its own scores" in card


@pytest.mark.parametrize("where", ["dev", "test"])
def test_the_ensembles_metrics_are_those_of_the_mean_of_scores(trained, members, tiny_files, where):
    pairs = read_pairs(str(tiny_files / f"{where}.tsv"))
    found = trained.result["ensemble"]["dev" if where == "dev" else "scores"]
    folders = [trained.folder / "members" / str(i) for i in (1, 2)]
    bis = [SentenceTransformer(str(folder / "bi-encoder"), device="cpu") for folder in folders]
    crosses = [CrossEncoder(str(folder / "cross-encoder"), device="cpu") for folder in folders]
    teams = {
        "bi": [BiScorer(bi, precision="fp32") for bi in bis],
        "cross": [CrossScorer(cross, precision="fp32") for cross in crosses],
    }
    for form, scorers in teams.items():
        metric = evaluate(MeanScorer(scorers), pairs)
        assert metric == pytest.approx(found[form] if where == "dev" else found[form]["test"], abs=1e-4)
    assert set(found) - {"start_as_is"} == {"start", "bi", "cross"}


def test_the_released_codes_metric_of_an_ensemble_is_the_best_of_four_similarities(
    config, trained, tiny_files, tmp_path
):
    released = {"ensemble_metric": "released", "reuse_from": (str(trained.folder),)}
    run = train(replace(config, **released, cycles=1, output=str(tmp_path / "released")))
    report = (run.folder / "report.md").read_text()
    assert "for bi-encoders the best of four similarities" in report and "ensemble_metric released" in report
    pairs = read_pairs(str(tiny_files / "test.tsv"))
    teams = [
        CrossScorer(CrossEncoder(str(run.folder / f"members/{i}/cross-encoder"), device="cpu"), precision="fp32")
        for i in (1, 2)
    ]
    crosses = evaluate(MeanScorer(teams), pairs)
    assert run.result["ensemble"]["scores"]["cross"]["test"] == pytest.approx(crosses, abs=1e-3)
    sides = [pairs[f"sentence{i}"][:] for i in (1, 2)]
    models = [SentenceTransformer(str(run.folder / f"members/{i}/bi-encoder"), device="cpu") for i in (1, 2)]
    metrics = []
    for name in ("cosine", "manhattan", "euclidean", "dot"):
        similarity = SimilarityFunction.to_similarity_pairwise_fn(name)
        scores = np.mean([similarity(*(model.encode(side) for side in sides)) for model in models], axis=0)
        metrics.append(spearman(pairs["score"][:], scores))
    assert run.result["ensemble"]["scores"]["bi"]["test"] == pytest.approx(max(metrics), abs=1e-3)


def test_the_released_codes_metric_on_binary_sets_is_the_mean_of_the_aucs(tiny_pairs):
    scored = Scored(tiny_pairs, "roc_auc", name="x", record={})
    records = [SimpleNamespace(result={"x": value}) for value in (70.0, 90.0)]
    models = [SimpleNamespace(form="bi")] * 2
    assert released_metrics(None, models, records, {"x": scored}) == {"x": 80.0}
    crosses = [SimpleNamespace(form="cross")] * 2
    assert released_metrics(None, crosses, records, {"x": scored}) == {}  # theirs is of the mean score, as the paper's
    records[0].result["x"] = None
    assert released_metrics(None, models, records, {"x": scored}) == {"x": None}


def test_report_cards_and_page_know_all_members(trained, tmp_path):
    from transencoder.report.comparison import results_page

    report = (trained.folder / "report.md").read_text()
    assert "| member 1, test |" in report
    assert "| ensemble, test |" in report
    assert "equal shares" in report
    assert f"member {trained.result['member']} of 2, whose bi-encoder is the best on dev" in report
    cards = [(trained.folder / f"members/{i}/bi-encoder/README.md").read_text() for i in (1, 2)]
    assert all(f"This model is of member {i} of 2; the others started from" in card for i, card in enumerate(cards, 1))
    assert cards[0] != cards[1]
    page = results_page([trained.folder], tmp_path / "results" / "page.md").read_text()
    assert all(f"| {title} |" in page for title in ("bi-encoder, member 2", "cross-encoder, ensemble"))


def test_weights_and_policies_count_in_labels_and_ensemble(tiny_method, members):
    heavy = replace(members[0], weight=3.0, policy="quantile")
    run = train(tiny_method(members=(heavy, members[1]), start_weight=0.2, dev=None))
    targets, raw = labels_of(run.folder, "cycle-1-labels-for-cross")
    first, second = raw.values()
    ranks = (first.argsort().argsort() + 0.5) / len(first)
    np.testing.assert_allclose(targets, 0.75 * ranks + 0.25 * np.clip(second, 0, 1), atol=0.02)
    (stage,) = run.folder.glob("stages/cycle-1-labels-for-bi-*/stage.json")
    teachers = json.loads(stage.read_text())["result"]["teachers"]
    assert [round(teacher["weight"], 6) for teacher in teachers] == [0.6, 0.2, 0.15, 0.05]
    assert [teacher["policy"] for teacher in teachers] == ["quantile", "clip"] * 2
    assert run.result["member"] == 1
    assert "member 1 of 2, the first" in (run.folder / "report.md").read_text()


def test_interrupted_in_the_second_member_it_ends_with_the_same_bytes(config, trained, tmp_path, interrupt, weights):
    again = replace(config, output=str(tmp_path / "run"))
    interrupt(again, at=lambda folder, step: "member-2" in folder.parent.name)
    resumed = train(again)
    first = next(stage for stage in resumed.result["stages"] if stage["name"] == "member-1/cycle-1/cross-encoder")
    assert first["reused"]
    assert weights(resumed.folder) == weights(trained.folder)


def test_members_have_intervals_as_the_kept_one_has(trained):
    result = trained.result
    kept = result["members"][result["member"] - 1]
    assert kept["intervals"] == result["intervals"] and result["intervals"]
    cards = [
        (trained.folder / folder / "bi-encoder" / "README.md").read_text()
        for folder in (".", f"members/{result['member']}")
    ]
    verdicts = [next(line for line in card.splitlines() if line.startswith("**")) for card in cards]
    assert verdicts[0] == verdicts[1]


def test_what_chooses_a_checkpoint_of_members_in_turn_is_in_its_key(tiny_method, members, tiny_bi_encoder, tmp_path):
    """A cross-encoder is compared with the base model of its member, which has not labelled for it."""
    shutil.copytree(members[1].start, tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 1}, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    held = {"cycles": 2, "alternate_members": True, "record_criteria": True}
    keys = []
    for start in (members[1].start, str(tmp_path / "other")):
        second = replace(members[1], start=start, cross_start=members[1].cross_start or members[1].start)
        stages = plan(tiny_method(members=(members[0], second), **held)).stages
        keys.append([stages[f"member-{member}/cycle-{member}/cross-encoder"].key for member in (1, 2)])
    assert keys[0][0] == keys[1][0] and keys[0][1] != keys[1][1]


def test_members_in_turn_are_one_chain(tiny_method, tiny_files, members):
    run = train(tiny_method(members=members, cycles=2, alternate_members=True, tests=(str(tiny_files / "test.tsv"),)))
    result = run.result
    assert "members" not in result and not (run.folder / "members").exists()
    names = [stage["name"] for stage in result["stages"] if stage["name"].endswith("-encoder")]
    assert names == [
        "member-1/cycle-1/cross-encoder",
        "member-1/cycle-1/bi-encoder",
        "member-2/cycle-2/cross-encoder",
        "member-2/cycle-2/bi-encoder",
    ]
    _, raw = labels_of(run.folder, "cycle-2-labels-for-cross")
    assert list(raw) == ["member-1/cycle-1/bi-encoder"]
    widths = (32, 48)
    for form, model in (("bi", run.bi_encoder), ("cross", run.cross_encoder)):
        best = result["best"][form]
        assert best["member"] == best["cycle"]
        assert widths[best["member"] - 1] == model[0].model.config.hidden_size
        card = (run.folder / f"{form}-encoder" / "README.md").read_text()
        assert f"This model is of member {best['member']} of 2" in card
    dev = read_pairs(str(tiny_files / "dev.tsv"))
    starts = [member.start for member in members]
    poolings = [member.pooling for member in members]
    metrics = [
        evaluate(BiScorer(load_bi(start, max_length=32, pooling=pooling), precision="fp32"), dev)
        for start, pooling in zip(starts, poolings, strict=True)
    ]
    assert result["dev"]["start"] == pytest.approx(max(metrics), abs=1e-4)
    assert metrics[result["start_member"] - 1] == max(metrics)
    assert "Members learned in turn" in (run.folder / "report.md").read_text()
    with pytest.raises(InputError, match="1 cycles are too few for 2 members in turn"):
        train(tiny_method(members=members, cycles=1, alternate_members=True))


def test_members_have_rates_epochs_and_pretraining_of_their_own(tiny_method, members):
    own = replace(members[0], bi_learning_rate=3e-4, cross_learning_rate=2e-3, cross_epochs=3, pretraining_epochs=1)
    run = train(tiny_method(members=(own, members[1]), dev=None, pretraining=PretrainingConfig(batch_size=16)))
    names = [stage["name"] for stage in run.result["stages"]]
    assert [name for name in names if name.endswith("pretraining")] == ["member-1/cross-start/pretraining"]
    rates, epochs = [], []
    for name in (f"member-{i}-cycle-1-{form}-encoder" for i in (1, 2) for form in ("bi", "cross")):
        (stage,) = run.folder.glob(f"stages/{name}-{'[0-9a-f]' * 12}/stage.json")
        fit = json.loads(stage.read_text())["config"]["fit"]
        rates.append(fit["learning_rate"])
        epochs.append(fit["epochs"])
    assert rates == [3e-4, 2e-3, 1e-3, 1e-3]
    assert epochs == [1, 3, 1, 1]
    first, second = run.result["members"]
    assert first["pretraining"]["steps"] > 0 and "pretraining" not in second
    cards = [(run.folder / f"members/{i}/cross-encoder/README.md").read_text() for i in (1, 2)]
    assert ["guess masked words" in card for card in cards] == [True, False]
    planned, usual = (plan(tiny_method(members=(each, members[1]))) for each in (own, members[0]))
    assert "member 1: cross learning rate 0.002, cross epochs 3, bi learning rate 0.0003" in str(planned)
    assert planned.seconds > usual.seconds


def test_a_member_that_cannot_be_had_is_named(tiny_method, members):
    with pytest.raises(InputError, match=r"^member 2: the model '/nowhere/model' is no local folder"):
        train(tiny_method(members=(members[0], Member(start="/nowhere/model"))))


def test_the_plan_counts_all_members(tiny_method, members):
    one, two = plan(tiny_method(members=members[:1])), plan(tiny_method(members=members))
    assert "each cycle and each of 2 members" in str(two)
    assert two.seconds > one.seconds
    assert "by one of 2 members in turn" in str(plan(tiny_method(members=members, cycles=2, alternate_members=True)))


def test_sequential_goes_on_from_the_members_own_teacher(tiny_method, tiny_bi_encoder, other):
    both = (Member(start=tiny_bi_encoder), Member(start=other))
    stages = plan(tiny_method(members=both, initialisation="sequential", cycles=2, dev=None)).stages
    for i in (1, 2):
        for student, teacher in (("cycle-1/bi", "cycle-1/cross"), ("cycle-2/cross", "cycle-1/bi")):
            learned = stages[f"member-{i}/{student}-encoder"]
            assert learned.key_inputs[-1] == stages[f"member-{i}/{teacher}-encoder"].key


def test_ensembles_gains_are_over_the_starts_as_they_are(tiny_method, tiny_files, members):
    long = tuple(Member(start=member.start, pooling=member.pooling) for member in members)
    bi = replace(FAST, max_length=8)
    run = train(tiny_method(members=long, tests=(str(tiny_files / "test.tsv"),), bi=bi))
    assert "start_as_is" in run.result["ensemble"]["scores"]
    pairs = read_pairs(str(tiny_files / "test.tsv"))
    starts = [BiScorer(load_bi(member.start, pooling=member.pooling), precision="fp32") for member in members]
    assert run.result["ensemble"]["scores"]["start_as_is"]["test"] == pytest.approx(
        evaluate(MeanScorer(starts), pairs), abs=1e-4
    )
