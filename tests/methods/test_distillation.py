"""ConGen, CKD and mean squared error as methods: settings by size, projections, what fills a queue, what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MSELoss

from transencoder import CKD, ConGen, context, train
from transencoder.configs.encoder import training_projector
from transencoder.configs.run import Given
from transencoder.encoders import count_parameters, truncate
from transencoder.errors import InputError
from transencoder.fit import Session
from transencoder.fit.trainers import trainer_arguments
from transencoder.losses import CKDLoss, ConGenLoss
from transencoder.training import encoder, encoder_stages, plan
from transencoder.training.encoder import EncoderPipeline

FIELDS = {"start": "x", "output": "run", "teacher": "t"}


@pytest.mark.parametrize(
    ("n_parameters", "row"),
    [
        (4.4e6, (5e-4, 16_384, 0.05, 0.05)),
        (11e6, (3e-4, 16_384, 0.07, 0.05)),
        (22.7e6, (3e-4, 65_536, 0.07, 0.05)),
        (109e6, (5e-5, 65_536, 0.07, 0.05)),
    ],
)
def test_congens_empty_settings_are_the_released_ones_for_the_size(n_parameters, row):
    config = ConGen(sentences="s.txt", **FIELDS).prepared(int(n_parameters))
    assert (config.fit.learning_rate, config.queue_size, config.temperature, config.teacher_temperature) == row
    own = ConGen(sentences="s.txt", queue_size=512, temperature=0.1, **FIELDS).prepared(int(n_parameters))
    assert own.distillation.n_queued == 512


def test_ckd_begins_as_the_released_code(bi):
    """An empty queue, no weight decay, and a second beta of 0.98."""
    config = CKD(sentences="s.txt", queue_size=8, **FIELDS)
    queue = config.loss(bi, Given(dimension=bi.get_embedding_dimension())).queue
    assert queue.n_filled.item() == 0
    assert len(queue.rows) == 8 + 512, "the batch stands beside the queue"
    assert (config.fit.weight_decay, config.fit.adam_beta2) == (0.0, 0.98)


def test_nothing_is_trained_on_what_fills_the_queue(tiny_start, monkeypatch, wide_teacher):
    """The queue is at first the teacher's embeddings of rows of their own."""
    made, seen, forward, init = [], set(), ConGenLoss.forward, ConGenLoss.__init__

    def watch_start(self, model, queue, *args):
        made.append(queue.rows[:20].clone())
        assert len(queue.rows) == 20 + 16, "the batch stands behind them"
        init(self, model, queue, *args)

    def watch(self, features, labels):
        features = list(features)
        seen.update(self.model.tokenizer.batch_decode(features[0]["input_ids"], skip_special_tokens=True))
        return forward(self, features, labels)

    monkeypatch.setattr(ConGenLoss, "__init__", watch_start)
    monkeypatch.setattr(ConGenLoss, "forward", watch)
    config = tiny_start("congen", teacher=wide_teacher, dev=None, tests=())
    train(config)
    texts = Path(config.sentences).read_text().splitlines()
    teacher = SentenceTransformer(wide_teacher, device="cpu")
    teacher.max_seq_length = 16
    read = teacher.tokenizer.batch_decode(teacher.preprocess(texts)["input_ids"], skip_special_tokens=True)
    assert len(seen) == len(texts) - 20
    kept = [text for text, ids in zip(texts, read, strict=True) if ids not in seen]
    expected = teacher.encode(kept, normalize_embeddings=True)
    nearest = torch.from_numpy(expected) @ made[0].T
    assert len(made[0]) == len(kept) == 20
    assert (nearest.amax(1) > 0.9999).all() and (nearest.amax(0) > 0.9999).all()


@pytest.mark.parametrize("method", ["congen", "ckd", "embedding-mse"])
def test_a_kept_projection_is_saved_and_another_is_not(tiny_start, wide_teacher, method):
    common = {"teacher": wide_teacher, "dev": None, "tests": ()}
    kept = train(tiny_start(method, **common, projection="kept")).bi_encoder
    dense = kept[-1]
    assert (dense.in_features, dense.out_features) == (32, 48)
    assert isinstance(dense.activation_function, torch.nn.Tanh) == (method == "congen")
    if method == "ckd":
        other = train(tiny_start(method, **common, projection="auto")).bi_encoder
        assert other[-1].config_keys != dense.config_keys


@pytest.mark.parametrize("method", ["congen", "ckd", "embedding-mse"])
def test_a_student_as_wide_as_its_teacher_needs_no_projection(tiny_start, tiny_bi_encoder, method):
    student = SentenceTransformer(tiny_bi_encoder, device="cpu")
    config = tiny_start(method, projection="auto")
    assert training_projector(config.distillation, student, Given(dimension=32)) is None
    projector = training_projector(config.distillation, student, Given(dimension=48))
    linear = next(module for module in projector.modules() if isinstance(module, torch.nn.Linear))
    assert linear.weight.shape == (48, 32)
    always = replace(config, projection="training").distillation
    assert training_projector(always, student, Given(dimension=32)) is not None


