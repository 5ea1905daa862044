"""Training settings of one encoder, a method's own defaults for them, and the members and other teachers of a run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from transencoder.configs import ranges
from transencoder.configs.ranges import Config, Contradictions, LabelPolicy, Pooling, Selection
from transencoder.models import Prompts

_LATER = {"optimizer", "schedule", "trained_share", "matryoshka_dims", "adam_beta1", "adam_beta2", "adam_epsilon"}
"""Fields that were added after the first runs: at their defaults they are left out of keys, which stay the same."""


NEEDED = ("learning_rate", "batch_size", "epochs", "max_length", "warmup_ratio")
"""Fields that each method gives a default, or computes one for; None is not a value that a training can use."""


@dataclass(frozen=True, kw_only=True)
class FitConfig(Config):
    """Training settings of one encoder. In Trans-Encoder a field left empty takes the value of Table 16."""

    learning_rate: float | None = ranges.finite_from_zero(None)
    """Peak learning rate. Paper, Table 16: 2e-5 for the cross-encoder, 5e-5 for the bi-encoder."""
    head_learning_rate: float | None = ranges.above_zero(None)
    """Peak learning rate of the parameters outside the pretrained transformer: a classifier, a projector, a dense
    layer, a temperature. BERT's pooler belongs to the transformer. New layers need a higher rate in a short training.
    In Trans-Encoder it applies to all members. None: the same as for all other parameters (papers)."""
    batch_size: int | None = ranges.at_least(1, None)
    """Number of pairs per step and device. Paper, Table 16: cross 32; bi 128, 64 for large models."""
    epochs: int | None = ranges.at_least(1, None)
    """Number of passes over the pairs. Paper, Table 16: graded tasks cross 1, bi 10; binary tasks cross 3, bi 15."""
    max_length: int | None = ranges.at_least(1, None)
    """Maximum number of tokens: of a sentence for the bi-encoder, of a pair for the cross-encoder (Table 16: 32 and
    64)."""
    warmup_ratio: float | None = ranges.share(None, " of the steps")
    """Share of the steps in which the learning rate rises. Paper: not stated; released code and here: cross 0.1,
    bi 0."""
    dropout: float | None = ranges.share(None, " of the activations")
    """Dropout probability in training, 0 to below 1; None: the model's own, 0.1 for BERT. If the labels are close to
    the model's own scores, the noise of dropout can outweigh them: 0 then helps. Papers and released code: the model's
    own."""
    optimizer: Literal["adamw", "adamw_hf", "bert_adam", "rmsprop"] = "adamw"
    """Optimizer. `adamw`: PyTorch's AdamW. `adamw_hf`: AdamW of transformers before version 5 (used by the papers'
    released code, with `adam_epsilon` 1e-6), which adds epsilon before the bias correction. `bert_adam`: the same
    without bias correction, as in BERT, which makes the first hundred steps three to six times as large. `rmsprop`:
    RMSprop, as in some methods (released code); it ignores `adam_beta1`, `adam_beta2` and `adam_epsilon`."""
    adam_beta1: float = ranges.share(0.9, " of a gradient's mean")
    """Decay rate of the running mean of gradients: the share that is kept at each step."""
    adam_beta2: float = ranges.share(0.999, " of a square's mean")
    """Decay rate of the running mean of squared gradients: the share that is kept at each step. CKD's released code:
    0.98."""
    adam_epsilon: float = ranges.above_zero(1e-8)
    """Constant added to the square root of the running mean of squared gradients."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after the warm-up: it falls linearly to 0, falls along a cosine, or stays constant."""
    weight_decay: float = ranges.at_least(0, 0.01)
    """Weight decay, not applied to biases and LayerNorm (released code)."""
    max_grad_norm: float = ranges.at_least(0, 1.0)
    """Norm to which gradients are clipped (released code); 0 switches clipping off."""
    eval_steps: int = ranges.at_least(1, 200)
    """Number of steps between dev evaluations; one more follows at the end of each epoch. Paper, section 4: 200."""
    patience_epochs: int | None = ranges.at_least(1, None)
    """Number of epochs without a better checkpoint after which training stops, if dev or a criterion chooses the
    checkpoint. A bi-encoder then nearly always keeps the checkpoint that the whole training would have kept; a
    cross-encoder gets better until its end. None: train to the end (papers). Released code: SCT and ConGen 7, CKD 3."""
    checkpoint_steps: int | None = ranges.at_least(1, None)
    """Number of steps between the checkpoints that a run resumes from; None: one per minute, or fewer if they would
    take more than a fiftieth of the time (under torchrun this is checked at every tenth step)."""
    save_steps: int | None = ranges.at_least(1, None)
    """Number of steps between models that are saved during training, ready to load, in the run's `steps/`; None: none.
    If two copies are trained, the first is saved. Nothing is saved of a training that is reused from another run."""
    gradient_accumulation_steps: int = ranges.at_least(1, 1)
    """Number of batches per optimizer step."""
    mini_batch_size: int | None = ranges.at_least(1, None)
    """Number of texts that a bi-encoder embeds at once, whatever the batch size, so that contrastive batches may exceed
    the memory. Each text is embedded twice (GradCache, Gao et al., RepL4NLP 2021). None: the whole batch."""
    matryoshka_dims: tuple[int, ...] = ()
    """Widths to which a bi-encoder's embeddings can be truncated after training, such as 128 and 64; the loss is the
    sum over these and the full width (MatryoshkaLoss of sentence-transformers; Kusupati et al., NeurIPS 2022). Only for
    losses of cosines without a projector or a queue."""
    gradient_checkpointing: bool = False
    """Whether to recompute activations in the backward pass, which takes less memory and more time."""
    lora_rank: int | None = ranges.at_least(1, None)
    """Rank of LoRA adapters on the encoder's linear layers, merged at the end. They save memory with large models, and
    need a higher learning rate, about 2e-4. None: all weights are trained (paper). Needs the package peft."""
    lora_alpha: float | None = None
    """Scale of the LoRA update, relative to the rank; None: twice the rank."""
    trained_share: float | None = ranges.between(0.0, 1.0, None, "it is a share, 0 to 1")
    """Share of the weight change from training, 0 to 1, that is added to a bi-encoder's base weights when it is
    evaluated and saved (WiSE-FT, Wortsman et al., CVPR 2022). With 0.5, it loses less on other text. None: 1 (papers);
    in Trans-Encoder's preset `standard` 0.5 if the base model looks trained with labels and is the only teacher."""
    bucket_batches: int = ranges.at_least(1, 64)
    """Number of batches in a shuffled window that is sorted by length. Where a loss takes each pair by itself, pairs
    with the same longer sentence stay together, since it is then encoded once. 1: random batches."""
    selection: Selection = "auto"
    """Rule that chooses the checkpoint without a dev set (Trans-Encoder only): `last`, or a criterion that needs no
    labels, computed on held-out pairs. `auto`: the rule that lost least on runs that had a dev set; in preset
    `standard`, `last`."""

    def contradictions(self) -> Contradictions:
        """Yield an error message for each contradiction between fields."""
        is_scale = self.lora_alpha is None or (self.lora_rank and 0.0 < self.lora_alpha < float("inf"))
        if not is_scale:
            yield f"lora_alpha is {self.lora_alpha}; it must be above 0 and finite, with a lora_rank"
        if self.save_steps is not None and (self.lora_rank is not None or self.keeps_part):
            yield (
                f"save_steps is {self.save_steps}, and lora_rank and trained_share finish the model only at the end of "
                "training; leave one of them out"
            )
        if any(each < 1 for each in self.matryoshka_dims) or len({*self.matryoshka_dims}) < len(self.matryoshka_dims):
            yield f"matryoshka_dims is {list(self.matryoshka_dims)}; each must be at least 1, and given once"
        if self.keeps_part and self.lora_rank is not None:
            yield f"trained_share is {self.trained_share}, and lora_rank scales what is trained too; give one of them"

    def of_patience(self, name: str, *, is_chosen: bool, remedy: str = "dev") -> Contradictions:
        """Yield an error message if `name`, this fit, waits for better checkpoints and nothing tells which are."""
        if self.patience_epochs is not None and not is_chosen:
            yield (
                f"{name}.patience_epochs is {self.patience_epochs}, and nothing chooses among checkpoints; give "
                f"{remedy}, or leave it out (--{name}.patience-epochs none)"
            )

    def of_bi_encoders(self) -> Contradictions:
        """Yield an error message for each bi-encoder setting that is given here, in `cross`, for cross-encoders."""
        if self.mini_batch_size is not None:
            yield (
                f"cross.mini_batch_size is {self.mini_batch_size}, and a cross-encoder scores each pair alone; "
                "give cross.gradient_accumulation_steps instead"
            )
        if self.matryoshka_dims:
            yield f"cross.matryoshka_dims is {list(self.matryoshka_dims)}, and cross-encoders have no embeddings"

    @property
    def keeps_part(self) -> bool:
        """Whether weights between the base model's and the trained ones are kept."""
        return self.trained_share is not None and self.trained_share < 1.0

    @property
    def key_settings(self) -> dict[str, Any]:
        """Settings that determine the trained weights, for a stage's key: not how often checkpoints are written.

        Fields that are None are left out, and `selection`, which the key contains as the criterion it resolves to.
        Fields of `_LATER` are included only if they differ from their defaults.
        """
        found = {
            name: value
            for name, value in asdict(self).items()
            if value is not None and not (name in _LATER and value == getattr(FitConfig, name))
        }
        del found["selection"]  # the key contains the criterion that it resolves to
        found.pop("save_steps", None)
        return found | {"checkpoint_steps": None}


