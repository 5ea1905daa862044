"""What the configs of all methods have, and the parts that a method hands to the engine.

Every run has a folder, what is measured, how data is read and what it runs on. A method's parts are text, rows, labels,
teachers, helpers and cost.
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
    """A method's config; a subclass is one paper."""

    about: ClassVar[str]
    """What the method does, in a sentence or two, for reports and model cards."""
    pipeline: ClassVar[Pipeline]
    """Which kind of run the engine builds for it."""
    reads_whole_texts: ClassVar[bool] = True
    """Whether an encoder reads each text from its beginning; else spans or blocks of them."""

    output: str = path_to_write("transencoder-run")
    """The run folder. The same command on the same folder goes on where it stopped."""
    dev: str | Dataset | None = source(None)
    """Labelled pairs that choose the checkpoint: a file with scores or a task name. None: chosen without labels, see
    `selection`."""
    tests: tuple[str, ...] = ()
    """Tasks, suites or labelled files scored once, at the end."""
    score_tests: bool = True
    """Whether the tests are scored; else they are only told apart from the training text (exclude_test_sentences)."""
    task_kind: Literal["graded", "binary"] = "graded"
    """Graded similarity (Spearman) or yes/no relations (ROC-AUC): picks the metric, and defaults (Table 16)."""
    max_length: int | Literal["auto"] | None = at_least(1, None)
    """Tokens that are read of a text in training, and twice as many of a pair by a cross-encoder; `auto`: as many as 98
    of 100 texts have, up to what the base model reads; None: each encoder's own setting."""
    precision: Precision = "auto"
    """bf16 autocast where the hardware has it (`auto`), always, or never (`fp32`)."""
    device: str | None = None
    """Device such as `cpu` or `cuda:0`; None: the best there is."""
    attn_implementation: str | None = None
    """How transformers compute attention: sdpa, eager, or flash_attention_2 where its package is installed; None: as
    the base model does by itself. Last digits change, as with another device."""
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
        if self.max_length is not None and not self.reads_whole_texts:
            yield f"max_length is {self.max_length}, and this method reads parts of texts; give fit.max_length"
        if self.test_every_eval and not (self.tests and self.score_tests and self.has_evaluations):
            yield (
                "test_every_eval needs tests, score_tests true, and dev or what stands in for it; give them, or leave "
                "it out"
            )

    def with_lengths(self, text: int, pair: int) -> Self:
        """Return it with so many tokens that its bi-encoders read of a text, and its cross-encoders of a pair."""
        raise NotImplementedError

    @property
    def has_evaluations(self) -> bool:
        """Whether checkpoints are evaluated during training; else the last one is kept."""
        return self.dev is not None


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """Pairs with gold labels, in the place of unlabelled text, and cross-encoders that learn and give such labels."""

    kind: Literal["classes", "scores"]
    sources: tuple[str | Dataset, ...]
    """At least one, all with the same classes or scores."""
    class_names: tuple[str, ...] = ()
    """The classes in the order of their numbers; empty: as the data say."""
    classes_field: str
    """The setting that holds the names of the classes once the data are read."""
    column: str | None = None
    """Of the labels; None: as usual."""
    score_range: tuple[float, ...] = (0.0, 1.0)
    """Lowest and highest score of files."""
    n_rows: int | None = None
    """So many are drawn; None: all."""
    teachers: tuple[str, ...] = ()
    """Cross-encoders that label the rows too, beside gold."""
    teachers_fit: FitConfig
    """How they learn the labels, if they have not yet."""
    new_head: bool = False
    """Whether they learn the labels whatever they had learned before."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """Which text a run trains on, and how its rows are read."""

    source: str | Dataset
    kind: Texts = "sentences"
    columns: tuple[str, ...] = ()
    """Names of the columns of text; empty: well-known ones."""
    is_paired: bool = False
    """Whether a row has two texts, taken for two views of one meaning."""
    n_sentences: int | None = None
    """So many are drawn; None: all."""
    least_rows: int = 2
    """Fewer are refused."""
    least_words: int = 0
    """Texts of fewer words are refused, or left out as bad rows."""
    labels: LabelledRows | None = None
    """Where the rows are labelled pairs: what else is to be known of them."""


@dataclass(frozen=True, kw_only=True)
class SecondView:
    """What makes the second of two views of a text; the first is the text itself."""

    kind: ViewKind = "as-is"
    mask_token: str | None = None
    """For `span-mask`; None: the tokenizer's own."""
    n_characters: int = 5
    """For `span-mask`: the length of the span."""
    synonyms: str | None = None
    """For `synonyms`: their file or folder."""
    model: str | None = None
    """For `mlm`: the masked language model; None: the base model."""
    otherwise: str = "take another view_kind"
    """What to do where the tokenizer has no mask token, for the message."""


