"""What the run of a starting encoder needs before it begins, and what it will do and cost."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer

from transencoder.encoders import (
    check_layers,
    check_length,
    check_prunable,
    count_parameters,
    fetch,
    load_bi,
)
from transencoder.errors import InputError
from transencoder.fit import check_lora, steps_in_all
from transencoder.methods.data import read_start_data
from transencoder.methods.dvbert import DvBERT
from transencoder.methods.placement import placed
from transencoder.methods.planning import operations_a_second, settings_in_words, training_operations
from transencoder.methods.start import StartMethod
from transencoder.methods.supervision import learned_teachers
from transencoder.progress import duration
from transencoder.records import DataRecord
from transencoder.runs import warn_of_absent
from transencoder.wording import plural


@dataclass(frozen=True)
class Supervision:
    """Labels, and cross-encoders that teach (DvBERT); of other methods empty."""

    classes: tuple[tuple[str, int], ...] = ()
    """Their names, and how many pairs are of each."""
    n_ready: int = 0
    """Teachers that are taken as they are."""
    n_learners: int = 0
    """Teachers that learn the labels first."""
    steps: int = 0
    """Of each of these."""
    n_parameters: int = 0
    """Of all teachers."""
    operations: float = 0.0
    """Their training, and what they say of the pairs."""

    def lines(self) -> list[str]:
        """As a person reads it."""
        lines = []
        if self.classes:
            lines.append(f"classes: {', '.join(f'{name} ({n:,})' for name, n in self.classes)}")
        teachers = []
        if self.n_learners:
            teachers.append(f"{plural(self.n_learners, 'cross-encoder')} trained for {plural(self.steps, 'step')} each")
        if self.n_ready:
            teachers.append(f"{plural(self.n_ready, 'cross-encoder')} as it was trained before")
        return [*lines, f"before that, teachers: {', '.join(teachers)}"] if teachers else lines


@dataclass(frozen=True)
class StartPlan:
    """What a run would do, and about what it would cost."""

    config: StartMethod
    n_texts: int
    """Sentences or documents, or pairs that were given."""
    n_pairs: int
    """Pairs to train on."""
    steps: int
    seconds: float
    """Rough estimate: training and dev, by floating-point operations at the speed of two cores or one GPU."""
    disk_bytes: int
    """Two models, two checkpoints, which lie side by side for a moment, views, tokens, a teacher's embeddings; as many
    models and checkpoints of each teacher that may learn labels first."""
    supervision: Supervision
    """What there is of labels and of cross-encoders that teach."""

    def __str__(self) -> str:
        """The plan as a person reads it."""
        config = self.config
        return "\n".join(
            [
                f"{plural(self.n_texts, 'pair' if config.is_paired else config.text[0][:-1])}; train a "
                f"bi-encoder {plural(self.steps, 'step')} on {plural(self.n_pairs, config.row_name)}",
                *self.supervision.lines(),
                settings_in_words(config.fit),
                f"about {duration(self.seconds)} on {config.device} ({config.precision}; a rough estimate), "
                f"{self.disk_bytes / 1e9:.1f} GB of disk in {config.output}",
            ]
        )


def plan_start(config: StartMethod) -> StartPlan:
    """What a run would do with this config: reads the data and the model's size, trains nothing."""
    _, config, folder = prepare_start(config)
    warn_of_absent(config.reuse_from)
    data, fit = read_start_data(config, None), config.fit
    n_rows = check_held_out(config, len(data.training))
    n_pairs = n_rows - (config.n_held_out if config.taught_by else 0)
    n_parameters = config.n_parameters(folder)
    steps = steps_in_all(n_pairs, fit, both_orders=False)
    n_evaluations = steps // fit.eval_steps + (fit.epochs or 1)
    n_scored = n_evaluations * len(data.dev.pairs) if data.dev else 0
    n_trained = round(steps * (fit.batch_size or 1) * config.relative_length)
    width, teachers_width, operations = _width(folder), None, 0.0
    if config.taught_by is not None:
        teacher = _fetch_teacher(config)
        teachers_width, operations = (
            _width(teacher),
            training_operations(count_parameters(teacher), 0, n_rows) * config.relative_length,
        )
    supervision = _supervision(config, data.training, data.record, n_pairs)
    operations += supervision.operations
    operations += training_operations(n_parameters, n_trained, n_scored) * config.relative_cost
    operations += steps * (fit.batch_size or 1) * config.loss_operations(width, teachers_width)
    weights = n_parameters * config.n_encoders + supervision.n_parameters
    checkpoint = 4 * weights + config.loss_state(width, teachers_width)
    embeddings = 2 * n_rows * config.relative_length * (teachers_width or 0)  # of a row's two texts, or of its one
    disk = 4 * (2 * weights + 2 * checkpoint + embeddings) + n_pairs * 600 * config.relative_length
    seconds = operations / operations_a_second(config)
    return StartPlan(config, len(data.training), n_pairs, steps, seconds, round(disk), supervision)


