"""DvBERT: teachers learn the labels, a bi-encoder learns from both; and SBERT, without teachers."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sentence_transformers import CrossEncoder

from tests.rounding import model_rounding
from transencoder import CrossScorer, DvBERT, evaluate, read_pairs, train
from transencoder.configs.run import Given
from transencoder.encoders import as_logits, classes_of, load_cross
from transencoder.errors import InputError
from transencoder.losses import CosineLoss, DualViewLoss
from transencoder.training import plan
from transencoder.training.data import read_text_data


def read_rows(config, run_folder=None):
    return read_text_data(config, config.rows.text, run_folder)


NAMES = ("many", "none", "some")
FIELDS = {"start": "x", "output": "run", "labelled": "a.tsv"}


@pytest.fixture(scope="module")
def trained(tiny_start):
    return train(tiny_start("dvbert"))


def stage(run, name):
    (folder,) = Path(run.folder).glob(f"stages/{name}-*")
    return folder


def test_a_teacher_learns_the_classes_and_its_labels_are_stored(trained, classes):
    model = stage(trained, "teacher-1-cross-encoder") / "model"
    assert classes_of(model) == NAMES
    table = pq.read_table(stage(trained, "teacher-1-labels") / "labels.parquet").to_pydict()
    lines = Path(classes).read_text().splitlines()[1:]
    texts = list(zip(table["sentence1"], table["sentence2"], strict=True))
    assert texts == [tuple(line.split("\t")[:2]) for line in lines]
    assert [NAMES[int(gold)] for gold in table["gold"]] == [line.split("\t")[2] for line in lines]
    teacher = CrossEncoder(str(model), device="cpu", max_length=24)
    expected = teacher.predict(texts, apply_softmax=True)
    np.testing.assert_allclose(table["label"], expected, rtol=0, atol=model_rounding(teacher))


def test_a_teacher_keeps_its_models_own_head(trained):
    """BERT's: a dense layer and tanh over [CLS], before the new classifier."""
    teacher = CrossEncoder(str(stage(trained, "teacher-1-cross-encoder") / "model"), device="cpu")
    with torch.no_grad():
        given = teacher.preprocess([("balo", "dalo")])
        hidden = teacher.model.bert(**given)
        pooled = torch.tanh(teacher.model.bert.pooler.dense(hidden.last_hidden_state[:, 0]))
        torch.testing.assert_close(teacher.model(**given).logits, teacher.model.classifier(pooled))


def test_teachers_that_learned_here_are_left_as_cross_encoders(trained, tiny_start):
    assert classes_of(trained.folder / "teachers" / "1") == NAMES
    assert (
        "trained on 96 gold labels: many, none, some" in (trained.folder / "teachers" / "1" / "README.md").read_text()
    )
    own = str(trained.folder / "teachers" / "1")
    later = train(tiny_start("dvbert", teacher=(own,), class_names=("none", "some", "many"), new_head=True))
    assert classes_of(later.folder / "teachers" / "1") == ("none", "some", "many")
    assert not (train(tiny_start("dvbert", teacher=(own,))).folder / "teachers").exists()


def test_a_run_as_a_teacher_is_answered_with_its_teachers(tiny_start, trained):
    with pytest.raises(InputError, match="has no cross-encoder; it has .*/bi-encoder and .*/teachers/1: give one"):
        train(tiny_start("dvbert", teacher=(str(trained.folder),)))


def test_the_classifier_is_gone_from_what_is_saved(trained):
    assert [type(module).__name__ for module in trained.bi_encoder] == ["Transformer", "Pooling"]
    report = (trained.folder / "report.md").read_text()
    assert "with 96 gold labels" in report and "96 rows" in report and "of the classes many, none, some" in report
    assert "trained with 96 gold labels by" in (trained.folder / "bi-encoder" / "README.md").read_text()