@dataclass(frozen=True, kw_only=True)
class RandomNegatives:
    """Each text with itself, and pairs of different texts beside it."""

    n_negatives: int
    """Pairs of different texts for each text."""


@dataclass(frozen=True, kw_only=True)
class SpanRows(Config):
    """A row for each document: an anchor and its positives, the next one and its own (DeCLUTR, section 3.1)."""

    document_words: int = 2048
    """Words that a document must have; the longest span has a 2 `n_anchors`-th of so many tokens (paper: 2048, so
    512)."""
    n_anchors: int = at_least(1, 2)
    """Anchors a document (paper: 2); they do not overlap and are not next to each other."""
    n_positives: int = at_least(1, 2)
    """Positives an anchor (paper: 2)."""
    relation: Relation = "any"
    """Where positives lie: anywhere within reach of the anchor, right beside it, or inside it (paper: any)."""
    n_samples: int = at_least(1, 1)
    """Rows of each document, each drawn anew."""

    def contradictions(self) -> Contradictions:
        """Yield that documents are too short for a span."""
        if self.longest < 2:
            yield (
                f"document_words is {self.document_words}; with {self.n_anchors} anchors it must be at least "
                f"{4 * self.n_anchors}"
            )

    @property
    def longest(self) -> int:
        """Tokens of the longest span (paper: 512)."""
        return self.document_words // (2 * self.n_anchors)

    @property
    def shortest(self) -> int:
        """Tokens of the shortest span (paper: 32 of 512)."""
        return max(1, self.longest // 16)

    @property
    def n_columns(self) -> int:
        """Spans a row."""
        return self.n_anchors * (1 + self.n_positives)


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """What a method makes of its text to train on; rows that are pairs already stay as they are."""

    text: Text
    made: SecondView | RandomNegatives | SpanRows | None = SecondView()
    """The second view of each text, or other rows of the texts; None: each text stands alone."""
    need_dropout: bool = False
    """Whether nothing but dropout makes two views of a text differ."""
    per_text: int = 1
    """Rows that are made of one text."""
    name: str = "pair"
    """What a row to train on is called."""
    relative_length: float = 1.0
    """Tokens of a row, those of a pair of sentences being 1."""


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """A bi-encoder whose embeddings of the rows the loss is given as labels."""

    model: str
    pooling: Pooling | None = None
    """None: its own."""
    n_queued: int = 0
    """Rows on which nothing is trained, so that the teacher's embeddings of their first texts can fill a queue."""
    projection: Literal["kept", "training"] = "training"
    """Whether a layer from the student's width to the teacher's is a part of the student, or of training alone."""
    is_always_projected: bool = False
    """Whether it is there where the widths are the same too."""
    has_tanh: bool = False
    """Whether tanh follows the linear layer."""

    def has(self, projection: Literal["kept", "training"], width: int, dimension: int) -> bool:
        """Tell whether there is such a projection between a student and a teacher of these widths."""
        return self.projection == projection and (self.is_always_projected or width != dimension)


@dataclass(frozen=True, kw_only=True)
class Helper:
    """A model that the loss needs besides the student and the teacher; it comes loaded."""

    field: str
    """The setting that names it."""
    form: Literal["bi", "masked", "head"]
    """A bi-encoder; a masked language model with its tokenizer, as a pair; or, of the base model, what `masked` gives,
    its encoder being the student's."""
    pooling: Pooling | None = None
    """Of a bi-encoder; None: its own."""
    otherwise: str = ""
    """What else can be given, where the base model has no language-modelling head, for the message."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a loss is made with besides the student."""

    dimension: int | None = None
    """Of the teacher's embeddings; None: there is no teacher."""
    queue: Tensor | None = None
    """float32 (n_queued, dimension), the teacher's embeddings of what nothing is trained on."""
    helpers: Mapping[str, Any] = field(default_factory=dict)
    """Setting -> the loaded model."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a method costs beyond one encoder's training, for plans."""

    relative: float = 1.0
    """Floating-point operations of a step, the student's alone being 1."""
    n_encoders: int = 1
    """Encoders of the student's size that are trained, itself included."""
    loss_operations: float = 0.0
    """Floating-point operations of the loss itself for one row."""
    loss_state: float = 0.0
    """Numbers that a checkpoint holds of the loss itself: queues, MLPs with Adam's moments."""
