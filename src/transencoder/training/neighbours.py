"""Examples of what training changed: the nearest other text of some training texts, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transencoder.configs import Precision
from transencoder.context import Context, Model, Rows, Work, operations
from transencoder.records import NEIGHBOURS, NEIGHBOURS_FILE, NeighboursRecord
from transencoder.runs import Cost, Stage, made_of
from transencoder.runs.files import atomic_json
from transencoder.scorers import BiScorer
from transencoder.selection import unit_vectors

_MOST_TEXTS, _N_SHOWN = 1000, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours(Stage[Work]):
    """Nearest other texts of ten training texts, found by the base model and by the trained bi-encoder."""

    version = 2
    rows: Rows = made_of()
    start: Model = made_of(reading=True)
    bi: Model = made_of()
    max_length: int | None
    """Tokens that the base model reads of a text; None: its own maximum."""
    precision: Precision

    def compute(self, work: Work) -> NeighboursRecord:
        """Embed distinct texts of evenly spaced rows with both models, and compare the nearest texts."""
        data = self.rows.data
        sides = [name for name in ("text", "sentence1", "sentence2") if name in data.column_names]
        some = data.select(_spread(len(data), _MOST_TEXTS // len(sides))).select_columns(sides)
        texts = np.array([text for side in sides for text in some[side][:]], object)
        different = np.sort(np.unique(texts, return_index=True)[1])
        some = some.rename_columns({side: f"sentence{number}" for number, side in enumerate(sides, 1)})
        embeddings = []
        for model in (self.start, self.bi):
            scorer = work.scorer_of(model, None if model.cycle else self.max_length, self.precision)
            assert isinstance(scorer, BiScorer), "only bi-encoders have neighbours"
            embeddings.append(np.concatenate(scorer.embed_sides(some))[different])
        return compared(texts[different].tolist(), *embeddings)

    def write(self, work: Work, computed: NeighboursRecord) -> dict[str, Any]:
        """Write the examples."""
        atomic_json(work.folder / NEIGHBOURS_FILE, computed)
        return {}

    def cost(self) -> Cost:
        """Return the cost of encoding the texts with both models."""
        n_texts = min(_MOST_TEXTS, 2 * len(self.rows.data))
        return Cost(operations=operations(self.start.n_parameters, 0, n_texts))


def neighbours(context: Context[Any], start: Model, bi: Model) -> Neighbours:
    """Return the stage that compares a bi-encoder with the base model."""
    return Neighbours(
        name=NEIGHBOURS,
        rows=context.data.rows,
        start=start,
        bi=bi,
        max_length=context.max_length,
        precision=context.config.precision,
    )


def compared(texts: Sequence[str], start: np.ndarray, bi: np.ndarray) -> NeighboursRecord:
    """Find each text's nearest other text with two models; show texts for which they differ, if there are any.

    Args:
        texts: n distinct texts.
        start: The base model's embeddings, (n, dim).
        bi: The bi-encoder's embeddings, (n, dim).
    """
    found = {"start": _nearest(start), "bi": _nearest(bi)}
    changed = np.flatnonzero(found["start"][0] != found["bi"][0])
    among = changed if len(changed) else np.arange(len(texts) if len(texts) > 1 else 0)
    shown = [
        {"text": texts[i]}
        | {model: {"text": texts[nearest[i]], "cosine": cosines[i]} for model, (nearest, cosines) in found.items()}
        for i in among[_spread(len(among), _N_SHOWN)]
    ]
    return {"texts": len(texts), "changed": len(changed), "shown": shown}


def _nearest(embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each text's nearest other text, (n,), and their cosine, (n,)."""
    unit = unit_vectors(embeddings)
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    np.fill_diagonal(cosines, -2.0)
    return cosines.argmax(1), cosines.max(1)


def _spread(n: int, n_chosen: int) -> np.ndarray:
    """Return up to `n_chosen` distinct, evenly spaced positions among n."""
    return np.unique(np.linspace(0, n - 1, min(n, n_chosen)).astype(int))
