"""Self-distillation: the paper's algorithm with one member."""

from transencoder.cycles.lab import Lab, Model
from transencoder.cycles.students import learn


def self_distil(lab: Lab, cycles: int) -> list[tuple[Model, Model]]:
    """Self-distillation (paper, sections 2.2 and 2.3, Figure 1).

    Args:
        lab: Pairs, starts, settings, and the run that keeps the stages.
        cycles: How many times bi -> cross -> bi.

    Returns:
        (cross-encoder, bi-encoder) of each cycle.
    """
    trained: list[tuple[Model, Model]] = []
    bi = lab.start
    for cycle in range(1, cycles + 1):
        cross = learn(lab, "cross", cycle, teacher=bi)
        bi = learn(lab, "bi", cycle, teacher=cross)
        trained.append((cross, bi))
        if _is_stale(trained, lab.settings.patience_cycles):
            break
    return trained


def _is_stale(trained: list[tuple[Model, Model]], patience: int | None) -> bool:
    """Whether neither form improved on dev in the last `patience` cycles."""
    if patience is None or len(trained) <= patience:
        return False
    recent, before = trained[-patience:], trained[:-patience]
    return all(
        max(cycle[form].dev or 0.0 for cycle in recent) <= max(cycle[form].dev or 0.0 for cycle in before)
        for form in (0, 1)
    )
