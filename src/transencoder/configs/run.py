"""Settings that the configs of all methods have, and the parts that a method passes to the engine.

The common settings are the run folder, the evaluation, how data is read, and the hardware. A method's parts are text,
rows, labels, teachers, helpers and cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from transencoder.configs.fit import FitConfig
from transencoder.configs.ranges import (
    Config,
    Contradictions,
    Pooling,
    Precision,
    Texts,
    at_least,
    path_to_write,
    source,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor

Pipeline = Literal["pairs", "encoder", "language-model"]
ViewKind = Literal["as-is", "span-mask", "word-deletion", "synonyms", "mlm"]
Relation = Literal["any", "adjacent", "subsumed"]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Base config of all methods; each subclass is the method of one paper."""

    about: ClassVar[str]
    """Description of the method in a sentence or two, for reports and model cards."""
    pipeline: ClassVar[Pipeline]
    """Kind of run that the engine builds for the method."""
    reads_whole_texts: ClassVar[bool] = True
    """Whether an encoder reads each text from its beginning; if not, it reads spans or blocks of texts."""

    output: str = path_to_write("transencoder-run")
    """Run folder. The same command with the same folder resumes where it stopped."""
    dev: str | Dataset | None = source(None)
    """Labelled pairs used to choose the checkpoint: a file with scores or a task name. None: chosen without labels, see
    `selection`."""
    tests: tuple[str, ...] = ()
    """Tasks, suites or labelled files scored once, at the end."""
    score_tests: bool = True
    """Whether to score the tests; if not, they only serve to filter the training text (exclude_test_sentences)."""
    task_kind: Literal["graded", "binary"] = "graded"
    """Kind of task: graded similarity (Spearman) or binary relations (ROC-AUC). It sets the metric, and defaults (Table
    16)."""
    max_length: int | Literal["auto"] | None = at_least(1, None)
    """Maximum number of tokens per text in training; a cross-encoder reads twice as many of a pair. `auto`: enough to
    read 98 of 100 texts whole, up to the base model's limit. None: each encoder's own setting."""
    precision: Precision = "auto"
    """Use of bf16 autocast: if the hardware supports it (`auto`), always (`bf16`), or never (`fp32`)."""
    device: str | None = None
    """Device such as `cpu` or `cuda:0`; None: the best one available."""
    attn_implementation: str | None = None
    """Attention implementation of transformers: sdpa, eager, or flash_attention_2 if its package is installed; None:
    the base model's default. It changes the last digits of results, as another device does."""
    seed: int = 2021
    """Seed of the run, from which each stage derives its own (released code: 2021)."""
    test_every_eval: bool = False
    """Whether to score the tests also at every dev evaluation, for analysis. Never use these scores to choose."""
    skip_bad_rows: bool = False
    """Whether to count, report and set aside bad rows of the training text instead of stopping at the first."""
    header: bool | None = None
    """Whether the training text, a TSV or CSV, has a header; None: detected, with an error if it is uncertain."""
    file_format: str | None = None
    """Format of the training text if its name does not tell: tsv, csv, jsonl or parquet."""
    split: str | None = None
    """Split of the training text, such as train, if it is a hub id or a folder; None: the only one available."""
    reuse_from: tuple[str, ...] = ()
    """Other run folders: a stage that is finished there with the same key is copied, not computed again."""
    exclude_test_sentences: bool = False
    """Whether to leave out of training all rows that contain a sentence of any test set (the inductive setting)."""
    data_dir: str | None = None
    """Folder with data sets in the hub's layout; None: the one in the environment variable TRANSENCODER_DATA, else the
    hub."""
    cache_dir: str | None = None
    """Folder for hub downloads; None: the hub's default."""
    token: str | None = None
    """Hub access token; None: the one you are logged in with. It is never written to the run folder."""
    report_to: tuple[str, ...] = ()
    """Experiment trackers that the trainer reports to, such as tensorboard (events in the run folder), wandb or
    trackio."""

    def contradictions(self) -> Contradictions:
        """Yield an error message for each contradiction between fields."""
        if self.max_length is not None and not self.reads_whole_texts:
            yield f"max_length is {self.max_length}, and this method reads parts of texts; give fit.max_length"
        if self.test_every_eval and not (self.tests and self.score_tests and self.has_evaluations):
            yield (
                "test_every_eval needs tests, score_tests true, and dev or what stands in for it; give them, or leave "
                "it out"
            )

    def with_lengths(self, text: int, pair: int) -> Self:
        """Return a copy whose bi-encoders read at most `text` tokens of a text, its cross-encoders `pair` of a pair."""
        raise NotImplementedError

    @property
    def has_evaluations(self) -> bool:
        """Whether checkpoints are evaluated during training; if not, the last one is kept."""
        return self.dev is not None


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """Pairs with gold labels, used instead of unlabelled text, and cross-encoders that learn and give such labels."""

    kind: Literal["classes", "scores"]
    sources: tuple[str | Dataset, ...]
    """Sources of the pairs: at least one, all with the same classes or scores."""
    class_names: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers; empty: as given in the data, from which the config's
    `class_names` are set."""
    column: str | None = None
    """Name of the column of labels; None: the usual names."""
    score_range: tuple[float, ...] = (0.0, 1.0)
    """Lowest and highest score in files."""
    n_rows: int | None = None
    """Number of rows to sample; None: all."""
    teachers: tuple[str, ...] = ()
    """Cross-encoders that label the rows in addition to the gold labels."""
    teachers_fit: FitConfig
    """Training settings of the teachers that have not learned the labels yet."""
    new_head: bool = False
    """Whether all teachers learn the labels with a new head, even if they have learned others before."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text that a run trains on, and how its rows are read."""

    source: str | Dataset
    kind: Texts = "sentences"
    columns: tuple[str, ...] = ()
    """Names of the text columns; empty: well-known names."""
    is_paired: bool = False
    """Whether each row has two texts, used as two views of the same meaning."""
    n_sentences: int | None = None
    """Number of rows to sample; None: all."""
    least_rows: int = 2
    """Minimum number of rows; fewer are refused."""
    least_words: int = 0
    """Minimum number of words per text; shorter texts are refused, or skipped as bad rows."""
    labels: LabelledRows | None = None
    """Labels of the rows and their teachers; None: the rows have no labels."""


