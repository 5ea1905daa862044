"""The cross-encoder's start, pretrained further on the pairs where the settings say so: a stage."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transencoder import distributed
from transencoder.cycles.lab import Lab
from transencoder.fit import pretrain
from transencoder.runs import stage_seed

_CODE_VERSION = 2
"""Raised when a change of the code changes what the stage computes."""

_NAME = "cross-start/pretraining"


def pretrained(lab: Lab) -> Lab:
    """The lab whose cross-encoders start from a masked language model of its pairs; the same one for 0 epochs."""
    settings = lab.settings.pretraining
    if not settings.epochs:
        return lab
    record = lab.run.stage(
        _NAME,
        config={
            "version": _CODE_VERSION,
            "fit": settings.as_fit(lab.settings.cross).outcome | {"eval_steps": None},
            "mask_ratio": settings.mask_ratio,
            "both_orders": lab.settings.is_symmetric,
            "seed": lab.settings.seed,
            "precision": lab.settings.precision,
            "n_processes": distributed.world_size(),
        },
        inputs=[lab.pairs_fingerprint, lab.cross_start_fingerprint],
        compute=lambda folder: _pretrain(lab, folder),
    )
    return replace(lab, pretrained=record)


def _pretrain(lab: Lab, folder: Path) -> dict[str, Any]:
    settings = lab.settings.pretraining
    model, record = pretrain(
        lab.cross_start,
        lab.pairs,
        settings.as_fit(lab.settings.cross),
        settings.mask_ratio,
        folder=folder / "checkpoints",
        seed=stage_seed(lab.settings.seed, _NAME),
        precision=lab.settings.precision,
        device=lab.device,
        both_orders=lab.settings.is_symmetric,
        cache=lab.cache,
        report_to=lab.settings.report_to,
        log_folder=lab.run.folder / "tensorboard" / "cross-start-pretraining",
    )
    if distributed.rank() == 0:
        model.save_pretrained(folder / "model")
    return asdict(record)
