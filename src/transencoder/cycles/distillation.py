"""The paper's algorithm: bi -> cross -> bi, with one member or with several that are taught by the mean of all."""

import math
from collections.abc import Sequence

from transencoder.cycles.lab import Lab, Model
from transencoder.cycles.students import learn


def distil(lab: Lab, n_cycles: int) -> list[list[Model]]:
    """Self-distillation with one member, mutual distillation with several (paper, sections 2.2 to 2.4).

    Args:
        lab: Pairs, members, settings, and the run that keeps the stages.
        n_cycles: How many times bi -> cross -> bi, at most.

    Returns:
        What each cycle made: the cross-encoders, then the bi-encoders; only these in standard self-distillation
        (Table 14), where a bi-encoder learns from the one before.
    """
    cycles: list[list[Model]] = []
    bis = [lab.members[member].bi for member in _learners(lab, 1)]
    for cycle in range(1, n_cycles + 1):
        crosses = learn(lab, _learners(lab, cycle), "cross", cycle, teachers=bis) if not lab.settings.same_form else []
        bis = learn(lab, _learners(lab, cycle), "bi", cycle, teachers=crosses or bis)
        cycles.append([*crosses, *bis])
        if _is_stale(lab, cycles):
            break
    return cycles


def _learners(lab: Lab, cycle: int) -> Sequence[int]:
    """All members or, where they alternate, the one whose turn it is (paper, section 2.4, footnote 5)."""
    n_members = len(lab.members)
    return [(cycle - 1) % n_members] if lab.settings.alternate_members else range(n_members)


def _is_stale(lab: Lab, cycles: list[list[Model]]) -> bool:
    """Whether by what chooses neither form of any member improved in the last `patience_cycles` cycles."""
    patience = lab.settings.patience_cycles
    if patience is None or len(cycles) <= patience:
        return False
    before, recent = _highest(lab, cycles[:-patience]), _highest(lab, cycles[-patience:])
    return bool(recent) and all(value <= before[name] for name, value in recent.items())


def _highest(lab: Lab, cycles: list[list[Model]]) -> dict[tuple[str, int], float]:
    """The highest value of what chose, by form and member; members that alternate make one model together."""
    highest: dict[tuple[str, int], float] = {}
    for model in (model for cycle in cycles for model in cycle if model.chosen_by is not None):
        name = (model.form, 0 if lab.settings.alternate_members else model.member)
        value = -math.inf if model.best is None else model.best
        highest[name] = max(highest.get(name, -math.inf), value)
    return highest
