"""Mining by name: sentences from a file, a start from a folder or the hub."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset

from transencoder.config import Pooling, Precision
from transencoder.encoders import fetch, load_bi
from transencoder.errors import InputError
from transencoder.inference import checked_device
from transencoder.mining.algorithm import MAX_PAIRS_PER_SENTENCE, Mined, check_numbers, mine_pairs
from transencoder.mining.piles import Place
from transencoder.pairs import read_sentences
from transencoder.pairs.store import cache_folder_for_rows
from transencoder.prompts import Prompts, warn_of_unused_prompts
from transencoder.scorers import BiScorer
from transencoder.tokens import TokenCache


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
    """Mine pairs to train on from plain sentences; see `mine_pairs` for how, and what it costs.

    Args:
        sentences: What `read_sentences` takes: a file, one sentence a line, a hub id, a Dataset.
        start: The bi-encoder to train from: a folder, a run, a hub id, or `minilm`.
        documents: The same for the second texts of the pairs; None: they are sentences too.
        n_pairs: How many; None: 5 for each sentence up to 10,000, 2 for each up to 50,000.
        max_pairs_per_sentence: Pairs that a sentence or a document may be in.
        seed: Decides what is drawn.
        revision: Hub revision of the start.
        pooling: Of the start; None: its own, mean for a plain model.
        prompt: Text that the start reads before each sentence; None: its default prompt, if it has one.
        document_prompt: The same before each document; None: the same text.
        max_length: Tokens after which the start cuts a text; None: its own. Training cuts at 32 unless told otherwise.
        precision: `auto` takes bf16 where the hardware has it.
        device: Such as `cpu` or `cuda:0`; None: the best there is.
        token: Hub token.
        cache_folder: For the pairs, and for downloads. None: TRANSENCODER_CACHE, else ~/.cache/transencoder.
        data_folder: Local copies of data sets. None: TRANSENCODER_DATA.

    Raises:
        InputError: Texts, start or an option cannot be used, or not one pair can be made.
        RunError: The cache folder cannot be written.
    """
    check_numbers(n_pairs, max_pairs_per_sentence)
    if document_prompt is not None and documents is None:
        raise InputError(f"document_prompt is {document_prompt!r}, and there are no documents; give documents too")
    where: dict[str, Any] = {"token": token, "cache_folder": cache_folder, "data_folder": data_folder}
    first = read_sentences(sentences, **where)
    second = None if documents is None else read_sentences(documents, **where)
    with started(
        start,
        revision=revision,
        pooling=pooling,
        prompts=Prompts(prompt, document_prompt),
        max_length=max_length,
        precision=precision,
        device=device,
        token=token,
        cache_folder=cache_folder,
    ) as place:
        mined = mine_pairs(
            first, place, documents=second, n_pairs=n_pairs, max_pairs_per_sentence=max_pairs_per_sentence, seed=seed
        )
    assert mined is not None, "one process alone is the first"
    return mined


@contextmanager
def started(
    start: str,
    *,
    revision: str | None,
    pooling: Pooling | None,
    prompts: Prompts,
    max_length: int | None,
    precision: Precision,
    device: str | None,
    token: str | None,
    cache_folder: str | None,
) -> Iterator[Place]:
    """A start, loaded, the cache folder for pairs, and a folder that goes at the end; arguments are those of `mine`."""
    folder = fetch(start, form="bi", revision=revision, token=token, cache_folder=cache_folder)
    warn_of_unused_prompts(folder, start, prompts)
    on = None if device is None else checked_device(device)
    model = load_bi(folder, max_length=max_length, pooling=pooling, device=on)
    rows = cache_folder_for_rows(cache_folder)
    with TemporaryDirectory(prefix="mining-", dir=rows) as name:
        scratch = Path(name)
        scorer = BiScorer(
            model,
            precision=precision,
            cache=TokenCache(scratch / "tokens"),
            prompt=prompts.query,
            document_prompt=prompts.document,
        )
        yield Place(scorer, rows, scratch)
