"""Pipeline of Trans-Encoder: the members' base models, pairs mined if only sentences are given, the cycles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from transencoder.configs import Criterion, Form, Member
from transencoder.configs.choices import HALF, MANY_PAIRS, ONE_EPOCH, STANDARD, WEIGHTED, Choice
from transencoder.context import Data, Model, Rows
from transencoder.cycles import (
    CycleContext,
    base_criteria,
    distil,
    warn_of_weak_bases,
    with_pretraining,
)
from transencoder.cycles.stages import Pretraining, Student
from transencoder.encoders import count_parameters
from transencoder.errors import InputError, plural
from transencoder.fit import check_lora
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.mining import default_n_pairs
from transencoder.pairs import fingerprint
from transencoder.records import ChoiceRecord
from transencoder.runs import Cost, Executor, Planner, StageRecord
from transencoder.selection import LEAST_HELD_OUT_FROM, LEAST_PAIRS, criterion_of, hold_out
from transencoder.training.budget import Budget
from transencoder.training.chains import best_chain, ensemble_of, measured_chains, member_record
from transencoder.training.data import PairsReader
from transencoder.training.details import details_of, notes_of, who_else_labels
from transencoder.training.executors import n_workers
from transencoder.training.lengths import Lengths
from transencoder.training.members import (
    can_be_weighted,
    fetch_bases,
    looks_unlabelled,
    members_of,
    warn_of_untaught,
)
from transencoder.training.mined import MINING, Mining
from transencoder.training.neighbours import neighbours
from transencoder.training.other_teachers import fetch_teachers, teachers_of
from transencoder.training.pipeline import Pipeline, placed, settings_in_words
from transencoder.training.result import Measurements
from transencoder.training.scoring import keep_sample
from transencoder.training.text import TrainingText


class PairsPipeline(Pipeline[TransEncoder, CycleContext]):
    """Pipeline of a Trans-Encoder run.

    Raises:
        InputError: A member's model cannot be loaded or reads too few tokens (the message has the member's number if
            there are several), LoRA's package is missing, or several workers are given where only one is possible.
    """

    def __init__(self, config: TransEncoder) -> None:
        given, usable = placed(config)
        folders = fetch_bases(usable)
        n_parameters = max(count_parameters(folder) for both in folders for folder in both)
        self.given, self.config = given.prepared(n_parameters), usable.prepared(n_parameters)
        self.choices: dict[str, ChoiceRecord] = {}
        for each in given.choices:
            self._choose(each)
        self.may_train_one_epoch = _may_train_one_epoch(given, self.config)
        self.members = members_of(self.config, folders)
        if self.config.bi.lora_rank or self.config.cross.lora_rank:
            check_lora()
        self.teachers = fetch_teachers(usable)
        self.n_workers = n_workers(config)
        self.budget = None if usable.budget is None else Budget(usable, self.n_workers)
        self.n_undrawn = 0  # number of sentences to draw from; set only with a budget
        self.recipe = _recipe(given, self.given)

    def open(self, executor: Executor, run_folder: Path | None) -> CycleContext:
        """Read the data, mine pairs if sentences are given, and decide what chooses checkpoints."""
        reader = PairsReader(self.config, run_folder)
        whole = reader.text()
        text = reader.drawn(whole, self._limit(executor, whole.rows))
        mined = None
        if self.config.sentences is not None:
            text, mined = self._mined(executor, text, reader.documents())
        data = reader.data(text)
        if self.config.sentences is None:
            self._read_lengths(data.training)
        if self.budget is None:
            self._settle_epochs(len(data.training))
        config = self.config
        warn_of_untaught(config, self.members, len(data.training))
        criteria = _criteria(config, data)
        gold = None if data.gold is None else data.gold.scores
        can_be_held_out = bool(criteria) or (data.dev is not None and data.n_unlabelled >= LEAST_HELD_OUT_FROM)
        is_held_out = (config.record_criteria and can_be_held_out) or any(criteria.values())
        if not is_held_out:
            self.choices.pop("record_criteria", None)
        context = CycleContext(
            config=config,
            executor=executor,
            data=data,
            max_length=config.bi.max_length,
            labels_both_orders=config.label_both_orders and config.is_symmetric,
            members=self.members,
            teachers=teachers_of(config, self.teachers, data.training),
            held_out=hold_out(data.training, gold) if is_held_out else None,
            criteria=criteria,
            mined=mined if data.training is text.rows else None,  # else pairs were added
        )
        return self._fitted_to_bases(context)

    def train(self, context: CycleContext) -> tuple[CycleContext, list[list[Model]]]:
        """Run the cycles."""
        warn_of_weak_bases(context)
        context = with_pretraining(context)
        return context, distil(context, self.config.cycles or 1)

    def measure(self, context: CycleContext, trained: tuple[CycleContext, list[list[Model]]]) -> Measurements:
        """Measure the models of each member and of the ensemble, and keep a sample of their scores."""
        context, cycles = trained
        chains = measured_chains(context, cycles)
        ensemble = ensemble_of(context, chains) if len(chains) > 1 else None
        kept = best_chain(chains)
        chain = chains[kept]
        sample = keep_sample(context, chain.models)
        context.make(neighbours(context, chain.start, chain.best["bi"]))
        details = details_of(context, chain)
        if self.choices:
            details["choices"] = [*self.choices.values()]
        if context.data.dev is None and context.held_out is None:
            details["sample_agreement"] = sample.result.get("start_agreement", {})
        if ensemble is not None:
            is_analysed = self.config.test_every_eval
            members = [member_record(each, is_analysed=is_analysed) for each in chains]
            details |= {"ensemble": ensemble, "member": kept + 1, "members": members}
        return Measurements(
            cycles=chain.cycles,
            best=chain.best,
            dev=chain.measured.dev,
            scores=chain.measured.scores,
            details=details,
            notes=notes_of(context),
            members=[each.best for each in chains],
        )

    def lines(self, context: CycleContext, planner: Planner) -> list[str]:
        """Return lines on the pairs, the cycles, the steps and the settings."""
        config = self.config
        students = reversed(planner.of_kind(Student))  # the first of each form counts
        steps = {student.base.form: plural(student.n_steps, "step") for student in students}
        each = "" if len(config.members) == 1 else f" and each of {len(config.members)} members"
        if config.alternate_members:
            each = f", by one of {len(config.members)} members in turn"
        to_cross = [] if config.same_form else [f"label, train a cross-encoder {steps['cross']}"]
        lines = [
            f"{plural(len(context.data.training), 'pair')}; {plural(config.cycles or 1, 'cycle')}; each cycle{each}: "
            + ", ".join([*to_cross, f"label, train a bi-encoder {steps['bi']}"]),
            *([] if config.same_form else [f"cross: {settings_in_words(config.cross)}"]),
            f"bi: {settings_in_words(config.bi)}",
        ]
        for number, member in enumerate(config.members, 1):
            if own := _own_settings(member):
                lines.append(f"member {number}: {own}")
        if pretraining := sum(stage.n_steps for stage in planner.of_kind(Pretraining)):
            lines.insert(1, f"before the cycles: {plural(pretraining, 'step')} of masked language modelling")
        if config.teachers:
            lines.append(who_else_labels(config))
        lines[:0] = [mining.description for mining in planner.of_kind(Mining)]
        lines += [f"{each['setting']} = {each['value']}: {each['because']}" for each in self.choices.values()]
        if config.weight_tokens is None:
            lines.append(
                "tokens are weighted if the base model seems to have been trained without labels; the run checks this"
            )
        if config.may_keep_half:
            lines.append("half of the training is kept if the base model seems to have been trained with labels")
        if self.budget is not None:
            lines.append("what fits into the budget is a rough estimate: the run times a few steps first")
        return lines

    def extra_cost(self, context: CycleContext, planner: Planner) -> Cost:
        """Return the cost of the exported models, the pairs, the tokens and the comparison of neighbours."""
        students = planner.of_kind(Student)
        exported = {stage.name.rpartition("/")[2]: stage.base.n_parameters for stage in students}
        per_member = {stage.base.folder: stage.base.n_parameters for stage in students}
        members = sum(per_member.values()) if len(self.members) > 1 else 0
        disk_bytes = 4 * (sum(exported.values()) + members) + 400 * len(context.data.training)
        base = self.members[0].bi
        return neighbours(context, base, base).cost() + Cost(disk_bytes=disk_bytes)

    def _settle_epochs(self, n_pairs: int) -> None:
        """Train one epoch where there are many pairs, unless the user gave settings that go with it."""
        if self.may_train_one_epoch and n_pairs >= MANY_PAIRS:
            self._choose(ONE_EPOCH)
            self._settle(lambda config: replace(config, bi=replace(config.bi, epochs=ONE_EPOCH.value)))

    def _read_lengths(self, *rows: Dataset) -> None:
        """Measure how much of each text is read, and set `max_length` if it is `auto`."""
        self.note_on_cuts = self._settle_lengths(*rows).note_on_cuts(self.config.bi.max_length)

    def _settle_lengths(self, *rows: Dataset) -> Lengths:
        first = self.members[0].bi
        lengths = Lengths.of(first.folder, *rows, prompts=first.prompts)
        limits = [_shortest(member.bi for member in self.members), _shortest(member.cross for member in self.members)]
        self._settle(lambda config: lengths.settle(config, *limits))
        return lengths

    def _fitted_to_bases(self, context: CycleContext) -> CycleContext:
        """Decide by the base models which bi-encoders have weighted tokens, and if half of a training is kept."""
        wanted = [self.config.weight_tokens] * len(context.members)
        if self.config.may_keep_half or wanted[0] is None:
            criteria = [{} if record is None else record.result for record in base_criteria(context, context.members)]
            if self.config.may_keep_half and looks_unlabelled(criteria[0]) is False:
                self._choose(HALF)
                self._settle(lambda config: replace(config, bi=replace(config.bi, trained_share=HALF.value)))
            if wanted[0] is None:
                wanted = [looks_unlabelled(each) for each in criteria]
        return self._with_weights(replace(context, config=self.config), wanted)

    def _with_weights(self, context: CycleContext, wanted: list[bool | None]) -> CycleContext:
        """Have the wanted members' bi-encoders kept with weighted tokens."""
        weighted = [
            bool(each) and can_be_weighted(member.bi) for each, member in zip(wanted, context.members, strict=True)
        ]
        if self.config.weight_tokens and not all(weighted):
            start = self.config.members[weighted.index(False)].start
            raise InputError(
                f"weight_tokens is true, but {start} has no mean pooling, or weights its tokens already; leave it out, "
                "or give another base model"
            )
        if self.config.weight_tokens is None and any(weighted):
            self._choose(WEIGHTED)
            if all(weighted):
                self._settle(lambda config: replace(config, weight_tokens=True))
        members = [replace(member, weight_tokens=each) for member, each in zip(context.members, weighted, strict=True)]
        return replace(context, members=tuple(members))

    def _choose(self, choice: Choice) -> None:
        """Note a choice, in the place of an earlier one of the same setting."""
        self.choices[choice.setting] = {
            "setting": choice.setting,
            "value": choice.value,
            "because": choice.because,
        }

    def _limit(self, executor: Executor, rows: Dataset) -> int | None:
        """Return how many pairs or sentences the budget has time for; None: all."""
        if self.budget is None:
            return None
        self._settle_lengths(rows)
        self.budget.measure(executor, self.config, self.members, Rows(rows, fingerprint(rows)))
        if self.config.sentences is None:
            return self._fit_in(self.budget, self.config.n_pairs or len(rows), self.config.n_pairs or len(rows))
        self.n_undrawn = self.config.n_sentences or len(rows)
        return self.budget.most_texts

    def _fit_in(self, budget: Budget, n_pairs: int, whole: int, n_texts: int = 0) -> int:
        """Set cycles, epochs and pairs to what fits into the budget, and return the number of pairs."""
        self._settle_epochs(n_pairs)
        fits = budget.fitted(self.config, n_pairs, whole, n_texts)
        less = {**fits.less, **({"n_sentences": n_texts} if 0 < n_texts < self.n_undrawn else {})}
        for name, value in less.items():
            self._choose(Choice(name, value, fits.because))
        self._settle(fits.amount.settle)
        rows: dict[str, Any] = {name: less[name] for name in ("n_pairs", "n_sentences") if name in less}
        self._settle(lambda config: replace(config, **rows))
        return fits.amount.n_pairs

    def _mined(
        self, executor: Executor, text: TrainingText, documents: TrainingText | None
    ) -> tuple[TrainingText, StageRecord | None]:
        """Return the pairs mined from sentences, or from sentences and documents; in a plan, as many empty pairs.

        With them comes the record of the stage; None in a plan.
        """
        texts = [text.rows] if documents is None else [text.rows, documents.rows]
        if documents is not None:
            text = text.noted(documents=documents.record, **text.left_out_with(documents))
        self._read_lengths(*texts)
        n_pairs = self.config.n_pairs
        if self.budget is not None:
            of_these, of_all = (n_pairs or default_n_pairs(n) for n in (len(texts[0]), self.n_undrawn))
            n_pairs = self._fit_in(self.budget, of_these, of_all, len(texts[0]))
        stage = Mining(
            name=MINING,
            texts=tuple(Rows(each, fingerprint(each)) for each in texts),
            model=self.members[0].bi,
            n_pairs=n_pairs,
            max_length=self.config.bi.max_length,
            precision=self.config.precision,
            seed=self.config.seed,
        )
        (record,) = executor.make([stage])
        if isinstance(executor, Planner):
            empty = [""] * stage.n_wanted
            return text.replaced(Dataset.from_dict({"sentence1": empty, "sentence2": empty})), None
        pairs = Dataset.from_file(str(record.folder / record.result["file"]))
        return text.replaced(pairs, mined=record.result["record"]), record


