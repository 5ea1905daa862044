"""What the configs of methods that learn from a teacher's embeddings have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from transencoder.configs.choices import Pooling
from transencoder.configs.encoder import SentenceEncoder
from transencoder.configs.parts import Given, Teacher, TrainingRows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

Projection = Literal["kept", "training", "auto"]


@dataclass(frozen=True, kw_only=True)
class TeacherFields:
    """What methods with a teacher are given besides the base model and the text."""

    inputs: ClassVar[tuple[str, ...]] = ("teacher", "teacher_pooling")

    teacher: str
    """A larger bi-encoder: a folder, a run, a hub id or `minilm`. Its embeddings of the texts are computed once; runs
    on the same texts can take them from each other (`reuse_from`)."""
    teacher_pooling: Pooling | None = None
    """Pooling of `teacher`; None: its own, mean for a plain model, as released SimCSE models are, which want cls."""
    projection: Projection = "auto"
    """A linear layer from the student's width to the teacher's: `kept`, a part of the student, whose embeddings are
    then of the teacher's width; in `training` only; `auto`: in training where the widths differ, else none."""

    @property
    def distillation(self) -> Teacher:
        """The teacher, and the projection to its width."""
        return Teacher(
            model=self.teacher,
            pooling=self.teacher_pooling,
            projection="kept" if self.projection == "kept" else "training",
            is_always_projected=self.projection != "auto",
        )


def training_projector(teacher: Teacher, student: SentenceTransformer, given: Given) -> nn.Module | None:
    """Make the projection of training alone, from the student's width to the teacher's; None: there is none."""
    from torch import nn

    width, dimension = width_of(student), given.dimension
    assert dimension is not None, "the engine gives it where there is a teacher"
    if not teacher.has("training", width, dimension):
        return None
    linear = nn.Linear(width, dimension)
    return nn.Sequential(linear, nn.Tanh()) if teacher.has_tanh else linear


def width_of(student: SentenceTransformer) -> int:
    """Return how many numbers an encoder's embeddings have."""
    width = student.get_embedding_dimension()
    assert width is not None, "every model here has embeddings of one size"
    return width


@dataclass(frozen=True, kw_only=True)
class SentenceStudent(TeacherFields, SentenceEncoder):
    """A method whose student learns each sentence by itself; a row of two columns is two sentences."""

    @property
    def description(self) -> str:
        """The same for sentences and for rows of two."""
        return self.about

    @property
    def rows(self) -> TrainingRows:
        """Each sentence alone, half as long as a pair."""
        rows = TrainingRows(text=self.text, made=None)
        return rows if self.is_paired else replace(rows, name="sentence", relative_length=0.5)
