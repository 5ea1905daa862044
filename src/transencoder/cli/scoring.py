"""The commands `score` and `label`: score pairs with models, or turn the scores into pseudo-labels."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import transencoder
from transencoder.cli.files import STDOUT, PairRows, Where, check_output, check_texts, whole_file, write_pairs
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import goes_on_from, show
from transencoder.configs import LabelPolicy, Pooling, Precision
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError, shorten
from transencoder.files import TEMPORARY, make_folder, scratch_folder
from transencoder.runs.folder import LOCK_NAME, release_lock, take_lock

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder import scorers, shards

_SCORES = "scores"


@dataclass(frozen=True, kw_only=True)
class Models(Config):
    """Options for the models that score, and how they score."""

    models: tuple[str, ...] = argument("MODEL")
    """folder, run, hub id, or minilm; `evaluate` measures each of several, `score` and `label` take their mean"""
    revision: str | None = None
    """hub revision of the models"""
    device: str | None = None
    """device, such as cpu or cuda:0 (default: the best one available)"""
    attn_implementation: str | None = option(None, metavar="NAME")
    """implementation of attention: sdpa, eager, flash_attention_2 (default: the model's own)"""
    precision: Precision = "auto"
    """number format; auto takes bf16 where the hardware supports it"""
    max_length: int | None = option(None, metavar="TOKENS")
    """tokens after which texts are cut (default: the model's own)"""
    pooling: Pooling | None = None
    """how a plain checkpoint's tokens become an embedding (default: the model's own, mean where it has none)"""
    prompt: str | None = option(None, metavar="TEXT", one_of="prompt")
    """text put before every text (default: the model's own default prompt, if any)"""
    prompt_name: str | None = option(None, metavar="NAME", one_of="prompt")
    """name of that prompt among the model's prompts, instead of its text"""
    document_prompt: str | None = option(None, metavar="TEXT", one_of="document prompt")
    """text put before every second text instead, if pairs are queries with documents; for bi-encoders (default: the
    same)"""
    document_prompt_name: str | None = option(None, metavar="NAME", one_of="document prompt")
    """name of that prompt among the model's prompts, instead of its text"""
    both_orders: bool = False
    """average a cross-encoder's scores of both orders of a pair"""

    def contradictions(self) -> Contradictions:
        if len(set(self.models)) < len(self.models):
            yield f"the models are {', '.join(self.models)}; give each once"


@dataclass(frozen=True, kw_only=True)
class Sharding(Config):
    """Options for dividing the work into parts, such as among the jobs of an array."""

    shard: str | None = option(None, metavar="I/N", one_of="shards")
    """compute only the I-th of N parts, such as 3/100, on any machine that sees the output's folder"""
    merge: bool = option(False, one_of="shards")
    """compute nothing: join the parts that --shard made"""
    engine: Literal["here", "ray"] = option("here", one_of="shards")
    """where the parts are computed: in this process, or on a Ray cluster whose nodes see all files (extra ray)"""

    def contradictions(self) -> Contradictions:
        number = re.fullmatch(r"(\d{1,9})/(\d{1,9})", self.shard or "1/1")
        if number is None or not 1 <= int(number[1]) <= int(number[2]):
            yield f"--shard is {shorten(self.shard)}; give a number from 1 on and how many there are, such as 3/100"

    @property
    def own(self) -> shards.Shard | None:
        """The shard to compute here; None: all shards.

        Raises:
            InputError: A launcher has started several processes for one shard.
        """
        from transencoder import distributed
        from transencoder.shards import Shard

        if self.shard is None:
            return None
        if distributed.world_size() > 1:
            raise InputError(
                "--shard is for a single process; under torchrun leave it out: the processes share the work"
            )
        return Shard(*map(int, self.shard.split("/")))


@dataclass(frozen=True, kw_only=True)
class Score(Config):
    """Score pairs and write sentence1, sentence2, score."""

    scoring: Models
    pairs: str
    """TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    output: str = option(STDOUT, metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet"""
    sharding: Sharding
    rows: PairRows

    def contradictions(self) -> Contradictions:
        if self.output == STDOUT and self.sharding != Sharding():
            yield "parts lie beside the output, and that is stdout; give --output FILE"
        if self.pairs == STDOUT and self.sharding != Sharding():
            yield "several processes read the pairs, and stdin can be read once; give --pairs FILE"

    def __call__(self) -> None:
        check_output(self.output, source=self.pairs)
        pairs = transencoder.read_pairs(self.pairs, **vars(self.rows))
        check_texts(pairs, self.output)
        with scored(self, pairs) as scores:
            if scores is not None:
                write_pairs(pairs, self.output, scores.mean(1))


@dataclass(frozen=True, kw_only=True)
class Label:
    """Label pairs with models, and write pseudo-labels that any trainer can read."""

    scoring: Models
    pairs: str
    """TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    policy: LabelPolicy = "clip"
    """how scores become targets"""
    weights: tuple[float, ...] = option(())
    """weight of each model in the labels (default: equal)"""
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
    """Score pairs shard by shard, continuing with existing parts, which are removed at the end.

    If several processes make the parts, or if --shard has made some, a part holds the scores of a slice of the rows, so
    each process tokenises its own rows. Otherwise each model has its own parts: a bi-encoder embeds each distinct
    sentence once.

    Yields:
        Each model's scores, float32 (n, models); None if they are not to be written here: for a single shard, and in
        all processes but the first.
    """
    from transencoder import distributed

    distributed.start()
    shard, merge = options.sharding.own, options.sharding.merge
    if options.output == STDOUT and distributed.world_size() > 1:
        raise InputError("several processes write one file; give --output FILE")
    with ExitStack() as stack:
        folder = stack.enter_context(_folder_of_parts(options))
        is_on_ray = options.sharding.engine == "ray"
        models = [] if merge or is_on_ray else stack.enter_context(loaded(options.scoring, options.rows))
        work = _Work(folder, pairs, models, _maker(options.scoring, options.rows))
        if shard is not None:
            work.parts.make(shard, work.score_rows)
            show(f"{folder}: shard {shard}")
            yield None
            return
        if is_on_ray:
            from transencoder import on_ray

            on_ray.make_all(work.parts, _part_maker, options)
        if merge or is_on_ray or distributed.from_first(work.goes_by_rows):
            parts = work.parts
            if models:
                parts.make_all(work.score_rows)
            scores = parts.join()[_SCORES]
        else:
            scores = work.score()
        distributed.barrier()
        yield scores if distributed.rank() == 0 else None
        if distributed.rank() == 0:
            shutil.rmtree(folder)


@contextmanager
def _folder_of_parts(options: Score | Label) -> Iterator[Path]:
    """Yield the folder for the parts, which no second command that would write the same output may use meanwhile."""
    from transencoder import distributed

    with ExitStack() as stack:
        folder = Path(f"{options.output}.parts")
        if options.output == STDOUT:
            folder = stack.enter_context(scratch_folder()) / folder
        _check_parts(folder)
        stack.enter_context(goes_on_from(str(folder)))
        if options.sharding.own is None and distributed.rank() == 0:
            make_folder(folder)
            stack.callback(_unlock, folder, take_lock(folder))
        yield folder


def _unlock(folder: Path, lock: int) -> None:
    """Release the lock of a folder for parts, and remove the folder if it has none."""
    if folder.exists() and [path.name for path in folder.iterdir()] == [LOCK_NAME]:
        shutil.rmtree(folder)
    release_lock(lock)


def _part_maker(options: Score | Label) -> Callable[[shards.Shard], None]:
    """Load a command's pairs and models in another process, and return a function that makes the part of a shard."""
    pairs = transencoder.read_pairs(options.pairs, **vars(options.rows))
    stack = ExitStack()
    models = stack.enter_context(loaded(options.scoring, options.rows))
    work = _Work(Path(f"{options.output}.parts"), pairs, models, _maker(options.scoring, options.rows))

    def make(shard: shards.Shard, *, _open: ExitStack = stack) -> None:  # it keeps the models' tokens
        work.parts.make(shard, work.score_rows)

    return make


@dataclass(frozen=True)
class _Work:
    """Pairs, and the models that score them."""

    folder: Path
    """Folder of the parts."""
    pairs: Dataset
    models: list[scorers.Scorer]
    maker: dict[str, Any]
    """Description of what determines the scores."""

    @property
    def parts(self) -> shards.Parts:
        """The parts that hold all models' scores of slices of the rows."""
        from transencoder import distributed
        from transencoder.pairs import fingerprint
        from transencoder.sharded import precision_of
        from transencoder.shards import Parts

        return Parts(
            folder=self.folder,
            n_rows=len(self.pairs),
            maker=self.maker,
            rows_hash=lambda rows: fingerprint(self.pairs.select(range(rows.start, rows.stop))),
            remedy="run the same command with --shard {shard}",
            fewest=distributed.world_size(),  # few: sentences in several shards are embedded in each
            computed_in=" and ".join(sorted({precision_of(model) for model in self.models})),
        )

    def goes_by_rows(self) -> bool:
        """Tell whether to make parts of rows: if there are some, or if several processes find no parts of a model."""
        from transencoder import distributed

        return bool(self.parts.numbers) or (distributed.world_size() > 1 and not any(self.folder.glob("model-*")))

    def score_rows(self, rows: slice) -> shards.Arrays:
        """Score a slice of the pairs."""
        some = self.pairs.select(range(rows.start, rows.stop))
        return {_SCORES: np.stack([model.score(some) for model in self.models], axis=1)}

    def score(self) -> np.ndarray:
        """Return all scores, float32 (n, models), model by model."""
        from transencoder.pairs import fingerprint
        from transencoder.sharded import score_sharded

        maker = {**self.maker, "pairs": fingerprint(self.pairs)}
        folders = [self.folder / f"model-{number}" for number in range(1, len(self.models) + 1)]
        each = zip(self.models, folders, strict=True)
        return np.stack([score_sharded(model, self.pairs, folder, maker=maker) for model, folder in each], axis=1)


def _check_parts(folder: Path) -> None:
    """Check that a folder for parts holds nothing else, which would be removed with the parts."""
    ours = re.compile(rf"\d+-of-\d+\.safetensors|model-\d+|{re.escape(TEMPORARY)}.*|{re.escape(LOCK_NAME)}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, and parts of the output go to a folder of that name; move it away")
    others = [path.name for path in (folder.iterdir() if folder.exists() else ()) if not ours.fullmatch(path.name)]
    if others:
        raise InputError(f"{folder} is for parts of the output, and holds {others[0]} too; move that away")


def _maker(scoring: Models, where: Where) -> dict[str, Any]:
    """Return what determines the scores: the models by their content, and the settings that are not of the machine."""
    settings = {name: value for name, value in vars(scoring).items() if name not in ("models", "revision", "device")}
    if scoring.attn_implementation is None:  # parts from versions without this setting stay valid
        del settings["attn_implementation"]
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
def loaded(scoring: Models, where: Where) -> Iterator[list[scorers.Scorer]]:
    """Load the models as they were saved, bi- or cross-encoders; their tokens are kept until the block ends."""
    with scratch_folder() as folder:
        yield [_load_scorer(model, scoring, where, folder) for model in scoring.models]


def _load_scorer(name: str, scoring: Models, where: Where, token_folder: Path) -> scorers.Scorer:
    from transencoder import encoders, inference, tokens

    folder = encoders.fetch(name, revision=scoring.revision, **where.hub)
    options = {name: value for name, value in vars(scoring).items() if name not in ("models", "revision")}
    return inference.load_scorer(folder, **options, cache=tokens.TokenCache(token_folder), shown_as=name)
