"""The settings every method shares: which models take part, and how one encoder is trained. No heavy imports."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from transencoder.errors import InputError
from transencoder.prompts import Prompts

Form = Literal["bi", "cross", "mlm"]
Precision = Literal["auto", "bf16", "fp32"]
Pooling = Literal["mean", "cls", "max"]
Head = Literal["pooler", "linear"]
Texts = Literal["sentences", "documents"]
LabelPolicy = Literal["clip", "affine", "quantile", "raw"]
CrossLoss = Literal["bce", "mse"]
BiLoss = Literal["mse", "log_cosh", "bce", "bce_clipped"]
OfEmbeddings = Literal["self_retrieval", "alignment", "uniformity", "alignment_and_uniformity", "effective_rank"]
Criterion = Literal["teacher_agreement", "start_agreement", "member_agreement", "view_preference", OfEmbeddings]
Selection = Literal["auto", "last", Criterion]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One pretrained model taking part (paper, section 2.4)."""

    start: str
    """Where the bi-encoder starts: a folder, a run, a hub id with or without `@revision`, or `minilm` (the packaged
    all-MiniLM-L6-v2)."""
    cross_start: str | None = None
    """Where the cross-encoder starts. Paper: the plain pretrained model. Without it: `start`."""
    pooling: Pooling | None = None
    """Pooling of the bi-encoder. Without it: the start's own (mean when it has none)."""
    prompt: str | None = None
    """Text that the bi-encoder reads before each text of a pair. Without it: the start's default prompt, if it has
    one."""
    document_prompt: str | None = None
    """Text that the bi-encoder reads before the second text of a pair instead, where pairs are a query and a document.
    Without it: the same."""
    revision: str | None = None
    """Hub revision of `start`."""
    cross_revision: str | None = None
    """Hub revision of `cross_start`."""
    weight: float = 1.0
    """With several members: its share in the labels and in the ensemble, above 0; normalised. Paper: equal shares."""
    policy: LabelPolicy | None = None
    """How its raw scores become targets; None: as the run's `label_policy` says."""

    bi_learning_rate: float | None = None
    """Peak learning rate of its bi-encoders; None: as `bi` says. Members of unequal size need unequal rates."""
    cross_learning_rate: float | None = None
    """Peak learning rate of its cross-encoders; None: as `cross` says."""
    bi_epochs: int | None = None
    """Passes of its bi-encoders over the pairs; None: as `bi` says."""
    cross_epochs: int | None = None
    """Passes of its cross-encoders over the pairs; None: as `cross` says."""
    pretraining_epochs: int | None = None
    """Epochs of masked language modelling over the pairs for its cross-encoders' start; None: as `pretraining` says."""

    @property
    def prompts(self) -> Prompts:
        """What its bi-encoders read before the two texts of a pair."""
        return Prompts(self.prompt, self.document_prompt)

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("weight", "bi_learning_rate", "cross_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise InputError(f"{name} is {value}; it must be a finite number above 0")
        for name, least in (("bi_epochs", 1), ("cross_epochs", 1), ("pretraining_epochs", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} is {value}; it must be {least} or more")


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How one encoder is trained. In Trans-Encoder a field left empty takes Table 16's value."""

    learning_rate: float | None = None
    """Peak learning rate. Paper, Table 16: 2e-5 for the cross-encoder, 5e-5 for the bi-encoder."""
    batch_size: int | None = None
    """Pairs a step and device. Paper, Table 16: cross 32; bi 128, 64 for large models."""
    epochs: int | None = None
    """Passes over the pairs. Paper, Table 16: graded tasks cross 1, bi 10; binary tasks cross 3, bi 15."""
    max_length: int | None = None
    """Tokens: of a sentence for the bi-encoder (Table 16: 32), of a pair for the cross-encoder (64)."""
    warmup_ratio: float | None = None
    """Share of the steps with rising rate. Paper: silent; released code and we: cross 0.1, bi 0."""
    dropout: float | None = None
    """Dropout while training, 0 to below 1; None: the model's own, 0.1 for BERT. Where the labels are close to what the
    model already says, dropout's noise can outweigh them: 0 then helps. Papers and released code: the model's own."""
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    """AdamW, or RMSProp for methods whose released code has it."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """After the warm-up the rate falls in a line to 0, or along a cosine, or stays."""
    weight_decay: float = 0.01
    """Weight decay, not on biases and LayerNorm (released code)."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm (released code); 0 switches clipping off."""
    eval_steps: int = 200
    """Steps between dev evaluations; one more at each epoch's end. Paper, section 4: 200."""
    checkpoint_steps: int = 200
    """Steps between the checkpoints a run resumes from."""
    gradient_accumulation_steps: int = 1
    """Batches a step."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    lora_rank: int | None = None
    """Rank of LoRA adapters on the encoder's linear layers, merged at the end: less memory for large models, whose
    rates are then higher, about 2e-4. None: all weights are trained (paper). Needs the package peft."""
    lora_alpha: float | None = None
    """Scale of what LoRA adds, by its rank; None: twice the rank."""
    bucket_batches: int = 64
    """Batches in a shuffled window that is sorted by length; 1 switches length bucketing off."""
    selection: Selection = "auto"
    """What chooses the checkpoint where there is no dev set (Trans-Encoder alone): the last one, or a criterion that
    needs no labels, on pairs that are held out; `auto`: the one that cost least on runs that had a dev set."""

    @property
    def outcome(self) -> dict[str, Any]:
        """What decides the weights that come out, for a stage's key: all but how often checkpoints are written.

        Fields that came later count when they are not at their defaults, so that older stages keep their keys.
        """
        later = {"optimizer": "adamw", "schedule": "linear", "lora_rank": None, "lora_alpha": None}
        found = {name: value for name, value in asdict(self).items() if later.get(name) != value}
        del found["selection"]  # in the key as the criterion that it comes to
        return found | {"checkpoint_steps": None}

    def __post_init__(self) -> None:
        """Refuse values that cannot be trained with."""
        for name in ("batch_size", "epochs", "max_length", "eval_steps", "checkpoint_steps"):
            _at_least(name, getattr(self, name), 1)
        _at_least("gradient_accumulation_steps", self.gradient_accumulation_steps, 1)
        _at_least("bucket_batches", self.bucket_batches, 1)
        _at_least("lora_rank", self.lora_rank, 1)
        if self.lora_alpha is not None and not (self.lora_rank and 0.0 < self.lora_alpha < math.inf):
            raise InputError(f"lora_alpha is {self.lora_alpha}; it must be a finite number above 0, with a lora_rank")
        _at_least("learning_rate", self.learning_rate, 0.0)
        _at_least("weight_decay", self.weight_decay, 0.0)
        _at_least("max_grad_norm", self.max_grad_norm, 0.0)
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout is {self.dropout}; it is a share of the activations, 0 to below 1")
        if self.warmup_ratio is not None and not 0.0 <= self.warmup_ratio < 1.0:
            raise InputError(f"warmup_ratio is {self.warmup_ratio}; it is a share of the steps, 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Masked language modelling over the pairs, before the cross-encoder learns labels.

    Lengths, weight decay, clipping, accumulation, bucketing and checkpoints are those of `cross`; dropout is the
    model's own.
    """

    epochs: int = 0
    """Passes over the pairs; 0: none (paper). For starts that never read two texts at once: such a cross-encoder only
    copies its teacher."""
    learning_rate: float = 1e-4
    """Peak learning rate of AdamW. Higher for small models."""
    batch_size: int = 64
    """Pairs a step and device; of a symmetric task each pair comes in both orders."""
    warmup_ratio: float = 0.1
    """Share of the steps with rising rate."""
    mask_ratio: float = 0.15
    """Share of a pair's tokens to guess, above 0 and below 1. BERT: 0.15."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be trained with."""
        _at_least("epochs", self.epochs, 0)
        _at_least("batch_size", self.batch_size, 1)
        _at_least("learning_rate", self.learning_rate, 0.0)
        if not 0.0 <= self.warmup_ratio < 1.0:
            raise InputError(f"warmup_ratio is {self.warmup_ratio}; it is a share of the steps, 0 to below 1")
        if not 0.0 < self.mask_ratio < 1.0:
            raise InputError(f"mask_ratio is {self.mask_ratio}; it is a share of the tokens, above 0 and below 1")

    def as_fit(self, cross: FitConfig) -> FitConfig:
        """How it is trained, `epochs` being at least 1, with what it takes from the cross-encoder's config."""
        own = {name: getattr(self, name) for name in ("epochs", "learning_rate", "batch_size", "warmup_ratio")}
        return replace(cross, **own, dropout=None, lora_rank=None, lora_alpha=None)


def nearest(name: str, allowed: Sequence[str]) -> str:
    """The allowed name most like `name`, for an error message."""
    import difflib

    short_for = next((each for each in allowed if _initials(each) == name.lstrip("-")), None)
    if short_for is not None:
        return short_for
    matches = difflib.get_close_matches(re.sub(r"[-_]", "", name), [re.sub(r"[-_]", "", a) for a in allowed], 1, 0.0)
    return next(a for a in allowed if re.sub(r"[-_]", "", a) == matches[0])


def _initials(name: str) -> str | None:
    """`bi.learning_rate` or `--bi.learning-rate` -> `bi.lr`; None for a single word."""
    parent, dot, last = name.lstrip("-").rpartition(".")
    words = re.split(r"[-_]", last)
    return parent + dot + "".join(word[:1] for word in words) if len(words) > 1 else None


def _at_least(name: str, value: float | None, low: float) -> None:
    if value is not None and not value >= low:
        raise InputError(f"{name} is {value}; it must be at least {low}")
