"""SCT as a method: Table 1's values, given and made views, what is refused."""

from dataclasses import replace

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.rounding import model_rounding
from transencoder import SCT, plan, train
from transencoder.configs.run import Given
from transencoder.errors import InputError
from transencoder.fit.trainers import set_dropout
from transencoder.losses import SCTLoss
from transencoder.training.encoder import EncoderPipeline
from transencoder.training.parts import make_loss

FIELDS = {"start": "x", "output": "run"}


@pytest.mark.parametrize(
    ("n_parameters", "row"),
    [
        (4.4e6, (5e-4, 131_072, 0.03, 0.04)),
        (11e6, (3e-4, 131_072, 0.01, 0.03)),
        (22.7e6, (3e-4, 65_536, 0.02, 0.03)),
        (28.8e6, (3e-4, 65_536, 0.02, 0.03)),
        (109e6, (5e-4, 65_536, 0.04, 0.05)),
        (335e6, (5e-4, 16_384, 0.04, 0.05)),
    ],
)
def test_empty_settings_are_table_1s_for_the_size(n_parameters, row):
    config = SCT(sentences="s.txt", **FIELDS).prepared(int(n_parameters))
    assert (config.fit.learning_rate, config.queue_size, config.reference_temperature, config.temperature) == row
    own = SCT(sentences="s.txt", queue_size=512, temperature=0.1, fit=replace(SCT.fit, learning_rate=1e-3), **FIELDS)
    filled = own.prepared(int(n_parameters))
    assert (filled.queue_size, filled.temperature, filled.fit.learning_rate) == (512, 0.1, 1e-3)
    assert filled.reference_temperature == row[2]
    assert (config.fit.epochs, filled.fit.epochs) == (10, 10)


def test_the_run_records_the_values_it_took(tiny_start):
    prepared = EncoderPipeline(tiny_start("sct", temperature=None))
    given, usable = prepared.given, prepared.config
    assert given.temperature == usable.temperature == 0.04  # a tiny model's nearest is BERT-Tiny
    assert given.queue_size == 40


def test_a_contrastive_run_records_no_temperature_of_references(tiny_start):
    given = EncoderPipeline(tiny_start("sct", objective="contrastive")).given
    assert (given.temperature, given.reference_temperature) == (0.04, None)


def views(path, n=40):
    path.write_text("".join(f"balo dalo {i}\tdalo kama {i}\n" for i in range(n)))
    return str(path)


def test_views_are_two_columns_of_a_file(tiny_start, tmp_path):
    run = train(tiny_start("sct", sentences=None, views=views(tmp_path / "views.tsv"), tests=()))
    assert run.result["data"]["pairs"]["rows"] == 40
    assert run.result["about"] == SCT.about
    assert [stage["name"] for stage in run.result["stages"]][0] == "bi-encoder"


def test_where_the_views_come_from_does_not_change_the_model(tiny_start, tmp_path):
    files = (views(tmp_path / name) for name in ("views.tsv", "same.tsv"))
    first, second = (plan(tiny_start("sct", sentences=None, views=file)).stages for file in files)
    assert [each.key for each in first.values()] == [each.key for each in second.values()]


def test_pairs_of_each_kind_of_view_have_a_key_of_their_own(tiny_start, tmp_path):
    words = tmp_path / "synonyms.tsv"
    words.write_text("balo\tdalo\n")
    kinds = {"span-mask": None, "word-deletion": None, "synonyms": str(words), "mlm": None}
    stages = [plan(tiny_start("sct", view_kind=kind, synonyms=file)).stages for kind, file in kinds.items()]
    assert len({each["pairs"].key for each in stages}) == len(kinds)


def test_each_switch_reaches_the_loss(tiny_start, tiny_bi_encoder):
    from sentence_transformers import SentenceTransformer

    def made(**changes) -> SCTLoss:
        settings = {"queue_size": 32, "temperature": 0.2, "reference_temperature": 0.1, "momentum": None}
        config = tiny_start("sct", **settings | changes)
        return make_loss(config, SentenceTransformer(tiny_bi_encoder, device="cpu"), Given())

    usual = made()
    assert (usual.own.comparison, usual.own.objective, len(usual.own.queues)) == ("cross", "distribution", 2)
    assert (usual.own.temperature, usual.own.reference_temperature, usual.follower) == (0.2, 0.1, None)
    assert usual.own.queues[0].rows.shape == (32 + 16, 32)
    assert [each.out_features for each in usual.projector if hasattr(each, "out_features")] == [320, 32] * 3
    assert made(comparison="identical").own.comparison == "identical"
    found = made(objective="contrastive", reference_temperature=None).own
    assert (found.objective, found.reference_temperature) == ("contrastive", None)
    assert len(made(one_queue=True).own.queues) == 1
    assert not made(queue_size=0).own.queues
    random = made(renew_queues=False).own
    assert not random.renew and random.queues[0].rows.shape == (32, 32)
    assert isinstance(made(projector=False).projector, torch.nn.Identity)
    assert made(expansion=2).projector[0].out_features == 64
    assert made(momentum=0.5).momentum == 0.5