@pytest.mark.parametrize(("method", "loss"), [("ckd", CKDLoss), ("embedding-mse", MSELoss)])
def test_each_sentence_is_read_once_and_a_row_of_views_as_two(tiny_start, monkeypatch, tmp_path, method, loss):
    shapes, forward = [], loss.forward

    def watch(self, features, labels):
        features = list(features)
        shapes.append((len(features), tuple(labels.shape)))
        return forward(self, features, labels)

    monkeypatch.setattr(loss, "forward", watch)
    train(tiny_start(method, dev=None, tests=()))
    assert set(shapes) == {(1, (16, 32))}
    shapes.clear()
    path = tmp_path / "views.tsv"
    path.write_text("a\tb\n" + "".join(f"balo dalo {i}\tdalo kama {i}\n" for i in range(32)))
    train(tiny_start(method, sentences=str(path), columns=("a", "b"), dev=None, tests=()))
    assert set(shapes) == {(2, (16, 2, 32))}


def test_a_queue_leaves_something_to_train_on(tiny_start):
    for method in ("congen", "ckd"):
        with pytest.raises(InputError, match="queue_size is 0; it must be at least 1"):
            tiny_start(method, queue_size=0)
    for run in (lambda config: plan(config), train):
        with pytest.raises(InputError, match="queue_size is 81, .* of 96 rows .* a batch, 16, must be left"):
            run(tiny_start("congen", queue_size=81))
    plan(tiny_start("congen", queue_size=80))


def test_the_plan_counts_teacher_and_queue(tiny_start, monkeypatch):
    small, large = (plan(tiny_start("ckd", queue_size=size)).seconds for size in (16, 160_000))
    assert large > 2 * small
    whole = plan(tiny_start("embedding-mse"))
    monkeypatch.setattr(context, "count_parameters", lambda _: 10**9)  # of the teacher, and of the base model
    assert plan(tiny_start("embedding-mse")).seconds > 10 * whole.seconds
    assert "96 sentences" in str(whole)


@pytest.mark.parametrize(
    ("method", "changes", "n_vectors"),
    [("ckd", {}, 1), ("congen", {}, 1), ("sct", {}, 2), ("sct", {"one_queue": True}, 1), ("sct-distilled", {}, 4)],
)
def test_the_plan_counts_queues_in_two_checkpoints(tiny_start, method, changes, n_vectors):
    small, large = (plan(tiny_start(method, queue_size=size, **changes)).disk_bytes for size in (40, 41))
    fewer_rows = 600 if method == "congen" else 0  # one more of them fills the queue
    assert large - small == 2 * n_vectors * 32 * 4 - fewer_rows


def test_the_plan_counts_mlps_with_their_moments_and_the_teachers_embeddings(tiny_start, wide_teacher):
    queues = {"queue_size": 0, "momentum": None}
    own, taught = (plan(tiny_start("sct", **queues, **more)).disk_bytes for more in ({}, {"teacher": wide_teacher}))
    mlps = 10 * 32 * (5 * 32 + 48)
    assert taught - own == 4 * (2 * 3 * mlps + 2 * 96 * 48)
    bare = plan(tiny_start("sct", **queues, projector=False)).disk_bytes
    assert own - bare == 4 * 2 * 3 * 10 * 32 * 6 * 32


def test_the_plan_names_folders_that_nothing_can_be_taken_from(tiny_start, caplog, tmp_path):
    plan(tiny_start("embedding-mse", reuse_from=(str(tmp_path / "absent"),)))
    assert f"{tmp_path / 'absent'} is no run folder: no stage is taken from it" in caplog.messages


def test_reports_say_what_is_learned(tiny_start):
    trained = train(tiny_start("ckd", dev=None, tests=()))
    assert trained.result["about"] == CKD.about
    assert CKD.about in (trained.folder / "bi-encoder" / "README.md").read_text()


def test_the_rate_of_ckd_falls_along_a_cosine(tmp_path):
    from sentence_transformers import SentenceTransformerTrainingArguments

    arguments = trainer_arguments(
        SentenceTransformerTrainingArguments,
        replace(CKD.fit, dropout=0.1, lora_rank=None),
        Session(folder=tmp_path, seed=1, precision="fp32"),
        device="cpu",
        has_dev=False,
        logging_steps=1,
    )
    assert arguments.lr_scheduler_type == "cosine"


