"""What a starting encoder's run works with before it trains: the start, the rows, a teacher's embeddings of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from transencoder import distributed
from transencoder.cycles import Model, start_model
from transencoder.encoders import fetch, load_bi, prune_vocabulary, truncate, weights_fingerprint
from transencoder.methods.data import Data
from transencoder.methods.start import StartMethod
from transencoder.prompts import default_prompt
from transencoder.runs import Run, StageRecord, stage_seed
from transencoder.scorers import BiScorer, Scorer
from transencoder.tokens import TokenCache, allocate

CODE_VERSION = 3
"""Raised when a change of the code changes what a stage computes."""

EMBEDDINGS = "embeddings.npy"
"""Of a teacher, in its stage."""

_PAIRS = "pairs.arrow"
_TEXTS_AT_ONCE = 1 << 14


class Bench:
    """What every stage works with."""

    def __init__(self, run: Run, config: StartMethod, data: Data, start: Model) -> None:
        self.run = run
        self.config = config
        self.data = data
        self.start = start
        self.device = str(config.device)
        self.cache = TokenCache(run.folder / "tokens")

    def load_start(self) -> SentenceTransformer:
        """The model that is trained, with its pooling and its length."""
        length, pooling = self.config.fit.max_length, self.config.pooling
        return load_bi(self.start.folder, max_length=length, pooling=pooling, device=self.device)

    def scorer(self, model: SentenceTransformer) -> Scorer:
        """A model's scorer in the run's precision."""
        return BiScorer(model, precision=self.config.precision, cache=self.cache)


def student_start(run: Run, config: StartMethod, folder: Path, data: Data) -> Model:
    """The start, or the smaller model that a stage makes of it."""
    layers, is_pruned = config.student_layers, config.prune_vocabulary
    if not layers and not is_pruned:
        return start_model(folder, pooling=config.pooling)

    def compute(stage: Path) -> dict[str, Any]:
        if distributed.rank() == 0:
            truncated = stage / ("truncated" if is_pruned else "model")
            for left in (truncated, stage / "model"):  # by an attempt that was interrupted
                shutil.rmtree(left, ignore_errors=True)
            if layers:
                truncate(folder, layers, truncated)
            if is_pruned:
                source, rows = truncated if layers else folder, data.training
                prune_vocabulary(source, _texts(rows), len(rows) * len(rows.column_names), stage / "model")
                shutil.rmtree(truncated, ignore_errors=True)
        return {}

    record = run.stage(
        "student",
        config={"version": CODE_VERSION, "layers": layers, "is_pruned": is_pruned},
        inputs=[weights_fingerprint(folder), *([data.record["fingerprint"]] if is_pruned else [])],
        compute=compute,
    )
    return start_model(record.folder / "model", pooling=config.pooling)


def _texts(rows: Dataset) -> Iterator[list[str]]:
    for i in range(0, len(rows), _TEXTS_AT_ONCE):
        yield from rows[i : i + _TEXTS_AT_ONCE].values()


def training_rows(bench: Bench) -> tuple[Dataset, str]:
    """The rows to train on and what names them: pairs that were given or that a stage makes of text, or the texts."""
    given, fingerprint = bench.data.training, bench.data.record["fingerprint"]
    if "text" not in given.column_names:
        return given, fingerprint
    maker = bench.config.pair_maker(AutoTokenizer.from_pretrained(bench.start.folder).mask_token)
    if maker is None:
        return given.select_columns("text").rename_column("text", "sentence1"), fingerprint
    seed = stage_seed(bench.config.seed, "pairs")

    def compute(folder: Path) -> dict[str, Any]:
        if distributed.rank() == 0:
            maker(given, folder / _PAIRS, seed)
        return {}

    record = bench.run.stage(
        "pairs",
        config={"version": CODE_VERSION, "maker": repr(maker), "seed": seed},
        inputs=[fingerprint],
        compute=compute,
    )
    return Dataset.from_file(str(record.folder / _PAIRS)), record.key


def taught_by(bench: Bench, pairs: Dataset, pairs_key: str) -> StageRecord | None:
    """The stage that holds the teacher's embeddings of the pairs' distinct sentences, where there is a teacher.

    Each rank embeds its share. The stage knows nothing of the student: another run with the same pairs and teacher
    takes it over (`reuse_from`).
    """
    config = bench.config
    if config.taught_by is None:
        return None
    teacher = fetch(config.taught_by, form="bi", token=config.token, cache_folder=config.cache_dir)
    length, pooling = config.fit.max_length, config.teacher_pooling

    def compute(folder: Path) -> dict[str, Any]:
        model = load_bi(teacher, max_length=length, pooling=pooling, device=bench.device)
        scorer = BiScorer(model, precision=config.precision, cache=bench.cache)
        tokens = bench.cache.sentences(model, pairs, scorer.prompt).tokens
        if distributed.rank() == 0:
            allocate(folder / EMBEDDINGS, np.float32, (len(tokens), model.get_embedding_dimension() or 0))
        distributed.barrier()
        embeddings = np.load(folder / EMBEDDINGS, mmap_mode="r+")
        rows, own = tokens.share(distributed.rank(), distributed.world_size())
        scorer.embed_into(embeddings[rows], own)
        embeddings.flush()
        return {}

    return bench.run.stage(
        "teacher-embeddings",
        config={
            "version": CODE_VERSION,
            "max_length": length,
            "pooling": pooling,
            "precision": config.precision,
        },
        inputs=[pairs_key, weights_fingerprint(teacher)],
        compute=compute,
    )


def held_out(bench: Bench, student: SentenceTransformer, pairs: Dataset) -> tuple[np.ndarray | None, np.ndarray]:
    """Rows to train on, and which distinct sentences are the first texts of the others, drawn with the seed."""
    n_held_out = bench.config.n_held_out
    if not n_held_out:
        return None, np.empty(0, np.int64)
    order = np.random.default_rng(stage_seed(bench.config.seed, "queue")).permutation(len(pairs))
    sentences = bench.cache.sentences(student, pairs, default_prompt(student))
    return np.sort(order[n_held_out:]), sentences.index[order[:n_held_out], 0]
