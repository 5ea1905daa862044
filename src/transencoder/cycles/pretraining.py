"""The cross-encoders' starts, pretrained further on the pairs where the settings say so: a stage."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transencoder import distributed
from transencoder.cycles.lab import Lab, LabMember, own_first
from transencoder.fit import pretrain, stage_session

_CODE_VERSION = 2
"""Raised when a change of the code changes what the stage computes."""

_NAME = "cross-start/pretraining"


def pretrained(lab: Lab) -> Lab:
    """The lab whose cross-encoders start from masked language models of its pairs, where members want that."""
    made = own_first(lab, range(len(lab.members)), lambda i: _pretrained(lab, lab.members[i]))
    return replace(lab, members=tuple(made))


def _pretrained(lab: Lab, member: LabMember) -> LabMember:
    settings = member.pretraining
    if not settings.epochs:
        return member
    record = lab.run.stage(
        member.prefix + _NAME,
        config={
            "version": _CODE_VERSION,
            "fit": settings.as_fit(member.fits["cross"]).outcome | {"eval_steps": None},
            "mask_ratio": settings.mask_ratio,
            "both_orders": lab.settings.is_symmetric,
            "seed": lab.settings.seed,
            "precision": lab.settings.precision,
            "n_processes": distributed.world_size(),
        },
        inputs=[lab.pairs_fingerprint, member.cross_fingerprint],
        compute=lambda folder: _pretrain(lab, member, folder),
    )
    return replace(member, pretrained=record)


def _pretrain(lab: Lab, member: LabMember, folder: Path) -> dict[str, Any]:
    settings = member.pretraining
    model, record = pretrain(
        member.cross,
        lab.pairs,
        settings.as_fit(member.fits["cross"]),
        settings.mask_ratio,
        stage_session(lab.run, lab.settings, member.prefix + _NAME, folder, lab.cache),
        device=lab.device,
        both_orders=lab.settings.is_symmetric,
    )
    if distributed.rank() == 0:
        model.save_pretrained(folder / "model")
    return asdict(record)
