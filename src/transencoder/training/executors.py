"""The executor of a run in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transencoder.context import Work
from transencoder.runs import Run, Stage, StageRecord
from transencoder.tokens import TokenCache


class LocalExecutor:
    """Computes the stages of an open run here, one after the other; under torchrun on every rank.

    Args:
        run: The run, which keeps what is done.
        device: Where models are.
        report_to: Trackers that trainings report to.
    """

    def __init__(self, run: Run, device: str, report_to: tuple[str, ...] = ()) -> None:
        self.run = run
        self._around = {
            "run_folder": run.folder,
            "device": device,
            "cache": TokenCache(run.folder / "tokens"),
            "report_to": report_to,
        }

    def make(self, stages: Sequence[Stage[Any]]) -> list[StageRecord]:
        """Return the records of stages, computing those that are not done.

        Raises:
            RunError: The disk is full. What a stage raises passes through.
        """
        return [self._make(stage) for stage in stages]

    def _make(self, stage: Stage[Work]) -> StageRecord:
        def compute(folder: Path) -> Mapping[str, Any]:
            work = Work(folder=folder, **self._around)  # type: ignore[arg-type]
            computed = stage.compute(work)
            return stage.write(work, computed) if self.run.is_first else {}

        return self.run.stage(stage.name, config=stage.key_settings, inputs=stage.key_inputs, compute=compute)
