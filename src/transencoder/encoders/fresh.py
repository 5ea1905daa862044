"""A small masked language model from nothing: a tokenizer made of the user's own text, and random weights."""

import logging
from collections.abc import Callable, Iterable

import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordPiece
from transformers import BertConfig, BertForMaskedLM, BertTokenizer, PreTrainedTokenizerBase

from transencoder.errors import InputError

logger = logging.getLogger(__name__)

_UNKNOWN = "[UNK]"
_SPECIAL = ["[PAD]", _UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
"""By BERT's names, in its order."""

_HEAD_WIDTH = 64
"""BERT's, of each attention head."""


def fresh_tokenizer(texts: Callable[[], Iterable[list[str]]], n_vocabulary: int) -> PreTrainedTokenizerBase:
    """A lower-cased word-piece tokenizer, as BERT's, made of the texts; the same for the same texts.

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
    """A BERT with random weights and its language-modelling head.

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