def test_without_teachers_it_is_sbert(tiny_start, trained, weights):
    run = train(tiny_start("dvbert", teacher=()))
    assert [each["name"] for each in run.result["stages"]][0] == "bi-encoder"
    assert run.result["about"] == "A bi-encoder learns labelled pairs (SBERT)."
    assert weights(run.folder) != weights(trained.folder)


def test_a_teacher_that_has_learned_the_classes_is_taken_as_it_is(tiny_start, trained, weights):
    own = str(stage(trained, "teacher-1-cross-encoder") / "model")
    again = train(tiny_start("dvbert", teacher=(own,)))
    assert not [each for each in again.result["stages"] if each["name"] == "teacher-1/cross-encoder"]
    assert weights(again.folder) == weights(trained.folder)
    with pytest.raises(InputError, match="tells apart many, none, some; what is learned here has the classes none, so"):
        train(tiny_start("dvbert", teacher=(own,), class_names=("none", "some", "many")))


def test_a_teacher_that_was_interrupted_ends_with_the_same_bytes(tiny_start, trained, weights, interrupt):
    config = tiny_start("dvbert")
    interrupt(config)
    assert list(Path(config.output).glob("stages/teacher-1-cross-encoder-*/checkpoints/checkpoint-3"))
    again = train(config)
    assert weights(again.folder) == weights(trained.folder)
    models = [(run.folder / "teachers" / "1" / "model.safetensors").read_bytes() for run in (again, trained)]
    assert models[0] == models[1]


def test_outputs_without_names_are_taken_in_the_labels_order_only(tiny_start, trained, tmp_path):
    """By how they agree with gold: the teacher's own classes, turned round and without their names."""
    model = CrossEncoder(str(stage(trained, "teacher-1-cross-encoder") / "model"), device="cpu")
    config = model.transformers_model.config
    config.id2label = {number: f"LABEL_{number}" for number in range(3)}
    config.label2id = {name: number for number, name in config.id2label.items()}
    model.save_pretrained(str(tmp_path / "unnamed"))
    taken = tiny_start("dvbert", teacher=(str(tmp_path / "unnamed"),), dev=None, tests=())
    labels = pq.read_table(stage(trained, "teacher-1-labels") / "labels.parquet")["label"].to_pylist()
    assert pq.read_table(stage(train(taken), "teacher-1-labels") / "labels.parquet")["label"].to_pylist() == labels
    rows = read_rows(taken).training
    pairs = list(zip(rows["sentence1"][:], rows["sentence2"][:], strict=True))
    with torch.no_grad():  # so that it tells each class of some pair
        model.transformers_model.classifier.bias -= torch.from_numpy(model.predict(pairs)).mean(0)
    model.save_pretrained(str(tmp_path / "unnamed"))
    guessed = model.predict(pairs).argmax(1)  # as if these were the gold classes, in another order
    assert len(set(guessed)) == 3
    turned = tmp_path / "turned.tsv"
    names = ("first", "second", "third")
    turned.write_text(
        "sentence1\tsentence2\tlabel\n"
        + "".join(f"{a}\t{b}\t{names[-1 - i]}\n" for (a, b), i in zip(pairs, guessed, strict=True))
    )
    with pytest.raises(InputError, match="agree with the labels best in the order"):
        train(replace(taken, labelled=str(turned), class_names=names, output=str(tmp_path / "run")))


def test_a_teacher_that_gives_raw_scores_is_taken_by_them(tiny_start, tiny_bi_encoder, tiny_pairs, tmp_path):
    model = load_cross(Path(tiny_bi_encoder), device="cpu", seed=1)
    as_logits(model)
    model.save_pretrained(str(tmp_path / "logit"))
    tiny_pairs.select(range(96)).to_csv(tmp_path / "gold.tsv", sep="\t", index=False)
    graded = {"label_kind": "scores", "labelled": str(tmp_path / "gold.tsv"), "score_range": (0.0, 5.0)}
    run = train(tiny_start("dvbert", **graded, teacher=(str(tmp_path / "logit"),), dev=None, tests=()))
    labels = pq.read_table(stage(run, "teacher-1-labels") / "labels.parquet").to_pydict()
    texts = list(zip(labels["sentence1"], labels["sentence2"], strict=True))
    teacher = CrossEncoder(str(tmp_path / "logit"), device="cpu", max_length=24)
    raw = teacher.predict(texts)
    found = [label[0] for label in labels["label"]]
    np.testing.assert_allclose(found, np.clip(raw, 0, 1), rtol=0, atol=model_rounding(teacher))