Default = tuple[Any, str]
"""A method's default of a training setting, and its help text with the value's source."""


def fit_defaults(base: Mapping[str, Default] | None = None, /, **own: Default) -> Any:
    """Declare a method's `fit` field: the values of its paper or released code, each with a help text.

    `--help` and the docs show these texts instead of `FitConfig`'s. In Python, change some of the values with
    `dataclasses.replace(SimCSE.fit, epochs=2)`.

    Args:
        base: Defaults of another method, on which this one builds.
        own: Setting -> (value, text).
    """
    defaults = {**(base or {}), **own}
    return field(
        default=FitConfig(**{name: value for name, (value, _) in defaults.items()}),
        metadata={"helps": {name: text for name, (_, text) in defaults.items()}},
    )


SIMCSE_FIT: dict[str, Default] = {
    "learning_rate": (
        3e-5,
        "Peak learning rate of AdamW. Released code: BERT-base and RoBERTa-large 3e-5, the others 1e-5.",
    ),
    "batch_size": (64, "Number of sentences per step and device. Released code: BERT 64, RoBERTa 512."),
    "epochs": (1, "Number of passes over the sentences. Released code: 1, over a million."),
    "max_length": (32, "Maximum number of tokens of a sentence."),
    "warmup_ratio": (0.0, "Share of the steps in which the learning rate rises. Released code: none."),
    "weight_decay": (0.0, "AdamW weight decay. Released code: none."),
    "eval_steps": (
        125,
        "Number of steps between dev evaluations; one more follows at the end of each epoch. SimCSE's released "
        "code: 125.",
    ),
    "bucket_batches": (
        1,
        "Number of batches in a window that is sorted by length. 1, so that the negatives are of any length as in the "
        "released code; more is faster.",
    ),
}
"""SimCSE's released values for BERT-base, which methods that build on it share."""


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(Config):
    """Settings of masked language modelling on the pairs, before the cross-encoder learns labels.

    Lengths, optimizer, schedule, weight decay, clipping, accumulation, bucketing and checkpoints are those of `cross`;
    dropout is the model's own.
    """

    epochs: int = ranges.at_least(0, 0)
    """Number of passes over the pairs; 0: none (paper). For base models that were never trained on two texts at once:
    without it, their cross-encoder only copies its teacher."""
    learning_rate: float = ranges.finite_from_zero(1e-4)
    """Peak learning rate. Small models need a higher one."""
    batch_size: int = ranges.at_least(1, 64)
    """Number of pairs per step and device; in a symmetric task each pair is used in both orders."""
    warmup_ratio: float = ranges.share(0.1, " of the steps")
    """Share of the steps in which the learning rate rises."""
    mask_ratio: float = ranges.share_of_tokens(0.15)
    """Share of a pair's tokens to predict, above 0 and below 1. BERT: 0.15."""

    def as_fit(self, cross: FitConfig) -> FitConfig:
        """Return the training settings, completed from the cross-encoder's; `epochs` must be at least 1."""
        own = {name: getattr(self, name) for name in ("epochs", "learning_rate", "batch_size", "warmup_ratio")}
        return replace(
            cross,
            **own,
            dropout=None,
            lora_rank=None,
            lora_alpha=None,
            head_learning_rate=None,
            save_steps=None,
            patience_epochs=None,
        )


