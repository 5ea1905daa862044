"""Criteria against their equations, the pairs that they look at, and what they choose where there is no dev set."""

import math
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets
from sentence_transformers import SentenceTransformer

from transencoder import Member, selection, tokens, train
from transencoder.cycles import distillation
from transencoder.errors import InputError
from transencoder.fit import student
from transencoder.metrics import spearman
from transencoder.report.plots import curve_plots
from transencoder.report.verdict import notes_of
from transencoder.scorers import BiScorer
from transencoder.selection import criterion_of, hold_out, regrets_of
from transencoder.training import pairs, plan

SHAPES = [(2, 3), (7, 4), (12, 2)]
OF_BOTH = {"teacher_agreement", "start_agreement", "view_preference"}
OF_EMBEDDINGS = {"self_retrieval", "alignment", "uniformity", "alignment_and_uniformity", "effective_rank"}


def random_unit(n, dim, seed):
    rows = np.random.default_rng(seed).normal(size=(n, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(("n", "dim"), SHAPES)
def test_alignment_and_uniformity_as_the_equations_say(n, dim):
    first, second = random_unit(n, dim, 1), random_unit(n, dim, 2)
    squared = [sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for x, y in zip(first, second, strict=True)]
    assert selection.alignment(3 * first, 0.1 * second) == pytest.approx(sum(squared) / n)
    potential = [
        math.exp(-2 * sum((a - b) ** 2 for a, b in zip(first[i], first[j], strict=True)))
        for i in range(n)
        for j in range(i)
    ]
    assert selection.uniformity(5 * first) == pytest.approx(math.log(sum(potential) / len(potential)))


def test_what_is_all_the_same_is_aligned_not_uniform_and_finds_nothing():
    same = np.ones((9, 3))
    assert selection.alignment(same, same) == 0
    assert selection.uniformity(same) == pytest.approx(0)
    assert selection.uniformity(np.eye(2)) == pytest.approx(-4)  # a right angle apart
    assert selection.self_retrieval(np.eye(4), np.eye(4)) == 100
    for rows in (same, np.zeros((9, 2))):
        assert selection.self_retrieval(rows, rows) == pytest.approx(100 / 5)  # the middle one of nine


@pytest.mark.parametrize(("n", "dim"), SHAPES)
def test_self_retrieval_is_the_mean_reciprocal_rank(n, dim):
    sentences, views = random_unit(n, dim, 3), random_unit(n, dim, 4)
    ranks = []
    for i, view in enumerate(views):
        order = sorted(range(n), key=lambda j: -float(view @ sentences[j]))
        ranks.append(order.index(i) + 1)
    assert selection.self_retrieval(views, 2 * sentences) == pytest.approx(100 * np.mean([1 / rank for rank in ranks]))


def test_view_preference_counts_equals_half():
    assert selection.view_preference(np.array([3, 1, 2, 2]), np.array([1, 3, 2, 0])) == pytest.approx(62.5)


def test_effective_rank_is_the_number_of_directions():
    rows = np.zeros((8, 6))
    rows[:, :3] = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 3)))[0]
    assert selection.effective_rank(7 * rows) == pytest.approx(3, rel=1e-4)
    assert selection.effective_rank(np.outer(np.arange(1.0, 9), np.ones(6))) == pytest.approx(1, rel=1e-4)
    values = np.linalg.svd(rows + 0.1, compute_uv=False)
    shares = values / values.sum()
    entropy = -sum(share * math.log(share) for share in shares if share > 1e-12)
    assert selection.effective_rank(rows + 0.1) == pytest.approx(math.exp(entropy), rel=1e-4)
    assert selection.effective_rank(np.zeros((4, 3))) == pytest.approx(1, abs=0.01)  # no NaN


@pytest.fixture(scope="module")
def many_pairs(tiny_pairs):
    """400 pairs, the planted ones twice."""
    return Dataset.from_dict({name: tiny_pairs[name][:] * 2 for name in ("sentence1", "sentence2")})


@pytest.fixture(scope="module")
def few_pairs(many_pairs):
    """120 pairs, of which twelve are held out."""
    return many_pairs.select(range(0, 240, 2))