def _supervision(config: StartMethod, training: Dataset, record: DataRecord, n_pairs: int) -> Supervision:
    if not isinstance(config, DvBERT):
        return Supervision()
    config = config.informed(record.get("classes", []))
    counts, learned = Counter(training["label"]), learned_teachers(config)
    steps, batch_size = steps_in_all(n_pairs, config.cross, both_orders=False), config.cross.batch_size or 1
    folders = [fetch(name, form="cross", token=config.token, cache_folder=config.cache_dir) for name in config.teacher]
    sizes = [count_parameters(folder) for folder in folders]
    return Supervision(
        classes=tuple((name, counts[float(number)]) for number, name in enumerate(config.class_names)),
        n_ready=learned.count(True),
        n_learners=learned.count(False),
        steps=steps,
        n_parameters=sum(sizes),
        operations=sum(
            training_operations(size, 0 if is_ready else steps * batch_size, n_pairs)
            for size, is_ready in zip(sizes, learned, strict=True)
        ),
    )


def prepare_start(config: StartMethod) -> tuple[StartMethod, StartMethod, Path]:
    """The config with every default written out, the same with its variables expanded, and the start's folder.

    Raises:
        InputError: A model that cannot be had or that the method cannot use, found before the text is read.
    """
    given, usable = placed(config)
    folder = fetch(usable.start, form="bi", revision=usable.revision, token=usable.token, cache_folder=usable.cache_dir)
    check_length(folder, usable.fit.max_length, "fit.max_length", usable.start)
    if usable.fit.lora_rank:
        check_lora()
    _check_student(usable, folder)
    for helper in usable.helpers:
        if _vocabulary(usable.fetch_helper(helper)) != _vocabulary(folder):
            raise InputError(
                f"{helper} {getattr(usable, helper)} has another vocabulary than the start {usable.start}; give one "
                "that was made from the same pretrained model"
            )
    if isinstance(usable, DvBERT):
        _check_teachers(usable)
    if usable.taught_by is not None:
        check_length(_fetch_teacher(usable), usable.fit.max_length, "fit.max_length", usable.taught_by)
    usable.check_start(folder)
    return given.filled(folder), usable.filled(folder), folder


def _check_teachers(config: DvBERT) -> None:
    """Refuse cross-encoders that cannot be had or that do not read so many tokens."""
    for name in config.teacher:
        folder = fetch(name, form="cross", token=config.token, cache_folder=config.cache_dir)
        check_length(folder, config.cross.max_length, "cross.max_length", name)
    if config.teacher and config.cross.lora_rank:
        check_lora()


def _check_student(config: StartMethod, folder: Path) -> None:
    """Refuse a smaller model that cannot be made of the start."""
    if config.student_layers:
        check_layers(folder, config.student_layers)
    if config.prune_vocabulary and config.helpers:
        raise InputError(
            f"prune_vocabulary would give the student another vocabulary than its {' and '.join(config.helpers)}, "
            "which must have the same; leave it out"
        )
    if config.prune_vocabulary:
        check_prunable(folder)


def check_held_out(config: StartMethod, n_texts: int) -> int:
    """Refuse a queue that leaves too little to train on.

    Args:
        config: Filled.
        n_texts: Rows of text.

    Returns:
        Rows that are made of them.

    Raises:
        InputError: Less than a batch of rows is left.
    """
    n_rows = n_texts * (1 if config.is_paired else config.rows_per_text)
    n_held_out = config.n_held_out if config.taught_by else 0
    if n_held_out and n_rows - n_held_out < (config.fit.batch_size or 1):
        raise InputError(
            f"queue_size is {n_held_out}, texts on which nothing is trained, of {n_rows} rows in all, and at least a "
            f"batch, {config.fit.batch_size}, must be left to train on; give a smaller one, such as half of the rows, "
            "or more text"
        )
    return n_rows


def _fetch_teacher(config: StartMethod) -> Path:
    assert config.taught_by is not None
    return fetch(config.taught_by, form="bi", token=config.token, cache_folder=config.cache_dir)


def _width(folder: Path) -> int:
    return load_bi(folder, device="cpu").get_embedding_dimension() or 0


def _vocabulary(folder: Path) -> dict[str, int]:
    vocabulary: dict[str, int] = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).get_vocab()
    return vocabulary