@dataclass(frozen=True, kw_only=True)
class Member(Config):
    """Settings of one member: a pretrained model that takes part in the run (paper, section 2.4)."""

    start: str
    """Base model of the bi-encoder: a folder, a run, a hub id with or without `@revision`, or `minilm` (the packaged
    all-MiniLM-L6-v2)."""
    cross_start: str | None = None
    """Base model of the cross-encoder. Paper: the plain pretrained model. None: `start`."""
    pooling: Pooling | None = None
    """Pooling of the bi-encoder. None: the base model's own (mean if it has none)."""
    prompt: str | None = None
    """Prompt that the bi-encoder reads before each text of a pair. None: the base model's default prompt, if it has
    one."""
    document_prompt: str | None = None
    """Prompt that the bi-encoder reads before the second text of a pair instead, if pairs are a query and a document.
    None: the same as for the first text."""
    revision: str | None = None
    """Hub revision of `start`."""
    cross_revision: str | None = None
    """Hub revision of `cross_start`."""
    weight: float = ranges.above_zero(1.0)
    """Weight of the member in the labels and in the ensemble, if there are several: above 0, normalised. Paper: equal
    weights."""
    policy: LabelPolicy | None = None
    """Label policy, which maps the member's raw scores to targets; None: the run's `label_policy`."""

    bi_learning_rate: float | None = ranges.above_zero(None)
    """Peak learning rate of the member's bi-encoders; None: as in `bi`. Members of different sizes need different
    rates."""
    cross_learning_rate: float | None = ranges.above_zero(None)
    """Peak learning rate of the member's cross-encoders; None: as in `cross`."""
    bi_epochs: int | None = ranges.at_least(1, None)
    """Number of passes of the member's bi-encoders over the pairs; None: as in `bi`."""
    cross_epochs: int | None = ranges.at_least(1, None)
    """Number of passes of the member's cross-encoders over the pairs; None: as in `cross`."""
    pretraining_epochs: int | None = ranges.at_least(0, None)
    """Number of epochs of masked language modelling on the pairs, before the member's cross-encoders learn labels;
    None: as in `pretraining`."""

    @property
    def prompts(self) -> Prompts:
        """Prompts of the member's bi-encoders for the two texts of a pair."""
        return Prompts(self.prompt, self.document_prompt)


