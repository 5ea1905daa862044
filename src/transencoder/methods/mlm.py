"""Masked language modelling (Devlin et al., NAACL 2019): go on on one's own text, or a small model from nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields

from transencoder import configs

_SHORTEST_BLOCK = 8
_HEAD_WIDTH = 64
"""BERT's, of each attention head."""


@dataclass(frozen=True, kw_only=True)
class MLM(configs.SentenceFields, configs.RunConfig):
    """Masked language modelling: a pretrained model learns the words of a domain, or a small one is made from nothing.

    No bi-encoder yet: the run's folder is the base model of one.
    """

    about = "It learned to guess masked words of the text, packed in reading order (masked language modelling)."
    pipeline = "language-model"
    reads_whole_texts = False

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
    layers: int = configs.at_least(1, 4)
    """Of a model from nothing: transformer layers."""
    width: int = 256
    """Of a model from nothing: size of its embeddings, a multiple of 64."""
    vocabulary: int = configs.at_least(100, 12000)
    """Of a model from nothing: word pieces."""
    mask_ratio: float = configs.share_above_zero(0.15, " of the tokens")
    """Share of the tokens to guess, above 0 and below 1 (BERT: 0.15)."""
    held_out: float = configs.share(0.01, " of the text")
    """Share of the text's blocks that is not trained on, to measure the model before and after; 0: none."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(
            None,
            "Peak learning rate of AdamW; None: 5e-5 for a pretrained model, 5e-4 for one from nothing.",
        ),
        batch_size=(64, "Blocks a step and device."),
        epochs=(1, "Passes over the text."),
        max_length=(128, "Tokens of a block, and of the texts that a model from nothing can read."),
        warmup_ratio=(0.06, "Share of the steps with rising rate."),
    )
    """How the model is trained."""

    def contradictions(self) -> configs.Contradictions:
        """Yield what fields say against each other."""
        yield from super().contradictions()
        if self.from_scratch == (self.start is not None):
            yield "give either start, to go on with a pretrained model, or from_scratch"
        if len(self.columns) > 1:
            yield f"columns names {len(self.columns)} columns; sentences have one"
        if self.dev is not None:
            yield "a language model keeps its last weights, and dev would choose nothing; give it as a test"
        if self.fit.lora_rank is not None:
            yield "fit.lora_rank is given, and a language model trains all its weights: leave it out"
        for name in ("head_learning_rate", "trained_share", "save_steps", "mini_batch_size", "matryoshka_dims"):
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
