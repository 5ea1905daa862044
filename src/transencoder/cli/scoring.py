"""`score` and `label`: what models say of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from transencoder.cli.files import STDOUT, PairRows, Where, check_output, check_texts, whole_file, write_rows
from transencoder.cli.flags import OneOf, argument, option
from transencoder.cli.terminal import show
from transencoder.configs import LabelPolicy, Precision
from transencoder.errors import InputError

if TYPE_CHECKING:
    from transencoder.labels import Teacher
    from transencoder.scorers import Scorer

_QUERY_PROMPT, _DOCUMENT_PROMPT = OneOf(), OneOf()


@dataclass(frozen=True, kw_only=True)
class Models:
    """Which models score, and how."""

    models: tuple[str, ...] = argument("MODEL")
    """folder, hub id, or minilm; several: their mean"""
    revision: str | None = None
    """hub revision of the models"""
    device: str | None = None
    """such as cpu or cuda:0 (default: the best there is)"""
    precision: Precision = "auto"
    """auto: bf16 where the hardware has it"""
    max_length: int | None = option(None, metavar="TOKENS")
    """cut longer texts (default: the model's)"""
    prompt: str | None = option(None, metavar="TEXT", one_of=_QUERY_PROMPT)
    """put before every text (default: the model's own default prompt, if any)"""
    prompt_name: str | None = option(None, metavar="NAME", one_of=_QUERY_PROMPT)
    """the same, by its name among the model's prompts"""
    document_prompt: str | None = option(None, metavar="TEXT", one_of=_DOCUMENT_PROMPT)
    """put before every second text instead, of queries with documents; for bi-encoders (default: the same)"""
    document_prompt_name: str | None = option(None, metavar="NAME", one_of=_DOCUMENT_PROMPT)
    """the same, by its name among the model's prompts"""
    both_orders: bool = False
    """average a cross-encoder's scores of both orders of a pair"""

    def check(self) -> None:
        """Refuse a model that is given twice."""
        if len(set(self.models)) < len(self.models):
            raise InputError(f"the models are {', '.join(self.models)}; give each once")


@dataclass(frozen=True, kw_only=True)
class Score:
    """Options of `score`."""

    scoring: Models
    pairs: str
    """TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    output: str = option(STDOUT, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet"""
    rows: PairRows
    where: Where


def score(options: Score) -> None:
    """Score pairs: sentence1, sentence2, score."""
    options.scoring.check()
    check_output(options.output, source=options.pairs)
    from transencoder.pairs import read_pairs
    from transencoder.scorers import MeanScorer

    pairs = read_pairs(options.pairs, **vars(options.rows), **vars(options.where))
    check_texts(pairs, options.output)
    with loaded(options.scoring, options.where) as teachers:
        scores = MeanScorer([teacher.scorer for teacher in teachers]).score(pairs)
    write_rows(pairs, options.output, scores)


@dataclass(frozen=True, kw_only=True)
class Label:
    """Options of `label`."""

    scoring: Models
    pairs: str
    """TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    policy: LabelPolicy = "clip"
    """how scores become targets"""
    weights: tuple[float, ...] = option(())
    """share of each model in the labels (default: equal)"""
    output: str = option(metavar="FILE.parquet")
    """sentence1, sentence2 and label, as trainers take them; each model's raw scores go to FILE.raw.parquet"""
    rows: PairRows
    where: Where


def label(options: Label) -> None:
    """Label pairs with models: pseudo-labels any trainer can read."""
    check_output(options.output, formats=(".parquet",), source=options.pairs)
    models = options.scoring.models
    weights = weights_of(options.scoring, options.weights)
    from transencoder.labels import label as labels_of
    from transencoder.pairs import read_pairs

    pairs = read_pairs(options.pairs, **vars(options.rows), **vars(options.where))
    with loaded(options.scoring, options.where) as teachers:
        weighted = [replace(teacher, weight=weight) for teacher, weight in zip(teachers, weights, strict=True)]
        labels = labels_of(weighted, pairs, options.policy)
    raw_file = str(Path(options.output).with_suffix(".raw.parquet"))
    with whole_file(options.output) as temporary, whole_file(raw_file) as raw:
        labels.write(temporary, pairs)
        labels.write_raw(raw)
    show(f"{options.output}: {len(pairs)} pairs labelled by {', '.join(models)}, policy {options.policy}")


def weights_of(scoring: Models, weights: Sequence[float]) -> list[float]:
    """Return one number for each model, all 1 where none is given.

    Raises:
        InputError: There are more or fewer, or a model is given twice.
    """
    scoring.check()
    found = list(weights) or [1.0] * len(scoring.models)
    if len(found) != len(scoring.models):
        raise InputError(f"--weights has {len(found)} numbers for {len(scoring.models)} models; give one for each")
    if not all(0.0 < weight < math.inf for weight in found):
        raise InputError(f"--weights are {', '.join(map(str, found))}; give each a finite number above 0")
    return found


@contextmanager
def loaded(scoring: Models, where: Where) -> Iterator[list[Teacher]]:
    """Load the models as they were saved, bi- or cross-encoders; tokens are kept until the end."""
    with TemporaryDirectory(prefix="transencoder-") as folder:
        yield [load_teacher(model, scoring, where, Path(folder)) for model in scoring.models]


def load_teacher(name: str, scoring: Models, where: Where, token_folder: Path) -> Teacher:
    """Load one model to score with.

    Raises:
        InputError: There is no such model or device, or the model cannot read texts of that length.
    """
    from transencoder.devices import checked_device
    from transencoder.encoders import fetch, weights_fingerprint
    from transencoder.labels import Teacher

    device = checked_device(scoring.device) if scoring.device else None
    folder = fetch(name, revision=scoring.revision, **where.hub)
    scorer = load_scorer(name, folder, device, scoring, token_folder)
    return Teacher(name=name, scorer=scorer, fingerprint=weights_fingerprint(folder))


def load_scorer(name: str, folder: Path, device: str | None, scoring: Models, token_folder: Path) -> Scorer:
    """Load the model of a folder, called `name` in messages, as `scoring` says."""
    from sentence_transformers import SentenceTransformer

    from transencoder.encoders import gives_logits, load_trained
    from transencoder.models import Prompts, named_prompt, warn_of_unused_prompts
    from transencoder.scorers import BiScorer, CrossScorer
    from transencoder.tokens import TokenCache

    model = load_trained(folder, device, max_length=scoring.max_length)
    cache = TokenCache(token_folder)
    prompt = scoring.prompt if scoring.prompt_name is None else named_prompt(model, scoring.prompt_name)
    if isinstance(model, SentenceTransformer):
        document_prompt = scoring.document_prompt
        if scoring.document_prompt_name is not None:
            document_prompt = named_prompt(model, scoring.document_prompt_name)
        warn_of_unused_prompts(folder, name, Prompts(prompt, document_prompt))
        return BiScorer(model, precision=scoring.precision, cache=cache, prompt=prompt, document_prompt=document_prompt)
    if scoring.document_prompt is not None or scoring.document_prompt_name is not None:
        raise InputError(f"{name} is a cross-encoder, which reads both texts at once: --document-prompt is not for it")
    return CrossScorer(
        model,
        precision=scoring.precision,
        both_orders=scoring.both_orders,
        cache=cache,
        prompt=prompt,
        as_logit=gives_logits(model),
    )
