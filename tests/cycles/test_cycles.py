"""The order of stages, what each starts from and learns; the fit itself is replaced where it does not matter."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer, util

from tests.rounding import model_rounding, rounding
from transencoder import BiScorer, FitConfig, Member, PretrainingConfig, train
from transencoder.context import Data, Model
from transencoder.cycles import ContextMember, CycleContext, distil
from transencoder.encoders import gives_logits, load_cross
from transencoder.errors import InputError
from transencoder.evidence import Evidence
from transencoder.fit import Fitted
from transencoder.token_scores import TokenScorer
from transencoder.training import plan

FAST = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=4, checkpoint_steps=4)


@pytest.fixture
def students(monkeypatch):
    """Fits that train nothing: each student as it was handed to `fit`, with all else; then its weights are nudged."""
    seen = []

    def fake(student, loss, training_data, dev, config, session):
        weights = {name: tensor.clone() for name, tensor in student.state_dict().items()}
        handed = {"training_data": replace(training_data, targets=np.array(training_data.targets)), "session": session}
        seen.append({"student": student, "weights": weights, "loss": loss(student)} | handed)
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.add_(0.01 * len(seen))
        return Fitted(float(len(seen)), 1, [(1, float(len(seen)))], [], 1, 0.0)

    monkeypatch.setattr("transencoder.cycles.stages.fit", fake)
    return seen


def encoder(weights):
    """The encoder's weights alone: what a bi-encoder, a cross-encoder and a plain model have in common."""
    found = {}
    for name, tensor in weights.items():
        parts = name.split(".")
        if "encoder" in parts or "embeddings" in parts:
            first = min(parts.index(part) for part in ("encoder", "embeddings") if part in parts)
            found[".".join(parts[first:])] = tensor
    assert len(found) > 30
    return found


def same_encoder(weights, others):
    weights, others = encoder(weights), encoder(others)
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)


def nudged(weights, n_th):
    return {name: tensor + 0.01 * n_th for name, tensor in weights.items()}


def of(folder):
    return load_file(Path(folder) / "model.safetensors")


def labels_of(folder, form, cycle=1):
    (path,) = Path(folder).glob(f"stages/cycle-{cycle}-labels-for-{form}-*/labels.parquet")
    table, raw = pq.read_table(path), pq.read_table(path.with_name("raw.parquet"))
    for name in raw.column_names:
        table = table.append_column(f"raw:{name}", raw[name])
    return table


def test_refreshing_starts_each_student_from_the_start(students, tiny_method, tiny_bi_encoder):
    train(tiny_method(cycles=2))
    assert [type(each["student"]) for each in students] == [CrossEncoder, SentenceTransformer] * 2
    assert all(same_encoder(each["weights"], of(tiny_bi_encoder)) for each in students)


def test_sequential_goes_on_from_the_teachers_encoder(students, tiny_method, tiny_bi_encoder):
    train(tiny_method(cycles=2, initialisation="sequential"))
    assert same_encoder(students[0]["weights"], of(tiny_bi_encoder))
    for n_th in (1, 2, 3):
        assert same_encoder(students[n_th]["weights"], nudged(students[n_th - 1]["weights"], n_th))


def test_same_form_makes_bi_encoders_of_bi_encoders(students, tiny_method, tiny_bi_encoder):
    run = train(tiny_method(cycles=2, same_form=True))
    assert [type(each["student"]) for each in students] == [SentenceTransformer] * 2
    assert all(same_encoder(each["weights"], of(tiny_bi_encoder)) for each in students)
    for cycle, teacher in ((1, "raw:start"), (2, "raw:cycle-1/bi-encoder")):
        labels = labels_of(run.folder, "bi", cycle)
        np.testing.assert_allclose(labels["label"], np.clip(labels[teacher], 0, 1), rtol=0, atol=rounding(1))
    assert list(run.result["best"]) == ["bi"] and not (run.folder / "cross-encoder").exists()
    assert "a bi-encoder learns from it" in (run.folder / "bi-encoder" / "README.md").read_text()
    with pytest.raises(InputError, match="made no cross-encoder"):
        run.cross_encoder  # noqa: B018 - the property refuses