def test_copies_of_held_out_pairs_are_not_trained_on(many_pairs):
    turned = many_pairs.rename_columns({"sentence1": "sentence2", "sentence2": "sentence1"}).select_columns(
        ["sentence1", "sentence2"]
    )
    both = concatenate_datasets([many_pairs.select_columns(["sentence1", "sentence2"]), turned])
    twice = hold_out(both)
    texts = {frozenset(pair) for pair in zip(twice.texts["sentence1"], twice.texts["sentence2"], strict=True)}
    trained = both.select(np.setdiff1d(np.arange(len(both)), twice.untrained))
    assert not texts & {frozenset(pair) for pair in zip(trained["sentence1"], trained["sentence2"], strict=True)}
    assert len(twice.untrained) > len(twice.rows) and "n_copies" in twice.about
    distinct = hold_out(Dataset.from_dict({"sentence1": [f"a {i}" for i in range(40)], "sentence2": ["b"] * 40}))
    assert list(distinct.untrained) == list(distinct.rows) and "n_copies" not in distinct.about


def test_a_tenth_is_held_out_the_same_for_the_same_number(many_pairs):
    held_out = hold_out(many_pairs)
    assert len(held_out.rows) == 40 == len(set(held_out.rows))
    assert list(held_out.rows) == sorted(held_out.rows) == list(hold_out(many_pairs).rows)
    assert held_out.texts["sentence1"][:] == many_pairs.select(held_out.rows)["sentence1"][:]
    for sentence, view in zip(held_out.texts["sentence1"], held_out.texts["sentence3"], strict=True):
        assert set(view.split()) <= set(sentence.split())
    lengths = [[len(text.split()) for text in held_out.texts[name]] for name in ("sentence1", "sentence3")]
    assert 0.4 < sum(lengths[1]) / sum(lengths[0]) < 0.65


def test_a_thousand_at_most():
    pairs = Dataset.from_dict({"sentence1": ["a b"] * 12_000, "sentence2": ["c"] * 12_000})
    held_out = hold_out(pairs)
    assert len(held_out.rows) == 1000
    assert list(held_out.distinct) == [0]  # they are all one sentence


def test_views_are_scored_with_the_prompt_of_documents(many_pairs, tiny_bi_encoder):
    held_out = hold_out(many_pairs)
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    scorer = BiScorer(model, precision="fp32", prompt="kama ", document_prompt="balo bama dalo gelo ")
    pairs = held_out.texts.select_columns(["sentence1", "sentence2"])
    with_views = pairs.remove_columns("sentence2").add_column("sentence2", held_out.texts["sentence3"][:])
    expected = selection.view_preference(scorer.score(with_views), scorer.score(pairs))
    assert held_out.criteria(scorer, {})["view_preference"] == expected


def test_a_bi_encoder_reads_each_text_once_for_all_criteria(many_pairs, tiny_bi_encoder):
    held_out = hold_out(many_pairs)
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    scorer = BiScorer(model, precision="fp32")
    pairs = held_out.texts.select_columns(["sentence1", "sentence2"])
    with_views = pairs.remove_columns("sentence2").add_column("sentence2", held_out.texts["sentence3"][:])
    expected = selection.view_preference(scorer.score(with_views), scorer.score(pairs))
    n_read = []
    model[0].register_forward_hook(lambda _, inputs, output: n_read.append(len(inputs[0]["input_ids"])))
    assert held_out.criteria(scorer, {})["view_preference"] == expected
    assert sum(n_read) == len({text for side in held_out.texts.column_names for text in held_out.texts[side]})


