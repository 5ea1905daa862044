"""Mining of training pairs from plain sentences, from paraphrases to unrelated sentences.

Candidates come from three sources. Among them, pairs are chosen so that the base model's scores are spread evenly.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder import distributed, progress
from transencoder import pairs as reading
from transencoder.configs import Pooling, Precision
from transencoder.devices import checked_device
from transencoder.encoders import fetch, load_bi
from transencoder.errors import InputError, plural
from transencoder.mining import candidates
from transencoder.mining.candidates import SOURCES, Candidates, Strata
from transencoder.mining.corpus import Corpora as Corpora
from transencoder.mining.corpus import Corpus
from transencoder.mining.corpus import embed as embed
from transencoder.models import Prompts, warn_of_unused_prompts
from transencoder.records import CorpusRecord, MiningRecord
from transencoder.scorers import BiScorer
from transencoder.tokens import TokenCache

logger = logging.getLogger(__name__)

MAX_PAIRS_PER_SENTENCE = 20

_ANCHORS_PER_PAIR = 2
_BLOCK_PAIRS = 4096


@dataclass(frozen=True)
class Mined:
    """Mined pairs, and how they were made."""

    pairs: Dataset
    """Columns `sentence1` and `sentence2`, memory-mapped, in random order; two sentences occur in one order only."""
    scores: np.ndarray
    """The base model's cosines of the pairs, float32 (n,), in [-1, 1]."""
    record: MiningRecord
    """Number of duplicates, mix of sources, histogram of scores and more."""


def look_up(corpora: Corpora, scratch: Path, *, n_pairs: int | None = None, seed: int) -> dict[str, np.ndarray]:
    """Find candidates that are near the sentences that pairs are mined for; several ranks share the work.

    Cost: see `candidates.neighbours` and `candidates.bm25`; for a million sentences of 10 words each rank took 0.6 GB.

    Args:
        corpora: The embedded sentences, from `embed`.
        scratch: Folder for the results, which serves these corpora and numbers only; all ranks see it.
        n_pairs: As for `mine_pairs`.
        seed: As for `mine_pairs`.

    Returns:
        The pairs that each source found, as rows of the first and of the second corpus: int32 (n, 2).
    """
    anchors, _ = _anchors(corpora, n_pairs or default_n_pairs(len(corpora.first)), seed)
    return {
        "neighbours": candidates.neighbours(corpora, anchors, scratch / "neighbours"),
        "bm25": candidates.bm25(corpora, anchors),
    }