def test_every_teacher_is_looked_at_before_the_first_is_trained(tiny_start, tiny_plm, trained, tmp_path):
    own = str(trained.folder / "teachers" / "1")
    config = tiny_start("dvbert", teacher=(tiny_plm, own), class_names=("none", "some", "many"))
    with pytest.raises(InputError, match="tells apart many, none, some"):
        train(config)
    assert not list(Path(config.output).glob("stages/teacher-*"))
    load_cross(Path(tiny_plm)).save_pretrained(str(tmp_path / "scores"))
    config = tiny_start("dvbert", teacher=(tiny_plm, str(tmp_path / "scores")))
    with pytest.raises(InputError, match="a cross-encoder with 1 output; a start needs 3"):
        train(config)
    assert not list(Path(config.output).glob("stages/teacher-*"))
    with pytest.raises(InputError, match="/nowhere/teacher"):
        train(tiny_start("dvbert", teacher=(tiny_plm, "/nowhere/teacher"), labelled="/nowhere/text.tsv"))
    long = replace(DvBERT.fit, learning_rate=1e-3, max_length=5000)
    with pytest.raises(InputError, match="cross.max_length is 5000"):
        train(tiny_start("dvbert", cross=long, labelled="/nowhere/text.tsv"))


def test_two_teachers_and_fixed_weights(tiny_start, tiny_plm, weights):
    two = {"teacher": (tiny_plm, tiny_plm), "dev": None, "tests": ()}
    runs = [train(tiny_start("dvbert", **two))]
    lent = {"reuse_from": (str(runs[0].folder),)}
    runs += [train(tiny_start("dvbert", soft_share=share, **two, **lent)) for share in (0.5, 1.0)]
    assert [each["reused"] for each in runs[1].result["stages"]] == [True] * 4 + [False, False, True]
    assert len({weights(run.folder) for run in runs}) == 3
    assert [each["name"] for each in runs[0].result["stages"]][:4] == [
        "teacher-1/cross-encoder",
        "teacher-1/labels",
        "teacher-2/cross-encoder",
        "teacher-2/labels",
    ]
    first, second = (stage(runs[0], f"teacher-{i}-labels") / "labels.parquet" for i in (1, 2))
    assert pq.read_table(first)["label"].to_pylist() != pq.read_table(second)["label"].to_pylist()  # other seeds


def test_graded_labels_are_learned_by_the_cosine_and_teachers_are_measured(
    tiny_start, tiny_pairs, tiny_files, tmp_path
):
    tiny_pairs.select(range(96)).to_csv(tmp_path / "gold.tsv", sep="\t", index=False)
    graded = {"label_kind": "scores", "labelled": str(tmp_path / "gold.tsv"), "score_range": (0.0, 5.0)}
    run = train(tiny_start("dvbert", **graded))
    labels = pq.read_table(stage(run, "teacher-1-labels") / "labels.parquet").to_pydict()
    np.testing.assert_allclose(labels["gold"], np.array(tiny_pairs["score"][:96]) / 5)
    assert all(len(label) == 1 and 0 < label[0] < 1 for label in labels["label"])
    assert run.result["data"]["pairs"]["gold_rows"] == 96
    teacher = CrossEncoder(str(run.folder / "teachers" / "1"), device="cpu")
    score = evaluate(CrossScorer(teacher, precision="fp32"), read_pairs(str(tiny_files / "test.tsv")))
    assert run.result["scores"]["teacher-1"] == {"test": pytest.approx(score, abs=1e-4)}
    assert (
        f"Teacher 1, a cross-encoder that learned the same labels, scores {score:.2f}."
        in (run.folder / "report.md").read_text()
    )


