"""How large and how fast a student is beside its teacher, or beside the start that it was cut from."""

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from transencoder import distributed
from transencoder.cycles import Model
from transencoder.encoders import count_parameters, encoding_speeds, fetch, weights_fingerprint
from transencoder.methods.start_bench import Bench
from transencoder.records import SizeRecord

_CODE_VERSION = 1
"""Raised when a change of the code changes what is measured."""

_N_SENTENCES = 256
"""Of the training text, which both encode."""


def compared_sizes(bench: Bench, start: Path, trained: Model) -> SizeRecord | None:
    """Parameters, file size and speed of the student and of its teacher; None where there is nothing to compare with.

    Args:
        bench: What the run works with.
        start: The folder that the user named, before layers or a vocabulary were cut.
        trained: The student.
    """
    config = bench.config
    if config.taught_by is not None:
        whose, other = "teacher", fetch(config.taught_by, form="bi", token=config.token, cache_folder=config.cache_dir)
    elif start != bench.start.folder:
        whose, other = "start", start
    else:
        return None
    rows = bench.data.training
    column = "text" if "text" in rows.column_names else "sentence1"
    sentences = rows[: min(len(rows), _N_SENTENCES)][column]

    def compute(folder: Path) -> dict[str, Any]:
        if distributed.rank() != 0:
            return {}
        folders = {"student": trained.folder, whose: other}
        models = {name: SentenceTransformer(str(path), device=bench.device) for name, path in folders.items()}
        speeds = encoding_speeds(models, sentences)
        measured: dict[str, Any] = {
            name: {
                "parameters": count_parameters(path),
                "megabytes": sum(file.stat().st_size for file in path.rglob("*.safetensors")) / 1e6,
                "sentences_a_second": speeds[name],
            }
            for name, path in folders.items()
        }
        return {
            "whose": whose,
            "student": measured["student"],
            "other": measured[whose],
            "sentences": len(sentences),
            "device": bench.device,
            "threads": torch.get_num_threads(),
        }

    record = bench.run.stage(
        "sizes",
        config={"version": _CODE_VERSION, "sentences": len(sentences)},
        inputs=[trained.key, weights_fingerprint(other), bench.data.record["fingerprint"]],
        compute=compute,
    )
    return record.result  # type: ignore[return-value]
