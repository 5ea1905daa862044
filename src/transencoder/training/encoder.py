"""Pipeline of the methods that make a base encoder: pairs made from text, a teacher's embeddings, one training."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from transencoder import encoders
from transencoder.configs.encoder import EncoderConfig, SentenceFields
from transencoder.context import Model, Rows, base_model, trained_model
from transencoder.errors import InputError, plural
from transencoder.fit import check_lora
from transencoder.records import SizeRecord
from transencoder.runs import Cost, Executor, Planner, stage_seed
from transencoder.settings import method_name
from transencoder.training import encoder_stages as stages
from transencoder.training import label_teachers, parts
from transencoder.training.data import read_text_data
from transencoder.training.lengths import Lengths
from transencoder.training.neighbours import neighbours
from transencoder.training.pipeline import BaseContext, Pipeline, placed, settings_in_words
from transencoder.training.result import Measurements
from transencoder.training.scoring import measured

SMALLER = "student"
"""Stage that makes a smaller model from the base model."""

_N_MEASURED = 256
"""Number of sentences of the training text that a student, and the model it is compared with, encode."""

EncoderContext = BaseContext[EncoderConfig]


class EncoderPipeline(Pipeline[EncoderConfig, EncoderContext]):
    """Pipeline of a run that makes a bi-encoder.

    Raises:
        InputError: A model cannot be loaded, or the method cannot use it; raised before the text is read.
    """

    def __init__(self, config: EncoderConfig) -> None:
        given, usable = placed(config)
        self.folder = folder = parts.fetched(usable, usable.start, "bi", usable.revision)
        encoders.check_length(folder, usable.fit.max_length, "fit.max_length", usable.start)
        encoders.check_length(folder, usable.test_length, "test_length", usable.start)
        if usable.fit.lora_rank:
            check_lora()
        if usable.needs_pooler:
            encoders.check_pooler(folder, usable.start)
        _check_cut(usable, folder)
        parts.check_helpers(usable, folder)
        if (labels := usable.rows.text.labels) is not None:
            label_teachers.check_teachers(usable, labels)
        self.teacher = None
        if (teacher := usable.distillation) is not None:
            self.teacher = parts.fetched(usable, teacher.model, "bi")
            encoders.check_length(self.teacher, usable.fit.max_length, "fit.max_length", teacher.model)
            if teacher.pooling == "pooler":
                encoders.check_pooler(self.teacher, teacher.model)
        if not usable.is_paired:
            parts.pair_maker(usable, folder)  # checks what it needs before the text is read
        n_parameters = encoders.count_parameters(folder, usable.student_layers)
        self.given, self.config = given.prepared(n_parameters), usable.prepared(n_parameters)
        self.recipe = self.given

    def open(self, executor: Executor, run_folder: Path | None) -> EncoderContext:
        """Read the data, and cut the model to train from the base model if the config asks for it."""
        data = read_text_data(self.config, self.config.rows.text, run_folder)
        _check_held_out(self.config, len(data.training))
        base = base_model(self.folder, pooling=self.config.pooling)
        if self.config.reads_whole_texts:
            lengths = Lengths.of(self.folder, data.training)
            self._settle(lambda config: lengths.settle(config, base.max_length, base.max_length))
            self.note_on_cuts = lengths.note_on_cuts(self.config.fit.max_length)
        classes: dict[str, Any] = {"class_names": tuple(data.record["classes"])} if "classes" in data.record else {}
        config = replace(self.config, **classes)
        context = EncoderContext(config, executor, data, base=base, max_length=config.fit.max_length)
        context.base = _cut(context, base)
        return context

    def train(self, context: EncoderContext) -> tuple[Model, dict[int, Model]]:
        """Build the pairs, the teachers' labels and the training; also return the teachers that were trained."""
        config, data = context.config, context.data
        pairs = _training_pairs(context)
        given, teacher = config.rows.text.labels, config.distillation
        labels, learned = ([], {}) if given is None else label_teachers.label(context, given, pairs)
        embeddings = None
        if teacher is not None and self.teacher is not None:
            embeddings = context.make(
                stages.TeacherEmbeddings(
                    name="teacher-embeddings",
                    pairs=pairs,
                    teacher=base_model(self.teacher, "teacher", pooling=teacher.pooling),
                    max_length=config.fit.max_length,
                    precision=config.precision,
                    relative_length=config.rows.relative_length,
                )
            )
        stage = stages.EncoderTraining(
            name="bi-encoder",
            pairs=pairs,
            embeddings=embeddings,
            teachers=tuple(labels),
            base=context.base,
            helpers=tuple(
                base_model(parts.fetch_helper(config, each))
                for each in config.helpers
                if each.form != "head"  # the head is the base model's own
            ),
            dev=data.dev,
            analysis=tuple(data.tests) if config.test_every_eval else (),
            method=method_name(type(config)),
            settings=_own_settings(config),
            fit=config.fit,
            pooling=config.pooling,
            seed=config.seed,
            precision=config.precision,
            config=config,
            teacher=self.teacher,
        )
        record = context.make(stage)
        return trained_model(record, context.base), learned

    def measure(self, context: EncoderContext, trained: tuple[Model, dict[int, Model]]) -> Measurements:
        """Score the base model and the student, and measure the student's size and speed."""
        model, teachers = trained
        fitted = model.fitted or {}
        lengths = dict.fromkeys(("start", "bi"), context.config.test_length)
        models = {"start": context.base, "bi": model}
        labels = context.config.rows.text.labels
        if labels is not None and labels.kind == "scores" and all(test.classes is None for test in context.data.tests):
            models |= {f"teacher-{number}": teacher for number, teacher in teachers.items()}
        (worth,) = measured(context, {"": models}, lengths)
        context.make(neighbours(context, context.base, model))
        sizes = _sizes(context, self.folder, self.teacher, model)
        details: dict[str, Any] = {"about": context.config.description}
        if "uniformity" in fitted:  # missing in stages of earlier versions
            details["uniformity"] = fitted["uniformity"]
        if sizes is not None:
            details["sizes"] = sizes
        return Measurements(
            cycles=[{"bi": model}],
            best={"bi": model},
            dev=worth.dev,
            scores=worth.scores,
            details=details,
            teachers=label_teachers.teachers_to_export(teachers, len(context.data.training)),
        )

    def lines(self, context: EncoderContext, planner: Planner) -> list[str]:
        """Return lines on the texts, the steps and the settings."""
        config = context.config
        (stage,) = planner.of_kind(stages.EncoderTraining)
        n_texts = plural(len(context.data.training), "pair" if config.is_paired else config.rows.text.kind[:-1])
        return [
            f"{n_texts}; train a bi-encoder {plural(stage.n_steps, 'step')} on "
            f"{plural(stage.n_trained, config.rows.name)}",
            *_teacher_lines(context, planner),
            settings_in_words(config.fit),
        ]

    def extra_cost(self, context: EncoderContext, planner: Planner) -> Cost:
        """Return the cost of the exported models, the views, the tokens and the comparison of neighbours."""
        (stage,) = planner.of_kind(stages.EncoderTraining)
        teachers = sum(each.base.n_parameters for each in planner.of_kind(label_teachers.LabelTeacher))
        n_encoders = context.config.cost(0, None).n_encoders
        weights = context.base.n_parameters * n_encoders + teachers
        disk_bytes = 4 * weights + stage.n_trained * 600 * context.config.rows.relative_length
        return neighbours(context, context.base, context.base).cost() + Cost(disk_bytes=disk_bytes)


