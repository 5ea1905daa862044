"""Masked language modelling (Devlin et al., NAACL 2019) on your own text, of a pretrained or a small new model."""

from __future__ import annotations

from dataclasses import dataclass, fields

from transencoder import configs

_SHORTEST_BLOCK = 8
_HEAD_WIDTH = 64
"""Width of each attention head, as in BERT."""


@dataclass(frozen=True, kw_only=True)
class MLM(configs.SentenceFields, configs.RunConfig):
    """Masked language modelling on text of a domain, with a pretrained model or a small model trained from scratch.

    The result is not a bi-encoder: the run folder serves as the base model of one.
    """

    about = "It learned to guess masked words of the text, packed in reading order (masked language modelling)."
    pipeline = "language-model"
    reads_whole_texts = False

    start: str | None = None
    """Pretrained model to train further, with its language-modelling head: a folder or a hub id. Not with
    from_scratch."""
    revision: str | None = None
    """Hub revision of `start`."""
    new_head: bool = False
    """Whether to add a new language-modelling head to a base model that has none, such as a bi-encoder."""
    columns: tuple[str, ...] = ()
    """Name of the text column; empty: `text`, `sentence`, else the only column with texts."""
    from_scratch: bool = False
    """Whether to build a lower-cased word-piece tokenizer from the text, and train a BERT from random weights."""
    layers: int = configs.at_least(1, 4)
    """Number of transformer layers of a model trained from scratch."""
    width: int = 256
    """Embedding size of a model trained from scratch, a multiple of 64."""
    vocabulary: int = configs.at_least(100, 12000)
    """Number of word pieces of a model trained from scratch."""
    mask_ratio: float = configs.share_of_tokens(0.15)
    """Share of the tokens to predict, above 0 and below 1 (BERT: 0.15)."""
    held_out: float = configs.share(0.01, " of the text")
    """Share of the text's blocks held out of training, to evaluate the model before and after; 0: none."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(
            None,
            "Peak learning rate of AdamW; None: 5e-5 for a pretrained model, 5e-4 for a new one.",
        ),
        batch_size=(64, "Number of blocks per step and device."),
        epochs=(1, "Number of passes over the text."),
        max_length=(128, "Maximum number of tokens of a block, and of the texts that a new model can read."),
        warmup_ratio=(0.06, "Share of the steps in which the learning rate rises."),
    )
    """Training settings of the model."""

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from super().contradictions()
        if self.from_scratch == (self.start is not None):
            yield "give either start, to go on with a pretrained model, or from_scratch"
        if len(self.columns) > 1:
            yield f"columns names {len(self.columns)} columns; sentences have one"
        if self.dev is not None:
            yield "a language model keeps its last weights, and dev would choose nothing; give it as a test"
        if self.fit.lora_rank is not None:
            yield "fit.lora_rank is given, and a language model trains all its weights: leave it out"
        of_encoders = ("head_learning_rate", "trained_share", "save_steps", "mini_batch_size", "matryoshka_dims")
        for name in (*of_encoders, "patience_epochs"):
            if getattr(self.fit, name) != getattr(configs.FitConfig, name):
                yield f"fit.{name} is {getattr(self.fit, name)}, and it is of encoders; leave it out"
        if (self.fit.max_length or 0) < _SHORTEST_BLOCK:
            yield f"fit.max_length is {self.fit.max_length}; it must be at least {_SHORTEST_BLOCK}"
        yield from self._of_shape()

    def _of_shape(self) -> configs.Contradictions:
        if not self.from_scratch:
            for each in fields(self):
                if each.name in ("layers", "width", "vocabulary") and getattr(self, each.name) != each.default:
                    yield f"{each.name} is for from_scratch; a start has its own"
            return
        if self.width < _HEAD_WIDTH or self.width % _HEAD_WIDTH:
            yield f"width is {self.width}; it must be a multiple of {_HEAD_WIDTH}, such as 256"
        for name in ("revision", "new_head"):
            if getattr(self, name):
                yield f"{name} is for a start; leave it out with from_scratch"

    @property
    def text(self) -> configs.Text:
        """The sentences."""
        return configs.Text(source=self.sentences, columns=self.columns, n_sentences=self.n_sentences, least_rows=1)