@dataclass(frozen=True, kw_only=True)
class SecondView:
    """Settings for generating the second view of a text; the first view is the text itself."""

    kind: ViewKind = "as-is"
    mask_token: str | None = None
    """Mask token for `span-mask`; None: the tokenizer's own."""
    n_characters: int = 5
    """Length of the masked span in characters, for `span-mask`."""
    synonyms: str | None = None
    """File or folder of the synonyms, for `synonyms`."""
    model: str | None = None
    """Masked language model for `mlm`; None: the base model."""
    otherwise: str = "take another view_kind"
    """Advice in the error message for a tokenizer that has no mask token."""


@dataclass(frozen=True, kw_only=True)
class RandomNegatives:
    """Rows of each text paired with itself, and of pairs of different texts."""

    n_negatives: int
    """Number of pairs of different texts for each text."""


@dataclass(frozen=True, kw_only=True)
class SpanFields:
    """Settings of the spans that are drawn from documents."""

    document_words: int = 2048
    """Minimum number of words in each document; in scripts without spaces, two or three characters count as a word. The
    longest span has `document_words / (2 n_anchors)` tokens, the shortest a sixteenth of that (paper: 2048, so 512 and
    32). Paper: 2048 tokens, which admits some documents of fewer words. For small corpora: 128."""
    n_anchors: int = at_least(1, 2)
    """Number of anchors per document (paper, section 4.1: 2)."""
    n_positives: int = at_least(1, 2)
    """Number of positives per anchor, whose embeddings are averaged (paper: 2)."""
    relation: Relation = "any"
    """Position of positives: anywhere within reach of the anchor, right beside it, or inside it (paper: any)."""
    n_samples: int = at_least(1, 1)
    """Number of rows drawn from each document (paper: 1). Use more for small corpora."""


