"""What the configs of methods that learn from a teacher's embeddings have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transencoder.config import Pooling
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

Projection = Literal["kept", "training", "auto"]


@dataclass(frozen=True, kw_only=True)
class Taught:
    """What methods with a teacher are given besides the start and the text."""

    teacher: str
    """A larger bi-encoder: a folder, a run, a hub id or `minilm`. Its embeddings of the texts are computed once; runs
    on the same texts can take them from each other (`reuse_from`)."""
    teacher_pooling: Pooling | None = None
    """Pooling of `teacher`; None: its own, mean for a plain model, as released SimCSE models are, which want cls."""
    projection: Projection = "auto"
    """A linear layer from the student's width to the teacher's: `kept`, a part of the student, whose embeddings are
    then of the teacher's width; in `training` only; `auto`: in training where the widths differ, else none."""

    has_tanh: ClassVar[bool] = False
    """Whether tanh follows the linear layer."""

    @property
    def taught_by(self) -> str:
        """The teacher."""
        return self.teacher

    @property
    def teacher_fields(self) -> tuple[str, ...]:
        """Which it is, and how it pools."""
        return ("teacher", "teacher_pooling")

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """None without a teacher: see `distillation_loss`."""
        raise NotImplementedError(f"{type(self).__name__} learns from a teacher only")

    def projected(self, student: SentenceTransformer, dimension: int) -> SentenceTransformer:
        """The student, with the projection that it keeps."""
        from transencoder.encoders import add_projection

        return add_projection(student, dimension, tanh=self.has_tanh) if self.projection == "kept" else student

    def has_projector(self, student: SentenceTransformer, dimension: int) -> bool:
        """Whether a projection stands between student and teacher while training, and not afterwards."""
        if self.projection == "auto":
            return student.get_embedding_dimension() != dimension
        return self.projection == "training"

    def projector(self, student: SentenceTransformer, dimension: int) -> nn.Module | None:
        """The projection of training alone; None: there is none."""
        from torch import nn

        if not self.has_projector(student, dimension):
            return None
        width = student.get_embedding_dimension()
        assert width is not None, "every model here has embeddings of one size"
        linear = nn.Linear(width, dimension)
        return nn.Sequential(linear, nn.Tanh()) if self.has_tanh else linear


@dataclass(frozen=True, kw_only=True)
class OneByOne(Taught, Sentences, StartMethod):
    """A method whose student learns each sentence by itself; a row of two columns is two sentences."""

    @property
    def account(self) -> str:
        """The same for sentences and for rows of two."""
        return self.about

    @property
    def row_name(self) -> str:
        """What is trained on."""
        return "pair" if self.is_paired else "sentence"

    @property
    def relative_length(self) -> float:
        """A sentence is half a pair."""
        return 1.0 if self.is_paired else 0.5

    def pair_maker(self, mask_token: str | None) -> None:
        """Each sentence stands alone."""
