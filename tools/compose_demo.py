"""Compose the demo's unlabelled pairs from its questions: `python tools/compose_demo.py`.

The pairs are what a user without labels would have. In a third of them both questions ask for the same thing, as when
hits of a search engine are paired; in a third they are about the same device or share words; a third are random. No
label is written.
"""

import random
import re
from functools import cache
from itertools import combinations

from transencoder.demo import DATA, read_questions

Question = tuple[str, str]
Pair = tuple[Question, Question]

_MIN_WORD_LENGTH = 4
_MIN_SHARED_WORDS = 2


def compose_pairs(questions: list[Question], n_pairs: int = 1500, seed: int = 2021) -> list[tuple[str, str]]:
    """Draw pairs of questions, none twice, in random order.

    Args:
        questions: (intent, text) each; an intent starts with its device, as in `fridge-too-warm`.
        n_pairs: Number of pairs: a third share an intent, a sixth a device, a sixth words, and a third are random.
        seed: The same seed gives the same pairs.

    Returns:
        The texts of `n_pairs` pairs.
    """
    rng = random.Random(seed)
    pairs = [(one, other) for one, other in combinations(questions, 2)]
    by_intent = [pair for pair in pairs if _intents(pair) == 1]
    apart = [pair for pair in pairs if _intents(pair) > 1]
    by_device = [pair for pair in apart if len({intent.partition("-")[0] for intent, _ in pair}) == 1]
    by_words = [pair for pair in apart if _shared_words(pair) >= _MIN_SHARED_WORDS]
    chosen: dict[Pair, None] = {}
    sixth = n_pairs // 6
    for pool, size in ((by_intent, 2 * sixth), (by_device, sixth), (by_words, sixth), (apart, n_pairs)):
        rest = [pair for pair in pool if pair not in chosen]
        chosen |= dict.fromkeys(rng.sample(rest, min(size, n_pairs - len(chosen))))
    texts = [(one[1], other[1]) if rng.random() < 1 / 2 else (other[1], one[1]) for one, other in chosen]
    rng.shuffle(texts)
    return texts


def _intents(pair: Pair) -> int:
    return len({intent for intent, _ in pair})


def _shared_words(pair: Pair) -> int:
    (_, one), (_, other) = pair
    return len(_words(one) & _words(other))


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[a-z]+", text.lower()) if len(word) >= _MIN_WORD_LENGTH)


if __name__ == "__main__":
    lines = ["sentence1\tsentence2", *map("\t".join, compose_pairs(read_questions()))]
    (DATA / "pairs.tsv").write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
