"""Sentences become pairs: candidates from three sources, then a choice that spreads the start's scores evenly."""

import logging
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from transencoder import distributed
from transencoder.errors import InputError
from transencoder.mining.bm25 import bm25
from transencoder.mining.candidates import together
from transencoder.mining.choice import spread
from transencoder.mining.near_duplicates import without_near_duplicates
from transencoder.mining.neighbours import neighbours
from transencoder.mining.piles import Piles, Place, piled
from transencoder.mining.random_pairs import random_pairs
from transencoder.mining.records import record_of
from transencoder.mining.writing import write_pairs
from transencoder.records import MiningRecord
from transencoder.wording import plural

logger = logging.getLogger(__name__)

MAX_PAIRS_PER_SENTENCE = 20

_ANCHORS_PER_PAIR = 2


@dataclass(frozen=True)
class Mined:
    """Pairs, and how they came about."""

    pairs: Dataset
    """`sentence1` and `sentence2`, memory-mapped, in random order; of two sentences one order only."""
    scores: np.ndarray
    """float32 (n,): the start's cosines of the pairs, in [-1, 1]."""
    record: MiningRecord
    """Duplicates, the mix of sources, the histogram of scores."""


def mine_pairs(
    sentences: Dataset,
    place: Place,
    *,
    documents: Dataset | None = None,
    n_pairs: int | None = None,
    max_pairs_per_sentence: int = MAX_PAIRS_PER_SENTENCE,
    seed: int,
) -> Mined | None:
    """Mine pairs that range from paraphrases to strangers (the future work of Trans-Encoder, section 5.1).

    Candidates are, of at most 2 sentences for each pair that is wanted, drawn at random: the 1st, 2nd, 4th, ... 128th
    neighbour by the start's cosine, the same by BM25, and eight others by chance. Of these the pairs are drawn evenly
    over the range of the start's scores. The same seed, number of threads and machine give the same pairs.

    Cost: every sentence is encoded once, which takes most of the time; the rest grows with the pairs. On disk 4 bytes
    for each sentence and dimension while it works, in memory 1.4 GB for a million sentences of 15 words.

    Args:
        sentences: Texts in `text`.
        place: The start, and folders. Under torchrun each rank encodes its share, and the first does the rest.
        documents: Texts in `text`; each pair is then one of the sentences and one of these.
        n_pairs: How many; there are fewer where not as many can be made. None: `default_n_pairs`.
        max_pairs_per_sentence: Pairs that a sentence or a document may be in.
        seed: Decides what is drawn.

    Returns:
        The pairs; None on ranks other than the first.

    Raises:
        InputError: A number out of range, or not one pair can be made.
    """
    check_numbers(n_pairs, max_pairs_per_sentence)
    scorer = place.scorer
    first = piled(sentences, place, "sentences", scorer.prompt)
    second = first if documents is None else piled(documents, place, "documents", scorer.document_prompt)
    piles = Piles(first, second)
    if distributed.rank() != 0:
        return None
    random = np.random.default_rng(seed)
    n_wanted = n_pairs or default_n_pairs(len(first))
    anchors = np.sort(random.permutation(len(first))[: _ANCHORS_PER_PAIR * n_wanted])
    found = together(
        piles,
        neighbours=neighbours(piles, anchors),
        bm25=bm25(piles, anchors),
        random=random_pairs(piles, anchors, random),
    )
    found, n_near = without_near_duplicates(found, piles)
    if not len(found):
        raise InputError(_no_pair(piles, n_near))
    chosen, strata = spread(found, piles, n_wanted, max_pairs_per_sentence, random)
    if len(chosen) < n_wanted:
        logger.warning(
            "%d pairs were wanted, %d are there: %d candidates were found, no sentence may be in more than %d pairs",
            n_wanted,
            len(chosen),
            len(found),
            max_pairs_per_sentence,
        )
    pairs = found.take(chosen)
    return Mined(write_pairs(pairs, piles, place.folder), pairs.score, record_of(piles, n_near, found, strata, chosen))


def default_n_pairs(n_sentences: int) -> int:
    """Five for each sentence up to 10,000 pairs, two for each up to 50,000.

    Trans-Encoder has 37,081 for STS and about 10,000 for other tasks. Alike pairs are as many as a text has, while the
    others have no end: so more pairs are spread less evenly.
    """
    return max(min(5 * n_sentences, 10_000), min(2 * n_sentences, 50_000))


def check_numbers(n_pairs: int | None, max_pairs_per_sentence: int) -> None:
    """Refuse numbers of which nothing can come."""
    for name, value in (("n_pairs", n_pairs), ("max_pairs_per_sentence", max_pairs_per_sentence)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")


def _no_pair(piles: Piles, n_near: int) -> str:
    texts = plural(len(piles.first), "distinct sentence")
    if not piles.are_one:
        texts += f" and {plural(len(piles.second), 'distinct document')}"
    return (
        f"no pair can be made of {texts}, {n_near} near duplicates among them; give texts of which at least two say "
        "different things"
    )
