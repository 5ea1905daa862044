"""How fast models encode sentences, side by side."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Encodes(Protocol):
    """A SentenceTransformer, or what has the same method."""

    def encode(self, sentences: list[str], /) -> Any:
        """Embeddings of sentences."""
        ...


def encoding_speeds(models: Mapping[str, Encodes], sentences: Sequence[str], repeats: int = 3) -> dict[str, float]:
    """Measure sentences a second of each model's own `encode`, in turns, so that a busy machine slows all of them.

    Args:
        models: By name.
        sentences: What they encode, `repeats` + 1 times: the first time does not count.
        repeats: Of which the median is taken.
    """
    texts = list(sentences)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for i in range(repeats + 1):
        for name, model in models.items():
            started = time.perf_counter()
            model.encode(texts)
            if i:
                seconds[name].append(time.perf_counter() - started)
    return {name: len(texts) / statistics.median(each) for name, each in seconds.items()}
