"""Several processes on one run, each of which computes some of its stages and waits for the others'."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Which stages others compute, and whether they still do."""

    is_elsewhere: Callable[[str], bool]
    """Whether another process computes the stage of that name; each stage is computed by exactly one."""
    check: Callable[[str], None]
    """Called again and again while the stage of that name is waited for; raises when it will not come."""
