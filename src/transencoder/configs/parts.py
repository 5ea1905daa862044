"""The parts that a method is made of, as it hands them to the engine: text, rows, labels, teachers, helpers, cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transencoder.configs.choices import Pooling, Texts
from transencoder.configs.fit import FitConfig

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor

ViewKind = Literal["as-is", "span-mask", "word-deletion", "synonyms", "mlm"]

PairMaker = Callable[["Dataset", Path, int], "Dataset"]
"""Makes rows to train on of texts, in a file, from a seed; see `transencoder.views.PairMaker`."""


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
    usable: Callable[[Dataset], Dataset] | None = None
    """Leaves out texts that cannot be trained on, or refuses them; None: all can."""
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
class TrainingRows:
    """What a method makes of its text to train on; rows that are pairs already stay as they are."""

    text: Text
    made: SecondView | Callable[[], PairMaker] | None = SecondView()
    """The second view of each text, or what makes rows of the texts; None: each text stands alone."""
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