def _shortest(models: Iterable[Model]) -> int | None:
    """Return the number of tokens of a text that every model can read; None: no limit."""
    return min((model.max_length for model in models if model.max_length is not None), default=None)


def _recipe(given: TransEncoder, prepared: TransEncoder) -> TransEncoder:
    """Return the config for the recipe file; another run of it chooses anew what depends on the data or a budget."""
    if given.budget is not None:
        return given
    fits = {
        form: replace(getattr(prepared, form), selection=getattr(given, form).selection) for form in ("bi", "cross")
    }
    if _may_train_one_epoch(given, prepared):
        fits["bi"] = replace(fits["bi"], epochs=None)
    return replace(prepared, record_criteria=given.record_criteria, bi=fits["bi"], cross=fits["cross"])


def _may_train_one_epoch(given: TransEncoder, prepared: TransEncoder) -> bool:
    """Return whether the number of pairs decides on the epochs of the bi-encoder: all else is as the preset has it."""
    fit, standard = prepared.fit_of(prepared.members[0], "bi"), {each.setting: each.value for each in STANDARD}
    is_open = given.fit_of(given.members[0], "bi").epochs is None and fit.lora_rank is None
    as_preset = ("learning_rate", "batch_size", "selection")
    is_standard = all(getattr(fit, name) == standard[f"bi.{name}"] for name in as_preset)
    return given.preset == "standard" and prepared.learns_alone and is_open and is_standard


