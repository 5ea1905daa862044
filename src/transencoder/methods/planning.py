"""What a Trans-Encoder run needs before it starts, and what it will do and cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset

from transencoder.config import FitConfig, Form, Member
from transencoder.encoders import check_length, count_parameters, fetch
from transencoder.errors import InputError
from transencoder.fit import check_lora, steps_in_all
from transencoder.methods.data import Data, read_data
from transencoder.methods.defaults import fill
from transencoder.methods.method import Method
from transencoder.methods.placement import placed
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.mining import default_n_pairs
from transencoder.progress import duration
from transencoder.prompts import warn_of_unused_prompts
from transencoder.runs import warn_of_absent
from transencoder.wording import plural

_PAIR_TOKENS = 32
"""Tokens of a pair, about; half of a small model's parameters are its vocabulary's."""

_SENTENCE_BYTES = 2000
"""Of a sentence that pairs are mined from, while they are: its embedding and tokens."""


@dataclass(frozen=True)
class Plan:
    """What a run would do, and about what it would cost."""

    config: TransEncoder
    n_pairs: int
    n_sentences: int
    """That the pairs are mined from; 0: they are given."""
    n_documents: int
    """That these are paired with; 0: with each other."""
    pretraining_steps: int
    """Steps of masked language modelling, once, before the cycles."""
    cross_steps: int
    """Steps of one cycle's cross-encoder."""
    bi_steps: int
    """Steps of one cycle's bi-encoder."""
    seconds: float
    """Rough estimate: labels, training and dev, by floating-point operations at the speed of two cores or one GPU."""
    disk_bytes: int
    """Models of every cycle, one checkpoint, labels and tokens."""

    def __str__(self) -> str:
        """The plan as a person reads it."""
        config = self.config
        cross, bi = plural(self.cross_steps, "step"), plural(self.bi_steps, "step")
        each = "" if len(config.members) == 1 else f" and each of {len(config.members)} members"
        if config.alternate_members:
            each = f", by one of {len(config.members)} members in turn"
        to_cross = [] if config.same_form else [f"label, train a cross-encoder {cross}"]
        lines = [
            f"{plural(self.n_pairs, 'pair')}; {plural(config.cycles or 1, 'cycle')}; each cycle{each}: "
            + ", ".join([*to_cross, f"label, train a bi-encoder {bi}"]),
            *([] if config.same_form else [f"cross: {settings_in_words(config.cross)}"]),
            f"bi: {settings_in_words(config.bi)}",
            f"about {duration(self.seconds)} on {config.device} ({config.precision}; a rough estimate), "
            f"{self.disk_bytes / 1e9:.1f} GB of disk in {config.output}",
        ]
        for number, member in enumerate(config.members, 1):
            if own := _own_settings(member):
                lines.insert(-1, f"member {number}: {own}")
        if self.n_sentences:
            mined = f"mine {plural(self.n_pairs, 'pair')} from {plural(self.n_sentences, 'sentence')}"
            if self.n_documents:
                mined += f" and {plural(self.n_documents, 'document')}"
            lines.insert(0, f"{mined}, at most: fewer where sentences repeat or no more can be had")
        if self.pretraining_steps:
            lines.insert(1, f"before the cycles: {plural(self.pretraining_steps, 'step')} of masked language modelling")
        return "\n".join(lines)


def _own_settings(member: Member) -> str:
    """What a member has of its own."""
    names = [f"{form}_{name}" for form in ("cross", "bi") for name in ("learning_rate", "epochs")]
    own = {name: getattr(member, name) for name in (*names, "pretraining_epochs")}
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in own.items() if value is not None)


def settings_in_words(config: FitConfig) -> str:
    """What matters most of how an encoder is trained."""
    return (
        f"learning rate {config.learning_rate:g}, batches of {config.batch_size}, "
        f"{plural(config.epochs or 1, 'epoch')}, {config.max_length} tokens"
    )


