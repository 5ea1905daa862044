"""Trans-Encoder (Liu et al., ICLR 2022): bi- and cross-encoder teach each other in turn, without labels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from transencoder.config import (
    BiLoss,
    CrossLoss,
    FitConfig,
    Form,
    Head,
    LabelPolicy,
    Member,
    OfEmbeddings,
    PretrainingConfig,
)
from transencoder.errors import InputError
from transencoder.methods.checks import check_score_range
from transencoder.methods.method import Method

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True)
class TransEncoder(Method):
    """Bi- and cross-encoders teach each other on unlabelled pairs: self-distillation, with several starts mutual.

    Paper, section 2.
    """

    pipeline = "pairs"
    about = (
        "In each cycle a bi-encoder scores the pairs, a cross-encoder learns those scores, scores the pairs in turn, "
        "and a bi-encoder learns from it."
    )

    pairs: str | Dataset | None = None
    """Unlabelled pairs: a TSV, CSV, JSONL or Parquet file, `-`, a task or suite, or a hub id (`id:config@revision`)."""
    sentences: str | Dataset | None = None
    """Instead of pairs plain sentences, one a row, also TXT: pairs are mined from them with the first member's start
    (section 5.1 names this as future work)."""
    documents: str | Dataset | None = None
    """What the sentences are paired with, from a file of the same kinds: each mined pair is then a query and a
    document, in this order, for is_symmetric false."""
    n_sentences: int | None = None
    """Mine pairs of so many of the sentences, drawn with the seed; None: of all."""
    n_pairs: int | None = None
    """How many of the pairs, drawn with the seed (Figure 5); None: all. Of sentences how many are mined; None: 5 for
    each up to 10,000, 2 for each up to 50,000."""
    extra_pairs: str | Dataset | None = None
    """More unlabelled pairs, such as another task's: read as `pairs` are (Figure 5: `snli`)."""
    n_extra_pairs: int | None = None
    """How many of the extra pairs, drawn with the seed; None: all."""
    labelled: str | Dataset | None = None
    """A few pairs with gold scores: a file with a column `score`, or a task or hub id, whose train split it is. They
    join the pairs; of their targets the gold score's share grows in a line from 0 to 1 over each stage, the rest is the
    teachers' (DvBERT's annealing; neither paper mixes it in)."""
    n_labelled: int | None = None
    """How many of the labelled pairs, drawn with the seed; None: all."""
    score_range: tuple[float, ...] = (0.0, 1.0)
    """Lowest and highest gold score of a labelled file, which are to be 0 and 1: `0 5` of STS."""
    members: tuple[Member, ...]
    """The pretrained models taking part: one is self-distillation; several learn from the mean of all (section 2.4)."""
    share_labels: bool = True
    """With several members: each learns from the mean of all, mutual distillation; else from its own scores, and the
    ensemble is of self-distilled models (Table 1, rows 1.1+2.1 and so on)."""
    alternate_members: bool = False
    """With several members: the first learns in one cycle, the second in the next, and so on, each from the one before
    (section 2.4, footnote 5); else all learn in each cycle."""
    workers: int | None = None
    """With several members: how many are trained at once, each in a process of its own, with the GPU of its number or
    its share of the threads; None: one for each GPU, in turn on one or on a CPU. Given equal threads, it changes no
    result."""
    is_symmetric: bool = True
    """Whether the order within a pair means nothing; then the cross-encoder trains on both orders."""
    cycles: int | None = None
    """Cycles bi -> cross -> bi. Paper, Table 16: 3 graded, 5 binary."""
    patience_cycles: int | None = None
    """Stop when neither form improved for this many cycles, on dev or by what chooses without it; None: never."""
    initialisation: Literal["refreshing", "sequential"] = "refreshing"
    """Each stage from the starts again (paper's choice), or from the weights of its member's teacher (Table 13)."""
    record_criteria: bool = False
    """Analysis mode: hold a tenth of the pairs out of training, at most 1,000, and record at every dev evaluation what
    each criterion of `transencoder.selection` says without labels. Nothing is chosen by it."""
    same_form: bool = False
    """Standard self-distillation (Table 14): bi-encoders learn from bi-encoders, and no cross-encoder is made."""
    cross_loss: CrossLoss = "bce"
    """How a cross-encoder learns: `bce`, soft cross-entropy of the logit (equation 2), or `mse`, squared error of the
    raw logit, which is then the score (Table 8: the student copies its teacher)."""
    bi_loss: BiLoss = "mse"
    """How a bi-encoder learns: `mse` of the cosine (equation 3), `log_cosh` (appendix A.2: no gain), or Table 8's
    cross-entropy (does not converge), of the cosine as logit, `bce`, or clipped to a probability, `bce_clipped`."""
    label_policy: LabelPolicy = "clip"
    """How raw scores become targets. `raw` is what the released code does: targets may then leave [0, 1]."""
    start_weight: float = 0.0
    """Weight of the start among the teachers of each bi-encoder, 0 to below 1. Paper: 0."""
    label_both_orders: bool = False
    """Average the cross-encoder's scores of both orders when it labels and is measured. Paper and released code: no."""
    cross_test_length: int | None = None
    """Tokens of a pair when the cross-encoder is tested; None: as it was trained (paper). Released code: 512."""
    ensemble_metric: Literal["mean", "released"] = "mean"
    """Of several members: the metric of their mean score (paper), or what the released code does: for bi-encoders the
    best of four similarities on each graded test set, chosen on that set, and for binary ones the mean of the AUCs."""
    head: Head = "pooler"
    """Cross-encoder head: the model's own pooler (released code), or a new linear layer on [CLS] (paper's text)."""
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Masked language modelling over the pairs, before the cross-encoder learns from labels."""
    bi: FitConfig = field(default_factory=FitConfig)
    """How the bi-encoder is trained."""
    cross: FitConfig = field(default_factory=FitConfig)
    """How the cross-encoder is trained."""
    columns: tuple[str, ...] = ()
    """Names of the two text columns in `pairs`, or of the one in `sentences`; empty: well-known names, else the
    first."""
    document_column: str | None = None
    """Name of the text column in `documents`; None: as for sentences."""

    def __post_init__(self) -> None:
        """Refuse contradictions, naming the field as the user typed it."""
        self._check_text()
        if not isinstance(self.members, tuple) or not all(isinstance(member, Member) for member in self.members):
            raise InputError(f"members is {self.members!r}; give a tuple, such as members=(Member(start='minilm'),)")
        if not self.members:
            raise InputError("members is empty; give at least one start, for example --start minilm")
        if self.alternate_members:
            self._check_alternation()
        if not 0.0 <= self.start_weight < 1.0:
            raise InputError(f"start_weight is {self.start_weight}; it is a share of the teachers, 0 to below 1")
        numbers = (
            "cycles",
            "patience_cycles",
            "n_sentences",
            "n_pairs",
            "n_extra_pairs",
            "n_labelled",
            "workers",
            "cross_test_length",
        )
        for name in numbers:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        if self.n_extra_pairs is not None and self.extra_pairs is None:
            raise InputError("n_extra_pairs needs extra_pairs to draw from; give both, or leave it out")
        self._check_selection()
        self._check_gold()
        has_choice = self.dev is not None or not self.bi.selection == self.cross.selection == "last"
        if self.patience_cycles is not None and not has_choice:
            raise InputError("patience_cycles needs what to choose by; give dev, or another selection than last")
        self._check_labels()
        self._check_prompts()
        self._check_initialisation()
        super().__post_init__()

    @property
    def has_evaluations(self) -> bool:
        """Whether both forms' checkpoints are evaluated during training, on dev or by criteria that need no labels."""
        return self.dev is not None or "last" not in (self.bi.selection, self.cross.selection)

    def fit_of(self, member: Member, form: Form) -> FitConfig:
        """How a member's bi- or cross-encoders are trained."""
        fit = self.bi if form == "bi" else self.cross
        own = {name: getattr(member, f"{form}_{name}") for name in ("learning_rate", "epochs")}
        return replace(fit, **{name: value for name, value in own.items() if value is not None})

    def pretraining_of(self, member: Member) -> PretrainingConfig:
        """Masked language modelling over the pairs for a member's cross-encoders."""
        epochs = self.pretraining.epochs if member.pretraining_epochs is None else member.pretraining_epochs
        return replace(self.pretraining, epochs=epochs)

    def _check_text(self) -> None:
        if (self.pairs is None) == (self.sentences is None):
            which = "missing" if self.pairs is None else "given"
            raise InputError(f"pairs and sentences are both {which}; give pairs, or sentences to mine pairs from")
        if self.sentences is not None and len(self.columns) > 1:
            raise InputError(f"columns names {len(self.columns)} columns; sentences have one")
        if self.n_sentences is not None and self.sentences is None:
            raise InputError("n_sentences needs sentences to draw from; give both, or leave it out")
        if self.document_column is not None and self.documents is None:
            raise InputError("document_column is of documents; give both, or leave it out")
        if self.documents is not None:
            self._check_documents()

    def _check_documents(self) -> None:
        if self.sentences is None:
            raise InputError("documents needs sentences to pair them with, such as queries; give both, or leave it out")
        if self.documents is self.sentences or (isinstance(self.documents, str) and self.documents == self.sentences):
            raise InputError("sentences and documents are the same; leave documents out")
        if self.is_symmetric:
            raise InputError(
                "pairs of sentences and documents mean something else in the other order, but is_symmetric is true; "
                "set it false"
            )

    def _check_labels(self) -> None:
        if self.bi_loss == "bce_clipped" and "raw" in {member.policy or self.label_policy for member in self.members}:
            raise InputError(
                "bi_loss is bce_clipped, which takes probabilities, and a label policy is raw, whose targets may leave "
                "[0, 1]; take label_policy clip"
            )

    def _check_prompts(self) -> None:
        given = [member.document_prompt for member in self.members if member.document_prompt is not None]
        if given and self.is_symmetric:
            raise InputError(
                f"document_prompt is {given[0]!r}: pairs are then a query and a document, whose order means something, "
                "and is_symmetric says that it means nothing; set is_symmetric false, or leave document_prompt out"
            )
        if given and self.sentences is not None and self.documents is None:
            raise InputError(
                f"document_prompt is {given[0]!r}, but of sentences pairs are mined that have no order; give documents "
                "to pair them with, or leave document_prompt out"
            )

    def _check_gold(self) -> None:
        if self.n_labelled is not None and self.labelled is None:
            raise InputError("n_labelled needs labelled to draw from; give both, or leave it out")
        check_score_range(self.score_range)
        if self.score_range != (0.0, 1.0) and self.labelled is None:
            raise InputError("score_range is of a labelled file; leave it out")

    def _check_selection(self) -> None:
        if self.record_criteria and self.dev is None:
            raise InputError("record_criteria needs a dev set to compare with; give dev, or leave record_criteria out")
        for form in ("bi", "cross"):
            selection = getattr(self, form).selection
            if self.dev is not None and selection != "auto":
                raise InputError(f"{form}.selection is {selection}, but dev chooses; leave one of the two out")
            if selection == "member_agreement" and (len(self.members) < 2 or self.alternate_members):
                raise InputError(
                    f"{form}.selection is member_agreement, but no two members learn side by side; give two, or take "
                    "another criterion"
                )
        if self.cross.selection in get_args(OfEmbeddings):
            raise InputError(
                f"cross.selection is {self.cross.selection}: it is of embeddings, and a cross-encoder has none; take "
                "teacher_agreement, start_agreement, member_agreement, view_preference or last"
            )

    def _check_initialisation(self) -> None:
        epochs = max(self.pretraining_of(member).epochs for member in self.members)
        if epochs and self.same_form:
            raise InputError(
                f"pretraining.epochs, or a member's, is {epochs}, and same_form makes no cross-encoder that would "
                "start from it; take 0 epochs, or same_form false"
            )
        if epochs and self.initialisation == "sequential":
            raise InputError(
                f"pretraining.epochs, or a member's, is {epochs} and initialisation sequential, which would overwrite "
                "what is pretrained with the teacher's weights; take initialisation refreshing, or 0 epochs"
            )

    def _check_alternation(self) -> None:
        if len(self.members) < 2:
            raise InputError("alternate_members needs at least two members; give another start, or leave it out")
        if not self.share_labels:
            raise InputError("alternate_members learn each from the one before; take share_labels true")
        if self.initialisation == "sequential":
            raise InputError("alternate_members changes the model from cycle to cycle; take initialisation refreshing")
