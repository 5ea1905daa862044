"""Training pairs that a run mines from sentences by itself: a stage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder import distributed
from transencoder.encoders import load_bi, weights_fingerprint
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.mining import Place, mine_pairs
from transencoder.pairs import fingerprint
from transencoder.records import MiningRecord
from transencoder.runs import Run, stage_seed
from transencoder.scorers import BiScorer
from transencoder.tokens import TokenCache

Miner = Callable[[Dataset, Dataset | None], tuple[Dataset, MiningRecord | None]]
"""Sentences, `text`, and documents, where they are paired with such, to pairs and how they were mined; None: they are
only as many as would be."""

_CODE_VERSION = 1
"""Raised when a change of the code changes what the stage computes."""

_NAME = "mining"


def miner(run: Run, config: TransEncoder, start: Path) -> Miner:
    """What mines a run's pairs with the start of its first member, as it scores them when it labels.

    Args:
        run: Keeps the stage.
        config: With its device, precision and lengths.
        start: The folder of the first member's start.
    """
    length, pooling, prompts = config.bi.max_length, config.members[0].pooling, config.members[0].prompts

    def compute(sentences: Dataset, documents: Dataset | None, folder: Path) -> dict[str, Any]:
        scratch = folder / "checkpoints"
        scratch.mkdir(exist_ok=True)
        model = load_bi(start, max_length=length, pooling=pooling, prompts=prompts, device=config.device)
        scorer = BiScorer(
            model,
            precision=config.precision,
            cache=TokenCache(run.folder / "tokens"),
            prompt=prompts.query,
            document_prompt=prompts.document,
        )
        mined = mine_pairs(
            sentences,
            Place(scorer, folder, scratch),
            documents=documents,
            n_pairs=config.n_pairs,
            seed=stage_seed(config.seed, _NAME),
        )
        if mined is None:
            return {}
        np.save(folder / "scores.npy", mined.scores)
        return {"file": f"{fingerprint(mined.pairs)}.arrow", "record": mined.record}

    def mine(sentences: Dataset, documents: Dataset | None) -> tuple[Dataset, MiningRecord]:
        texts = [sentences] if documents is None else [sentences, documents]
        record = run.stage(
            _NAME,
            config={
                "version": _CODE_VERSION,
                "n_pairs": config.n_pairs,
                "max_length": length,
                "pooling": pooling,
                **prompts.outcome,
                "precision": config.precision,
                "seed": config.seed,
                "n_processes": distributed.world_size(),
            },
            inputs=[*map(fingerprint, texts), weights_fingerprint(start)],
            compute=lambda folder: compute(sentences, documents, folder),
        )
        return Dataset.from_file(str(record.folder / record.result["file"])), record.result["record"]

    return mine
