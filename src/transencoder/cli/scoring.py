"""`score` and `label`: what models say of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import transencoder
from transencoder.cli.files import STDOUT, PairRows, Where, check_output, check_texts, whole_file, write_pairs
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show
from transencoder.configs import LabelPolicy, Pooling, Precision
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError
from transencoder.files import scratch_folder

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder import labels, shards

_SCORES = "scores"


@dataclass(frozen=True, kw_only=True)
class Models(Config):
    """Which models score, and how."""

    models: tuple[str, ...] = argument("MODEL")
    """folder, run, hub id, or minilm; of several, `score` and `label` take the mean"""
    revision: str | None = None
    """hub revision of the models"""
    device: str | None = None
    """such as cpu or cuda:0 (default: the best there is)"""
    precision: Precision = "auto"
    """auto: bf16 where the hardware has it"""
    max_length: int | None = option(None, metavar="TOKENS")
    """cut longer texts (default: the model's)"""
    pooling: Pooling | None = None
    """how a plain checkpoint's tokens become an embedding (default: the model's own, mean where it has none)"""
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
class Sharding(Config):
    """Whether a part of the work is done here, such as by a job of an array."""

    shard: str | None = option(None, metavar="I/N", one_of="shards")
    """compute the I-th of N parts of the rows alone, into OUTPUT.parts: a job of an array on several machines"""
    merge: bool = option(False, one_of="shards")
    """compute nothing: join the parts that --shard made"""

    @property
    def own(self) -> shards.Shard | None:
        """The one that is computed here; None: all of them."""
        from transencoder.shards import read_shard

        return None if self.shard is None else read_shard(self.shard)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score pairs: sentence1, sentence2, score."""

    scoring: Models
    pairs: str
    """TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    output: str = option(STDOUT, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet"""
    sharding: Sharding
    rows: PairRows

    def __call__(self) -> None:
        check_output(self.output, source=self.pairs)
        _ = self.sharding.own  # refused before the pairs are read
        pairs = transencoder.read_pairs(self.pairs, **vars(self.rows))
        check_texts(pairs, self.output)
        with scored(self, pairs) as scores:
            if scores is not None:
                write_pairs(pairs, self.output, scores.mean(1))


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
    sharding: Sharding
    rows: PairRows

    def __call__(self) -> None:
        check_output(self.output, formats=(".parquet",), source=self.pairs)
        models = self.scoring.models
        weights = dict(zip(models, checked_weights(self.weights, len(models)), strict=True))
        from transencoder import labels

        pairs = transencoder.read_pairs(self.pairs, **vars(self.rows))
        with scored(self, pairs) as scores:
            if scores is None:
                return
            raw = dict(zip(models, np.ascontiguousarray(scores.T), strict=True))
            fingerprints = dict(zip(models, fingerprints_of(self.scoring, self.rows), strict=True))
            labelled = labels.combine(raw, dict.fromkeys(models, self.policy), weights, fingerprints)
            raw_file = str(Path(self.output).with_suffix(".raw.parquet"))
            with whole_file(self.output) as temporary, whole_file(raw_file) as raw_scores:
                labelled.write(temporary, pairs)
                labelled.write_raw(raw_scores)
        show(f"{self.output}: {len(pairs)} pairs labelled by {', '.join(models)}, policy {self.policy}")


@contextmanager
def scored(options: Score | Label, pairs: Dataset) -> Iterator[np.ndarray | None]:
    """Score pairs shard by shard, going on with the parts that are there, and remove these at the end.

    Yields:
        Each model's scores, float32 (n, models); None where they are not to be written here: of one shard, and on all
        ranks but the first.
    """
    from transencoder import distributed
    from transencoder.pairs import fingerprint
    from transencoder.shards import Arrays, Parts

    scoring, where, merge, shard = options.scoring, options.rows, options.sharding.merge, options.sharding.own
    distributed.start()
    if options.output == STDOUT and (shard or merge or distributed.world_size() > 1):
        raise InputError("parts lie beside the output, and that is stdout; give --output FILE")
    with ExitStack() as stack:
        folder = Path(f"{options.output}.parts")
        if options.output == STDOUT:
            folder = stack.enter_context(scratch_folder()) / folder
        parts = Parts(
            folder=folder,
            n_rows=len(pairs),
            rows=lambda rows: fingerprint(pairs.select(range(rows.start, rows.stop))),
            maker=_maker(scoring, where),
            again="run the same command with --shard {shard}",
        )
        if not merge:
            teachers = stack.enter_context(loaded(scoring, where))

            def compute(rows: slice) -> Arrays:
                some = pairs.select(range(rows.start, rows.stop))
                return {_SCORES: np.stack([teacher.scorer.score(some) for teacher in teachers], axis=1)}

            if shard is not None:
                parts.make(shard, compute)
                show(f"{folder}: shard {shard}")
                yield None
                return
            parts.make_all(compute)
        yield parts.join()[_SCORES] if distributed.rank() == 0 else None
        parts.remove()


def _maker(scoring: Models, where: Where) -> dict[str, Any]:
    """Return what decides scores: the models by their content, and the settings that are not of a machine."""
    settings = {name: value for name, value in vars(scoring).items() if name not in ("models", "revision", "device")}
    return {"models": fingerprints_of(scoring, where), **settings}


def fingerprints_of(scoring: Models, where: Where) -> list[str]:
    """Return the fingerprint of each model's files."""
    from transencoder import encoders

    folders = (encoders.fetch(name, revision=scoring.revision, **where.hub) for name in scoring.models)
    return [encoders.weights_fingerprint(folder) for folder in folders]


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
    return labels.Teacher(name=name, scorer=scorer)