def _criteria(config: TransEncoder, data: Data) -> dict[Form, Criterion | None]:
    """Return the criterion that chooses each form's checkpoints without labels; empty with dev or for few pairs.

    Raises:
        InputError: The tests are to be scored at each evaluation, or patience counts from the best of them, and there
            are no evaluations.
    """
    criteria: dict[Form, Criterion | None] = {}
    if data.dev is None and data.n_unlabelled >= LEAST_PAIRS:
        criteria = {"bi": criterion_of("bi", config.bi.selection)}
        criteria |= {} if config.same_form else {"cross": criterion_of("cross", config.cross.selection)}
    patient = [
        f"{form}.patience_epochs" for form in ("bi", "cross") if getattr(config, form).patience_epochs is not None
    ]
    asking = ["test_every_eval"] if config.test_every_eval else patient
    if asking and data.dev is None and not criteria:
        raise InputError(
            f"{asking[0]} needs evaluations, and without dev there are none: of {data.n_unlabelled} pairs, fewer "
            f"than {LEAST_PAIRS}, none can be held out to choose by. Give dev or more pairs, or leave it out"
        )
    return criteria


def _own_settings(member: Member) -> str:
    """Return the settings that a member overrides, in words."""
    names = [f"{form}_{name}" for form in ("cross", "bi") for name in ("learning_rate", "epochs")]
    own = {name: getattr(member, name) for name in (*names, "pretraining_epochs")}
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in own.items() if value is not None)
