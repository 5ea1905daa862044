"""Bi-encoders whose pooling weights tokens by their rarity, which improves base models trained without labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

from transencoder.encoders.files import is_cross, weights_tokens
from transencoder.encoders.loading import load_bi
from transencoder.encoders.saving import save
from transencoder.encoders.small import check_is_new
from transencoder.errors import InputError
from transencoder.files import whole_folder
from transencoder.models import default_prompt
from transencoder.runs.files import output_explained
from transencoder.tokens import TokenCache, Tokens, inverse_document_frequencies


def weight_tokens(folder: Path, sentences: Dataset, output: Path) -> None:
    """Write a bi-encoder whose pooling weights tokens by the square root of their inverse document frequency.

    The transformer and the modules after the pooling stay as they are. Tokens that occur in all sentences, such as
    special tokens, and those of the model's prompts get weight 0. Arora et al. (ICLR 2017) weight by smoothed frequency
    and also remove the common component; this function does not.

    Args:
        folder: A bi-encoder with mean pooling, or a plain pretrained model.
        sentences: Rows with `text`, on which frequencies are counted; at least two must differ.
        output: The folder to write, which must be new.

    Raises:
        InputError: The model is not a bi-encoder with plain mean pooling, the sentences are all the same, or the output
            exists or cannot be written.
    """
    check_is_new(output)
    if is_cross(folder):
        raise InputError(f"{folder} is a cross-encoder, which has no pooling; give a bi-encoder")
    if weights_tokens(folder):
        raise InputError(f"{folder} weights its tokens already; give the model that it was made of")
    model = load_bi(folder, device="cpu")
    if not has_mean_pooling(model):
        raise InputError(
            f"{folder} has no mean pooling, whose tokens could be weighted; give a model that has (train it with "
            "--pooling mean)"
        )
    rows = sentences.select_columns(["text"]).rename_column("text", "sentence1")
    add_weights(model, token_weights(model, rows, TokenCache()))
    with output_explained(output), whole_folder(output) as made:
        save(model, made)


def has_mean_pooling(model: SentenceTransformer) -> bool:
    """Return whether a bi-encoder averages its tokens, which can then be weighted."""
    return _pooling_of(model) is not None


def token_weights(model: SentenceTransformer, texts: Dataset, cache: TokenCache) -> WordWeights:
    """Return the weights of a model's tokens: the square root of their inverse document frequency.

    Args:
        model: A bi-encoder with mean pooling.
        texts: Rows with `sentence1`, or pairs; their distinct texts are the documents.
        cache: Cache for their tokens.

    Raises:
        InputError: All texts are the same.
    """
    tokens = cache.sentences(model, texts, default_prompt(model)).tokens
    if len(tokens) < 2:
        raise InputError(
            "all sentences are the same, or there are none: no token is rarer than another; give more text"
        )
    with torch.random.fork_rng():  # the module draws random values before it gets its own
        return _weights(model, tokens).to(model.device).requires_grad_(False)


def add_weights(model: SentenceTransformer, weights: WordWeights) -> None:
    """Insert token weights before a bi-encoder's mean pooling."""
    position = _pooling_of(model)
    assert position is not None, "only a mean can be weighted"
    model.insert(position, weights)


@contextmanager
def weighted(model: SentenceTransformer, weights: WordWeights) -> Iterator[None]:
    """Weight a bi-encoder's tokens within this context."""
    add_weights(model, weights)
    try:
        yield
    finally:
        del model[next(i for i, module in enumerate(model) if module is weights)]


def _pooling_of(model: SentenceTransformer) -> int | None:
    """Return the position of the mean pooling among a model's modules; None: it has none."""
    means = (i for i, each in enumerate(model) if isinstance(each, Pooling) and each.pooling_mode == "mean")
    return next(means, None)


def _weights(model: SentenceTransformer, tokens: Tokens) -> WordWeights:
    vocabulary = model.tokenizer.get_vocab()
    names = [f"<no token {i}>" for i in range(1 + max(vocabulary.values()))]
    for name, i in vocabulary.items():
        names[i] = name
    of_absent = np.log(len(tokens) + 1)
    frequencies = np.full(len(names), of_absent)
    found = inverse_document_frequencies(tokens)[: len(names)]
    frequencies[: len(found)] = found
    prompts = [prompt for prompt in model.prompts.values() if prompt]
    frequencies[[i for prompt in prompts for i in model.tokenizer(prompt, add_special_tokens=False)["input_ids"]]] = 0.0
    weights = dict(zip(names, np.sqrt(frequencies).tolist(), strict=True))
    return WordWeights(names, weights, float(np.sqrt(of_absent)))
