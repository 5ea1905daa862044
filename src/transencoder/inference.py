"""Models put to use in one call: pairs scored, and a model measured on labelled pairs or tasks."""

import os
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
def score(model: Model, pairs: Any, **options: Any) -> np.ndarray:
    """Score pairs with a model.

    Args:
        model: A bi-encoder, which gives cosines, or a cross-encoder.
        pairs: What `read_pairs` takes: a file, a list of tuples of two texts, a DataFrame, a Dataset.
        options: As for `load_scorer`.

    Returns:
        float32 (n,), in the order of the pairs; higher means more alike.

    Raises:
        InputError: Model or pairs cannot be used.
    """
    with scratch_folder() as folder:
        return load_scorer(model, **{"cache": TokenCache(folder), **options}).score(read_pairs(pairs))


@progress.shown()
def evaluate(model: Model, data: Any, *, metric: str = "spearman", **options: Any) -> float | dict[str, float]:
    """Measure a model on labelled pairs, or on tasks.

    Args:
        model: As for `score`.
        data: Pairs with gold scores: a file, a list of tuples (text, text, score), a DataFrame, a Dataset. Or a task or
            suite, such as `sts12` or `sts`.
        metric: For pairs: `spearman`, `roc_auc` where the scores are 1 and 0, `map` and so on. A task has its own.
        options: As for `load_scorer`.

    Returns:
        The metric times 100; of tasks, the name of each -> its metric times 100.

    Raises:
        InputError: Model or data cannot be used, or there are no gold scores.
    """
    with scratch_folder() as folder:
        scorer = load_scorer(model, **{"cache": TokenCache(folder), **options})
        if isinstance(data, str) and data in (*TASKS, *SUITES):
            return evaluation.evaluate_tasks(scorer, data)
        return evaluation.evaluate(scorer, read_pairs(as_source(data, "the data"), needs_score=True), metric)


@progress.shown()
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
    """Return what scores pairs with a model.

    Args:
        model: By name or in memory; a scorer is returned as it is.
        revision: Of a hub id.
        device: Of a model by name, such as `cpu` or `cuda:0`; None: the best there is.
        attn_implementation: Of a model by name: sdpa, eager, or flash_attention_2; None: its own.
        precision: `auto` takes bf16 where the hardware has it.
        max_length: Of a model by name: tokens after which texts are cut; None: the model's own.
        pooling: Of a bi-encoder by name; None: its own, mean for a plain checkpoint.
        prompt: Put before every text; None: the model's default prompt, if any.
        prompt_name: The same, by its name among the model's prompts.
        document_prompt: Put before every second text instead, of queries with documents.
        document_prompt_name: The same, by its name among the model's prompts.
        both_orders: Average a cross-encoder's scores of both orders of a pair.
        token: Hub token.
        cache_folder: For hub downloads.
        cache: Of tokens.
        shown_as: How messages name the model.

    Raises:
        InputError: The model cannot be used, or an option is not for it.
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
    first = prompt if prompt_name is None else models.named_prompt(loaded, prompt_name)
    if not isinstance(loaded, SentenceTransformer):
        if document_prompt is not None or document_prompt_name is not None:
            raise InputError(
                f"{name} is a cross-encoder, which reads both texts at once: document_prompt (--document-prompt) is "
                "not for it; leave it out"
            )
        return CrossScorer(
            loaded,
            precision=precision,
            cache=cache,
            both_orders=both_orders,
            prompt=first,
            as_logit=encoders.gives_logits(loaded),
        )
    second = document_prompt if document_prompt_name is None else models.named_prompt(loaded, document_prompt_name)
    if folder is not None:
        models.warn_of_unused_prompts(folder, name, models.Prompts(first, second))
    return BiScorer(loaded, precision=precision, cache=cache, prompt=first, document_prompt=second)
