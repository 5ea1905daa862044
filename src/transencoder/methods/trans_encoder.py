"""Trans-Encoder (Liu et al., ICLR 2022): a bi-encoder and a cross-encoder teach each other in turn, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from transencoder import configs
from transencoder.configs.choices import BESIDE_TEACHERS, STANDARD, STANDARD_WITH_CROSS, Choice
from transencoder.errors import InputError
from transencoder.models import MINILM

if TYPE_CHECKING:
    from datasets import Dataset

Preset = Literal["standard", "paper"]

_OF_CROSS = ("cross_start", "cross_revision", "cross_learning_rate", "cross_epochs", "pretraining_epochs")
"""Settings of a member that concern its cross-encoder."""

LARGE_PARAMETERS = 200_000_000
"""Number of parameters from which a model counts as large: BERT-base has 110M, BERT-large 340M."""


@dataclass(frozen=True, kw_only=True)
class TransEncoder(configs.RunConfig):
    """Bi- and cross-encoders that teach each other on unlabelled pairs, by self-distillation or mutual distillation.

    One member means self-distillation, several mean mutual distillation (paper, section 2).
    """

    about = (
        "In each cycle a bi-encoder scores the pairs, a cross-encoder learns those scores, scores the pairs in turn, "
        "and a bi-encoder learns from it."
    )
    pipeline = "pairs"

    pairs: str | Dataset | None = configs.source(None)
    """Unlabelled pairs: a TSV, CSV, JSONL or Parquet file, `-` (stdin), a task or suite, or a hub id
    (`id:config@revision`)."""
    sentences: str | Dataset | None = configs.source(None)
    """Unlabelled sentences, one per row, also as TXT, to give instead of `pairs`: pairs are mined from them with the
    first member's base model (section 5.1 names this as future work)."""
    documents: str | Dataset | None = configs.source(None)
    """Documents to pair the sentences with, from the same kinds of files: each mined pair is then a query and a
    document, in this order. Needs is_symmetric false."""
    n_sentences: int | None = configs.at_least(1, None)
    """Number of sentences to mine pairs from, sampled with the seed; None: all."""
    n_pairs: int | None = configs.at_least(1, None)
    """Number of pairs to train on, sampled with the seed (Figure 5); None: all. With `sentences`, the number of pairs
    to mine; None: 5 per sentence up to 10,000 pairs, or 2 per sentence up to 50,000, whichever is more."""
    extra_pairs: str | Dataset | None = configs.source(None)
    """Additional unlabelled pairs, such as those of another task, read in the same way as `pairs` (Figure 5: `snli`).
    """
    n_extra_pairs: int | None = configs.at_least(1, None)
    """Number of extra pairs to train on, sampled with the seed; None: all."""
    labelled: str | Dataset | None = configs.source(None)
    """A few pairs with gold scores: a file with a column `score`, or a task or hub id, whose train split is used. They
    are added to the pairs. Their targets mix the gold score and the teachers' scores; the share of gold grows linearly
    from 0 to 1 in each stage (DvBERT's annealing; neither paper combines the two methods)."""
    n_labelled: int | None = configs.at_least(1, None)
    """Number of labelled pairs to train on, sampled with the seed; None: all."""
    score_range: tuple[float, ...] = configs.score_range()
    """Lowest and highest gold score in a labelled file, which are mapped to 0 and 1: `0 5` for STS."""
    members: tuple[configs.Member, ...] = ()
    """Pretrained models that take part: one means self-distillation; several learn from the mean of all (section 2.4).
    Default: `minilm`, all-MiniLM-L6-v2."""
    start: InitVar[str | None] = None
    """Base model of the only member, for Python, instead of `members`."""
    teachers: tuple[configs.OtherTeacher, ...] = ()
    """Other models, or columns of scores, that label the pairs in addition to the members, in every cycle. Paper: none.
    """
    preset: Preset | None = None
    """Source of the settings that are left out: `paper`, or `standard`, which did best on ten domains of 1,500 pairs
    with a base model trained without labels (the report has its reasons). None: `paper`; `transencoder train` without
    a method takes `standard`."""
    budget: str | None = configs.time_span()
    """Time that the run may take, such as `10m` or `1.5h`: it times a few steps, then chooses as many cycles, epochs
    and pairs as fit. Numbers that you give are kept. The report says what was left out."""
    share_labels: bool = True
    """Whether several members each learn from the mean of all (mutual distillation); if not, each learns from its own
    scores, and the ensemble consists of self-distilled models (Table 1, rows 1.1+2.1 and so on)."""
    alternate_members: bool = False
    """Whether several members learn in turn: the first in one cycle, the second in the next, and so on, each from the
    one before (section 2.4, footnote 5); if not, all learn in each cycle."""
    workers: int | None = configs.at_least(1, None)
    """Number of members to train at once, each in its own process with its own GPU or a share of the CPU threads; None:
    one per GPU, or one at a time on a single GPU or a CPU. With equal threads it does not change results, except what
    fits into a budget."""
    is_symmetric: bool = True
    """Whether the order of the texts in a pair has no meaning; the cross-encoder then trains on both orders."""
    cycles: int | None = configs.at_least(1, None)
    """Number of cycles bi -> cross -> bi, or bi -> bi; None: as in the preset (paper, Table 16: 3 graded, 5 binary)."""
    patience_cycles: int | None = configs.at_least(1, None)
    """Number of cycles after which the run stops if neither form has improved, on dev or by the criterion used without
    it; None: never."""
    initialisation: Literal["refreshing", "sequential"] = "refreshing"
    """Initial weights of each stage: `refreshing`, the base model's (paper's choice), or `sequential`, those of the
    member's teacher (Table 13)."""
    record_criteria: bool | None = None
    """Whether to hold a tenth of the pairs out of training, at most 1,000, and record all label-free criteria of
    `transencoder.selection` on them, with dev at every evaluation, else at the end; they choose nothing. With fewer
    than 500 pairs (with dev: 20), none are held out. None: true in preset `standard` without dev."""
    same_form: bool | None = None
    """Whether bi-encoders learn from bi-encoders, without any cross-encoder (standard self-distillation, Table 14).
    None: true in preset `standard`, unless a setting of cross-encoders is given."""
    cross_loss: configs.CrossLoss = "bce"
    """Loss of the cross-encoder: `bce`, soft cross-entropy of the logit (equation 2), or `mse`, squared error of the
    raw logit, which is then the score (Table 8: the student copies its teacher)."""
    bi_loss: configs.BiLoss = "mse"
    """Loss of the bi-encoder: `mse` of the cosine (equation 3), `log_cosh` (appendix A.2: no gain), or cross-entropy
    (Table 8: does not converge) of the cosine as a logit, `bce`, or clipped to a probability, `bce_clipped`."""
    label_policy: configs.LabelPolicy = "clip"
    """Policy that maps raw scores to targets: `clip` cuts them to [0, 1]; `affine` and `quantile` spread them over [0,
    1]; `raw` (released code) keeps them, so that targets may leave [0, 1]."""
    bi_labels: configs.BiLabels | None = None
    """Score by which the members' bi-encoders label: the `cosine` of both embeddings (paper), or `tokens`: the mean of
    that cosine, the cosine of token embeddings averaged by inverse document frequency, and late interaction (from no
    paper; see `transencoder.token_scores`). None: `tokens` in preset `standard`."""
    weight_tokens: bool | None = None
    """Whether bi-encoders with mean pooling are saved with each token weighted by its rarity in the pairs, as
    `transencoder weight` does (from no paper). None: true in preset `standard` if the base model looks as if it was
    trained without labels."""
    start_weight: float = configs.share(0.0, " of the teachers")
    """Weight of the base model among the teachers of each bi-encoder, 0 to below 1. Paper: 0."""
    label_both_orders: bool = False
    """Whether to average the cross-encoder's scores of both orders when it labels and is evaluated. Paper and released
    code: no."""
    cross_test_length: int | None = configs.at_least(1, None)
    """Maximum number of tokens per pair when the cross-encoder is tested; None: as in training (paper). Released code:
    512."""
    ensemble_metric: Literal["mean", "released"] = "mean"
    """Metric of an ensemble of several members: `mean`, that of their mean score (paper), or `released` (released
    code): for bi-encoders the best of four similarities on each graded test set, chosen on that set, and for binary
    ones the mean of the AUCs."""
    head: configs.Head = "pooler"
    """Cross-encoder head: the model's own pooler (released code), or a new linear layer on [CLS] (paper's text)."""
    pretraining: configs.PretrainingConfig = configs.PretrainingConfig()
    """Settings of masked language modelling on the pairs, before the cross-encoder learns from labels."""
    bi: configs.FitConfig = configs.FitConfig()
    """Training settings of the bi-encoder."""
    cross: configs.FitConfig = configs.FitConfig()
    """Training settings of the cross-encoder."""
    columns: tuple[str, ...] = ()
    """Names of the two text columns in `pairs`, or of the one in `sentences`; empty: well-known names, else the
    only columns with texts."""
    document_column: str | None = None
    """Name of the text column in `documents`; None: as for sentences."""

    def __post_init__(self, start: str | None) -> None:
        """Convert members and teachers to configs, then check all fields."""
        if start is not None and self.members:
            raise InputError(f"start is {start!r} and members are given too; give one of them")
        members = configs.listed(self.members or start or MINILM, configs.Member, "members", "start")
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "teachers", configs.listed(self.teachers, configs.OtherTeacher, "teachers", "teacher"))
        super().__post_init__()

    @property
    def has_evaluations(self) -> bool:
        """Whether both forms' checkpoints are evaluated during training, on dev or by criteria that need no labels."""
        return self.dev is not None or "last" not in (self.bi.selection, self.cross.selection)

    def with_lengths(self, text: int, pair: int) -> Self:
        """Return a copy whose bi-encoders read at most `text` tokens of a text, its cross-encoders `pair` of a pair."""
        return replace(self, bi=replace(self.bi, max_length=text), cross=replace(self.cross, max_length=pair))

    @property
    def budget_seconds(self) -> float | None:
        """The budget in seconds."""
        return None if self.budget is None else configs.seconds_of(self.budget)

    def fit_of(self, member: configs.Member, form: configs.Form) -> configs.FitConfig:
        """Return the training settings of a member's bi- or cross-encoders."""
        fit = self.bi if form == "bi" else self.cross
        own = {name: getattr(member, f"{form}_{name}") for name in ("learning_rate", "epochs")}
        return replace(fit, **{name: value for name, value in own.items() if value is not None})

    def pretraining_of(self, member: configs.Member) -> configs.PretrainingConfig:
        """Return the settings of masked language modelling for a member's cross-encoders."""
        epochs = self.pretraining.epochs if member.pretraining_epochs is None else member.pretraining_epochs
        return replace(self.pretraining, epochs=epochs)

    def policy_of(self, member: configs.Member) -> configs.LabelPolicy:
        """Return the label policy of a member's scores."""
        return member.policy or self.label_policy

    def prepared(self, n_parameters: int) -> Self:
        """Return the config with empty fields filled from the preset, or from Table 16 for the task and the model size.

        The paper does not state the warm-up, so it is the released code's: 10 % of the steps for the cross-encoder,
        none for the bi-encoder.

        Args:
            n_parameters: Number of parameters of the largest base model.

        Raises:
            InputError: There are fewer cycles than members that learn in turn.
        """
        is_binary = self.task_kind == "binary"
        cross = {"learning_rate": 2e-5, "batch_size": 32, "epochs": 3 if is_binary else 1, "max_length": 64}
        bi = {"learning_rate": 5e-5, "batch_size": 128, "epochs": 15 if is_binary else 10, "max_length": 32}
        if n_parameters >= LARGE_PARAMETERS:
            bi["batch_size"] = 64
        own: dict[str, Any] = {"same_form": False, "bi_labels": "cosine", "record_criteria": False}
        own |= {"cycles": 5 if is_binary else 3, **{choice.setting: choice.value for choice in self.choices}}
        own |= {} if self.preset == "standard" else {"weight_tokens": False}
        for form, values in (("bi.", bi), ("cross.", cross)):
            values |= {name.removeprefix(form): own.pop(name) for name in [*own] if name.startswith(form)}
        filled = configs.filled(self, own)
        cycles = filled.cycles or 1
        if self.alternate_members and cycles < len(self.members):
            raise InputError(f"{cycles} cycles are too few for {len(self.members)} members in turn; give one for each")
        return replace(
            filled,
            cross=self._fit(self.cross, cross | {"warmup_ratio": 0.1}),
            bi=self._fit(self.bi, bi | {"warmup_ratio": 0.0}),
        )

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Choices of preset `standard` for the settings that are left open; empty for preset `paper`."""
        if self.preset != "standard":
            return ()
        chosen = STANDARD if self._makes_no_cross else STANDARD_WITH_CROSS
        by_setting = {each.setting: each for each in chosen + (BESIDE_TEACHERS if self.teachers else ())}
        return tuple(each for each in by_setting.values() if self._is_open(each.setting))

    @property
    def learns_alone(self) -> bool:
        """Whether a bi-encoder learns from one base model's bi-encoder, and nothing else labels the pairs."""
        return self._makes_no_cross and len(self.members) == 1 and not self.teachers and self.labelled is None

    @property
    def may_keep_half(self) -> bool:
        """Whether the run decides, by its base model, if it keeps half of the training (`bi.trained_share`)."""
        is_open = self.bi.trained_share is None and self.bi.lora_rank is None and self.bi.save_steps is None
        return self.preset == "standard" and is_open and self.learns_alone

    def _is_open(self, setting: str) -> bool:
        form, _, name = setting.rpartition(".")
        if setting == "max_length":
            return self.max_length is None and self.bi.max_length is None and self.cross.max_length is None
        patient = [each for each in ("bi", "cross") if getattr(self, each).patience_epochs is not None]
        needs_choice = self.dev is not None or self.test_every_eval or self.patience_cycles is not None
        if (name == "selection" and (needs_choice or form in patient)) or (
            name == "record_criteria" and (needs_choice or patient)
        ):
            return False
        return getattr(getattr(self, form) if form else self, name) in (None, "auto")

    @property
    def _makes_no_cross(self) -> bool:
        """Whether no cross-encoder is made: as `same_form` says, else if no setting concerns cross-encoders."""
        asks = (
            replace(self.cross, max_length=None) != configs.FitConfig(),
            self.pretraining != configs.PretrainingConfig(),
            (self.head, self.cross_loss) != ("pooler", "bce"),
            self.label_both_orders or self.cross_test_length is not None,
            any(getattr(member, name) is not None for member in self.members for name in _OF_CROSS),
        )
        return not any(asks) if self.same_form is None else self.same_form

    def _fit(self, fit: configs.FitConfig, values: Mapping[str, Any]) -> configs.FitConfig:
        return replace(configs.filled(fit, values), selection=values.get("selection", fit.selection))

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from self._of_text()
        yield from self._of_documents()
        yield from self._of_members()
        yield from self._of_teachers()
        yield from self._of_selection()
        yield from self._of_pretraining()
        yield from self._of_budget()
        yield from super().contradictions()

    def _of_text(self) -> configs.Contradictions:
        if (self.pairs is None) == (self.sentences is None):
            yield (
                f"pairs and sentences are both {'missing' if self.pairs is None else 'given'}; give sentences to mine "
                "pairs from (--sentences), or pairs (--pairs)"
            )
        for source in ("sentences", "extra_pairs", "labelled"):
            if getattr(self, f"n_{source}") is not None and getattr(self, source) is None:
                yield f"n_{source} needs {source} to draw from; give both, or leave it out"
        if self.sentences is not None and len(self.columns) > 1:
            yield f"columns names {len(self.columns)} columns; sentences have one"
        if self.score_range != (0.0, 1.0) and self.labelled is None:
            yield "score_range is of a labelled file; leave it out"

    def _of_documents(self) -> configs.Contradictions:
        if self.documents is None:
            if self.document_column is not None:
                yield "document_column is of documents; give both, or leave it out"
            return
        if self.sentences is None:
            yield "documents needs sentences to pair them with, such as queries; give both, or leave it out"
        if self.documents is self.sentences or (isinstance(self.documents, str) and self.documents == self.sentences):
            yield "sentences and documents are the same; leave documents out"
        if self.is_symmetric:
            yield (
                "pairs of sentences and documents mean something else in the other order, but is_symmetric is true; "
                "set it false"
            )

    def _of_members(self) -> configs.Contradictions:
        members = self.members
        if self.alternate_members and len(members) < 2:
            yield "alternate_members needs at least two members; give another start, or leave it out"
        if self.alternate_members and not self.share_labels:
            yield "alternate_members learn each from the one before; take share_labels true"
        if self.alternate_members and self.initialisation == "sequential":
            yield "alternate_members changes the model from cycle to cycle; take initialisation refreshing"
        if self.bi.head_learning_rate is not None:
            yield (
                f"bi.head_learning_rate is {self.bi.head_learning_rate}, and a bi-encoder that learns pseudo-labels "
                "has no head; give cross.head_learning_rate alone"
            )
        yield from self.cross.of_bi_encoders()
        if self.cross.keeps_part:
            yield (
                f"cross.trained_share is {self.cross.trained_share}, and a cross-encoder's head starts from random "
                "weights; give bi.trained_share alone"
            )
        if self.bi_loss == "bce_clipped" and "raw" in map(self.policy_of, members):
            yield (
                "bi_loss is bce_clipped, which takes probabilities, and a label policy is raw, whose targets may "
                "leave [0, 1]; take label_policy clip"
            )
        prompts = [member.document_prompt for member in members if member.document_prompt is not None]
        given = f"document_prompt is {prompts[0]!r}" if prompts else ""
        if given and self.is_symmetric:
            yield (
                f"{given}: pairs are then a query and a document, whose order means something, and is_symmetric says "
                "that it means nothing; set is_symmetric false, or leave document_prompt out"
            )
        if given and self.sentences is not None and self.documents is None:
            yield (
                f"{given}, but of sentences pairs are mined that have no order; give documents to pair them with, or "
                "leave document_prompt out"
            )

    def _of_teachers(self) -> configs.Contradictions:
        names = [each.teacher for each in self.teachers]
        if twice := [name for name in names if names.count(name) > 1]:
            yield f"the teacher {twice[0]} is given twice; give it once, with a teacher_weight"
        for each in self.teachers:
            if each.column is not None and self.pairs is None:
                yield f"teacher is {each.teacher}, a column of pairs, and there are none; give pairs, or a model"
            if self.bi_loss == "bce_clipped" and (each.teacher_policy or self.label_policy) == "raw":
                yield f"bi_loss is bce_clipped, and the policy of {each.teacher} is raw; take another teacher_policy"
        if self.teachers and not self.share_labels:
            yield "teachers label for all members, and share_labels is false; leave one of them out"

    def _of_selection(self) -> configs.Contradictions:
        for form, selection in (("bi", self.bi.selection), ("cross", self.cross.selection)):
            if self.dev is not None and selection != "auto":
                yield f"{form}.selection is {selection}, but dev chooses; leave one of the two out, or set it to auto"
            if selection == "member_agreement" and (len(self.members) < 2 or self.alternate_members):
                yield (
                    f"{form}.selection is member_agreement, but no two members learn side by side; give two, or take "
                    "another criterion"
                )
        if self.cross.selection in get_args(configs.OfEmbeddings):
            yield (
                f"cross.selection is {self.cross.selection}: it is of embeddings, and a cross-encoder has none; take "
                "teacher_agreement, start_agreement, member_agreement, view_preference or last"
            )
        has_choice = self.dev is not None or not self.bi.selection == self.cross.selection == "last"
        if self.patience_cycles is not None and not has_choice:
            yield "patience_cycles needs a way to choose checkpoints; give dev, or another selection than last"
        for form, fit in (("bi", self.bi), ("cross", self.cross)):
            is_chosen = self.dev is not None or fit.selection != "last"
            yield from fit.of_patience(form, is_chosen=is_chosen, remedy="dev, or another selection than last")

    def _of_budget(self) -> configs.Contradictions:
        if self.budget is None:
            return
        for name in ("documents", "extra_pairs"):
            if getattr(self, name) is not None:
                yield f"budget does not count what {name} take; leave one of the two out"
        if any(each.column is None for each in self.teachers):
            yield "budget does not count the time of other teachers; leave one out, or give their scores as a column"

    def _of_pretraining(self) -> configs.Contradictions:
        epochs = max(self.pretraining_of(member).epochs for member in self.members)
        if epochs and self.same_form:
            yield (
                f"pretraining.epochs, or a member's, is {epochs}, and same_form makes no cross-encoder that would "
                "start from it; take 0 epochs, or same_form false"
            )
        if epochs and self.initialisation == "sequential":
            yield (
                f"pretraining.epochs, or a member's, is {epochs} and initialisation sequential, which would overwrite "
                "what is pretrained with the teacher's weights; take initialisation refreshing, or 0 epochs"
            )