def test_an_encoder_agrees_with_itself(many_pairs, tiny_bi_encoder, monkeypatch, tmp_path):
    held_out = hold_out(many_pairs)
    model, cache = SentenceTransformer(tiny_bi_encoder, device="cpu"), tokens.TokenCache(tmp_path)
    scorer = BiScorer(model, precision="fp32", cache=cache)
    own = scorer.score(held_out.texts.select_columns(["sentence1", "sentence2"]))
    found = held_out.criteria(scorer, {"teacher": [own], "start": [-own, own, own]})
    assert found.keys() == OF_BOTH | OF_EMBEDDINGS
    assert found["teacher_agreement"] == pytest.approx(100)
    assert found["start_agreement"] == pytest.approx(100 / 3)
    assert found["self_retrieval"] > 30  # by chance about 11
    assert found["alignment_and_uniformity"] == pytest.approx(found["alignment"] + found["uniformity"])
    monkeypatch.setattr(tokens, "fingerprint", None)
    assert held_out.criteria(scorer, {}).items() <= found.items(), "rows are hashed once, as in an evaluation"


def test_every_evaluation_records_them_on_pairs_that_nothing_is_trained_on(tiny_method, few_pairs, monkeypatch):
    seen = {}
    real = student.training_rows
    monkeypatch.setattr(student, "training_rows", lambda n, targets, rows: real(n, targets, seen.setdefault(n, rows)))
    recorded = train(tiny_method(pairs=few_pairs, record_criteria=True, tests=(), is_symmetric=True))
    held_out = hold_out(few_pairs).untrained
    assert len(seen[120]) == 120 - len(held_out) <= 108 and not set(seen[120]) & set(held_out)
    assert len(seen[240]) == 2 * len(seen[120]) and not set(seen[240] % 120) & set(held_out)
    for form, expected in (("cross", OF_BOTH), ("bi", OF_BOTH | OF_EMBEDDINGS)):
        cycle = recorded.result["cycles"][0][form]
        steps = [step for step, _ in cycle["criteria"]]
        assert steps == [step for step, _ in cycle["curve"]]
        assert all(values.keys() == expected for _, values in cycle["criteria"])
        assert cycle["dev"] == max(value for _, value in cycle["curve"]), "nothing is chosen by criteria"
    assert recorded.result["criteria"].keys() == {"start", "bi", "cross"}
    assert recorded.result["criteria"]["start"].keys() == OF_EMBEDDINGS | {"view_preference"}
    last = recorded.result["cycles"][recorded.result["best"]["bi"]["cycle"] - 1]["bi"]
    assert recorded.result["criteria"]["bi"] in [values for _, values in last["criteria"]]


@pytest.mark.parametrize(("poolings", "share_labels"), [(("mean", "cls", None), True), (("mean", "cls"), False)])
def test_members_are_compared_with_each_others_teachers(
    tiny_method, few_pairs, tiny_bi_encoder, weights, poolings, share_labels
):
    members = tuple(Member(start=tiny_bi_encoder, pooling=pooling) for pooling in poolings)
    config = tiny_method(pairs=few_pairs, record_criteria=True, tests=(), members=members, share_labels=share_labels)
    trained = train(config)
    assert len(trained.result["members"]) == len(members)
    assert len(weights(trained.folder)) == 2 + 2 * len(members)
    for member in trained.result["members"]:
        record = member["cycles"][0]["cross"]
        (step, values), *_ = record["criteria"]
        assert values.keys() == OF_BOTH | {"member_agreement"}
    # the starts of all teach the cross-encoders: what the last step's says is in the stage of its scores
    held_out = hold_out(few_pairs)
    said = [
        np.load(next(trained.folder.glob(f"stages/member-{i}-start-scores-*/scores.npy")))
        for i in range(1, len(members) + 1)
    ]
    cross = np.load(next(trained.folder.glob("stages/member-1-cycle-1-cross-encoder-scores-*/scores.npy")))
    expected = np.mean([spearman(each[held_out.rows], cross[held_out.rows]) for each in said[1:]])
    first = trained.result["members"][0]["cycles"][0]["cross"]
    best = max(dict(first["curve"]), key=dict(first["curve"]).get)
    assert dict(first["criteria"])[best]["member_agreement"] == pytest.approx(expected, abs=0.1)