def test_several_files_with_the_same_classes(tiny_start, classes, tmp_path):
    (tmp_path / "more.tsv").write_text("sentence1\tsentence2\tlabel\nbalo\tdalo\tnone\nbalo\tgelo\t-1\n")
    data = read_rows(tiny_start("dvbert", more_labelled=(str(tmp_path / "more.tsv"),)), None)
    assert data.record["classes"] == list(NAMES)
    assert (len(data.training), data.training["label"][96]) == (97, 1.0)
    (tmp_path / "other.tsv").write_text("sentence1\tsentence2\tlabel\nbalo\tdalo\tother\n")
    with pytest.raises(InputError, match=r"other.tsv:2: label is 'other', which is no class. .*many, none, some"):
        read_rows(tiny_start("dvbert", more_labelled=(str(tmp_path / "other.tsv"),)), None)


def test_an_id_may_name_its_split(tiny_start, tmp_path):
    """NLI's train and test, as in the paper; a file that is called so is that file."""
    folder = tmp_path / "org" / "nli"
    folder.mkdir(parents=True)
    for split, kinds in (("train", NAMES), ("test", NAMES[:2])):
        rows = "".join(f"balo {i}\tdalo {kind}\t{kind}\n" for i in range(8) for kind in kinds)
        (folder / f"{split}.tsv").write_text(f"sentence1\tsentence2\tlabel\n{rows}")
    options = {"data_dir": str(tmp_path), "split": "train", "dev": None, "tests": (), "class_names": NAMES}
    alone = read_rows(tiny_start("dvbert", labelled="org/nli", **options), None)
    both = read_rows(tiny_start("dvbert", labelled="org/nli", more_labelled=("org/nli[test]",), **options), None)
    assert (alone.record["gold_rows"], both.record["gold_rows"]) == (24, 24 + 16)
    named = shutil.copy(folder / "test.tsv", tmp_path / "nli[test].tsv")
    assert read_rows(tiny_start("dvbert", labelled=str(named), **options | {"split": None}), None)
    with pytest.raises(InputError, match="dev"):
        read_rows(tiny_start("dvbert", labelled="org/nli[dev]", **options), None)
    with pytest.raises(InputError, match=r"snli\[test\] names a split, .* give the hub id: stanfordnlp/snli\[test\]"):
        read_rows(tiny_start("dvbert", labelled="org/nli", more_labelled=("snli[test]",), **options), None)


def test_so_many_are_drawn_and_a_tests_pairs_left_out(tiny_start, tiny_pairs, tmp_path):
    drawn = read_rows(tiny_start("dvbert", n_labelled=10), None)
    assert (drawn.record["gold_rows"], drawn.record["drawn_from"]) == (10, 96)
    rows = [*range(137, 145), *range(190, 195)]  # dev ends with row 139, and there the tests begin
    tiny_pairs.select(rows).to_csv(tmp_path / "gold.tsv", sep="\t", index=False)
    graded = {"label_kind": "scores", "labelled": str(tmp_path / "gold.tsv"), "score_range": (0.0, 5.0)}
    assert read_rows(tiny_start("dvbert", **graded)).record["gold_rows"] == 5


def test_sentences_of_tests_can_be_left_out(tiny_start, tiny_files, tiny_pairs, tmp_path):
    tiny_pairs.select([*range(40), *range(140, 145)]).to_csv(tmp_path / "gold.tsv", sep="\t", index=False)
    graded = {"label_kind": "scores", "labelled": str(tmp_path / "gold.tsv"), "score_range": (0.0, 5.0)}
    inductive = tiny_start("dvbert", **graded, exclude_test_sentences=True)
    data = read_rows(inductive, None)
    assert data.record["gold_rows"] == data.record["rows"] == len(data.training) <= 40
    assert data.record["transductive"] is False
    with pytest.raises(InputError, match="exclude_test_sentences needs to know the tests"):
        read_rows(replace(inductive, tests=()), None)


