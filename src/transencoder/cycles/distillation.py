"""The paper's algorithm: bi -> cross -> bi, with one member or with several that are taught by the mean of all."""

from transencoder.cycles.lab import Lab, Model, Starts
from transencoder.cycles.students import Taught, learn

Cycle = list[tuple[Starts, Model, Model]]
"""Each member that learned in a cycle, its cross-encoder, its bi-encoder."""


def distil(lab: Lab, n_cycles: int) -> list[Cycle]:
    """Self-distillation with one member, mutual distillation with several (paper, sections 2.2 to 2.4).

    Args:
        lab: Pairs, members, settings, and the run that keeps the stages.
        n_cycles: How many times bi -> cross -> bi, at most.

    Returns:
        What each cycle made.
    """
    cycles: list[Cycle] = []
    bis = [Taught(member, member.bi) for member in _learners(lab, 1)]
    for cycle in range(1, n_cycles + 1):
        learners = _learners(lab, cycle)
        crosses = learn(lab, learners, "cross", cycle, teachers=bis)
        bis = learn(lab, learners, "bi", cycle, teachers=crosses)
        cycles.append([(bi.member, cross.model, bi.model) for cross, bi in zip(crosses, bis, strict=True)])
        if _is_stale(cycles, lab.settings.patience_cycles):
            break
    return cycles


def _learners(lab: Lab, cycle: int) -> tuple[Starts, ...]:
    """All members or, where they alternate, the one whose turn it is (paper, section 2.4, footnote 5)."""
    if not lab.settings.alternate_members:
        return lab.members
    return (lab.members[(cycle - 1) % len(lab.members)],)


def _is_stale(cycles: list[Cycle], patience: int | None) -> bool:
    """Whether neither form of any member improved on dev in the last `patience` cycles."""
    if patience is None or len(cycles) <= patience:
        return False
    before, recent = _devs(cycles[:-patience]), _devs(cycles[-patience:])
    return all(value <= before.get(name, 0.0) for name, value in recent.items())


def _devs(cycles: list[Cycle]) -> dict[tuple[str, str], float]:
    """The best dev metric of each member and form."""
    devs: dict[tuple[str, str], float] = {}
    for member, *models in (row for cycle in cycles for row in cycle):
        for model in models:
            name = (member.prefix, model.form)
            devs[name] = max(devs.get(name, 0.0), model.dev or 0.0)
    return devs