def test_another_members_settings_make_another_stage_where_criteria_compare_with_it(
    tiny_method, few_pairs, tiny_bi_encoder
):
    """Each learns from its own scores: the labels do not tell that the other one changed."""

    def keys(rate):
        members = (Member(start=tiny_bi_encoder), Member(start=tiny_bi_encoder, cross_learning_rate=rate))
        options = {"record_criteria": True, "tests": (), "members": members, "share_labels": False}
        planned = plan(tiny_method(pairs=few_pairs, **options))
        return {name: stage.key for name, stage in planned.stages.items()}

    one, other = keys(1e-3), keys(2e-3)
    assert one["member-1/cycle-1/cross-encoder"] == other["member-1/cycle-1/cross-encoder"]
    assert one["member-1/cycle-1/labels-for-bi"] == other["member-1/cycle-1/labels-for-bi"]
    assert one["member-1/cycle-1/bi-encoder"] != other["member-1/cycle-1/bi-encoder"]


def test_rows_of_criteria_are_finite_for_a_model_that_collapsed(many_pairs):
    class Collapsed:
        def score(self, pairs):
            return np.full(len(pairs), 0.5, np.float32)

    held_out = hold_out(many_pairs)
    found = held_out.criteria(Collapsed(), {"teacher": [np.arange(40.0)]})
    assert np.isnan(found["teacher_agreement"]) and found["view_preference"] == 50


def test_auto_is_the_criterion_that_cost_least_and_last_is_none():
    assert criterion_of("bi", "last") is None
    assert criterion_of("bi", "uniformity") == "uniformity"
    for form in ("bi", "cross"):
        regrets = {name: value for name, value in regrets_of(form).items() if name != "left_out"}
        assert regrets[criterion_of(form, "auto") or "last"] == min(regrets.values())


@pytest.fixture
def without_dev(tiny_method, tiny_pairs, monkeypatch):
    """A run without a dev set, whose bi- and cross-encoder are chosen by the criteria that it is given."""
    monkeypatch.setattr(pairs, "LEAST_PAIRS", 100)

    def make(bi, cross, **changes):
        config = tiny_method(pairs=tiny_pairs, dev=None, tests=(), **changes)
        return replace(
            config,
            bi=replace(config.bi, selection=bi),
            cross=replace(config.cross, selection=cross),
            patience_cycles=None,
        )

    return make


def test_the_checkpoint_and_the_cycle_that_the_criterion_likes_best_are_kept(without_dev):
    result = train(without_dev("uniformity", "teacher_agreement")).result
    assert result["dev"] is None and result["data"]["pairs"]["held_out_rows"] == 20
    for form, name in (("bi", "uniformity"), ("cross", "teacher_agreement")):
        trainings = [cycle[form] for cycle in result["cycles"]]
        assert all(each["chosen_by"] == name and each["dev"] is None and not each["curve"] for each in trainings)
        for each in trainings:
            values = dict((step, found[name]) for step, found in each["criteria"])
            assert values[each["step"]] == max(values.values())
        highest = [max(found[name] for _, found in each["criteria"]) for each in trainings]
        assert result["best"][form]["cycle"] == 1 + highest.index(max(highest))
        assert result["best"][form]["dev"] is None
    (note,) = [note for note in notes_of(result) if "no dev set" in note]
    assert "the bi-encoder's by uniformity and the cross-encoder's by teacher_agreement, on 20 held-out pairs" in note
    assert f"{regrets_of('bi')['last']:.2f} (bi-encoder)" in note


def test_one_checkpoint_of_each_form_is_no_choice(without_dev):
    config = without_dev("auto", "auto", cycles=1)
    once = {"bi": replace(config.bi, eval_steps=100), "cross": replace(config.cross, eval_steps=100)}
    result = train(replace(config, **once)).result
    assert any("only one checkpoint of each form" in note for note in notes_of(result))
    assert not any("were chosen without labels" in note for note in notes_of(result))


def test_test_curves_are_recorded_and_choose_nothing(without_dev, tiny_files):
    tests = (str(tiny_files / "test.tsv"),)
    config = without_dev("uniformity", "teacher_agreement", cycles=1)
    watched = train(replace(config, tests=tests, test_every_eval=True, output=f"{config.output}-watched")).result
    (training,) = [cycle["bi"] for cycle in watched["cycles"]]
    steps = [step for step, _ in training["criteria"]]
    assert [(step, set(values)) for _, step, values in watched["analysis"]["bi"]] == [
        (step, {"test"}) for step in steps
    ]
    plain = train(config).result["cycles"][0]["bi"]
    assert (training["step"], training["criteria"]) == (plain["step"], plain["criteria"])