def test_a_cross_encoder_that_regresses_its_logit_labels_with_it(tiny_method):
    run = train(tiny_method(cross_loss="mse"))
    labels = labels_of(run.folder, "bi")
    raw = np.asarray(labels["raw:cycle-1/cross-encoder"])
    np.testing.assert_allclose(labels["label"], np.clip(raw, 0, 1), rtol=0, atol=rounding(1))
    rows = list(zip(labels["sentence1"].to_pylist(), labels["sentence2"].to_pylist(), strict=True))
    np.testing.assert_allclose(
        run.cross_encoder.predict(rows), raw, rtol=0, atol=model_rounding(run.cross_encoder, raw)
    )
    assert gives_logits(run.cross_encoder), "and whoever loads it with this package knows"
    student = load_cross(run.folder / "cross-encoder", device="cpu")
    assert not gives_logits(student), "one that starts from it learns probabilities, if not told otherwise"
    assert not hasattr(student.transformers_model.config, "transencoder_score")
    assert "without a sigmoid" in (run.folder / "report.md").read_text()


def test_the_cross_encoder_may_be_tested_at_another_length(tiny_method, tmp_path):
    long = tmp_path / "long.tsv"
    same = "balo bama " * 12
    rows = [f"{same}{word}\t{same}gelo\t{i}\n" for i, word in enumerate(["gelo", "kama", "bama"])]
    long.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    shared = {"tests": (str(long),), "output": str(tmp_path / "run"), "cross": replace(FAST, max_length=16)}
    runs = [train(tiny_method(**shared, cross_test_length=length)) for length in (None, 96)]
    keys = [{stage["name"]: stage["key"] for stage in run.result["stages"]} for run in runs]
    assert {name for name in keys[0] if keys[0][name] != keys[1][name]} == {"scores/cross"}
    assert runs[0].cross_encoder.max_seq_length == 64, "as its base model"
    stages = tmp_path / "run" / "stages"
    cut, whole = (np.load(stages / f"scores-cross-{key['scores/cross'][:12]}" / "long.npy") for key in keys)
    assert np.ptp(cut) < 1e-6 < np.ptp(whole), "at 16 tokens the three pairs are the same"


def test_each_loss_makes_other_models_and_keeps_the_stages_before_it(tiny_method):
    def keys(**changes):
        return {name: stage.key for name, stage in plan(tiny_method(**changes)).stages.items()}

    usual = keys()
    for changes in ({"bi_loss": "log_cosh"}, {"bi_loss": "bce"}, {"bi_loss": "bce_clipped"}):
        other = keys(**changes)
        assert other["cycle-1/cross-encoder"] == usual["cycle-1/cross-encoder"]
        assert other["cycle-1/bi-encoder"] != usual["cycle-1/bi-encoder"]
    assert keys(cross_loss="mse")["cycle-1/cross-encoder"] != usual["cycle-1/cross-encoder"]


def test_the_cross_encoder_may_start_elsewhere(students, tiny_method, tiny_bi_encoder, tiny_plm, tmp_path):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    other = AutoModelForMaskedLM.from_pretrained(tiny_plm)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    other.save_pretrained(tmp_path / "other")
    AutoTokenizer.from_pretrained(tiny_plm).save_pretrained(tmp_path / "other")
    train(tiny_method(cycles=2, members=(Member(start=tiny_bi_encoder, cross_start=str(tmp_path / "other")),)))
    cross, bi, cross_again, _ = (each["weights"] for each in students)
    assert same_encoder(cross, of(tmp_path / "other"))
    assert same_encoder(cross_again, of(tmp_path / "other"))
    assert same_encoder(bi, of(tiny_bi_encoder))
    assert not same_encoder(cross, bi)


def test_the_cross_encoder_starts_from_what_was_pretrained_on_the_pairs(
    students, tiny_method, tiny_bi_encoder, tiny_plm, tmp_path
):
    def run(**changes):
        method = tiny_method(
            members=(Member(start=tiny_bi_encoder, cross_start=tiny_plm),),
            output=str(tmp_path / "run"),
            **{"pretraining": PretrainingConfig(epochs=2, batch_size=16)} | changes,
        )
        result = train(method).result
        assert result["pretraining"]["steps"] == result["pretraining"]["losses"][-1][0] > 0
        return {stage["name"]: stage["key"] for stage in result["stages"]}

    keys = run(cycles=2)
    assert next(iter(keys)) == "cross-start/pretraining"
    (pretrained,) = (tmp_path / "run" / "stages").glob("cross-start-pretraining-*/model")
    cross, bi, cross_again, _ = (each["weights"] for each in students)
    assert same_encoder(cross, of(pretrained)) and same_encoder(cross_again, of(pretrained))
    assert not same_encoder(cross, of(tiny_plm))
    assert same_encoder(bi, of(tiny_bi_encoder))

    same, other = "cross-start/pretraining", "cycle-1/cross-encoder"
    again = run(cross=replace(FAST, checkpoint_steps=3, eval_steps=3))
    assert again[same] == keys[same] and again[other] != keys[other]
    again = run(pretraining=PretrainingConfig(epochs=1, batch_size=16))
    assert again[same] != keys[same] and again[other] != keys[other]


