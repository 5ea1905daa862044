"""Long texts cut before they are tokenised, so that the tokens that a model reads stay the same.

A tokenizer reads a text to its end whatever the model reads of it, and keeps what it truncates: 64 texts of 100,000
characters took 213 MB and 8.5 s, a pair of 20,000 characters each 5 GB.
"""

from typing import Any

_CHARACTERS_A_TOKEN = 4
"""Pairs with a text of at most this many characters for each token that the model reads are not cut."""
_LONG = 16
"""Texts of at most this many characters for each token that the model reads are not cut."""

Texts = list[str] | list[tuple[str, str]]


def cut(texts: Texts, tokenizer: Any, limit: int | None) -> Texts:
    """Cut texts, or both texts of pairs, that are much longer than a model reads.

    Args:
        texts: Texts or pairs.
        tokenizer: Tokenizer of the model. Texts are left as they are if it is slow or truncates on the left.
        limit: Maximum number of tokens that the model reads; None: it reads everything.

    Returns:
        The texts or pairs, whose first `limit` tokens are the same.
    """
    if limit is None or not tokenizer.is_fast or tokenizer.truncation_side == "left":
        return texts
    return [  # type: ignore[return-value]
        _cut_pair(each, tokenizer, limit) if isinstance(each, tuple) else _cut_text(each, tokenizer, limit)
        for each in texts
    ]


def _cut_text(text: str, tokenizer: Any, limit: int) -> str:
    length = _LONG * limit
    while len(text) > length:
        tokens = _tokenised(text[:length], tokenizer)
        words = tokens.word_ids()
        # What follows a whole word does not change it; the last one may be cut, and a script without spaces is one.
        last = next((i for i in range(len(words) - 1, 0, -1) if words[i] != words[i - 1]), 0)
        if last >= limit:
            return text[: tokens.token_to_chars(last).start]
        length *= 2
    return text


def _cut_pair(pair: tuple[str, str], tokenizer: Any, limit: int) -> tuple[str, str]:
    if min(map(len, pair)) <= _CHARACTERS_A_TOKEN * limit:
        return pair
    tokens = [_tokenised(text, tokenizer) for text in pair]
    lengths = [len(each["input_ids"]) for each in tokens]
    longer = int(lengths[0] <= lengths[1])  # it must stay longer: of an odd number of tokens it keeps one more
    cut = list(pair)
    for which, least in ((1 - longer, limit), (longer, 4 * limit)):
        words = tokens[which].word_ids()
        # Text after a whole word does not change the tokens before it; a script without spaces may be one word.
        ends = (i for i in range(least, min(lengths[which], 2 * least)) if words[i] != words[i - 1])
        if (end := next(ends, 2 * least)) < lengths[which]:
            cut[which] = pair[which][: tokens[which].token_to_chars(end).start]
    return cut[0], cut[1]


def _tokenised(text: str, tokenizer: Any) -> Any:
    return tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)
