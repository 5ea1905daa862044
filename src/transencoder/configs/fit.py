"""How one encoder is trained, how a method declares its own defaults for that, and the members of a run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from transencoder.configs import ranges
from transencoder.configs.ranges import Config, Contradictions, LabelPolicy, Pooling, Selection
from transencoder.models import Prompts


@dataclass(frozen=True, kw_only=True)
class FitConfig(Config):
    """How one encoder is trained. In Trans-Encoder a field left empty takes Table 16's value."""

    learning_rate: float | None = ranges.finite_from_zero(None)
    """Peak learning rate. Paper, Table 16: 2e-5 for the cross-encoder, 5e-5 for the bi-encoder."""
    head_learning_rate: float | None = ranges.above_zero(None)
    """Peak learning rate of what is trained around the pretrained transformer: a classifier, a projector, a dense
    layer, a temperature; BERT's pooler is inside of it. New ones need a higher rate in a short training. In
    Trans-Encoder it is that of all members. None: as everything else (papers)."""
    batch_size: int | None = ranges.at_least(1, None)
    """Pairs a step and device. Paper, Table 16: cross 32; bi 128, 64 for large models."""
    epochs: int | None = ranges.at_least(1, None)
    """Passes over the pairs. Paper, Table 16: graded tasks cross 1, bi 10; binary tasks cross 3, bi 15."""
    max_length: int | None = ranges.at_least(1, None)
    """Tokens: of a sentence for the bi-encoder, of a pair for the cross-encoder (Table 16: 32 and 64)."""
    warmup_ratio: float | None = ranges.share(None, " of the steps")
    """Share of the steps with rising rate. Paper: silent; released code and we: cross 0.1, bi 0."""
    dropout: float | None = ranges.share(None, " of the activations")
    """Dropout while training, 0 to below 1; None: the model's own, 0.1 for BERT. Where the labels are close to what the
    model already says, dropout's noise can outweigh them: 0 then helps. Papers and released code: the model's own."""
    optimizer: Literal["adamw", "adamw_hf", "bert_adam", "rmsprop"] = "adamw"
    """`adamw`: PyTorch's. `adamw_hf`: that of transformers before version 5, with which the papers' released codes
    trained; it adds epsilon, there 1e-6 (`adam_epsilon`), before the bias correction. `bert_adam`: the same without
    bias correction, as BERT has it, so that the first hundred steps are three to six times as long. `rmsprop`: as some
    methods have it (released code); it takes none of the three settings below."""
    adam_beta1: float = ranges.share(0.9, " of a gradient's mean")
    """Share of the running mean of gradients that stays at each step."""
    adam_beta2: float = ranges.share(0.999, " of a square's mean")
    """Share of the running mean of squared gradients that stays at each step. CKD's released code: 0.98."""
    adam_epsilon: float = ranges.above_zero(1e-8)
    """What is added to the root of that mean."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """After the warm-up the rate falls in a line to 0, or along a cosine, or stays."""
    weight_decay: float = ranges.at_least(0, 0.01)
    """Weight decay, not on biases and LayerNorm (released code)."""
    max_grad_norm: float = ranges.at_least(0, 1.0)
    """Gradients are clipped to this norm (released code); 0 switches clipping off."""
    eval_steps: int = ranges.at_least(1, 200)
    """Steps between dev evaluations; one more at each epoch's end. Paper, section 4: 200."""
    patience_epochs: int | None = ranges.at_least(1, None)
    """Where dev or a criterion chooses the checkpoint: stop once the best one is this many epochs old. What is kept is
    then nearly always what the whole training would have kept. None: train to the end (papers). Released code: SCT's
    and ConGen's 7, CKD's 3."""
    checkpoint_steps: int | None = ranges.at_least(1, None)
    """Steps between the checkpoints a run resumes from; None: one a minute, or fewer where they would take more than a
    fiftieth of the time (under torchrun asked at every tenth step)."""
    save_steps: int | None = ranges.at_least(1, None)
    """Steps between models that are kept as they then are, ready to load, in `steps/` of the run; None: none. Of two
    copies that are trained, the first. Nothing is kept of a training that another run has done already."""
    gradient_accumulation_steps: int = ranges.at_least(1, 1)
    """Batches a step."""
    mini_batch_size: int | None = ranges.at_least(1, None)
    """Of a bi-encoder: texts that are embedded at once, however many a batch has, so that contrastive batches may be
    larger than the memory. Each is embedded twice (GradCache, Gao et al., RepL4NLP 2021). None: all together."""
    matryoshka_dims: tuple[int, ...] = ()
    """Of a bi-encoder: widths to which its embeddings are to be cut, such as 128 and 64; the loss is the sum over these
    and the whole width (MatryoshkaLoss of sentence-transformers; Kusupati et al., NeurIPS 2022). For losses of cosines
    without a projector or a queue."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    lora_rank: int | None = ranges.at_least(1, None)
    """Rank of LoRA adapters on the encoder's linear layers, merged at the end: less memory for large models, whose
    rates are then higher, about 2e-4. None: all weights are trained (paper). Needs the package peft."""
    lora_alpha: float | None = None
    """Scale of what LoRA adds, by its rank; None: twice the rank."""
    trained_share: float = ranges.between(0.0, 1.0, 1.0, "it is a share, 0 to 1")
    """Of a bi-encoder: evaluated and kept are the base model's weights plus this share of what training changed, 0 to
    1 (WiSE-FT, Wortsman et al., CVPR 2022). With 0.5 less is lost on other text. Papers: 1."""
    bucket_batches: int = ranges.at_least(1, 64)
    """Batches in a shuffled window that is sorted by length; 1 switches length bucketing off."""
    selection: Selection = "auto"
    """What chooses the checkpoint where there is no dev set (Trans-Encoder alone): the last one, or a criterion that
    needs no labels, on pairs that are held out; `auto`: the one that cost least on runs that had a dev set, but in
    preset `standard` the last."""

    def contradictions(self) -> Contradictions:
        """Yield what fields say against each other."""
        is_scale = self.lora_alpha is None or (self.lora_rank and 0.0 < self.lora_alpha < float("inf"))
        if not is_scale:
            yield f"lora_alpha is {self.lora_alpha}; it must be above 0 and finite, with a lora_rank"
        if self.save_steps is not None and (self.lora_rank is not None or self.trained_share < 1.0):
            yield (
                f"save_steps is {self.save_steps}, and lora_rank and trained_share make the model at the end; give one "
                "of them"
            )
        if any(each < 1 for each in self.matryoshka_dims) or len({*self.matryoshka_dims}) < len(self.matryoshka_dims):
            yield f"matryoshka_dims is {list(self.matryoshka_dims)}; each must be at least 1, and given once"
        if self.trained_share < 1.0 and self.lora_rank is not None:
            yield f"trained_share is {self.trained_share}, and lora_rank scales what is trained too; give one of them"

    def of_bi_encoders(self, name: str) -> Contradictions:
        """Yield what is for bi-encoders only, for the fit of cross-encoders that has this name."""
        if self.mini_batch_size is not None:
            yield (
                f"{name}.mini_batch_size is {self.mini_batch_size}, and pairs of a cross-encoder's batch do not meet; "
                f"give {name}.gradient_accumulation_steps instead"
            )
        if self.matryoshka_dims:
            yield f"{name}.matryoshka_dims is {list(self.matryoshka_dims)}, and cross-encoders have no embeddings"

    @property
    def outcome(self) -> dict[str, Any]:
        """What decides the weights that come out, for a stage's key: all but how often checkpoints are written.

        Fields that came later count when they are not at their defaults, so that older stages keep their keys.
        """
        later: dict[str, Any] = {"optimizer": "adamw", "schedule": "linear", "lora_rank": None, "lora_alpha": None}
        later |= {"trained_share": 1.0, "head_learning_rate": None, "mini_batch_size": None, "matryoshka_dims": ()}
        later |= {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "patience_epochs": None}
        found = {name: value for name, value in asdict(self).items() if later.get(name) != value}
        del found["selection"]  # in the key as the criterion that it comes to
        found.pop("save_steps", None)
        return found | {"checkpoint_steps": None}


Default = tuple[Any, str] | tuple[Any, str, tuple[str, ...]]
"""A method's value of a setting of the fit, its text, which names the value's source, and what alone is allowed."""


def fit_defaults(base: Mapping[str, Default] | None = None, /, **own: Default) -> Any:
    """Declare a method's `fit`: the values of its paper or released code, each with its setting's text.

    The texts are what `--help` and the docs show in the place of `FitConfig`'s. In Python, change some of the values
    with `dataclasses.replace(SimCSE.fit, epochs=2)`.

    Args:
        base: Defaults of another method, which this one follows.
        own: Setting -> (value, text), for a setting with choices also those that are left.
    """
    defaults = {**(base or {}), **own}
    return field(
        default=FitConfig(**{name: each[0] for name, each in defaults.items()}),
        metadata={
            "helps": {name: each[1] for name, each in defaults.items()},
            "choices": {name: each[2] for name, each in defaults.items() if len(each) == 3},
        },
    )


SIMCSE_FIT: dict[str, Default] = {
    "learning_rate": (
        3e-5,
        "Peak learning rate of AdamW. Released code: BERT-base and RoBERTa-large 3e-5, the others 1e-5.",
    ),
    "batch_size": (64, "Sentences a step and device. Released code: BERT 64, RoBERTa 512."),
    "epochs": (1, "Passes over the sentences. Released code: 1, over a million."),
    "max_length": (32, "Tokens of a sentence."),
    "warmup_ratio": (0.0, "Share of the steps with rising rate. Released code: none."),
    "weight_decay": (0.0, "AdamW weight decay. Released code: none."),
    "eval_steps": (125, "Steps between dev evaluations; one more at each epoch's end. SimCSE's released code: 125."),
    "bucket_batches": (
        1,
        "Batches in a window that is sorted by length. 1, so that the negatives are of any length as in the released "
        "code); more is faster.",
    ),
}
"""SimCSE's released values for BERT-base, which methods that build on it share."""


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(Config):
    """Masked language modelling over the pairs, before the cross-encoder learns labels.

    Lengths, optimizer, schedule, weight decay, clipping, accumulation, bucketing and checkpoints are those of `cross`;
    dropout is the model's own.
    """

    epochs: int = ranges.at_least(0, 0)
    """Passes over the pairs; 0: none (paper). For starts that never read two texts at once: such a cross-encoder only
    copies its teacher."""
    learning_rate: float = ranges.finite_from_zero(1e-4)
    """Peak learning rate. Higher for small models."""
    batch_size: int = ranges.at_least(1, 64)
    """Pairs a step and device; of a symmetric task each pair comes in both orders."""
    warmup_ratio: float = ranges.share(0.1, " of the steps")
    """Share of the steps with rising rate."""
    mask_ratio: float = ranges.share_above_zero(0.15, " of the tokens")
    """Share of a pair's tokens to guess, above 0 and below 1. BERT: 0.15."""

    def as_fit(self, cross: FitConfig) -> FitConfig:
        """Return how it is trained, `epochs` being at least 1, with what it takes from the cross-encoder's config."""
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
    """One pretrained model taking part (paper, section 2.4)."""

    start: str
    """Base model of the bi-encoder: a folder, a run, a hub id with or without `@revision`, or `minilm` (the packaged
    all-MiniLM-L6-v2)."""
    cross_start: str | None = None
    """Base model of the cross-encoder. Paper: the plain pretrained model. Without it: `start`."""
    pooling: Pooling | None = None
    """Pooling of the bi-encoder. Without it: the base model's own (mean when it has none)."""
    prompt: str | None = None
    """Text that the bi-encoder reads before each text of a pair. Without it: the base model's default prompt, if it has
    one."""
    document_prompt: str | None = None
    """Text that the bi-encoder reads before the second text of a pair instead, where pairs are a query and a document.
    Without it: the same."""
    revision: str | None = None
    """Hub revision of `start`."""
    cross_revision: str | None = None
    """Hub revision of `cross_start`."""
    weight: float = ranges.above_zero(1.0)
    """With several members: its share in the labels and in the ensemble, above 0; normalised. Paper: equal shares."""
    policy: LabelPolicy | None = None
    """How its raw scores become targets; None: as the run's `label_policy` says."""

    bi_learning_rate: float | None = ranges.above_zero(None)
    """Peak learning rate of its bi-encoders; None: as `bi` says. Members of unequal size need unequal rates."""
    cross_learning_rate: float | None = ranges.above_zero(None)
    """Peak learning rate of its cross-encoders; None: as `cross` says."""
    bi_epochs: int | None = ranges.at_least(1, None)
    """Passes of its bi-encoders over the pairs; None: as `bi` says."""
    cross_epochs: int | None = ranges.at_least(1, None)
    """Passes of its cross-encoders over the pairs; None: as `cross` says."""
    pretraining_epochs: int | None = ranges.at_least(0, None)
    """Epochs of masked language modelling over the pairs for its cross-encoders' start; None: as `pretraining` says."""

    @property
    def prompts(self) -> Prompts:
        """What its bi-encoders read before the two texts of a pair."""
        return Prompts(self.prompt, self.document_prompt)


@dataclass(frozen=True, kw_only=True)
class OtherTeacher(Config):
    """A model that labels and is not trained, or a column of scores; the paper has none."""

    teacher: str
    """Bi-encoder, cross-encoder or re-ranker that labels the pairs too: a folder, a run's model, a hub id with or
    without `@revision`, or `minilm`; or `column:NAME`, scores in a column of `pairs`."""
    teacher_weight: float = ranges.above_zero(1.0)
    """Its share in the labels, above 0, where the members together have 1."""
    teacher_policy: LabelPolicy | None = None
    """How its raw scores become targets; None: as the run's `label_policy` says."""
    teacher_prompt: str | None = None
    """Text that a bi-encoder reads before each text of a pair; None: its own default prompt, if it has one."""
    teacher_document_prompt: str | None = None
    """Text that it reads before the second text instead; None: the same."""

    @property
    def column(self) -> str | None:
        """The column of `pairs` that holds its scores; None: it is a model."""
        kind, _, name = self.teacher.partition(":")
        return name if kind == "column" and name else None

    @property
    def prompts(self) -> Prompts:
        """What a bi-encoder reads before the two texts of a pair."""
        return Prompts(self.teacher_prompt, self.teacher_document_prompt)
