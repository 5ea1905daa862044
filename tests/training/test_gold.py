"""A few gold scores among the training pairs: which rows have them, what they do, what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.reading import read_data
from transencoder import FitConfig, plan, train
from transencoder.errors import InputError
from transencoder.evaluation import evaluate
from transencoder.scorers import BiScorer, CrossScorer

STS = (0.0, 5.0)


@pytest.fixture
def gold_file(tiny_pairs, tmp_path):
    """Writes some of the planted pairs with their scores, 0 to 5."""

    def write(rows, name="gold.tsv"):
        tiny_pairs.select(rows).to_csv(tmp_path / name, sep="\t", index=False)
        return str(tmp_path / name)

    return write


def texts(rows):
    return list(zip(rows["sentence1"], rows["sentence2"], strict=True))


def test_labelled_pairs_follow_the_others_and_none_is_there_twice(tiny_method, tiny_pairs, gold_file):
    unlabelled = read_data(tiny_method())
    labelled = gold_file([*range(10), *range(190, 200)])
    data = read_data(tiny_method(labelled=labelled, score_range=STS))
    assert unlabelled.gold is None
    assert texts(data.training) == [
        *texts(unlabelled.training)[10:],
        *texts(tiny_pairs.select([*range(10), *range(190, 200)])),
    ]
    expected = np.array(tiny_pairs["score"])[[*range(10), *range(190, 200)]] / 5
    np.testing.assert_array_equal(data.gold.scores[86:], expected.astype(np.float32))
    assert np.isnan(data.gold.scores[:86]).all()
    assert data.record["labelled"]["rows"] == 20
    assert data.record["rows"] == len(data.training) == 106


def test_a_pair_turned_round_is_the_same_where_the_order_means_nothing(tiny_method, tiny_pairs, tmp_path):
    first, second = texts(tiny_pairs.select([3]))[0]
    path = tmp_path / "turned.tsv"
    path.write_text(f"sentence1\tsentence2\tscore\n{second}\t{first}\t0.5\n")
    rows = {
        is_symmetric: len(read_data(tiny_method(labelled=str(path), is_symmetric=is_symmetric)).training)
        for is_symmetric in (True, False)
    }
    assert rows == {True: 96, False: 97}


def test_so_many_are_drawn_with_the_seed(tiny_method, gold_file):
    labelled = gold_file(range(150, 200))
    drawn = [read_data(tiny_method(labelled=labelled, score_range=STS, n_labelled=8, seed=seed)) for seed in (1, 1, 2)]
    assert [int(np.isfinite(data.gold.scores).sum()) for data in drawn] == [8, 8, 8]
    assert drawn[0].gold.key == drawn[1].gold.key != drawn[2].gold.key
    assert drawn[0].record["labelled"]["drawn_from"] == 50


def test_a_tests_pairs_and_devs_are_not_learned(tiny_method, tiny_files, gold_file, caplog):
    tests = {"tests": (str(tiny_files / "test.tsv"),), "score_range": STS}
    some = gold_file([*range(137, 145), *range(190, 195)])  # dev ends with row 139, and there the tests begin
    data = read_data(tiny_method(labelled=some, **tests), None)
    assert np.isfinite(data.gold.scores).sum() == 5
    assert (data.record["labelled"]["rows"], data.record["labelled"]["test_rows"]) == (5, 8)
    assert "8 labelled pairs of a test set or of dev left out of what is learned" in caplog.text
    inductive = tiny_method(labelled=some, exclude_test_sentences=True, **tests)
    assert 0 < np.isfinite(read_data(inductive).gold.scores).sum() <= 5
    with pytest.raises(InputError, match="every labelled pair of .* is one of a test set"):
        read_data(tiny_method(labelled=gold_file(range(150, 160)), **tests))


@pytest.mark.parametrize(
    ("line", "changes", "message"),
    [
        ("sentence1\tsentence2\tscore\nbalo\tdalo\t5\n", {}, "gold.tsv:2: score is 5, out of range.*score_range 0 5"),
        (
            "sentence1\tsentence2\nbalo\tdalo\n",
            {},
            "gold.tsv: no column 'score'.*classes are learned by `train dvbert`",
        ),
        ("sentence1\tsentence2\tscore\nbalo\tdalo\t1\n", {"n_labelled": 2}, "n_labelled is 2, but .* has 1; give"),
    ],
)
def test_what_is_no_gold_is_refused(line, changes, message, tiny_method, tmp_path):
    (tmp_path / "gold.tsv").write_text(line)
    config = tiny_method(labelled=str(tmp_path / "gold.tsv"), **changes)
    with pytest.raises(InputError, match=message):
        read_data(config)


def test_only_pairs_without_gold_are_held_out(tiny_method, gold_file, monkeypatch):
    """Was: pairs with gold counted too, so that one of ten others was held out to choose by, or none of none."""
    monkeypatch.setattr("transencoder.training.pairs.LEAST_PAIRS", 40)
    monkeypatch.setattr("transencoder.cycles.members.LEAST_PAIRS", 40)
    for n_labelled, n_held_out in ((50, 4), (86, 0), (96, 0)):
        config = tiny_method(dev=None, labelled=gold_file(range(n_labelled)), score_range=STS)
        stages = plan(config).stages
        held_out = stages["cycle-1/bi-encoder"].held_out
        assert (0 if held_out is None else len(held_out.rows)) == n_held_out
    few = tiny_method(record_criteria=True, labelled=gold_file(range(86)), score_range=STS)
    assert plan(few).stages["cycle-1/bi-encoder"].held_out is None


def test_bad_labelled_rows_can_be_left_out(tiny_method, tmp_path):
    (tmp_path / "gold.tsv").write_text("sentence1\tsentence2\tscore\nbalo\tdalo\t1\nbalo\tbama\t-1\n")
    config = tiny_method(labelled=str(tmp_path / "gold.tsv"), skip_bad_rows=True)
    record = read_data(config, tmp_path).record
    assert (record["labelled"]["rows"], record["labelled"]["bad_rows"]) == (1, 1)
    assert "gold.tsv:3" in (tmp_path / "bad-labelled-rows.tsv").read_text()


def test_a_hub_id_gives_its_train_split(tiny_method, data_folder):
    gold = read_data(
        tiny_method(labelled="mteb/stsbenchmark-sts", score_range=STS, data_dir=str(data_folder)), None
    ).gold
    assert np.isfinite(gold.scores).sum() > 5700


def test_tasks_give_their_train_split_from_0_to_1(tiny_method, data_folder):
    data = read_data(tiny_method(labelled="stsb", data_dir=str(data_folder)))
    gold = data.gold.scores[np.isfinite(data.gold.scores)]
    assert (len(gold), gold.min(), gold.max()) == (5749, 0.0, 1.0)
    with pytest.raises(InputError, match="labelled is snli, whose labels are classes"):
        read_data(tiny_method(labelled="snli", data_dir=str(data_folder)))


def test_gold_is_learned(tiny_method, tiny_pairs, gold_file):
    """By both forms: the start's own scores, which they learn without it, agree little with it."""
    fit = FitConfig(learning_rate=3e-3, batch_size=16, epochs=14, eval_steps=50, checkpoint_steps=50)
    config = tiny_method(bi=fit, cross=fit, dev=None)
    labelled = replace(config, output=config.output + "-gold", labelled=gold_file(range(96)), score_range=STS)
    plain, taught = train(config), train(labelled)

    def agreements(trained):
        scorers = BiScorer(trained.bi_encoder, precision="fp32"), CrossScorer(trained.cross_encoder, precision="fp32")
        return [evaluate(scorer, tiny_pairs.select(range(96))) for scorer in scorers]

    for with_gold, without in zip(agreements(taught), agreements(plain), strict=True):
        assert with_gold > without + 10
    for form in ("bi", "cross"):
        card, plain_card = (
            Path(each.output, f"{form}-encoder", "README.md").read_text() for each in (labelled, config)
        )
        assert "trained with 96 gold labels by" in card and "no labels" not in card
        assert "trained without labels by" in plain_card
    assert "96 training pairs have gold scores" in Path(labelled.output, "report.md").read_text()
    assert all(stage["reused"] for stage in train(labelled).result["stages"])
