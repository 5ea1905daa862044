"""`score` and `label`: what models say of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import transencoder
from transencoder.cli.files import STDOUT, PairRows, Where, check_output, check_texts, whole_file, write_pairs
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show
from transencoder.configs import LabelPolicy, Precision
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError
from transencoder.files import scratch_folder

if TYPE_CHECKING:
    from transencoder import labels


@dataclass(frozen=True, kw_only=True)
class Models(Config):
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
    prompt: str | None = option(None, metavar="TEXT", one_of="prompt")
    """put before every text (default: the model's own default prompt, if any)"""
    prompt_name: str | None = option(None, metavar="NAME", one_of="prompt")
    """the same, by its name among the model's prompts"""
    document_prompt: str | None = option(None, metavar="TEXT", one_of="document prompt")
    """put before every second text instead, of queries with documents; for bi-encoders (default: the same)"""
    document_prompt_name: str | None = option(None, metavar="NAME", one_of="document prompt")
    """the same, by its name among the model's prompts"""
    both_orders: bool = False
    """average a cross-encoder's scores of both orders of a pair"""

    def contradictions(self) -> Contradictions:
        if len(set(self.models)) < len(self.models):
            yield f"the models are {', '.join(self.models)}; give each once"


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score pairs: sentence1, sentence2, score."""

    scoring: Models
    pairs: str
    """TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    output: str = option(STDOUT, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet"""
    rows: PairRows

    def __call__(self) -> None:
        check_output(self.output, source=self.pairs)
        pairs = transencoder.read_pairs(self.pairs, **vars(self.rows))
        check_texts(pairs, self.output)
        with loaded(self.scoring, self.rows) as teachers:
            scores = transencoder.MeanScorer([teacher.scorer for teacher in teachers]).score(pairs)
        write_pairs(pairs, self.output, scores)


@dataclass(frozen=True, kw_only=True)
class Label:
    """Label pairs with models: pseudo-labels any trainer can read."""

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

    def __call__(self) -> None:
        check_output(self.output, formats=(".parquet",), source=self.pairs)
        models = self.scoring.models
        weights = checked_weights(self.weights, len(models))
        from transencoder import labels

        pairs = transencoder.read_pairs(self.pairs, **vars(self.rows))
        with loaded(self.scoring, self.rows) as teachers:
            weighted = [replace(teacher, weight=weight) for teacher, weight in zip(teachers, weights, strict=True)]
            labelled = labels.label(weighted, pairs, self.policy)
        raw_file = str(Path(self.output).with_suffix(".raw.parquet"))
        with whole_file(self.output) as temporary, whole_file(raw_file) as raw:
            labelled.write(temporary, pairs)
            labelled.write_raw(raw)
        show(f"{self.output}: {len(pairs)} pairs labelled by {', '.join(models)}, policy {self.policy}")


def checked_weights(weights: Sequence[float], n_models: int) -> list[float]:
    """Return one weight for each model, a finite number above 0; all 1 where none is given."""
    found = list(weights) or [1.0] * n_models
    if len(found) != n_models:
        raise InputError(f"--weights has {len(found)} numbers for {n_models} models; give one for each")
    if not all(0.0 < weight < math.inf for weight in found):
        raise InputError(f"--weights are {', '.join(map(str, found))}; give each a finite number above 0")
    return found


@contextmanager
def loaded(scoring: Models, where: Where) -> Iterator[list[labels.Teacher]]:
    """Load the models as they were saved, bi- or cross-encoders; tokens are kept until the end."""
    with scratch_folder() as folder:
        yield [_load_teacher(model, scoring, where, folder) for model in scoring.models]


def _load_teacher(name: str, scoring: Models, where: Where, token_folder: Path) -> labels.Teacher:
    from transencoder import encoders, inference, labels, tokens

    folder = encoders.fetch(name, revision=scoring.revision, **where.hub)
    options = {name: value for name, value in vars(scoring).items() if name not in ("models", "revision")}
    scorer = inference.load_scorer(folder, **options, cache=tokens.TokenCache(token_folder), shown_as=name)
    return labels.Teacher(name=name, scorer=scorer, fingerprint=encoders.weights_fingerprint(folder))
