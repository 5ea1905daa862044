"""What a run needs before it starts, and what it will do and cost."""

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from transencoder.config import FitConfig, Precision, nearest
from transencoder.encoders import checked_device, count_parameters, fetch
from transencoder.errors import InputError
from transencoder.fit import steps_in_all
from transencoder.inference import uses_bf16
from transencoder.methods.data import Data, read_data
from transencoder.methods.defaults import fill
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs.rows import plural
from transencoder.report.text import duration
from transencoder.settings import expanded

_CHECKED_TRACKERS = ("tensorboard", "wandb", "trackio")
"""Those whose package has the tracker's name."""

_PAIR_TOKENS = 32
"""Tokens of a pair, about; half of a small model's parameters are its vocabulary's."""


@dataclass(frozen=True)
class Plan:
    """What a run would do, and about what it would cost."""

    config: TransEncoder
    n_pairs: int
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
        lines = [
            f"{plural(self.n_pairs, 'pair')}; {plural(config.cycles or 1, 'cycle')}; each cycle: label, train a "
            f"cross-encoder {cross}, label, train a bi-encoder {bi}",
            f"cross: {_settings(config.cross)}",
            f"bi: {_settings(config.bi)}",
            f"about {duration(self.seconds)} on {config.device} ({config.precision}; a rough estimate), "
            f"{self.disk_bytes / 1e9:.1f} GB of disk in {config.output}",
        ]
        if self.pretraining_steps:
            lines.insert(1, f"before the cycles: {plural(self.pretraining_steps, 'step')} of masked language modelling")
        return "\n".join(lines)


def _settings(config: FitConfig) -> str:
    return (
        f"learning rate {config.learning_rate:g}, batches of {config.batch_size}, "
        f"{plural(config.epochs or 1, 'epoch')}, {config.max_length} tokens"
    )


def plan(config: TransEncoder) -> Plan:
    """What `train` would do with this config: reads the data and the models' sizes, trains nothing."""
    _, config, start, cross_start = prepare(config)
    data = read_data(config, None)
    n_parameters = {"bi": count_parameters(start), "cross": count_parameters(cross_start)}
    steps = {
        "pretraining": _pretraining_steps(config, len(data.pairs)),
        "cross": steps_in_all(len(data.pairs), config.cross, both_orders=config.is_symmetric),
        "bi": steps_in_all(len(data.pairs), config.bi, both_orders=False),
    }
    both_orders = 2 if config.label_both_orders and config.is_symmetric else 1
    cycles = config.cycles or 1
    operations = {
        "pretraining": _training(n_parameters["cross"], config.pretraining.batch_size * steps["pretraining"]),
        "cross": cycles * _operations(data, config.cross, n_parameters["cross"], steps["cross"], both_orders),
        "bi": cycles * _operations(data, config.bi, n_parameters["bi"], steps["bi"], 1),
    }
    speed = 1e14 if str(config.device).startswith("cuda") else (2.5e11 if config.precision == "bf16" else 1e11)
    seconds = sum(operations.values()) / speed
    model_bytes = 4 * (n_parameters["bi"] + n_parameters["cross"])
    n_models = cycles + 1 + bool(steps["pretraining"])
    disk = model_bytes * n_models + 4 * 4 * max(n_parameters.values()) + len(data.pairs) * (400 + 100 * cycles)
    return Plan(config, len(data.pairs), steps["pretraining"], steps["cross"], steps["bi"], seconds, disk)


def _operations(data: Data, config: FitConfig, n_parameters: int, steps: int, n_orders: int) -> int:
    """Floating-point operations of one student: training, dev evaluations, and labelling of the pairs by it."""
    n_evaluations = steps // config.eval_steps + (config.epochs or 1)
    n_scored = n_orders * (len(data.pairs) + (n_evaluations * len(data.dev.pairs) if data.dev else 0))
    return _training(n_parameters, steps * (config.batch_size or 1)) + n_parameters * _PAIR_TOKENS * n_scored


def _training(n_parameters: int, n_rows: int) -> int:
    """Three times what scoring takes, which is 2 for each token and parameter but those of the vocabulary's table."""
    return 3 * n_parameters * _PAIR_TOKENS * n_rows


def _pretraining_steps(config: TransEncoder, n_pairs: int) -> int:
    if not config.pretraining.epochs:
        return 0
    return steps_in_all(n_pairs, config.pretraining.as_fit(config.cross), both_orders=config.is_symmetric)


def prepare(config: TransEncoder) -> tuple[TransEncoder, TransEncoder, Path, Path]:
    """The config with every default written out, the same with its variables expanded, and both starts' folders."""
    usable = expanded(config)
    _check_trackers(usable.report_to)
    member = usable.members[0]
    start = fetch(member.start, revision=member.revision, token=usable.token, cache_folder=usable.cache_dir)
    cross_start = start
    if member.cross_start is not None:
        cross_start = fetch(
            member.cross_start, revision=member.cross_revision, token=usable.token, cache_folder=usable.cache_dir
        )
    device = _checked_device(usable.device) if usable.device else _device()
    n_parameters = max(count_parameters(start), count_parameters(cross_start))
    precision: Precision = "bf16" if uses_bf16(device, usable.precision) else "fp32"
    given, usable = (replace(fill(each, n_parameters), precision=precision) for each in (config, usable))
    return given, replace(usable, device=device), start, cross_start


def _checked_device(name: str) -> str:
    """A device that training can use; which GPU it takes is the environment's to say."""
    if (other := re.fullmatch(r"cuda:([1-9]\d*)", name)) is not None:
        raise InputError(
            f"device is {name}, but training runs on the first GPU that it sees: leave device out and set "
            f"CUDA_VISIBLE_DEVICES={other[1]}"
        )
    return checked_device(name)


def _check_trackers(names: tuple[str, ...]) -> None:
    """Refuse, before anything is trained, trackers that the trainer does not know or that are not installed."""
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise InputError(
                f"report_to has {name!r}; the nearest tracker is {nearest(name, list(INTEGRATION_TO_CALLBACK))}"
            )
        packages = {"tensorboard": ("tensorboard", "tensorboardX")}.get(name, (name,))
        if name in _CHECKED_TRACKERS and not any(find_spec(package) for package in packages):
            raise InputError(f"report_to has {name}, which is not installed; pip install {name}, or leave it out")


def _device() -> str:
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