def test_pretraining_that_sequential_initialisation_would_overwrite_is_refused(tiny_method):
    with pytest.raises(
        InputError, match=r"pretraining\.epochs, or a member's, is 1.*sequential.*take initialisation refreshing"
    ):
        tiny_method(pretraining=PretrainingConfig(epochs=1), initialisation="sequential")


@pytest.mark.parametrize("head", ["pooler", "linear"])
def test_heads(students, tiny_method, head):
    trained = train(tiny_method(head=head))
    names = {type(module).__name__ for module in students[0]["student"].modules()}
    assert ("Dense" in names) == (head == "linear")
    assert ("BertForSequenceClassification" in names) == (head == "pooler")
    scores = CrossEncoder(str(trained.folder / "cross-encoder")).predict([("balo", "bama"), ("balo", "balo")])
    np.testing.assert_allclose(
        scores,
        trained.cross_encoder.predict([("balo", "bama"), ("balo", "balo")]),
        rtol=0,
        atol=model_rounding(trained.cross_encoder),
    )
    assert scores.shape == (2,)


def test_a_new_head_comes_from_the_stages_seed(students, tiny_method):
    for seed in (1, 1, 2):
        train(tiny_method(seed=seed, head="linear"))
    first, second, other = (students[n_th]["weights"] for n_th in (0, 2, 4))
    heads = [name for name in first if not torch.equal(first[name], other[name])]
    assert heads
    assert all(torch.equal(first[name], second[name]) for name in first)
    seeds = [students[n_th]["session"].seed for n_th in (0, 1, 4)]
    assert seeds[0] != seeds[1] != seeds[2]


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_only_symmetric_tasks_train_the_cross_encoder_on_both_orders(students, tiny_method, is_symmetric):
    train(tiny_method(is_symmetric=is_symmetric))
    assert [each["training_data"].both_orders for each in students] == [is_symmetric, False]


def test_the_cross_encoder_learns_the_starts_clipped_cosines(students, tiny_method, tiny_bi_encoder):
    trained = train(tiny_method())
    table = labels_of(trained.folder, "cross")
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    cosines = util.pairwise_cos_sim(
        model.encode(table["sentence1"].to_pylist()), model.encode(table["sentence2"].to_pylist())
    ).numpy()
    np.testing.assert_allclose(table["raw:start"].to_numpy(), cosines, rtol=0, atol=model_rounding(model))
    assert np.array_equal(students[0]["training_data"].targets, np.clip(table["raw:start"].to_numpy(), 0, 1))


def test_the_bi_encoder_learns_the_cross_encoders_probabilities(students, tiny_method):
    trained = train(tiny_method())
    table = labels_of(trained.folder, "bi")
    assert table.column_names[3:] == ["raw:cycle-1/cross-encoder"]
    raw = table["raw:cycle-1/cross-encoder"].to_numpy()
    pairs = list(zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True))
    np.testing.assert_allclose(
        raw, trained.cross_encoder.predict(pairs), rtol=0, atol=model_rounding(trained.cross_encoder)
    )
    assert np.array_equal(students[1]["training_data"].targets, raw)


def test_the_start_may_teach_the_bi_encoder_too(students, tiny_method):
    trained = train(tiny_method(start_weight=0.25))
    table = labels_of(trained.folder, "bi")
    cross, start = (table[f"raw:{name}"].to_numpy() for name in ("cycle-1/cross-encoder", "start"))
    np.testing.assert_allclose(
        students[1]["training_data"].targets, 0.75 * cross + 0.25 * np.clip(start, 0, 1), rtol=0, atol=rounding(3)
    )
    assert "raw:start" in labels_of(trained.folder, "cross").column_names
    np.testing.assert_allclose(students[0]["training_data"].targets, np.clip(start, 0, 1), rtol=0, atol=rounding(1))


