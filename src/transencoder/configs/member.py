"""One of the pretrained models that teach each other."""

from dataclasses import dataclass

from transencoder.configs.choices import LabelPolicy, Pooling
from transencoder.configs.ranges import Config, above_zero, at_least
from transencoder.models import Prompts


@dataclass(frozen=True, kw_only=True)
class Member(Config):
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
    weight: float = above_zero(1.0)
    """With several members: its share in the labels and in the ensemble, above 0; normalised. Paper: equal shares."""
    policy: LabelPolicy | None = None
    """How its raw scores become targets; None: as the run's `label_policy` says."""

    bi_learning_rate: float | None = above_zero(None)
    """Peak learning rate of its bi-encoders; None: as `bi` says. Members of unequal size need unequal rates."""
    cross_learning_rate: float | None = above_zero(None)
    """Peak learning rate of its cross-encoders; None: as `cross` says."""
    bi_epochs: int | None = at_least(1, None)
    """Passes of its bi-encoders over the pairs; None: as `bi` says."""
    cross_epochs: int | None = at_least(1, None)
    """Passes of its cross-encoders over the pairs; None: as `cross` says."""
    pretraining_epochs: int | None = at_least(0, None)
    """Epochs of masked language modelling over the pairs for its cross-encoders' start; None: as `pretraining` says."""

    @property
    def prompts(self) -> Prompts:
        """What its bi-encoders read before the two texts of a pair."""
        return Prompts(self.prompt, self.document_prompt)
