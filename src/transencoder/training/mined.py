"""The stage that mines a run's pairs from sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from transencoder.configs import Precision
from transencoder.context import Model, Rows, Work, operations
from transencoder.errors import plural
from transencoder.mining import Corpora, default_n_pairs, embed, look_up, mine_pairs
from transencoder.pairs import fingerprint
from transencoder.runs import Cost, Stage, made_of, stage_seed
from transencoder.scorers import BiScorer

_SENTENCE_BYTES = 9000
"""Bytes of scratch space for each sentence during mining: its embedding of width 768, twice, its neighbours and its
tokens."""
MINING = "mining"


@dataclass(frozen=True, kw_only=True, eq=False)
class Mining(Stage[Work]):
    """Training pairs, mined from sentences with the first member's base model and the scores that it labels with."""

    version = 2
    texts: tuple[Rows, ...] = made_of()
    """Sentences and, if the sentences are paired with documents, the documents."""
    model: Model = made_of(reading=True)
    n_pairs: int | None
    """Number of pairs to mine; None: it follows from the number of sentences."""
    max_length: int | None
    precision: Precision
    seed: int

    def compute(self, work: Work) -> tuple[Corpora, dict[str, np.ndarray]]:
        """Embed the texts and look up their neighbours; each rank does its share."""
        scratch = work.folder / "checkpoints"
        scratch.mkdir(exist_ok=True)
        scorer = work.scorer_of(self.model, self.max_length, self.precision)
        assert isinstance(scorer, BiScorer), "members start from bi-encoders"
        documents = self.texts[1].data if len(self.texts) > 1 else None
        corpora = embed(self.texts[0].data, documents, scorer, scratch)
        return corpora, look_up(corpora, scratch, n_pairs=self.n_pairs, seed=stage_seed(self.seed, self.name))

    def write(self, work: Work, computed: tuple[Corpora, dict[str, np.ndarray]]) -> dict[str, Any]:
        """Mine the pairs, write them and their cosines, and return their file and how they were mined."""
        mined = mine_pairs(*computed, work.folder, n_pairs=self.n_pairs, seed=stage_seed(self.seed, self.name))
        np.save(work.folder / "scores.npy", mined.scores)
        return {"file": f"{fingerprint(mined.pairs)}.arrow", "record": mined.record}

    @property
    def n_wanted(self) -> int:
        """Number of pairs to mine."""
        return self.n_pairs or default_n_pairs(len(self.texts[0].data))

    @property
    def description(self) -> str:
        """Description of the stage, as the plan shows it."""
        mined = f"mine {plural(self.n_wanted, 'pair')} from {plural(len(self.texts[0].data), 'sentence')}"
        if len(self.texts) > 1:
            mined += f" and {plural(len(self.texts[1].data), 'document')}"
        return f"{mined}, at most: fewer where sentences repeat or no more can be had"

    def cost(self) -> Cost:
        """Return the cost of encoding the texts."""
        n_texts = sum(len(each.data) for each in self.texts)
        return Cost(
            operations=operations(self.model.n_parameters, 0, n_texts // 2), scratch_bytes=_SENTENCE_BYTES * n_texts
        )
