"""Masked language modelling (Devlin et al., NAACL 2019): go on on one's own text, or a small model from nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from transencoder.config import FitConfig
from transencoder.errors import InputError
from transencoder.methods.method import Method
from transencoder.methods.start import Sentences

_SHORTEST_BLOCK = 8
_HEAD_WIDTH = 64
"""BERT's, of each attention head."""


@dataclass(frozen=True, kw_only=True)
class MLMFit(FitConfig):
    """How the language model is trained."""

    learning_rate: float | None = None
    """Peak learning rate of AdamW; None: 5e-5 for a pretrained model, 5e-4 for one from nothing."""
    batch_size: int | None = 64
    """Blocks a step and device."""
    epochs: int | None = 1
    """Passes over the text."""
    max_length: int | None = 128
    """Tokens of a block, and of the texts that a model from nothing can read."""
    warmup_ratio: float | None = 0.06
    """Share of the steps with rising rate."""


@dataclass(frozen=True, kw_only=True)
class MLM(Sentences, Method):
    """Masked language modelling: a pretrained model learns the words of a domain, or a small one is made from nothing.

    No bi-encoder yet: the run's folder is the start of one.
    """

    pipeline = "language-model"
    about = "It learned to guess masked words of the text, packed in reading order (masked language modelling)."

    start: str | None = None
    """The pretrained model to go on with, with its language-modelling head: a folder or a hub id. Not with
    from_scratch."""
    revision: str | None = None
    """Hub revision of `start`."""
    new_head: bool = False
    """Give a start without a language-modelling head, such as a bi-encoder, a new one."""
    columns: tuple[str, ...] = ()
    """Name of the text column; empty: `text`, `sentence`, else the first."""
    from_scratch: bool = False
    """Make a lower-cased word-piece tokenizer of the text, and a BERT with random weights."""
    layers: int = 4
    """Of a model from nothing: transformer layers."""
    width: int = 256
    """Of a model from nothing: size of its embeddings, a multiple of 64."""
    vocabulary: int = 12000
    """Of a model from nothing: word pieces."""
    mask_ratio: float = 0.15
    """Share of the tokens to guess, above 0 and below 1 (BERT: 0.15)."""
    held_out: float = 0.01
    """Share of the text's blocks that is not trained on, to measure the model before and after; 0: none."""
    fit: MLMFit = field(default_factory=MLMFit)
    """How the model is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        if self.from_scratch == (self.start is not None):
            raise InputError("give either start, to go on with a pretrained model, or from_scratch")
        if len(self.columns) > 1:
            raise InputError(f"columns names {len(self.columns)} columns; sentences have one")
        if self.dev is not None:
            raise InputError("a language model keeps its last weights, and dev would choose nothing; give it as a test")
        if not 0.0 < self.mask_ratio < 1.0:
            raise InputError(f"mask_ratio is {self.mask_ratio}; it is a share of the tokens, above 0 and below 1")
        if not 0.0 <= self.held_out < 1.0:
            raise InputError(f"held_out is {self.held_out}; it is a share of the text, 0 to below 1")
        if self.fit.lora_rank is not None:
            raise InputError("fit.lora_rank is given, and a language model trains all its weights: leave it out")
        if (self.fit.max_length or 0) < _SHORTEST_BLOCK:
            raise InputError(f"fit.max_length is {self.fit.max_length}; it must be at least {_SHORTEST_BLOCK}")
        if self.from_scratch:
            self._check_shape()
        else:
            self._check_no_shape()

    def _check_shape(self) -> None:
        for name, low in (("layers", 1), ("vocabulary", 100)):
            if getattr(self, name) < low:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {low}")
        if self.width < _HEAD_WIDTH or self.width % _HEAD_WIDTH:
            raise InputError(f"width is {self.width}; it must be a multiple of {_HEAD_WIDTH}, such as 256")
        for name in ("revision", "new_head"):
            if getattr(self, name):
                raise InputError(f"{name} is for a start; leave it out with from_scratch")

    def _check_no_shape(self) -> None:
        for setting in fields(self):
            if setting.name in ("layers", "width", "vocabulary") and getattr(self, setting.name) != setting.default:
                raise InputError(f"{setting.name} is for from_scratch; a start has its own")
