"""Time budget of a run: time a few training steps, then choose the cycles, epochs and pairs that fit."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from transencoder import distributed
from transencoder.configs import FitConfig, Form, Precision
from transencoder.configs.run import RunConfig
from transencoder.context import Model, Rows, Work, operations
from transencoder.cycles import ContextMember
from transencoder.encoders import load_bi, load_cross
from transencoder.errors import InputError, plural
from transencoder.files import remove_folder
from transencoder.fit import Session, TrainingData, fit
from transencoder.losses import CosineLoss, LogitLoss
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.progress import duration
from transencoder.runs import Cost, Executor, Stage, made_of, setting
from transencoder.selection import LEAST_PAIRS

logger = logging.getLogger(__name__)

_TIMED_STEPS = 8
"""Number of steps that are timed, after one that loads libraries."""
_RESERVE_SECONDS, _RESERVE_SHARE = 15.0, 0.03
"""Seconds and share of a budget that are reserved for other work than training: reading, comparing, report."""
_EMBEDDING_SHARE = 0.2
"""Share of a budget for the embeddings that pairs are mined with."""
_SCORING = 1 / 3
"""Time to score a pair, as a share of the time to train on it: scoring has no backward pass."""
_KEPT_PAIRS = 2 / 3
"""Smallest share of the pairs to keep before a cycle or an epoch is dropped. Dropping up to a third of the pairs first
leaves less of the budget unused."""
_FEWEST_EPOCHS = 2
"""Smallest number of epochs that the budget may choose; below that, pairs are dropped instead."""

Pace = Mapping[tuple[int, Form], float]
"""Seconds to train on one pair, by member and form."""


@dataclass
class Budget:
    """Time budget of a run, which chooses the training that fits into it."""

    typed: TransEncoder
    """Config as the user gave it: numbers that are set in it are not changed."""
    n_workers: int
    pace: Pace = field(default_factory=dict)
    """Seconds to train on one pair; empty until `measure` has run."""
    spent: float = 0.0
    """Seconds that measuring the pace took."""

    @property
    def seconds(self) -> float:
        """Seconds of wall-clock time for mining, labelling and training."""
        return max(0.0, (self.typed.budget_seconds or 0.0) * (1 - _RESERVE_SHARE) - _RESERVE_SECONDS - self.spent)

    @property
    def n_at_once(self) -> float:
        """Average number of members that train at the same time: with two workers, three members take two turns."""
        n_members = len(self.typed.members)
        return n_members / math.ceil(n_members / self.n_workers)

    def measure(self, executor: Executor, config: TransEncoder, members: Sequence[ContextMember], rows: Rows) -> None:
        """Time the encoders of every member; in a plan, which computes nothing, estimate the times."""
        forms: tuple[Form, ...] = ("bi",) if config.same_form else ("bi", "cross")
        stages = {
            (number, form): Timing(
                name=f"{member.prefix}timing/{form}-encoder",
                rows=rows,
                base=member.bi if form == "bi" else member.cross,
                fit=config.fit_of(member.config, form),
                precision=config.precision,
                seed=config.seed,
            )
            for number, member in enumerate(members)
            for form in forms
        }
        records = executor.make([*stages.values()])
        a_second = operations_a_second(config)
        self.pace = {
            which: record.result.get("seconds", operations(stage.base.n_parameters, 1) / a_second)
            for (which, stage), record in zip(stages.items(), records, strict=True)
        }
        self.spent = sum(record.result.get("spent", 0.0) for record in records) / self.n_at_once

    @property
    def most_texts(self) -> int:
        """Number of texts that can be embedded for mining within the budget's share for that."""
        return max(2 * LEAST_PAIRS, int(_EMBEDDING_SHARE * self.seconds / self._seconds_a_text))

    def fitted(self, config: TransEncoder, n_pairs: int, whole: int, n_texts: int = 0) -> Fits:
        """Choose how much to train: everything, else fewer cycles, then fewer epochs, then fewer pairs.

        At each step, dropping up to a third of the pairs comes first if that is enough.

        Args:
            config: Config with every field filled in.
            n_pairs: Number of all pairs, or of those that would be mined from the texts that there is time to embed.
            whole: Number of all pairs, or of those that would be mined from all texts.
            n_texts: Number of texts that are embedded for mining; 0 if the pairs are given.

        Raises:
            InputError: Not even a few hundred pairs fit.
        """
        mining = n_texts * self._seconds_a_text
        seconds = (self.seconds - mining) * self.n_at_once
        amounts = list(self._amounts(config, n_pairs))
        least, most = amounts[-1], self._amount(config, whole, amounts[0].cycles, amounts[0].epochs)
        kept = _KEPT_PAIRS if self.typed.n_pairs is None else 1.0
        amount = next((each.within(seconds) for each in amounts if kept * each.seconds <= seconds), None)
        if amount is None:
            n_fitting = max(0, int(n_pairs * seconds / least.seconds))
            fewest = n_pairs if self.typed.n_pairs is not None else min(n_pairs, LEAST_PAIRS)
            if n_fitting < fewest:
                raise self._too_little(fewest, least.seconds * fewest / n_pairs, is_mined=n_texts > 0)
            amount = least.within(seconds)
        all_of_it = duration(self._in_all(most.seconds, mining * whole / n_pairs))
        because = (
            f"budget {self.typed.budget}; all {plural(whole, 'pair')} in {plural(most.cycles, 'cycle')} of "
            f"{_epochs_in_words(most)} would take about {all_of_it}"
        )
        less = amount.less_than(most)
        chosen = ", ".join(f"{name} {value:,}" for name, value in less.items()) or "all of it"
        logger.info("%s; %s: about %s", because, chosen, duration(self._in_all(amount.seconds, mining)))
        return Fits(amount, because, less)

    def _amounts(self, full: TransEncoder, n_pairs: int) -> Iterator[Amount]:
        """Yield the ways to train on all pairs, from the most training to the least."""
        most: dict[Form, int] = {"bi": full.bi.epochs or 1}
        most |= {} if full.same_form else {"cross": full.cross.epochs or 1}
        is_open = {"bi": self.typed.bi.epochs is None, "cross": self.typed.cross.epochs is None}
        cycles = full.cycles or 1
        least = (len(full.members) if full.alternate_members else 1) if self.typed.cycles is None else cycles
        for n_cycles in range(cycles, least, -1):
            yield self._amount(full, n_pairs, n_cycles, most)
        for n_given_up in range(max(most.values())):
            epochs = {
                form: max(n - n_given_up, min(n, _FEWEST_EPOCHS)) if is_open[form] else n for form, n in most.items()
            }
            yield self._amount(full, n_pairs, least, epochs)

    def _amount(self, full: TransEncoder, n_pairs: int, cycles: int, epochs: Mapping[Form, int]) -> Amount:
        """Return an amount with the seconds that its labelling and training take, one member after the other.

        Pairs that are held out count as trained on, which makes up for the evaluations on them. Those on a dev set come
        on top.
        """
        amount, seconds, n_orders = Amount(n_pairs, cycles, epochs, 0.0), 0.0, 2 if full.is_symmetric else 1
        config = amount.settle(full)
        n_cycles = cycles / len(full.members) if full.alternate_members else cycles
        for (number, form), pace in self.pace.items():
            member = config.members[number]
            passes = float(config.fit_of(member, form).epochs or 1)
            orders = n_orders if form == "cross" else 1
            seconds += pace * n_pairs * n_cycles * (passes * orders + _SCORING)
            if form == "cross":
                seconds += pace * n_pairs * orders * config.pretraining_of(member).epochs
        return replace(amount, seconds=seconds)

    @property
    def _seconds_a_text(self) -> float:
        return self.pace[0, "bi"] * _SCORING / 2

    def _in_all(self, training: float, mining: float) -> float:
        """Return the wall-clock seconds of a run, given the seconds of training (with labelling) and of mining."""
        return (training / self.n_at_once + mining + self.spent + _RESERVE_SECONDS) / (1 - _RESERVE_SHARE)

    def _too_little(self, n_pairs: int, training: float, *, is_mined: bool) -> InputError:
        mining = training / self.n_at_once * _EMBEDDING_SHARE / (1 - _EMBEDDING_SHARE) if is_mined else 0.0
        minutes = math.ceil(self._in_all(training, mining) / 60 + 0.1)
        return InputError(
            f"budget is {self.typed.budget}, and {plural(n_pairs, 'pair')}, the least, take longer on this machine; "
            f"give at least {minutes}m, or a smaller base model"
        )


