"""Use of a model in one call: score pairs, and evaluate it on labelled pairs or tasks."""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import encoders, evaluation, models, progress
from transencoder.configs import Pooling, Precision
from transencoder.devices import checked_device
from transencoder.errors import InputError, shorten
from transencoder.files import scratch_folder
from transencoder.in_memory import as_source
from transencoder.pairs import read_pairs
from transencoder.scorers import BiScorer, CrossScorer, Scorer
from transencoder.tasks import SUITES, TASKS
from transencoder.tokens import Encoder, TokenCache

Model = str | os.PathLike[str] | SentenceTransformer | CrossEncoder | Scorer
"""A folder, a run, a hub id or `minilm`; a model in memory; or anything that scores pairs."""


@progress.shown()
def score(model: Model, pairs: Any, *, columns: Sequence[str] | None = None, **options: Any) -> np.ndarray:
    """Score pairs with a model.

    Args:
        model: A bi-encoder, which gives cosines, or a cross-encoder, which gives the sigmoid of its output unless it
            was trained to regress scores.
        pairs: A file, a list of tuples of two texts, a DataFrame, a Dataset.
        columns: Names of the two text columns; None: well-known names, else the only ones.
        options: As for `load_scorer`.

    Returns:
        Scores, float32 (n,), in the order of the pairs; higher means more similar.

    Raises:
        InputError: Model or pairs cannot be used.
    """
    with scratch_folder() as folder:
        return load_scorer(model, **{"cache": TokenCache(folder), **options}).score(read_pairs(pairs, columns=columns))


@progress.shown()
def evaluate(
    model: Model,
    data: Any,
    *,
    metric: str = "spearman",
    columns: Sequence[str] | None = None,
    score_column: str | None = None,
    **options: Any,
) -> float | dict[str, float]:
    """Measure a model on labelled pairs, or on tasks.

    Args:
        model: As for `score`.
        data: Pairs with gold scores: a file, a list of tuples (text, text, score), a DataFrame, a Dataset. Or a task or
            suite, such as `sts12` or `sts`, or several.
        metric: For pairs: `spearman`, `roc_auc` where the scores are 1 and 0, `map` and so on. A task has its own.
        columns: For pairs: names of the two text columns; None: well-known names, else the only ones.
        score_column: For pairs: name of the column of gold scores; None: `score`, else the only numbers.
        options: As for `load_scorer`.

    Returns:
        The metric times 100; for tasks, a dict from the name of each to its metric times 100.

    Raises:
        InputError: Model or data cannot be used, or there are no gold scores.
    """
    with scratch_folder() as folder:
        scorer = load_scorer(model, **{"cache": TokenCache(folder), **options})
        names = [data] if isinstance(data, str) else data
        if isinstance(names, list | tuple) and names and all(each in (*TASKS, *SUITES) for each in names):
            return evaluation.evaluate_tasks(scorer, names)
        _check_is_no_misspelt_task(data)
        source = as_source(data, "the data")
        pairs = read_pairs(source, columns=columns, score_column=score_column, needs_score=True)
        return evaluation.evaluate(scorer, pairs, metric)


def _check_is_no_misspelt_task(data: Any) -> None:
    """Refuse a task's name in another spelling, such as `STS-B`, which would be looked for on the hub."""
    plain = {name.replace("-", ""): name for name in (*TASKS, *SUITES)}
    name = plain.get(re.sub("[-_ ]", "", data).lower()) if isinstance(data, str) else None
    if name is not None and not os.path.exists(data):
        raise InputError(f"{data} is neither a file nor a task; the nearest task is {name}")


def load_scorer(
    model: Model,
    *,
    revision: str | None = None,
    device: str | None = None,
    attn_implementation: str | None = None,
    precision: Precision = "auto",
    max_length: int | None = None,
    pooling: Pooling | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    document_prompt: str | None = None,
    document_prompt_name: str | None = None,
    both_orders: bool = False,
    token: str | None = None,
    cache_folder: str | None = None,
    cache: TokenCache | None = None,
    shown_as: str | None = None,
) -> Scorer:
    """Load a model and return a scorer of pairs.

    The options `device`, `attn_implementation`, `max_length` and `pooling` apply to models given by name.

    Args:
        model: Name of a model, or a model in memory; a scorer is returned unchanged.
        revision: Revision of a hub id.
        device: Device to compute on, such as `cpu` or `cuda:0`; None: the best one available.
        attn_implementation: Implementation of attention: sdpa, eager, or flash_attention_2; None: the model's own.
        precision: Precision of the computation; `auto`: bf16 where the hardware supports it.
        max_length: Number of tokens after which texts are cut; None: the model's own.
        pooling: Pooling method of a bi-encoder; None: the model's own, mean for a plain checkpoint.
        prompt: Text put before every text; None: the model's default prompt, if any.
        prompt_name: Name of the prompt among the model's saved prompts, instead of its text.
        document_prompt: Text put before every second text instead, if pairs are queries with documents.
        document_prompt_name: Name of the document prompt among the model's saved prompts, instead of its text.
        both_orders: Average a cross-encoder's scores of both orders of a pair.
        token: Hub token.
        cache_folder: Folder for hub downloads.
        cache: Cache of token ids.
        shown_as: Name of the model in messages.

    Raises:
        InputError: The model cannot be used, or an option does not apply to it.
    """
    if isinstance(model, Scorer):
        return model
    name, folder = shown_as or "the model", None
    if isinstance(model, str | os.PathLike):
        name = shown_as or os.fspath(model)
        folder = encoders.fetch(os.fspath(model), revision=revision, token=token, cache_folder=cache_folder)
        with encoders.attention(attn_implementation):
            model = encoders.load_trained(
                folder, checked_device(device) if device else None, max_length=max_length, pooling=pooling
            )
    if not isinstance(model, SentenceTransformer | CrossEncoder):
        raise InputError(
            f"{name} is {shorten(model)}; give a folder, a run, a hub id, or a sentence-transformers model"
        )
    loaded: Encoder = model
    first = models.chosen_prompt(loaded, prompt, prompt_name)
    if not isinstance(loaded, SentenceTransformer):
        if document_prompt is not None or document_prompt_name is not None:
            raise InputError(
                f"{name} is a cross-encoder, which reads both texts at once: document_prompt (--document-prompt) is "
                "not for it; leave it out"
            )
        return CrossScorer(loaded, precision=precision, cache=cache, both_orders=both_orders, prompt=first)
    second = models.chosen_prompt(loaded, document_prompt, document_prompt_name)
    if folder is not None:
        models.warn_of_unused_prompts(folder, name, models.Prompts(first, second))
    return BiScorer(loaded, precision=precision, cache=cache, prompt=first, document_prompt=second)