@dataclass(frozen=True, kw_only=True)
class OtherTeacher(Config):
    """Settings of a teacher outside the members: a model that is not trained, or a column of scores. Paper: none."""

    teacher: str
    """Bi-encoder, cross-encoder or re-ranker that also labels the pairs: a folder, a run's model, a hub id with or
    without `@revision`, or `minilm`; or `column:NAME`, scores in a column of `pairs`."""
    teacher_weight: float = ranges.above_zero(1.0)
    """Weight of the teacher in the labels, above 0; the members together have weight 1."""
    teacher_policy: LabelPolicy | None = None
    """Label policy, which maps the teacher's raw scores to targets; None: the run's `label_policy`."""
    teacher_prompt: str | None = None
    """Prompt that a bi-encoder reads before each text of a pair; None: its own default prompt, if it has one."""
    teacher_document_prompt: str | None = None
    """Prompt that a bi-encoder reads before the second text instead; None: the same as for the first text."""

    @property
    def column(self) -> str | None:
        """Column of `pairs` that contains the teacher's scores; None if the teacher is a model."""
        kind, _, name = self.teacher.partition(":")
        return name if kind == "column" and name else None

    @property
    def prompts(self) -> Prompts:
        """Prompts of a bi-encoder for the two texts of a pair."""
        return Prompts(self.teacher_prompt, self.teacher_document_prompt)