@pytest.mark.parametrize("same_form", [False, True])
def test_bi_encoders_may_label_by_their_tokens(students, tiny_method, tiny_bi_encoder, same_form):
    cosine, tokens = (
        train(tiny_method(bi_labels=each, same_form=same_form, cycles=2)) for each in ("cosine", "tokens")
    )
    form = "bi" if same_form else "cross"
    table = labels_of(tokens.folder, form)
    raw = table["raw:start"].to_numpy()
    rows = Dataset.from_dict({side: table[side].to_pylist() for side in ("sentence1", "sentence2")})
    start = SentenceTransformer(tiny_bi_encoder, device="cpu")
    scorer = TokenScorer(start, precision="fp32")
    np.testing.assert_allclose(raw, scorer.score(rows), rtol=0, atol=10 * model_rounding(start))
    assert not np.allclose(raw, labels_of(cosine.folder, form)["raw:start"].to_numpy(), atol=0.01)
    (model,) = tokens.folder.glob("stages/cycle-1-bi-encoder-*/model")
    again = labels_of(tokens.folder, form, cycle=2)["raw:cycle-1/bi-encoder"].to_numpy()
    trained = SentenceTransformer(str(model), device="cpu")
    expected = TokenScorer(trained, precision="fp32").score(rows)
    np.testing.assert_allclose(again, expected, rtol=0, atol=10 * model_rounding(trained))


def test_what_a_run_keeps_of_models_is_their_cosine_whatever_they_label_by(tiny_method, tiny_bi_encoder):
    """Was: the base model's token scores stood for it in `grade` and in the report, and in agreement with it."""
    run = train(tiny_method(bi_labels="tokens", same_form=True, cycles=2))
    sample = Evidence(run.folder, run.result).sample()
    pairs = Dataset.from_dict(dict(zip(("sentence1", "sentence2"), zip(*sample.texts, strict=True), strict=True)))
    for name, model in (("start", SentenceTransformer(tiny_bi_encoder, device="cpu")), ("bi", run.bi_encoder)):
        expected = BiScorer(model, precision="fp32").score(pairs)
        np.testing.assert_allclose(sample.scores[name], expected, rtol=0, atol=10 * model_rounding(model))


def test_raw_labels_may_leave_the_range_and_the_losses_are_told(students, tiny_method):
    trained = train(tiny_method(label_policy="raw"))
    table = labels_of(trained.folder, "cross")
    assert np.array_equal(students[0]["training_data"].targets, table["raw:start"].to_numpy())
    assert all(each["loss"].allow_outside for each in students)
    assert any("released code" in note for note in trained.result["notes"])


def test_sequential_needs_one_architecture(students, tiny_method, tiny_bi_encoder, tiny_plm, tmp_path):
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertForMaskedLM

    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=128
    )
    DistilBertForMaskedLM(config).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    member = Member(start=tiny_bi_encoder, cross_start=str(tmp_path / "other"))
    with pytest.raises(InputError, match="sequential initialisation needs starts of one architecture"):
        train(tiny_method(members=(member,), initialisation="sequential"))


@pytest.fixture
def scripted(monkeypatch):
    """A context whose models have these dev metrics, and the (form, cycle, teacher) of each that was made."""

    def make(devs, patience=None, n_members=1, alternate=False, handicap=0, chosen_by="dev"):
        made = []

        def learn(context, members, form, cycle, teachers):
            made.append((form, cycle, *(teacher.name for teacher in teachers)))
            value = devs[cycle - 1][form == "bi"]
            names = {member: f"{context.members[member].prefix}{form}-{cycle}" for member in members}
            fitted = {i: None if value is None else {"best": value - handicap * i} for i in names}
            return [
                Model(form, Path("."), name, name, cycle, fitted[i], member=i, chosen_by=chosen_by)
                for i, name in names.items()
            ]

        monkeypatch.setattr("transencoder.cycles.distillation.learn", learn)
        config = SimpleNamespace(
            patience_cycles=patience, alternate_members=alternate, same_form=False, share_labels=True
        )
        prefixes = [""] if n_members == 1 else [f"{i}/" for i in range(1, n_members + 1)]
        members = tuple(
            ContextMember(
                prefix,
                Model("bi", Path("."), prefix, f"{prefix}start", member=i),
                Model("cross", Path("."), prefix, f"{prefix}cross-start", member=i),
                Member(start="tiny"),
            )
            for i, prefix in enumerate(prefixes)
        )
        data = Data(training=None, record={}, kind="pairs", dev=None, tests=[])
        return CycleContext(config=config, executor=None, data=data, members=members, max_length=None), made

    return make


def test_each_student_is_the_next_teacher(scripted):
    context, made = scripted([(1.0, 1.0), (1.0, 1.0)])
    trained = distil(context, 2)
    assert made == [("cross", 1, "start"), ("bi", 1, "cross-1"), ("cross", 2, "bi-1"), ("bi", 2, "cross-2")]
    assert [(cross.name, bi.name) for cross, bi in trained] == [("cross-1", "bi-1"), ("cross-2", "bi-2")]