def _cut(context: EncoderContext, base: Model) -> Model:
    """Return the base model, or the smaller model that a stage cuts from it."""
    config = context.config
    layers, is_pruned = config.student_layers, config.prune_vocabulary
    if not layers and not is_pruned:
        return base
    stage = stages.Cut(
        name=SMALLER,
        base=base,
        texts=context.data.rows if is_pruned else None,
        layers=layers,
        is_pruned=is_pruned,
    )
    record = context.make(stage)
    n_parameters = encoders.count_parameters(base.folder, layers)
    if context.is_plan:  # it has the base model's tokenizer and pooling
        return replace(base, n_parameters=n_parameters)
    return replace(base_model(record.folder / "model", pooling=config.pooling), n_parameters=n_parameters)


def _training_pairs(context: EncoderContext) -> Rows:
    """Return the rows to train on: the given pairs, pairs that a stage makes from the text, or the texts."""
    given = context.data.rows
    if "text" not in given.data.column_names:
        return given
    maker = parts.pair_maker(context.config, context.base.folder)
    if maker is None:
        return Rows(given.data.select_columns("text").rename_column("text", "sentence1"), given.key)
    seed = stage_seed(context.config.seed, "pairs")
    record = context.make(stages.Views(name="pairs", texts=given, maker=maker, seed=seed))
    if context.is_plan:
        n_rows = len(given.data) * context.config.rows.per_text
        return Rows(Dataset.from_dict({"sentence1": [""] * n_rows}), record.key)
    return Rows(Dataset.from_file(str(record.folder / stages.PAIRS)), record.key)