@dataclass(frozen=True, kw_only=True)
class SpanRows(SpanFields, Config):
    """Rows of spans, one per document: an anchor, its positives, the next anchor, its own (DeCLUTR, section 3.1).

    Anchors do not overlap and are not next to each other.
    """

    def contradictions(self) -> Contradictions:
        """Yield an error message if documents are too short for a span."""
        if self.longest < 2:
            yield (
                f"document_words is {self.document_words}; with {self.n_anchors} anchors it must be at least "
                f"{4 * self.n_anchors}"
            )

    @property
    def longest(self) -> int:
        """Number of tokens in the longest span (paper: 512)."""
        return self.document_words // (2 * self.n_anchors)

    @property
    def shortest(self) -> int:
        """Number of tokens in the shortest span (paper: 32 if the longest has 512)."""
        return max(1, self.longest // 16)

    @property
    def n_columns(self) -> int:
        """Number of spans per row."""
        return self.n_anchors * (1 + self.n_positives)


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The rows that a method makes from its text for training; rows that are already pairs stay as they are."""

    text: Text
    made: SecondView | RandomNegatives | SpanRows | None = SecondView()
    """Rows to make from the texts: two views, random negatives or spans; None: each text is a row by itself."""
    need_dropout: bool = False
    """Whether dropout is the only difference between the two views of a text."""
    per_text: int = 1
    """Number of rows made from one text."""
    name: str = "pair"
    """Word for a training row, for messages."""
    relative_length: float = 1.0
    """Number of tokens in a row, relative to a pair of sentences."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingTeacher:
    """A bi-encoder whose embeddings of the rows are the labels of the loss."""

    model: str
    pooling: Pooling | None = None
    """Pooling of the teacher; None: its own."""
    n_queued: int = 0
    """Number of rows left out of training; the teacher's embeddings of their first texts fill a queue."""
    projection: Literal["kept", "training"] = "training"
    """Use of the layer from the student's width to the teacher's: kept as part of the student, or in training only."""
    is_always_projected: bool = False
    """Whether the projection is also used if the widths are the same."""
    has_tanh: bool = False
    """Whether tanh follows the linear layer."""

    def has(self, projection: Literal["kept", "training"], width: int, dimension: int) -> bool:
        """Return whether this kind of projection is used between a student and a teacher of these widths."""
        return self.projection == projection and (self.is_always_projected or width != dimension)


@dataclass(frozen=True, kw_only=True)
class Helper:
    """A model that the loss needs besides the student and the teacher; the engine loads it."""

    field: str
    """Name of the setting that names the model."""
    form: Literal["bi", "masked", "head"]
    """Kind of model. `bi`: a bi-encoder. `masked`: a tuple of a masked language model and its tokenizer. `head`: the
    same for the base model, of which only the head is used, on the student's token embeddings."""
    pooling: Pooling | None = None
    """Pooling of a bi-encoder; None: its own."""
    otherwise: str = ""
    """Alternative that the error message gives if the base model has no language-modelling head."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """Inputs from which a method builds its loss, besides the student."""

    dimension: int | None = None
    """Width of the teacher's embeddings; None: there is no teacher."""
    queue: Tensor | None = None
    """Teacher's embeddings of the rows that are left out of training, float32 (n_queued, dimension)."""
    helpers: Mapping[str, Any] = field(default_factory=dict)
    """Name of a helper's setting -> the loaded model."""


@dataclass(frozen=True, kw_only=True)
class MethodCost:
    """Cost of a method beyond training one encoder, for plans."""

    relative: float = 1.0
    """Floating-point operations of a step, relative to those of the student alone."""
    n_encoders: int = 1
    """Number of trained encoders of the student's size, including the student."""
    loss_operations: float = 0.0
    """Floating-point operations of the loss itself for one row."""
    loss_state: float = 0.0
    """Number of values of the loss itself in a checkpoint: queues, MLPs with Adam's moments."""