def test_a_student_of_some_layers_and_words_is_made_in_the_run(tiny_start, tiny_bi_encoder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"balo dalo {i}\n" for i in range(20)))
    small = {"start": tiny_bi_encoder, "student_layers": (1,), "prune_vocabulary": True}
    config = tiny_start("embedding-mse", sentences=str(texts), **small)
    trained = train(config)
    model, start = trained.bi_encoder, SentenceTransformer(tiny_bi_encoder, device="cpu")
    assert model.transformers_model.config.num_hidden_layers == 1
    assert len(model.tokenizer) < len(start.tokenizer)
    names = [stage["name"] for stage in trained.result["stages"]]
    assert names[0] == "student"
    again = train(replace(config, output=config.output + "-2", reuse_from=(str(trained.folder),)))
    assert all(stage["reused"] for stage in again.result["stages"])


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("congen", {"prune_vocabulary": True, "view_kind": "mlm"}, "view_kind mlm writes others"),
        ("ckd", {"student_layers": (0, 2)}, "layers are 0, 2; .* has layers 0 to 1"),
        ("ckd", {"student_layers": (1, 0)}, "layers are 1, 0; .* in rising order"),
        ("diffcse", {"prune_vocabulary": True}, "another vocabulary than its generator"),
        ("declutr", {"prune_vocabulary": True}, "the head that guesses masked words"),
    ],
)
def test_a_student_that_cannot_be_made_is_refused_before_the_text_is_read(
    tiny_start, method, changes, message, tmp_path
):
    output = tmp_path / "run"
    with pytest.raises(InputError, match=message):
        train(tiny_start(method, output=str(output), **changes))
    assert not output.exists()


def test_settings_by_size_are_those_of_the_smaller_student(tiny_start, monkeypatch):
    """Of BERT-Base's twelve layers, one leaves a model that is nearest to BERT-Small."""
    monkeypatch.setattr(encoder.encoders, "count_parameters", lambda _, layers: 31_000_000 if layers else 110_000_000)
    fit = replace(ConGen.fit, batch_size=16, max_length=16)
    whole, part = (EncoderPipeline(tiny_start("congen", fit=fit, student_layers=layers)).given for layers in ((), (0,)))
    assert (whole.fit.learning_rate, part.fit.learning_rate) == (5e-5, 3e-4)


def test_parameters_of_chosen_layers_are_those_of_the_cut_model(tiny_bi_encoder, tmp_path):
    truncate(Path(tiny_bi_encoder), [1], tmp_path / "cut")
    assert count_parameters(Path(tiny_bi_encoder), (1,)) == count_parameters(tmp_path / "cut")


def test_an_interrupted_cut_is_made_again(tiny_start, tiny_bi_encoder, monkeypatch):
    """Was: what the first attempt left stood in the way of every later one."""
    small = {"start": tiny_bi_encoder, "student_layers": (1,), "prune_vocabulary": True, "dev": None, "tests": ()}
    config = tiny_start("embedding-mse", **small)

    def stop(*_):
        raise KeyboardInterrupt

    prune = encoder_stages.prune_vocabulary
    monkeypatch.setattr(encoder_stages, "prune_vocabulary", stop)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    assert list(Path(config.output).glob("stages/student-*/truncated"))
    monkeypatch.setattr(encoder_stages, "prune_vocabulary", lambda *args: (prune(*args), stop()))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.setattr(encoder_stages, "prune_vocabulary", prune)
    assert train(config).bi_encoder.transformers_model.config.num_hidden_layers == 1
    assert not list(Path(config.output).glob("stages/student-*/truncated"))


def test_card_and_report_say_how_large_and_fast_a_student_is(tiny_start, tiny_bi_encoder):
    config = tiny_start("embedding-mse", start=tiny_bi_encoder, student_layers=(0,), dev=None, tests=())
    trained = train(config)
    sizes = trained.result["sizes"]
    for whose, folder in (("student", trained.folder / "bi-encoder"), ("other", Path(tiny_bi_encoder))):
        weights = sum(value.numel() for value in load_file(folder / "model.safetensors").values())
        assert sizes[whose]["parameters"] == weights
        assert sizes[whose]["megabytes"] == pytest.approx(4 * weights / 1e6, rel=0.1)
        assert sizes[whose]["sentences_a_second"] > 0
    row = f"| parameters | {sizes['other']['parameters']:,} | {sizes['student']['parameters']:,} | x 0."
    for text in (trained.folder / "report.md", trained.folder / "bi-encoder" / "README.md"):
        assert "| teacher | student |" in text.read_text()
        assert row in text.read_text()


def test_without_a_teacher_a_student_stands_beside_the_start_it_was_cut_from(tiny_start):
    assert "sizes" not in train(tiny_start("simcse", dev=None, tests=())).result
    cut = train(tiny_start("simcse", student_layers=(0,), dev=None, tests=()))
    assert cut.result["sizes"]["whose"] == "start"
    assert cut.result["sizes"]["student"]["parameters"] < cut.result["sizes"]["other"]["parameters"]