def _anchors(corpora: Corpora, n_wanted: int, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """Draw the sentences to find candidates for; return their rows, ascending, and the generator for further draws."""
    random = np.random.default_rng(seed)
    return np.sort(random.permutation(len(corpora.first))[: _ANCHORS_PER_PAIR * n_wanted]), random


def mine_pairs(
    corpora: Corpora,
    looked_up: dict[str, np.ndarray],
    folder: Path,
    *,
    n_pairs: int | None = None,
    max_pairs_per_sentence: int = MAX_PAIRS_PER_SENTENCE,
    seed: int,
) -> Mined:
    """Mine pairs that range from paraphrases to unrelated sentences (the future work of Trans-Encoder, section 5.1).

    At most 2 sentences for each wanted pair are drawn at random as anchors. The candidates of an anchor are its 1st,
    2nd, 4th, ... 128th neighbour by the base model's cosine, the same ranks by BM25, and eight random sentences. From
    all candidates, pairs are drawn evenly over the range of the base model's scores. The same seed, number of threads
    and machine give the same pairs.

    Cost: grows with the number of pairs. Before that, `embed` encodes every sentence once, which takes most of the
    time, and 8 bytes on disk for each sentence and dimension.

    Args:
        corpora: The embedded sentences, from `embed`; a pair has one sentence of each corpus.
        looked_up: The result of `look_up` with the same numbers.
        folder: Folder where the pairs are stored, under their fingerprint.
        n_pairs: Number of pairs; there are fewer if not as many can be made. None: `default_n_pairs`.
        max_pairs_per_sentence: Largest number of pairs with the same sentence or document.
        seed: Seed of all draws.

    Raises:
        InputError: No pair can be made.
    """
    n_wanted = n_pairs or default_n_pairs(len(corpora.first))
    anchors, random = _anchors(corpora, n_wanted, seed)
    by_chance = candidates.random_pairs(corpora, anchors, random)
    found = candidates.score_candidates(corpora, **looked_up, random=by_chance)
    found, n_near = candidates.without_near_duplicates(found, corpora)
    if not len(found):
        raise InputError(_no_pair(corpora, n_near))
    chosen, strata = candidates.spread(found, corpora, n_wanted, max_pairs_per_sentence, random)
    if len(chosen) < n_wanted:
        logger.warning(
            "%d pairs were wanted, %d are there: %d candidates were found, no sentence may be in more than %d pairs",
            n_wanted,
            len(chosen),
            len(found),
            max_pairs_per_sentence,
        )
    pairs = found.take(chosen)
    bad_rows = reading.BadRows("mined pairs")
    stored = reading.store_rows(_texts_of(pairs, corpora), ("sentence1", "sentence2"), folder, bad_rows)
    return Mined(stored, pairs.score, _record(corpora, n_near, found, strata, chosen))


@progress.shown()
def mine(
    sentences: str | os.PathLike[str] | Dataset,
    start: str,
    *,
    documents: str | os.PathLike[str] | Dataset | None = None,
    n_pairs: int | None = None,
    max_pairs_per_sentence: int = MAX_PAIRS_PER_SENTENCE,
    seed: int = 2021,
    revision: str | None = None,
    pooling: Pooling | None = None,
    prompt: str | None = None,
    document_prompt: str | None = None,
    max_length: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    token: str | None = None,
    cache_folder: str | None = None,
    data_folder: str | None = None,
) -> Mined:
    """Mine training pairs from plain sentences; `mine_pairs` describes the algorithm and its cost.

    Under torchrun the ranks share the work, and each returns the pairs.

    Args:
        sentences: Any source that `read_sentences` takes: a file with one sentence per line, a hub id, a Dataset.
        start: The base model, a bi-encoder: a folder, a run, a hub id, or `minilm`.
        documents: Source of the second texts of the pairs; None: they are drawn from `sentences` too.
        n_pairs: Number of pairs; None: 5 per sentence up to 10,000, or 2 per sentence up to 50,000 if that is more.
        max_pairs_per_sentence: Largest number of pairs with the same sentence or document.
        seed: Seed of all draws.
        revision: Hub revision of the base model.
        pooling: Pooling of the base model; None: its own, or mean for a plain model.
        prompt: Text that the base model reads before each sentence; None: its default prompt, if it has one.
        document_prompt: Text that the base model reads before each document; None: the same as for sentences.
        max_length: Number of tokens after which the base model cuts a text; None: its own. Training cuts at 32 unless
            told otherwise.
        precision: Number format; `auto` takes bf16 where the hardware supports it.
        device: Device, such as `cpu` or `cuda:0`; None: the best available.
        token: Hub token.
        cache_folder: Folder for the pairs and for downloads. None: TRANSENCODER_CACHE, else ~/.cache/transencoder.
        data_folder: Folder with local copies of data sets. None: TRANSENCODER_DATA.

    Raises:
        InputError: Texts, start or an option cannot be used, or no pair can be made.
        RunError: The cache folder cannot be written.
    """
    for name, value in (("n_pairs", n_pairs), ("max_pairs_per_sentence", max_pairs_per_sentence)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    if document_prompt is not None and documents is None:
        raise InputError(f"document_prompt is {document_prompt!r}, and there are no documents; give documents too")
    on = None if device is None else checked_device(device)
    folder = fetch(start, form="bi", revision=revision, token=token, cache_folder=cache_folder)
    where: dict[str, Any] = {"token": token, "cache_folder": cache_folder, "data_folder": data_folder}
    first = reading.read_sentences(sentences, **where)
    second = None if documents is None else reading.read_sentences(documents, **where)
    warn_of_unused_prompts(folder, start, Prompts(prompt, document_prompt))
    model = load_bi(folder, max_length=max_length, pooling=pooling, device=on)
    with distributed.shared_folder(reading.cache_folder_for_rows(cache_folder)) as scratch:
        cache = TokenCache(scratch / "tokens")
        scorer = BiScorer(model, precision=precision, cache=cache, prompt=prompt, document_prompt=document_prompt)
        corpora = embed(first, second, scorer, scratch)
        looked_up = look_up(corpora, scratch, n_pairs=n_pairs, seed=seed)
        return distributed.from_first(
            lambda: mine_pairs(
                corpora,
                looked_up,
                scratch.parent,
                n_pairs=n_pairs,
                max_pairs_per_sentence=max_pairs_per_sentence,
                seed=seed,
            )
        )


def default_n_pairs(n_sentences: int) -> int:
    """Return the default number of pairs: 5 per sentence up to 10,000, or 2 per sentence up to 50,000 if that is more.

    Trans-Encoder uses 37,081 pairs for STS and about 10,000 for other tasks. The number of similar pairs in a text is
    limited, while there is no end of dissimilar ones: so the scores of more pairs are spread less evenly.
    """
    return max(min(5 * n_sentences, 10_000), min(2 * n_sentences, 50_000))


def _no_pair(corpora: Corpora, n_near: int) -> str:
    texts = plural(len(corpora.first), "distinct sentence")
    if not corpora.are_one:
        texts += f" and {plural(len(corpora.second), 'distinct document')}"
    return (
        f"no pair can be made of {texts}, {n_near} near duplicates among them; give texts of which at least two say "
        "different things"
    )


def _texts_of(pairs: Candidates, corpora: Corpora) -> Iterator[reading.Row]:
    for start in range(0, len(pairs), _BLOCK_PAIRS):
        rows = slice(start, start + _BLOCK_PAIRS)
        sides = corpora.first.texts[pairs.first[rows]]["text"], corpora.second.texts[pairs.second[rows]]["text"]
        for number, texts in enumerate(zip(*sides, strict=True), start + 1):
            yield reading.Row(number, texts)


def _record(corpora: Corpora, n_near: int, found: Candidates, strata: Strata, chosen: np.ndarray) -> MiningRecord:
    pairs = found.take(chosen)
    paired = np.concatenate([pairs.first, pairs.second]) if corpora.are_one else pairs.first
    counts = [np.bincount(each.source, minlength=len(SOURCES)).tolist() for each in (found, pairs)]
    record: MiningRecord = {
        "sentences": _corpus_record(corpora.first, n_near if corpora.are_one else 0),
        "paired_sentences": len(np.unique(paired)),
        "mix": {
            source: {"candidates": n_found, "pairs": n_pairs}
            for source, n_found, n_pairs in zip(SOURCES, *counts, strict=True)
        },
        "histogram": {
            "edges": strata.edges.tolist(),
            "candidates": strata.counts(),
            "pairs": strata.counts(chosen),
        },
        "exact_search": len(corpora.second) <= candidates.EXACT_UP_TO,
    }
    if not corpora.are_one:
        record["documents"] = _corpus_record(corpora.second, 0)
        record["near_duplicate_pairs"] = n_near
    return record


def _corpus_record(corpus: Corpus, n_near: int) -> CorpusRecord:
    return {
        "rows": len(corpus) + corpus.n_exact + corpus.n_alike,
        "exact_duplicates": corpus.n_exact,
        "near_duplicates": corpus.n_alike + n_near,
    }