def test_a_teachers_embeddings_of_both_views_are_the_labels(tiny_start, wide_teacher, tmp_path, monkeypatch):
    from sentence_transformers import SentenceTransformer

    seen, forward = [], SCTLoss.forward

    def watch(self, features, labels=None):
        features = list(features)
        seen.append(([each["input_ids"] for each in features], labels))
        return forward(self, features, labels)

    monkeypatch.setattr(SCTLoss, "forward", watch)
    config = tiny_start(
        "sct", sentences=None, views=views(tmp_path / "v.tsv"), teacher=wide_teacher, tests=(), dev=None
    )
    run = train(config)
    teacher = SentenceTransformer(wide_teacher, device="cpu")
    for ids, labels in seen:
        texts = [teacher.tokenizer.batch_decode(side, skip_special_tokens=True) for side in ids]
        expected = torch.stack([torch.from_numpy(teacher.encode(side)) for side in texts], dim=1)
        torch.testing.assert_close(labels, expected, rtol=0, atol=model_rounding(teacher, expected))
    assert seen[0][1].shape == (16, 2, 48)
    assert run.bi_encoder.get_embedding_dimension() == 32


def test_another_student_takes_the_teachers_embeddings_over(tiny_start, wide_teacher, tmp_path):
    source = {"sentences": None, "views": views(tmp_path / "v.tsv"), "teacher": wide_teacher, "tests": (), "dev": None}
    first = train(tiny_start("sct", **source))
    borrowing = tiny_start("sct", **source, seed=7, own_loss=False, momentum=None, reuse_from=(str(first.folder),))
    second = train(borrowing)
    stages = {stage["name"]: stage["reused"] for stage in second.result["stages"]}
    assert stages == {"teacher-embeddings": True, "texts": True} | dict.fromkeys(
        ("bi-encoder", "neighbours", "sizes"), False
    )
    train(replace(borrowing, reuse_from=()))  # the same recipe: its result does not make room for another one
    assert not (second.folder / "previous").exists()


def test_what_views_need_is_looked_for_before_the_text_is_read(tiny_start):
    for kind in ("mlm", "synonyms"):
        with pytest.raises(InputError, match="/nowhere/helper"):
            train(tiny_start("sct", sentences="/nowhere/text.txt", view_kind=kind, **{kind: "/nowhere/helper"}))


@pytest.mark.parametrize(("settings", "n_rows"), [({}, 3 + 16), ({"one_queue": True}, 3 + 32)])
def test_batches_stand_beside_a_queue_that_may_be_smaller(tiny_start, monkeypatch, settings, n_rows):
    seen = []
    forward = SCTLoss.forward

    def watch(self, *given):
        seen.append([len(queue.rows) for queue in self.own.queues])
        return forward(self, *given)

    monkeypatch.setattr(SCTLoss, "forward", watch)
    train(tiny_start("sct", queue_size=3, tests=(), dev=None, **settings))
    assert seen[0] == [n_rows] * (1 if settings else 2)


def test_reports_say_whose_similarities_are_learned():
    own, both, alone = (
        SCT(**FIELDS, views="v.tsv", **more).description
        for more in ({}, {"teacher": "t"}, {"teacher": "t", "own_loss": False})
    )
    assert own == SCT.about
    summed = SCT(**FIELDS, views="v.tsv", teacher="t", teacher_loss="ckd").description
    assert summed == f"{SCT.about} Beside it the encoder learns from its teacher as ckd does."
    assert both.endswith("for the encoder itself and for its teacher.")
    assert alone.endswith("(SCT's distillation).")


def test_a_teacher_that_cannot_be_had_is_refused_before_the_text_is_read(tiny_start):
    with pytest.raises(InputError, match="/nowhere/teacher"):
        train(tiny_start("sct", sentences="/nowhere/text.txt", teacher="/nowhere/teacher"))


