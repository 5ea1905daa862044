"""What the configs of all methods have: the run folder, what is measured, how data is read, what it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transencoder.configs.choices import Precision
from transencoder.configs.ranges import Config, Contradictions

if TYPE_CHECKING:
    from datasets import Dataset

Pipeline = Literal["pairs", "encoder", "language-model"]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """A method's config; a subclass is one paper."""

    about: ClassVar[str]
    """What the method does, in a sentence or two, for reports and model cards."""
    pipeline: ClassVar[Pipeline]
    """Which kind of run the engine builds for it."""

    output: str
    """The run folder. The same command on the same folder goes on where it stopped."""
    dev: str | Dataset | None = None
    """Labelled pairs that choose the checkpoint: a file with scores or a task name. None: the last one is kept."""
    tests: tuple[str, ...] = ()
    """Tasks, suites or labelled files scored once, at the end."""
    score_tests: bool = True
    """Whether the tests are scored; else they are only told apart from the training text (exclude_test_sentences)."""
    task_kind: Literal["graded", "binary"] = "graded"
    """Graded similarity (Spearman) or yes/no relations (ROC-AUC): picks the metric, and Table 16's defaults."""
    precision: Precision = "auto"
    """bf16 autocast where the hardware has it (`auto`), always, or never (`fp32`)."""
    device: str | None = None
    """Device such as `cpu` or `cuda:0`; None: the best there is."""
    seed: int = 2021
    """Run seed; each stage derives its own (released code: 2021)."""
    test_every_eval: bool = False
    """Analysis mode: also score the tests at every dev evaluation. Never use it to choose."""
    skip_bad_rows: bool = False
    """Count, report and set aside bad rows of the training text instead of stopping at the first."""
    header: bool | None = None
    """Whether the training text, a TSV or CSV, has a header; None: detected, and an error where that is not certain."""
    file_format: str | None = None
    """Format of the training text where its name does not say: tsv, csv, jsonl or parquet."""
    split: str | None = None
    """Split of the training text, a hub id or folder, such as train; None: the only one there is."""
    reuse_from: tuple[str, ...] = ()
    """Other run folders: a stage that is finished there, with the same key, is copied and not computed again."""
    exclude_test_sentences: bool = False
    """Inductive setting: leave out of training what contains a sentence of any test set."""
    data_dir: str | None = None
    """Folder with data sets in the hub's layout; else the environment's TRANSENCODER_DATA, else the hub."""
    cache_dir: str | None = None
    """Folder for hub downloads; None: the hub's usual one."""
    token: str | None = None
    """Hub access token; None: the one you are logged in with. Never written to the run folder."""
    report_to: tuple[str, ...] = ()
    """Trackers passed on to the trainer, such as tensorboard (events in the run folder), wandb or trackio."""

    def contradictions(self) -> Contradictions:
        """Yield what fields say against each other."""
        if self.test_every_eval and not (self.tests and self.score_tests and self.has_evaluations):
            yield (
                "test_every_eval needs tests, score_tests true, and dev or what stands in for it; give them, or leave "
                "it out"
            )

    @property
    def has_evaluations(self) -> bool:
        """Whether checkpoints are evaluated during training; else the last one is kept."""
        return self.dev is not None
