"""DCLR (Zhou et al., ACL 2022): SimCSE without likely false negatives, and with noise vectors as further negatives."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DCLR(configs.SentenceEncoder):
    """DCLR: SimCSE with negatives weighted by a frozen model, and noise vectors as further negatives."""

    about = (
        "Each sentence goes through the encoder twice, and must find itself among noise vectors and those others of "
        "its batch that a frozen model does not find too alike (DCLR)."
    )
    inputs = ("complement",)

    complement: str
    """Frozen bi-encoder that weights the negatives: a folder, a hub id, or `minilm`, with the base model's tokenizer.
    Released code: the unsupervised SimCSE of the same base model."""
    complement_pooling: configs.Pooling | None = None
    """Pooling of `complement`; None: its own, mean for a plain model. Released SimCSE models are plain and need cls."""
    pooling: configs.Pooling | None = "cls"
    """Pooling in training and at test (paper: the raw [CLS] at test). None: the base model's own."""
    projector: bool = True
    """Whether to put a linear layer and tanh on the embeddings in training; they are removed at test. Released code:
    only for models of base size."""
    on_pooler: bool = False
    """Whether to put the pretrained pooler, a linear layer on [CLS] followed by tanh, between embeddings and projector
    in training (released code)."""
    temperature: float = configs.above_zero(0.05, ", the paper's is 0.05")
    """Temperature of the softmax over cosines, above 0 (paper)."""
    threshold: float = configs.between(-1, 1, 0.9, "it is a cosine, from -1 to 1")
    """Cosine in `complement` above which a negative counts as too similar to the sentence and is left out. Released
    code: BERT 0.9, RoBERTa 0.85, for pooler outputs."""
    noise_ratio: float = configs.finite_from_zero(1.0)
    """Number of noise vectors for each sentence of the batch; 0: none. Released code: BERT-base 1, RoBERTa-base 2.5,
    BERT-large 3, RoBERTa-large 5."""
    n_noise_steps: int = configs.finite_from_zero(4)
    """Number of gradient ascent steps on the loss that make the noise hard (released code)."""
    noise_step_size: float = configs.finite_from_zero(1e-3)
    """Length of each gradient ascent step (released code)."""
    loss_form: Literal["weighted", "elementwise"] = "weighted"
    """Form of the loss: weighted InfoNCE (paper), or element-wise cross-entropy (released code), which gave the
    published numbers. The missing attention masks of the released code are not reproduced."""
    fit: configs.FitConfig = configs.fit_defaults(
        configs.SIMCSE_FIT,
        learning_rate=(3e-5, "Peak learning rate. Released code: RoBERTa-large 1e-5."),
        batch_size=(128, "Number of sentences per step and device (released code)."),
        epochs=(3, "Number of passes over the sentences. Released code: base 3, large 1."),
    )
    """Training settings of the encoder."""

    @property
    def helpers(self) -> tuple[configs.Helper, ...]:
        """The frozen model."""
        return (configs.Helper(field="complement", form="bi", pooling=self.complement_pooling),)

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from super().contradictions()
        if self.on_pooler and self.pooling != "cls":
            yield f"on_pooler is of pooling cls, and pooling is {self.pooling}; leave one of them out"

    @property
    def needs_pooler(self) -> bool:
        """Whether the base model must have a pooler of its own."""
        return self.on_pooler or super().needs_pooler

    def cost(self, width: int, dimension: int | None) -> configs.MethodCost:
        """Return the student's cost, and a sixth of it for the forward pass of one view through the frozen model."""
        return configs.MethodCost(relative=1 + 1 / 6)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build weighted InfoNCE with noise."""
        from torch import nn

        from transencoder.losses import WeightedInfoNCELoss, tanh_projector

        layers: list[nn.Module] = []
        if self.on_pooler:
            pooler: Any = getattr(student.transformers_model, "pooler", None)
            assert pooler is not None, "looked for in the files of the base model"
            layers += [deepcopy(pooler.dense).requires_grad_(True), nn.Tanh()]
        if self.projector:
            layers += tanh_projector(configs.width_of(student))
        return WeightedInfoNCELoss(
            student,
            given.helpers["complement"],
            self.temperature,
            threshold=self.threshold,
            noise_ratio=self.noise_ratio,
            n_noise_steps=self.n_noise_steps,
            noise_step_size=self.noise_step_size,
            form=self.loss_form,
            projector=nn.Sequential(*layers) if layers else None,
        )