def test_bad_rows_and_rows_without_a_class_are_recorded(tiny_start, classes, tmp_path):
    (tmp_path / "more.tsv").write_text("sentence1\tsentence2\tlabel\n\tdalo\tnone\nbalo\tgelo\t-1\na\tb\tnone\n")
    more = {"more_labelled": (str(tmp_path / "more.tsv"),), "skip_bad_rows": True}
    record = read_rows(tiny_start("dvbert", **more), tmp_path).record
    assert (record["bad_rows"], record["rows_without_class"], record["gold_rows"]) == (1, 1, 97)
    assert (tmp_path / "bad-rows-2.tsv").exists()


def test_tasks_give_their_train_split(tiny_start, data_folder):
    options = {"data_dir": str(data_folder), "dev": None, "tests": ()}
    nli = read_rows(tiny_start("dvbert", labelled="snli", n_labelled=300, **options), None)
    assert nli.record["classes"] == ["entailment", "neutral", "contradiction"]
    assert set(nli.training["label"]) == {0.0, 1.0, 2.0}
    graded = read_rows(tiny_start("dvbert", labelled="stsb", label_kind="scores", **options), None)
    assert (len(graded.training), min(graded.training["label"]), max(graded.training["label"])) == (5749, 0.0, 1.0)
    with pytest.raises(InputError, match="labelled is snli, whose labels are classes"):
        read_rows(tiny_start("dvbert", labelled="snli", label_kind="scores", **options), None)
    with pytest.raises(InputError, match="stsb has scores, no classes"):
        read_rows(tiny_start("dvbert", labelled="stsb", **options), None)


def test_the_plan_names_the_teachers(tiny_start, tiny_plm):
    planned = plan(tiny_start("dvbert", teacher=(tiny_plm, tiny_plm)))
    assert "before that, teachers: 2 cross-encoders trained for 6 steps each" in str(planned)
    assert "classes: many (19), none (39), some (38)" in str(planned)
    assert "teacher" not in str(plan(tiny_start("dvbert", teacher=())))


def test_the_plan_looks_at_the_teachers(tiny_start, tiny_plm, trained):
    ready = str(Path(trained.folder) / "teachers" / "1")
    planned = plan(tiny_start("dvbert", teacher=(ready, tiny_plm)))
    assert "1 cross-encoder trained for 6 steps each, 1 cross-encoder as it was trained before" in str(planned)
    with pytest.raises(InputError, match="in this order. Give class_names"):
        plan(tiny_start("dvbert", teacher=(ready,), class_names=tuple(reversed(NAMES))))


def test_the_losses(tiny_start, tiny_bi_encoder):
    from sentence_transformers import SentenceTransformer

    student = SentenceTransformer(tiny_bi_encoder, device="cpu")
    config = replace(tiny_start("dvbert", soft_share=0.25), class_names=NAMES)
    loss = config.loss(student, Given())
    assert isinstance(loss, DualViewLoss)
    assert (loss.n_classes, loss.soft_share) == (3, 0.25)
    graded = replace(config, class_names=(), label_kind="scores").loss(student, Given())
    assert isinstance(graded, CosineLoss)
    assert graded.soft_share == 0.25


def test_the_defaults_are_the_papers():
    config = DvBERT(**FIELDS)
    assert (config.pooling, config.soft_share, config.label_kind) == ("mean", None, "classes")
    for fit in (config.fit, config.cross):
        assert fit == DvBERT.fit
        assert (fit.learning_rate, fit.batch_size, fit.epochs, fit.warmup_ratio) == (2e-5, 16, 1, 0.1)
