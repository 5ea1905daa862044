"""The functions `train` and `plan`, which take a run from its config to its models: read, train, measure, report."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModelForMaskedLM, PreTrainedModel

from transencoder import distributed, progress
from transencoder.configs import nearest
from transencoder.configs.run import RunConfig
from transencoder.context import Work
from transencoder.encoders import attention
from transencoder.errors import InputError, plural, shorten
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.progress import duration
from transencoder.records import Result
from transencoder.report.run_report import notebook_html
from transencoder.report.verdict import verdict_of
from transencoder.runs import Executor, Planner, Stage, warn_of_absent
from transencoder.settings import check_values, method_name, nested_settings
from transencoder.training.budget import operations_a_second
from transencoder.training.encoder import EncoderPipeline
from transencoder.training.executors import LocalExecutor, Workers, parts_of
from transencoder.training.language_model import LanguageModelPipeline
from transencoder.training.pairs import PairsPipeline
from transencoder.training.pipeline import Pipeline
from transencoder.training.result import FOLDERS, finish, open_run, result_of

_PIPELINES: dict[str, type[Pipeline[Any, Any]]] = {
    "pairs": PairsPipeline,
    "encoder": EncoderPipeline,
    "language-model": LanguageModelPipeline,
}


@dataclass(frozen=True, repr=False)
class Trained:
    """Result of a run: its models, its record and its folder."""

    result: Result
    """Content of result.json."""
    folder: Path
    """Run folder, with the models in `bi-encoder`, `cross-encoder` and `masked-lm`."""
    device: str | None = None
    """Device that the models are loaded on; None: the best one available."""

    def __repr__(self) -> str:
        """Return the folder and the verdict on the models."""
        return f"Trained({str(self.folder)!r}): {self.verdict}"

    @property
    def verdict(self) -> str:
        """Verdict of the report, in a sentence or two: whether to use the models."""
        return verdict_of(self.result)

    def _repr_html_(self) -> str:
        """Return the verdict and the scores as HTML for notebooks."""
        return notebook_html(self.result, str(self.folder))

    @cached_property
    @progress.shown()
    def bi_encoder(self) -> SentenceTransformer:
        """The best bi-encoder.

        Raises:
            InputError: The run made none.
        """
        return SentenceTransformer(str(self._model("bi")), device=self.device)

    @cached_property
    @progress.shown()
    def cross_encoder(self) -> CrossEncoder:
        """The best cross-encoder.

        Raises:
            InputError: The run made none, for instance because its students are of the same form as their teachers.
        """
        model: CrossEncoder = CrossEncoder(str(self._model("cross")), device=self.device)
        return model

    @cached_property
    @progress.shown()
    def model(self) -> PreTrainedModel:
        """The masked language model.

        Raises:
            InputError: The run made none.
        """
        return AutoModelForMaskedLM.from_pretrained(self._model("mlm"))  # type: ignore[no-any-return]

    def _model(self, form: Any) -> Path:
        if form not in self.result["best"]:
            why = (
                " (same_form); take its bi_encoder, or train with same_form false"
                if self.result["config"].get("same_form")
                else ""
            )
            made = " and ".join(FOLDERS[each] for each in self.result["best"])
            raise InputError(f"{self.folder} made no {FOLDERS[form]}, but {made}{why}")
        return self.folder / FOLDERS[form]


@dataclass(frozen=True)
class Plan:
    """Plan of a run: what it would do, and its approximate cost."""

    config: RunConfig
    """Config with every default filled in."""
    lines: list[str]
    """Description of the run for the user, line by line."""
    stages: dict[str, Stage[Work]]
    """Stages up to the trained models, by name."""
    seconds: float
    """Rough estimate of the duration: operations of all stages at the speed of this CPU's threads, or of one GPU."""
    disk_bytes: int
    """Disk space of all stages, of the largest stage's checkpoints, and of what else the run leaves."""

    def __str__(self) -> str:
        """Return the plan as text, with its cost."""
        config = self.config
        cost = (
            f"about {duration(self.seconds)} on {config.device} ({config.precision}; a rough estimate), "
            f"{self.disk_bytes / 1e9:.1f} GB of disk in {config.output}"
        )
        return "\n".join([*self.lines, cost])


