"""How and where a training runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from transencoder.config import Precision
from transencoder.runs import Run, stage_seed
from transencoder.tokens import TokenCache


@dataclass(frozen=True, kw_only=True)
class Session:
    """How and where one training runs: of these, seed and precision decide what it learns.

    Interrupted, it goes on from the last complete checkpoint in `folder` and ends with the same bytes.
    """

    folder: Path
    """Where checkpoints live."""
    seed: int
    """Decides shuffling, masks and dropout."""
    precision: Precision = "auto"
    """`auto` trains under bf16 autocast where the hardware has it."""
    cache: TokenCache | None = None
    """Token ids made earlier, for instance when the pairs were labelled."""
    report_to: tuple[str, ...] = ()
    """Trackers the trainer reports to."""
    log_folder: Path | None = None
    """Where TensorBoard's events go; None: into `folder`."""


class _Settings(Protocol):
    """What a session has of a run's settings."""

    @property
    def seed(self) -> int: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def report_to(self) -> tuple[str, ...]: ...


def stage_session(run: Run, settings: _Settings, name: str, folder: Path, cache: TokenCache | None = None) -> Session:
    """The session of a stage that trains.

    Args:
        run: Its run.
        settings: The run's.
        name: The stage's, which with the run's seed makes its own.
        folder: The stage's.
        cache: The run's tokens.
    """
    return Session(
        folder=folder / "checkpoints",
        seed=stage_seed(settings.seed, name),
        precision=settings.precision,
        cache=cache,
        report_to=settings.report_to,
        log_folder=run.folder / "tensorboard" / name.replace("/", "-"),
    )