def test_test_curves_without_evaluations_are_refused(without_dev, tiny_files, monkeypatch):
    watched = {"tests": (str(tiny_files / "test.tsv"),), "test_every_eval": True}
    with pytest.raises(InputError, match="test_every_eval needs tests"):
        replace(without_dev("uniformity", "last"), **watched)
    monkeypatch.setattr(pairs, "LEAST_PAIRS", 201)
    with pytest.raises(InputError, match="of 200 pairs, fewer than 201, none can be held out"):
        train(replace(without_dev("auto", "auto"), **watched))


def test_without_enough_pairs_or_where_it_is_said_the_last_is_kept(without_dev, monkeypatch):
    for config in (without_dev("last", "last"), without_dev("auto", "auto")):
        result = train(config).result
        assert "held_out_rows" not in result["data"]["pairs"]
        assert result["best"]["bi"]["cycle"] == len(result["cycles"])
        assert not any("chosen_by" in cycle[form] for cycle in result["cycles"] for form in ("bi", "cross"))
        assert set(result["sample_agreement"]) == {"bi", "cross"}
        monkeypatch.setattr(pairs, "LEAST_PAIRS", 201)


def test_preset_standard_keeps_the_last_checkpoint_and_records_what_held_out_pairs_say(without_dev, monkeypatch):
    result = train(without_dev("auto", "auto", preset="standard", same_form=True)).result
    (bi,) = (cycle["bi"] for cycle in result["cycles"])
    ((_, at_the_end),) = bi["criteria"]
    assert "step" not in bi, "no checkpoint was chosen"
    assert result["data"]["pairs"]["held_out_rows"] == 20 and "selection" not in result and result["dev"] is None
    assert result["criteria"]["bi"] == at_the_end != result["criteria"]["start"]
    assert {each["setting"] for each in result["choices"]} >= {"bi.selection", "record_criteria"}
    assert "There was no dev set: the last checkpoint was kept." in notes_of(result)
    assert not list(curve_plots(result)), "there is one point"
    monkeypatch.setattr(pairs, "LEAST_PAIRS", 201)
    result = train(without_dev("auto", "auto", preset="standard", same_form=True)).result
    assert "held_out_rows" not in result["data"]["pairs"] and "criteria" not in result


def test_a_criterion_beside_a_dev_set_or_of_what_a_cross_encoder_has_not_is_refused(tiny_method):
    config = tiny_method()
    with pytest.raises(InputError, match="bi.selection is uniformity, but dev chooses"):
        replace(config, bi=replace(config.bi, selection="uniformity"))
    with pytest.raises(InputError, match="cross.selection is member_agreement, but no two members"):
        replace(config, dev=None, cross=replace(config.cross, selection="member_agreement"))
    with pytest.raises(InputError, match="a cross-encoder has none"):
        replace(config, dev=None, cross=replace(config.cross, selection="uniformity"))


def test_a_weak_start_is_said_before_anything_is_trained(without_dev, caplog, monkeypatch):
    def learn(context, *arguments, **named):
        return learned(context, *arguments, **named) if context.is_plan else pytest.fail("trained")

    learned = distillation.learn
    monkeypatch.setattr(distillation, "learn", learn)
    with pytest.raises(pytest.fail.Exception):
        train(without_dev("auto", "auto"))
    assert "start: The base model looks weak on these texts" in caplog.text  # a random one


def test_a_weak_start_is_said_where_dev_chooses_too(tiny_method, caplog, monkeypatch):
    monkeypatch.setattr("transencoder.cycles.members.LEAST_PAIRS", 50)
    result = train(tiny_method()).result
    assert "start: The base model looks weak on these texts" in caplog.text
    assert "held_out_rows" not in result["data"]["pairs"] and set(result["criteria"]) == {"start"}
    assert any("base model looks weak" in note for note in notes_of(result))