def test_several_members_learn_from_all(scripted):
    context, made = scripted([(1.0, 1.0), (1.0, 1.0)], n_members=2)
    trained = distil(context, 2)
    assert made == [
        ("cross", 1, "1/start", "2/start"),
        ("bi", 1, "1/cross-1", "2/cross-1"),
        ("cross", 2, "1/bi-1", "2/bi-1"),
        ("bi", 2, "1/cross-2", "2/cross-2"),
    ]
    assert [[bi.name for bi in cycle[2:]] for cycle in trained] == [["1/bi-1", "2/bi-1"], ["1/bi-2", "2/bi-2"]]


def test_members_in_turn_learn_from_the_one_before(scripted):
    context, made = scripted([(1.0, 1.0)] * 3, n_members=2, alternate=True)
    trained = distil(context, 3)
    assert [row[2:] for row in made] == [
        ("1/start",),
        ("1/cross-1",),
        ("1/bi-1",),
        ("2/cross-2",),
        ("2/bi-2",),
        ("1/cross-3",),
    ]
    assert [bi.name for _, bi in trained] == ["1/bi-1", "2/bi-2", "1/bi-3"]


@pytest.mark.parametrize(
    ("devs", "patience", "n_cycles"),
    [
        ([(5, 5), (5, 5), (9, 9)], 1, 2),  # equal is no improvement
        ([(5, 5), (4, 6), (4, 4), (9, 9)], 1, 3),  # one form improved
        ([(5, 5), (4, 4), (3, 3), (9, 9)], 2, 3),
        ([(5, 5), (4, 4), (6, 3), (1, 1), (2, 2), (9, 9)], 2, 5),
        ([(5, 5), (4, 4), (3, 3), (2, 2)], None, 4),
        ([(5, 5), (6, 6), (7, 7), (8, 8)], 1, 4),
        ([(-5, -5), (-1, -5), (-1, -5)], 1, 3),  # better than nothing, and than -5
    ],
)
def test_patience_stops_when_neither_form_improves(scripted, devs, patience, n_cycles):
    context, _ = scripted(devs, patience)
    assert len(distil(context, len(devs))) == n_cycles


@pytest.mark.parametrize(("chosen_by", "n_cycles"), [("uniformity", 2), (None, 3)])
def test_patience_without_dev_is_with_what_chose(scripted, chosen_by, n_cycles):
    """Where the last checkpoints are kept nothing says that they are no better."""
    context, _ = scripted([(5, 5)] * 3 if chosen_by else [(None, None)] * 3, 1, chosen_by=chosen_by)
    assert len(distil(context, 3)) == n_cycles


@pytest.mark.parametrize(("alternate", "n_cycles"), [(False, 3), (True, 2)])
def test_patience_with_several_members(scripted, alternate, n_cycles):
    """Mutual: the first and second cycle set each member's best; in turn the members are one chain."""
    devs = [(5, 5), (4, 4), (4, 4), (9, 9)] if alternate else [(5, 5), (6, 6), (6, 6), (9, 9)]
    context, _ = scripted(devs, 1, n_members=2, alternate=alternate, handicap=0 if alternate else 4)
    assert len(distil(context, 4)) == n_cycles


@pytest.mark.parametrize(("changes", "is_told"), [({}, True), ({"same_form": True}, False)])
def test_the_model_that_a_card_names_is_told_of_where_a_cross_encoder_could_start_from_it(
    changes, is_told, tiny_method, tiny_bi_encoder, tmp_path, caplog
):
    shutil.copytree(tiny_bi_encoder, tmp_path / "named")
    (tmp_path / "named" / "README.md").write_text("---\nbase_model: google-bert/bert-base-uncased\n---\n# Model\n")
    with caplog.at_level(logging.INFO, "transencoder"):
        plan(tiny_method(members=(Member(start=str(tmp_path / "named")),), **changes))
        plan(tiny_method(members=(Member(start=tiny_bi_encoder),)))
    assert caplog.text.count("--cross-start google-bert/bert-base-uncased") == is_told


@pytest.mark.parametrize(("changes", "n_warned"), [({}, 1), ({"same_form": True}, 0)])
def test_a_cross_encoder_that_few_pairs_cannot_teach_is_warned_of(
    changes, n_warned, students, tiny_method, tmp_path, caplog
):
    trained = train(tiny_method(**changes))
    assert caplog.text.count("needed some 40,000") == n_warned
    if n_warned:
        member = replace(tiny_method().members[0], cross_start=str(trained.folder / "cross-encoder"))
        train(tiny_method(members=(member,), output=str(tmp_path / "next")))
        assert caplog.text.count("needed some 40,000") == 1