@dataclass(frozen=True)
class Fits:
    """Amount of training that fits into a budget."""

    amount: Amount
    because: str
    less: Mapping[str, int]
    """Settings that the budget reduces, with their reduced values."""


@dataclass(frozen=True)
class Amount:
    """Amount of training, and how long it takes."""

    n_pairs: int
    cycles: int
    epochs: Mapping[Form, int]
    seconds: float

    def settle(self, config: TransEncoder) -> TransEncoder:
        """Return the config with this number of cycles and epochs."""
        fits: dict[str, Any] = {form: replace(getattr(config, form), epochs=n) for form, n in self.epochs.items()}
        return replace(config, cycles=self.cycles, **fits)

    def within(self, seconds: float) -> Amount:
        """Return this amount with as many of its pairs as fit into the given time."""
        if self.seconds <= seconds:
            return self
        n_pairs = int(self.n_pairs * seconds / self.seconds)
        return replace(self, n_pairs=n_pairs, seconds=self.seconds * n_pairs / self.n_pairs)

    def less_than(self, whole: Amount) -> dict[str, int]:
        """Return the settings in which this amount is below `whole`, with their values."""
        settings = {"n_pairs": (self.n_pairs, whole.n_pairs), "cycles": (self.cycles, whole.cycles)}
        settings |= {f"{form}.epochs": (self.epochs[form], whole.epochs[form]) for form in self.epochs}
        return {name: own for name, (own, most) in settings.items() if own < most}