@progress.shown()
def train(config: RunConfig | None = None, *, recipe: str | None = None, **settings: Any) -> Trained:
    """Train as a method's config says, or resume an interrupted run.

    Training sets the seeds of Python's, NumPy's and torch's global generators.

    Args:
        config: The method's config; fields left empty take the paper's values.
        recipe: Name of the recipe that the config comes from, for reports: `trans-encoder/minilm-sts`.
        settings: Settings of `TransEncoder`, instead of a config: `train(sentences=[...], start="minilm")`.

    Returns:
        The best models, their scores, and the run's path.

    Raises:
        InputError: Data or an option cannot be used.
        RunError: The run folder is locked or is not a run's, or its disk is full.
    """
    distributed.start()
    started = time.monotonic()
    config = _config(config, settings)
    pipeline = _PIPELINES[config.pipeline](config)
    usable = pipeline.config
    with ExitStack() as stack:
        stack.enter_context(attention(usable.attn_implementation))
        run = stack.enter_context(open_run(pipeline.recipe, usable))
        local = LocalExecutor(run, str(usable.device), usable.report_to)
        executor: Executor = local
        if pipeline.n_workers > 1:
            parts = parts_of(
                usable, usable.device if config.device else None, method_name(type(config)), pipeline.n_workers
            )
            executor = stack.enter_context(Workers(local, parts))
        context = pipeline.open(executor, run.folder)
        planner = Planner()
        pipeline.train(replace(context, executor=planner, made={}))
        local.progress = progress.Run({key: stage.cost().operations for key, stage in planner.stages.items()})
        measurements = pipeline.measure(context, pipeline.train(context))
        n_workers = pipeline.n_workers
        result = result_of(
            run, pipeline.given, context, measurements, started=started, n_workers=n_workers, recipe=recipe
        )
        finish(run, result, measurements)
    distributed.barrier()
    return Trained(result, Path(usable.output), usable.device)


@progress.shown()
def plan(config: RunConfig | None = None, *, known: Collection[str] = (), **settings: Any) -> Plan:
    """Return what `train` would do with a config: read the data and the models' sizes, but train nothing.

    Args:
        config: The method's config.
        known: Keys of stages that earlier runs will have computed: they are reused, and cost nothing.
        settings: As for `train`.

    Raises:
        InputError: Data or an option cannot be used.
    """
    config = _config(config, settings)
    pipeline, planner = _PIPELINES[config.pipeline](config), Planner(known)
    warn_of_absent(pipeline.config.reuse_from)
    context = pipeline.open(planner, None)
    usable = pipeline.config
    pipeline.train(context)
    cost = planner.cost + pipeline.extra_cost(context, planner)
    lines = [*pipeline.lines(context, planner), *filter(None, [pipeline.note_on_cuts])]
    if n_known := len(planner.stages.keys() & set(known)):
        lines.append(f"{plural(n_known, 'stage')} of {len(planner.stages)} taken from the runs above")
    return Plan(
        config=usable,
        lines=lines,
        stages={stage.name: stage for stage in planner.stages.values()},
        seconds=cost.operations / operations_a_second(usable),
        disk_bytes=round(cost.disk_bytes + cost.scratch_bytes),
    )


_OTHER_NAMES = {
    **dict.fromkeys(("model", "base_model", "model_name", "model_name_or_path"), "start"),
    **dict.fromkeys(("text", "texts", "data", "corpus", "train_dataset"), "sentences"),
    **dict.fromkeys(("eval_dataset", "dev_set", "validation"), "dev"),
    **dict.fromkeys(("lr", "learning_rate"), "bi.learning_rate"),
    **dict.fromkeys(("epochs", "num_train_epochs"), "bi.epochs"),
    **dict.fromkeys(("batch_size", "per_device_train_batch_size"), "bi.batch_size"),
    **dict.fromkeys(("bf16", "fp16"), "precision"),
    "output_dir": "output",
    "max_seq_length": "max_length",
}
"""What users of sentence-transformers call a setting -> its name here."""


def _config(config: RunConfig | None, settings: Mapping[str, Any]) -> RunConfig:
    """Return the given config, or one of Trans-Encoder with these settings and, unless given, preset `standard`."""
    if not isinstance(config, RunConfig | None):
        raise InputError(
            f"{shorten(config)} is given in the place of a config; give texts by their name: sentences=... or pairs=..."
        )
    if config is not None and settings:
        raise InputError(
            f"a config is given and {', '.join(settings)} too; put all into the config: "
            f"dataclasses.replace(config, {next(iter(settings))}=...)"
        )
    known = [*(each.name for each in fields(TransEncoder)), "start"]
    for name in settings:
        if name not in known:
            closest = _OTHER_NAMES.get(name) or nearest(name, [*known, *nested_settings(TransEncoder)])
            parent, _, inner = closest.rpartition(".")
            how = f'{parent}={{"{inner}": ...}}' if parent else closest
            raise InputError(f"there is no setting {name}; the nearest is {how}")
    config = config or TransEncoder(**{"preset": "standard", **settings})
    check_values(config)
    return config
