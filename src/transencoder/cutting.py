"""Long texts cut before they are tokenised, so that the tokens that a model reads stay the same.

A tokenizer reads a text to its end whatever the model reads of it, and keeps what it truncates: 64 texts of 100,000
characters took 143 MB and 4.9 s, a pair of 20,000 characters each 5 GB.
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
    if texts and isinstance(texts[0], str):
        return _cut_texts(texts, tokenizer, limit)
    return [_cut_pair(pair, tokenizer, limit) for pair in texts]  # type: ignore[arg-type]


def _cut_texts(texts: list[str], tokenizer: Any, limit: int) -> list[str]:
    read, length = [*texts], _LONG * limit
    while waiting := [i for i, text in enumerate(texts) if read[i] is text and len(text) > length]:
        tokens = _tokenised([texts[i][:length] for i in waiting], tokenizer)
        for number, i in enumerate(waiting):
            words = tokens.word_ids(number)
            # What follows a whole word does not change it; the last may be cut, and a script without spaces is one.
            last = next((k for k in range(len(words) - 1, 0, -1) if words[k] != words[k - 1]), 0)
            if last >= limit:
                read[i] = texts[i][: tokens.token_to_chars(number, last).start]
        length *= 2
    return read


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


def _tokenised(texts: str | list[str], tokenizer: Any) -> Any:
    return tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
