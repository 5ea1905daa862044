"""Replacement of words by a masked language model."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transencoder.devices import checked_device
from transencoder.encoders import check_is_fast, load_masked
from transencoder.encoders.loading import n_positions
from transencoder.errors import InputError
from transencoder.scripts import WORD

_NUMBERS_AT_ONCE = 1 << 25
"""Limit of tokens x vocabulary in a batch. BERT reads some 1,000 tokens at once; if all are masked, the output takes
128 MB."""

Choice = tuple[list[str], list[float]]
"""Words, the most likely first, and their probabilities."""


class Word(NamedTuple):
    """A word of a text that is a single token."""

    position: int
    """Position of its token among the tokens of the text."""
    start: int
    """Position of its first character."""
    stop: int


class Masked(NamedTuple):
    """Token ids of a text, and the words in it that are masked."""

    ids: list[int]
    words: list[Word]


class Filler:
    """A masked language model that replaces words, and the tokens of its vocabulary that are words.

    Args:
        folder: A plain pretrained model with its language-modelling head and a fast tokenizer.
        max_length: Largest number of tokens that are read of a text.
        device: Device of the model; None: the best available.

    Raises:
        InputError: The folder holds no such model.
    """

    def __init__(self, folder: Path, *, max_length: int, device: str | None = None) -> None:
        from sentence_transformers.util import get_device_name

        model, self.tokenizer = load_masked(folder)
        check_is_fast(self.tokenizer, folder)
        self.device = torch.device(checked_device(device or get_device_name()))
        self.model = nn.Module.to(model, self.device)
        self._places: tuple[Tensor, Tensor] | None = None
        model.base_model.register_forward_hook(self._at_places)
        self.max_length = int(min(max_length, self.tokenizer.model_max_length, n_positions(folder, str(folder))))
        self.words = self._words()
        numbers = {word: number for number, word in enumerate({word.lower(): None for word in self.words.values()})}
        if len(numbers) < 2:
            raise InputError(f"{folder} has fewer than two words among its tokens. Give a model that reads words")
        kinds = torch.full((self.model.config.vocab_size,), -1)
        for token, word in self.words.items():
            kinds[token] = numbers[word.lower()]
        self.kinds = kinds.to(self.device)
        """Number of each token's word, equal for upper and lower case, (vocabulary,); -1: the token is not a word."""

    def read(self, text: str) -> Masked:
        """Tokenise a text, and find all its words that are a single token."""
        tokens = self.tokenizer(text, truncation=True, max_length=self.max_length, return_offsets_mapping=True)
        spans = {match.span() for match in WORD.finditer(text)}
        words = [
            Word(position, *span)
            for position, (token, offsets) in enumerate(zip(tokens["input_ids"], tokens["offset_mapping"], strict=True))
            if token in self.words and (span := _trimmed(text, *offsets)) in spans
        ]
        return Masked(tokens["input_ids"], words)

    def best(self, rows: Sequence[Masked], n_best: int) -> Iterator[Choice]:
        """Yield the model's best replacements for each word of each row, never the word itself.

        Args:
            rows: Texts, which pass through the model in this order.
            n_best: Number of words to choose from.
        """
        for batch in self._batches([row for row in rows if row.words]):
            places = [(i, word.position) for i, row in enumerate(batch) for word in row.words]
            row_of, position_of = torch.tensor(places, device=self.device).T
            logits, ids = self._logits(batch, row_of, position_of)
            is_other = (self.kinds >= 0) & (self.kinds != self.kinds[ids][:, None])
            best = logits.masked_fill(~is_other, -torch.inf).topk(min(n_best, len(self.kinds)))
            for tokens, shares in zip(best.indices.tolist(), best.values.softmax(1).tolist(), strict=True):
                yield [self.words.get(token, "") for token in tokens], shares

    def _logits(self, batch: Sequence[Masked], row_of: Tensor, position_of: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits at the masked positions, (positions, vocabulary), and the original tokens there."""
        rows = [torch.tensor(row.ids) for row in batch]
        texts = pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        are_text = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        features = {"input_ids": texts.to(self.device), "attention_mask": are_text.to(self.device)}
        ids = features["input_ids"][row_of, position_of]
        features["input_ids"][row_of, position_of] = self.tokenizer.mask_token_id
        with torch.inference_mode():
            self._places = (row_of, position_of)
            return self.model(**features).logits[0].float(), ids

    def _at_places(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        """Pass only the masked positions to the head, which costs more than a small encoder if it gets all of them."""
        output.last_hidden_state = output.last_hidden_state[self._places][None]
        return output

    def _batches(self, rows: Sequence[Masked]) -> Iterator[list[Masked]]:
        """Yield batches of rows, in order, as large as the limit on the model's output allows."""
        limit = _NUMBERS_AT_ONCE // len(self.kinds)
        batch: list[Masked] = []
        for row in rows:
            if batch and max(len(each.ids) for each in [*batch, row]) * (len(batch) + 1) > limit:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _words(self) -> dict[int, str]:
        """Return the tokens that are a whole word inside a text, and the word of each."""
        n_tokens = min(len(self.tokenizer), self.model.config.vocab_size)
        texts = [text.strip() for text in self.tokenizer.batch_decode([[token] for token in range(n_tokens)])]
        special = set(self.tokenizer.all_special_ids)
        words = {i: text for i, text in enumerate(texts) if i not in special and WORD.fullmatch(text)}

        def read(texts: list[str]) -> Any:
            return self.tokenizer(texts, add_special_tokens=False)["input_ids"]

        (before,) = read(["a"])
        after = read([f"a {word}" for word in words.values()]) if words else []
        return {i: word for (i, word), ids in zip(words.items(), after, strict=True) if ids == [*before, i]}


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return the span without white space: some tokenizers count the space before a word as its first character."""
    part = text[start:stop]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())