def _own_settings(config: EncoderConfig) -> dict[str, Any]:
    """Return the settings that only this method has, without those that the stage's key covers in other ways."""
    shared = {field.name for kind in (EncoderConfig, SentenceFields) for field in fields(kind)} | {*config.inputs}
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name not in shared}


def _sizes(context: EncoderContext, folder: Path, teacher: Path | None, trained: Model) -> SizeRecord | None:
    """Compare the student with its teacher, or with the model it was cut from; return None if there is neither."""
    if teacher is not None:
        whose, other = "teacher", teacher
    elif context.base.folder != folder:
        whose, other = "start", folder
    else:
        return None
    stage = stages.Sizes(
        name="sizes",
        student=trained,
        other=base_model(other, whose),
        texts=context.data.rows,
        sentences=min(len(context.data.training), _N_MEASURED),
        whose=whose,
    )
    return context.make(stage).result  # type: ignore[return-value]


def _teacher_lines(context: EncoderContext, planner: Planner) -> list[str]:
    """Return the plan's lines on the classes and on the cross-encoders that teach."""
    labels = context.config.rows.text.labels
    if labels is None:
        return []
    lines = []
    if labels.class_names:
        counts = Counter(context.data.training["label"][:])
        named = (f"{name} ({counts[float(number)]:,})" for number, name in enumerate(labels.class_names))
        lines.append(f"classes: {', '.join(named)}")
    learners = planner.of_kind(label_teachers.LabelTeacher)
    n_ready = len(labels.teachers) - len(learners)
    teachers = []
    if learners:
        steps = plural(learners[0].n_steps, "step")
        teachers.append(f"{plural(len(learners), 'cross-encoder')} trained for {steps} each")
    if n_ready:
        teachers.append(f"{plural(n_ready, 'cross-encoder')} as it was trained before")
    return [*lines, f"before that, teachers: {', '.join(teachers)}"] if teachers else lines


def _check_cut(config: EncoderConfig, folder: Path) -> None:
    """Raise an error if the smaller model cannot be cut from the base model."""
    if config.student_layers:
        encoders.check_layers(folder, config.student_layers)
    if config.prune_vocabulary and config.helpers:
        names = " and ".join(helper.field for helper in config.helpers)
        raise InputError(
            f"prune_vocabulary would give the student another vocabulary than its {names}, which must have the same; "
            "leave it out"
        )
    if config.prune_vocabulary:
        encoders.check_prunable(folder)


def _check_held_out(config: EncoderConfig, n_texts: int) -> None:
    """Raise an error if the queue leaves less than a batch of rows to train on."""
    n_rows, n_held_out = n_texts * config.rows.per_text, config.n_queued
    if n_held_out and n_rows - n_held_out < (config.fit.batch_size or 1):
        raise InputError(
            f"queue_size is {n_held_out}, texts on which nothing is trained, of {n_rows} rows in all, and at least a "
            f"batch, {config.fit.batch_size}, must be left to train on; give a smaller one, such as half of the rows, "
            "or more text"
        )