@pytest.mark.parametrize("teacher_loss", ["embedding-mse", "congen", "ckd"])
def test_another_methods_loss_may_be_added(tiny_start, tiny_bi_encoder, weights, teacher_loss):
    """Table 7's sums: each trains another model than equation 3, and its queue holds a batch more than it keeps."""
    common = {"teacher": tiny_bi_encoder, "dev": None, "tests": ()}
    summed = train(tiny_start("sct", **common, teacher_loss=teacher_loss))
    assert weights(summed.folder) != weights(train(tiny_start("sct", **common)).folder)
    config = tiny_start("sct", **common, teacher_loss=teacher_loss).prepared(1000)
    loss = config.loss(SentenceTransformer(tiny_bi_encoder, device="cpu"), Given(dimension=48))
    sizes = {"embedding-mse": None, "congen": (40 + 16, 48), "ckd": (40 + 32, 48)}
    assert (None if teacher_loss == "embedding-mse" else loss.teacher.queue.rows.shape) == sizes[teacher_loss]
    if teacher_loss == "ckd":
        assert loss.teacher.queue.n_filled == 0 and loss.teacher.log_scale.requires_grad


def test_a_teacher_alone_needs_no_dropout(tiny_start, tiny_bi_encoder):
    settings = {"queue_size": 32, "temperature": 0.2, "reference_temperature": 0.1, "momentum": None}
    dry = SentenceTransformer(tiny_bi_encoder, device="cpu")
    set_dropout(dry, 0.0)
    with pytest.raises(InputError, match="has no dropout"):
        make_loss(tiny_start("sct", **settings, teacher="t"), dry, Given(dimension=48))
    config = tiny_start(
        "sct", **settings, teacher="t", own_loss=False, fit=replace(SCT.fit, dropout=0.0, batch_size=16)
    )
    loss = make_loss(config, dry, Given(dimension=48))
    assert loss.own is None
    assert loss.teacher.queues[0].rows.shape == (32 + 16, 48)
    assert loss.teacher_projector[-1].out_features == 48
    plain = tiny_start("sct", **settings, teacher="t", projector=False)
    loss = make_loss(plain, SentenceTransformer(tiny_bi_encoder, device="cpu"), Given(dimension=48))
    assert isinstance(loss.teacher_projector, torch.nn.Linear)
    assert isinstance(loss.projector, torch.nn.Identity)


@pytest.mark.parametrize(
    ("n_parameters", "row"),
    [
        (4.4e6, (5e-4, 131_072, 0.03, 0.04)),
        (11e6, (1e-4, 65_536, 0.04, 0.05)),
        (29e6, (1e-4, 131_072, 0.04, 0.05)),
        (109e6, (1e-4, 65_536, 0.04, 0.05)),
    ],
)
def test_the_second_step_has_the_released_settings(n_parameters, row):
    second = {"sentences": "s.txt", "teacher": "t", "two_step": True, **FIELDS}
    config = SCT(**second).prepared(int(n_parameters))
    assert (config.fit.learning_rate, config.queue_size, config.reference_temperature, config.temperature) == row
    assert config.fit.epochs == 20
    assert SCT(**second, fit=replace(SCT.fit, epochs=3)).prepared(int(n_parameters)).fit.epochs == 3


def test_a_student_of_the_second_step_is_as_wide_as_its_teacher(tiny_start, wide_teacher, tmp_path):
    source = {"sentences": None, "views": views(tmp_path / "v.tsv"), "tests": (), "dev": None, "momentum": None}
    run = train(tiny_start("sct", **source, teacher=wide_teacher, two_step=True))
    assert [type(module).__name__ for module in run.bi_encoder] == ["Transformer", "Pooling", "Dense"]
    assert run.bi_encoder.get_embedding_dimension() == 48
    assert run.bi_encoder.encode("balo").max() < 1  # tanh
    assert run.result["about"].endswith("(SCT's distillation).")


@pytest.mark.parametrize("projector", [True, False])
def test_the_second_step_has_no_mlps_and_no_loss_of_its_own(projector, tiny_start, tiny_bi_encoder):
    config = tiny_start("sct", teacher="t", two_step=True, projector=projector, momentum=None)
    prepared = config.prepared(1000)
    assert not prepared.projector and not prepared.own_loss
    for each in (replace(config, queue_size=32, temperature=0.2, reference_temperature=0.1), prepared):
        loss = make_loss(each, SentenceTransformer(tiny_bi_encoder, device="cpu"), Given(dimension=32))
        assert loss.own is None
        assert isinstance(loss.teacher_projector, torch.nn.Identity)