def _epochs_in_words(amount: Amount) -> str:
    return " and ".join(f"{plural(n, 'epoch')} ({form})" for form, n in amount.epochs.items())


def operations_a_second(config: RunConfig) -> float:
    """Return roughly how many operations a GPU, or a CPU's threads, compute per second; AMX makes bf16 fast on CPUs."""
    if str(config.device).startswith("cuda"):
        return 1e14
    is_fast = config.precision == "bf16" and torch.cpu._is_amx_tile_supported()
    return torch.get_num_threads() * (1.25e11 if is_fast else 0.5e11)


@dataclass(frozen=True, kw_only=True, eq=False)
class Timing(Stage[Work]):
    """Time that a member's bi- or cross-encoder takes to train on a pair on this machine."""

    version = 3
    is_of_machine = True
    rows: Rows = made_of()
    """The training text."""
    base: Model = made_of(reading=True)
    fit: FitConfig = setting(lambda fit: fit.key_settings)
    precision: Precision
    seed: int

    def compute(self, work: Work) -> tuple[float, float]:
        """Time a short training."""
        started = time.monotonic()
        self._trained(work, 1)  # loads libraries
        seconds, n_pairs = self._trained(work, _TIMED_STEPS)
        return seconds / n_pairs, time.monotonic() - started

    def write(self, work: Work, computed: tuple[float, float]) -> dict[str, Any]:
        """Return the seconds per pair, and the seconds that measuring took."""
        return {"seconds": computed[0], "spent": computed[1]}

    def cost(self) -> Cost:
        """Return the cost of the steps."""
        return Cost(operations=operations(self.base.n_parameters, (1 + _TIMED_STEPS) * self._batch))

    @property
    def _batch(self) -> int:
        """Number of pairs in the batches of all processes."""
        return (self.fit.batch_size or 1) * distributed.world_size()

    def _trained(self, work: Work, n_steps: int) -> tuple[float, int]:
        """Train up to `n_steps` steps, several epochs of few pairs; return the seconds, and on how many pairs."""
        pairs = self._pairs(n_steps * self._batch)
        epochs = max(1, n_steps // -(-len(pairs) // self._batch))
        short = replace(self.fit, epochs=epochs, checkpoint_steps=None, save_steps=None)  # nothing is saved at the end
        student, loss = self._student(work), CosineLoss if self.base.form == "bi" else LogitLoss
        session = Session(
            folder=work.folder / "checkpoints" / str(n_steps),
            seed=self.seed,
            precision=self.precision,
            cache=work.cache,
        )
        remove_folder(session.folder)  # a killed attempt's checkpoint would leave nothing to time
        data = TrainingData(pairs=pairs, targets=np.full(len(pairs), 0.5, np.float32), prompts=self.base.prompts)
        return fit(student, loss, data, None, short, session).seconds, epochs * len(pairs)

    def _student(self, work: Work) -> Any:
        where: dict[str, Any] = {"max_length": self.fit.max_length, "device": work.device}
        if self.base.form == "cross":
            return load_cross(self.base.folder, head="pooler", seed=self.seed, **where)
        return load_bi(self.base.folder, pooling=self.base.pooling, prompts=self.base.prompts, **where)

    def _pairs(self, n_pairs: int) -> Dataset:
        """Return up to `n_pairs` random pairs of the training text; if it is single texts, pairs of two random texts.

        The bi-encoder encodes a text once for several pairs. Of single texts each is in four pairs: batches then have
        as many tokens as those of mined pairs, or up to a seventh more. Given pairs that share texts take less time.
        """
        data, random = self.rows.data, np.random.default_rng(self.seed)
        is_text = "text" in data.column_names
        n_rows = min(len(data), -(-n_pairs // 2) if is_text else n_pairs)
        rows = random.choice(len(data), n_rows, replace=False)
        if not is_text:
            return data.select(rows).select_columns(["sentence1", "sentence2"])
        sides = rows[random.integers(n_rows, size=(2, min(n_pairs, 2 * n_rows)))]
        first, second = (data.select(each)["text"][:] for each in sides)
        return Dataset.from_dict({"sentence1": first, "sentence2": second})
