"""Bi-encoders whose pooling weights each token by how rare it is: a better base model where no labels trained it."""

from pathlib import Path

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

from transencoder.encoders.loading import load_bi
from transencoder.encoders.saving import save
from transencoder.encoders.small import check_is_new
from transencoder.errors import InputError
from transencoder.files import whole_folder
from transencoder.models import default_prompt
from transencoder.tokens import TokenCache, inverse_document_frequencies


def weight_tokens(folder: Path, sentences: Dataset, output: Path) -> None:
    """Write a bi-encoder whose pooling weights tokens by the square root of their inverse document frequency.

    Its transformer and what follows its pooling stay as they are. Tokens that all sentences have, as special ones and
    a default prompt, count no longer. After Arora et al. (ICLR 2017), who weight by smoothed frequency; the square root
    was chosen on 24 genres of STS (LOG.md, 2026-11-25).

    Args:
        folder: A bi-encoder with mean pooling, or a plain pretrained model.
        sentences: n rows with `text`, whose frequencies count.
        output: The folder to write, which must be new.

    Raises:
        InputError: The model has another pooling, or weights already; or the output is there or cannot be written.
    """
    check_is_new(output)
    model = load_bi(folder, device="cpu")
    position = _mean_pooling(model, folder)
    rows = sentences.select_columns(["text"]).rename_column("text", "sentence1")
    tokens = TokenCache().sentences(model, rows, default_prompt(model)).tokens
    model.insert(position, _weights(model, inverse_document_frequencies(tokens), len(tokens)))
    try:
        with whole_folder(output) as made:
            save(model, made)
    except OSError as error:
        raise InputError(f"{output} cannot be written ({error.strerror}); give another output") from error


def _mean_pooling(model: SentenceTransformer, folder: Path) -> int:
    """Return which of a model's modules is its mean pooling."""
    if any(isinstance(module, WordWeights) for module in model):
        raise InputError(f"{folder} weights its tokens already; give the model that it was made of")
    for position, module in enumerate(model):
        if isinstance(module, Pooling) and module.pooling_mode == "mean":
            return position
    raise InputError(f"{folder} has no mean pooling, whose tokens could be weighted; give a model that has")


def _weights(model: SentenceTransformer, frequencies: np.ndarray, n_texts: int) -> WordWeights:
    of_absent = np.log(n_texts + 1)
    vocabulary = model.tokenizer.convert_ids_to_tokens(range(len(model.tokenizer)))
    each = np.concatenate([frequencies, np.full(max(0, len(vocabulary) - len(frequencies)), of_absent)])
    weights = {token: float(weight) for token, weight in zip(vocabulary, np.sqrt(each), strict=False)}
    return WordWeights(vocabulary, weights, float(np.sqrt(of_absent)))
