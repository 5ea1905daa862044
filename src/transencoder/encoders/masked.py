"""Masked language models: encoders that still have the head they were pretrained with, and small ones from nothing."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordPiece
from torch import nn
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import BaseModelOutput

from transencoder.errors import InputError

logger = logging.getLogger(__name__)

_UNKNOWN = "[UNK]"
_SPECIAL = ["[PAD]", _UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
"""By BERT's names, in its order."""

_HEAD_WIDTH = 64
"""BERT's, of each attention head."""


def load_masked(folder: Path, *, seed: int = 0, new_head: bool = False) -> tuple[PreTrainedModel, Any]:
    """Load a masked language model in fp32 and its tokenizer.

    Args:
        folder: A plain pretrained model with its language-modelling head.
        seed: Decides parts that no output depends on, such as a pooler, and a new head.
        new_head: Give an encoder that has no language-modelling head a new one.

    Raises:
        InputError: The folder holds no masked language model, or its tokenizer has no mask token that the model knows.
    """
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model, report = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except ValueError as error:  # an architecture without masked language models
        raise _refusal(folder, str(error).splitlines()[0]) from error
    encoder = f"{model.base_model_prefix}."
    if missing := [name for name in report["missing_keys"] if name.startswith(encoder) or not new_head]:
        raise _refusal(folder, f"it lacks {', '.join(sorted(missing)[:3])}")
    if model.config.is_encoder_decoder:
        raise _refusal(folder, "it has a decoder")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.mask_token_id is None or tokenizer.mask_token_id >= model.config.vocab_size:
        raise _refusal(folder, "its tokenizer has no mask token that the model knows")
    return model, tokenizer


def language_model_head(folder: Path, student: SentenceTransformer) -> tuple[PreTrainedModel, Any]:
    """Load the head of a masked language model for a student that started from the same folder, and its tokenizer.

    Called with `inputs_embeds`, the student's token embeddings (batch, tokens, dim), it gives logits over the
    vocabulary. Where the two share the table of word embeddings, as in BERT, it is the student's.

    Args:
        folder: The student's start: a plain pretrained model with its language-modelling head.
        student: A bi-encoder made of it.

    Raises:
        InputError: `folder` is no masked language model.
    """
    model, tokenizer = load_masked(folder)
    setattr(model, model.base_model_prefix, _AsGiven())
    assert student.transformers_model is not None, "every model here has a transformer"
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = student.transformers_model.get_input_embeddings().weight  # type: ignore[no-untyped-call]
    return model, tokenizer


def fresh_tokenizer(texts: Callable[[], Iterable[list[str]]], n_vocabulary: int) -> PreTrainedTokenizerBase:
    """Make a lower-cased word-piece tokenizer, as BERT's, of the texts; the same for the same texts.

    Args:
        texts: Gives chunks of texts, each time anew.
        n_vocabulary: Word pieces to have, special tokens included; fewer where the texts have not so many.

    Raises:
        InputError: The vocabulary is too small for the texts' characters.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True)
    found = {character for chunk in texts() for text in chunk for character in normalizer.normalize_str(text)}
    characters = sorted(character for character in found if not character.isspace())
    fixed = [*_SPECIAL, *characters, *(f"##{character}" for character in characters)]
    if len(fixed) >= n_vocabulary:
        raise InputError(
            f"vocabulary is {n_vocabulary}, but the text has {len(characters)} different characters, which take "
            f"{len(fixed)}; give at least twice that"
        )
    tokenizer = Tokenizer(WordPiece(unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    # Numbered beforehand: the trainer numbers what it meets in the order of a hash table, and breaks ties by numbers.
    trainer = trainers.WordPieceTrainer(
        vocab_size=n_vocabulary, min_frequency=2, special_tokens=fixed, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    n_found = tokenizer.get_vocab_size()
    if n_found < n_vocabulary:
        logger.info("the text has %d word pieces that occur twice, fewer than the %d asked for", n_found, n_vocabulary)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return BertTokenizer(vocab=dict(vocabulary), do_lower_case=True)


def fresh_masked(n_vocabulary: int, *, n_layers: int, width: int, max_length: int, seed: int) -> BertForMaskedLM:
    """Make a BERT with random weights and its language-modelling head.

    Args:
        n_vocabulary: Tokens that it knows.
        n_layers: Transformer layers.
        width: Of its embeddings, a multiple of 64.
        max_length: Tokens that it has positions for.
        seed: Decides the weights.
    """
    config = BertConfig(
        vocab_size=n_vocabulary,
        hidden_size=width,
        num_hidden_layers=n_layers,
        num_attention_heads=width // _HEAD_WIDTH,
        intermediate_size=4 * width,
        max_position_embeddings=max_length,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertForMaskedLM(config)


class _AsGiven(nn.Module):
    """A module in the place of an encoder: its output is what it is given."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _refusal(folder: Path, reason: str) -> InputError:
    return InputError(f"{folder} is no masked language model ({reason}). Give a plain pretrained model")