def plan(config: TransEncoder) -> Plan:
    """What `train` would do with this config: reads the data and the models' sizes, trains nothing."""
    _, config, starts = prepare(config)
    warn_of_absent(config.reuse_from)
    mining = _NotYetMined(config.n_pairs)
    data = read_data(config, None, mining.stand_in)
    forms: tuple[Form, ...] = ("bi",) if config.same_form else ("bi", "cross")
    sizes = [dict(zip(("bi", "cross"), map(count_parameters, folders), strict=True)) for folders in starts]
    n_pairs, cycles, pretraining = len(data.training), config.cycles or 1, config.pretraining
    pretraining_steps = [_pretraining_steps(config, member, n_pairs) for member in config.members]
    learning = cycles / len(config.members) if config.alternate_members else cycles
    operations = learning * sum(
        _operations(config, data, form, config.fit_of(member, form), size[form])
        for member, size in zip(config.members, sizes, strict=True)
        for form in forms
    ) + sum(
        training_operations(size["cross"], pretraining.batch_size * n_steps)
        for size, n_steps in zip(sizes, pretraining_steps, strict=True)
    )
    operations += training_operations(sizes[0]["bi"], 0, n_scored=mining.n_texts // 2)
    exported = 2 if len(config.members) > 1 else 1
    model_bytes = 4 * sum(size[form] for size in sizes for form in forms)
    largest = max(max(size.values()) for size in sizes)
    disk = model_bytes * (learning + exported + any(pretraining_steps)) + 16 * largest + n_pairs * (400 + 100 * cycles)
    disk += mining.n_texts * _SENTENCE_BYTES
    cross_steps = _steps(config, "cross", config.cross, n_pairs) if "cross" in forms else 0
    bi_steps = _steps(config, "bi", config.bi, n_pairs)
    seconds = operations / operations_a_second(config)
    return Plan(
        config,
        n_pairs,
        mining.n_sentences,
        mining.n_documents,
        sum(pretraining_steps),
        cross_steps,
        bi_steps,
        seconds,
        int(disk),
    )


@dataclass
class _NotYetMined:
    """Stands in for mining, which a plan does not do: as many pairs, and none of them real."""

    n_pairs: int | None
    n_sentences: int = 0
    """That pairs would be mined from."""
    n_documents: int = 0
    """That they would be paired with."""

    @property
    def n_texts(self) -> int:
        """That would be encoded."""
        return self.n_sentences + self.n_documents

    def stand_in(self, sentences: Dataset, documents: Dataset | None) -> tuple[Dataset, None]:
        self.n_sentences, self.n_documents = len(sentences), len(documents or ())
        n_pairs = self.n_pairs or default_n_pairs(self.n_sentences)
        return Dataset.from_dict({name: [""] * n_pairs for name in ("sentence1", "sentence2")}), None


def operations_a_second(config: Method[Any]) -> float:
    """Roughly, of one GPU or of two cores."""
    if str(config.device).startswith("cuda"):
        return 1e14
    return 2.5e11 if config.precision == "bf16" else 1e11


def _steps(config: TransEncoder, form: Form, fit: FitConfig, n_pairs: int) -> int:
    return steps_in_all(n_pairs, fit, both_orders=form == "cross" and config.is_symmetric)


def _operations(config: TransEncoder, data: Data, form: Form, fit: FitConfig, n_parameters: int) -> int:
    """Floating-point operations of one student: training, dev evaluations, and labelling of the pairs by it."""
    steps = _steps(config, form, fit, len(data.training))
    n_orders = 2 if form == "cross" and config.label_both_orders and config.is_symmetric else 1
    n_evaluations = steps // fit.eval_steps + (fit.epochs or 1)
    n_scored = n_orders * (len(data.training) + (n_evaluations * len(data.dev.pairs) if data.dev else 0))
    return training_operations(n_parameters, steps * (fit.batch_size or 1), n_scored)


def training_operations(n_parameters: int, n_trained: int, n_scored: int = 0) -> int:
    """Floating-point operations to train on pairs and to score pairs.

    Scoring takes 2 for each token and parameter but those of the vocabulary's table; training three times that.

    Args:
        n_parameters: Of the model.
        n_trained: Pairs in all steps.
        n_scored: Pairs in all evaluations.
    """
    return n_parameters * _PAIR_TOKENS * (3 * n_trained + n_scored)


def _pretraining_steps(config: TransEncoder, member: Member, n_pairs: int) -> int:
    pretraining = config.pretraining_of(member)
    if not pretraining.epochs:
        return 0
    return steps_in_all(n_pairs, pretraining.as_fit(config.cross), both_orders=config.is_symmetric)


def prepare(config: TransEncoder) -> tuple[TransEncoder, TransEncoder, list[tuple[Path, Path]]]:
    """The config with every default written out, the same with its variables expanded, and each member's start folders.

    Raises:
        InputError: A member that cannot be had or does not read as many tokens, by number where there are several, or
            LoRA without its package.
    """
    config, usable = placed(config)
    starts = []
    for number, member in enumerate(usable.members, 1):
        with _numbered(number, usable):
            starts.append(_fetched(member, usable))
        warn_of_unused_prompts(starts[-1][0], member.start, member.prompts)
    n_parameters = max(count_parameters(folder) for folders in starts for folder in folders)
    config, usable = fill(config, n_parameters), fill(usable, n_parameters)
    for number, (member, folders) in enumerate(zip(usable.members, starts, strict=True), 1):
        with _numbered(number, usable):
            _check_lengths(member, *folders, usable)
    if usable.bi.lora_rank or usable.cross.lora_rank:
        check_lora()
    return config, usable, starts


@contextmanager
def _numbered(number: int, config: TransEncoder) -> Iterator[None]:
    """Say of which member an error is, where there are several."""
    try:
        yield
    except InputError as error:
        raise InputError(f"member {number}: {error}" if len(config.members) > 1 else str(error)) from error


def _check_lengths(member: Member, start: Path, cross_start: Path, config: TransEncoder) -> None:
    check_length(start, config.bi.max_length, "bi.max_length", member.start)
    if not config.same_form:
        typed = member.cross_start or member.start
        check_length(cross_start, config.cross.max_length, "cross.max_length", typed)
        check_length(cross_start, config.cross_test_length, "cross_test_length", typed)


def _fetched(member: Member, config: TransEncoder) -> tuple[Path, Path]:
    """The folders of a member's starts, the bi-encoder's and the cross-encoder's."""
    where = {"token": config.token, "cache_folder": config.cache_dir}
    start = fetch(member.start, form="bi", revision=member.revision, **where)
    if member.cross_start is None:
        return start, start
    return start, fetch(member.cross_start, form="cross", revision=member.cross_revision, **where)
