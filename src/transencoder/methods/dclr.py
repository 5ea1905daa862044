"""DCLR (Zhou et al., ACL 2022): SimCSE whose negatives are cleared of false ones and joined by noise."""

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
    """DCLR: dropout views, negatives weighed by a frozen model, and noise vectors as further negatives."""

    about = (
        "Each sentence goes through the encoder twice, and must find itself among noise vectors and those others of "
        "its batch that a frozen model does not find too alike (DCLR)."
    )
    inputs = ("complement",)

    complement: str
    """The frozen bi-encoder that weighs the negatives: a folder, a hub id, or `minilm`, with the base model's
    tokenizer. Released code: the unsupervised SimCSE of the same base model."""
    complement_pooling: configs.Pooling | None = None
    """Pooling of `complement`; None: its own, mean for a plain model, as released SimCSE models are, which want cls."""
    pooling: configs.Pooling | None = "cls"
    """Pooling in training and at test (paper: the raw [CLS] at test). None: the base model's own."""
    projector: bool = True
    """A linear layer and tanh on the embeddings while training, gone at test. Released code: for base models alone."""
    on_pooler: bool = False
    """Put the pretrained pooler, a linear layer on [CLS] and then tanh, between embeddings and projector while training
    (released code)."""
    temperature: float = configs.above_zero(0.05, ", the paper's is 0.05")
    """Of the softmax over cosines, above 0 (paper)."""
    threshold: float = configs.between(-1, 1, 0.9, "it is a cosine, from -1 to 1")
    """A negative whose cosine to the sentence is above it in `complement` is left out. Released code: BERT 0.9,
    RoBERTa 0.85."""
    noise_ratio: float = configs.finite_from_zero(1.0)
    """Noise vectors for each sentence of the batch; 0: none. Released code: BERT-base 1, RoBERTa-base 2.5,
    BERT-large 3, RoBERTa-large 5."""
    n_noise_steps: int = configs.finite_from_zero(4)
    """Steps up the loss's gradient that make the noise hard (released code)."""
    noise_step_size: float = configs.finite_from_zero(1e-3)
    """Length of each step (released code)."""
    loss_form: Literal["weighted", "elementwise"] = "weighted"
    """The paper's weighted InfoNCE, or the released code's element-wise cross-entropy, which made the published
    numbers. Its missing attention masks are not followed."""
    fit: configs.FitConfig = configs.fit_defaults(
        configs.SIMCSE_FIT,
        learning_rate=(3e-5, "Peak learning rate. Released code: RoBERTa-large 1e-5."),
        batch_size=(128, "Sentences a step and device (released code)."),
        epochs=(3, "Passes over the sentences. Released code: base 3, large 1."),
    )
    """How the encoder is trained."""

    @property
    def helpers(self) -> tuple[configs.Helper, ...]:
        """The frozen model."""
        return (configs.Helper(field="complement", form="bi", pooling=self.complement_pooling),)

    def contradictions(self) -> configs.Contradictions:
        """Yield what fields say against each other."""
        yield from super().contradictions()
        if self.on_pooler and self.pooling != "cls":
            yield f"on_pooler is of pooling cls, and pooling is {self.pooling}; leave one of them out"

    @property
    def needs_pooler(self) -> bool:
        """Whether the base model must have a pooler of its own."""
        return self.on_pooler or super().needs_pooler

    def cost(self, width: int, dimension: int | None) -> configs.Cost:
        """Return the student's, and a third of it for one view through the frozen model."""
        return configs.Cost(relative=1 + 1 / 6)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make weighted InfoNCE with noise."""
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
