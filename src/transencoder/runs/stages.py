"""A run as a graph of stages. They declare inputs and settings; keys, plans and computations follow from these."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from transencoder.runs.files import canonical_json
from transencoder.runs.records import StageRecord, stage_folder_name

WorkT = TypeVar("WorkT")
StageT = TypeVar("StageT", bound="Stage[Any]")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Approximate cost of a stage."""

    operations: float = 0.0
    """Number of floating-point operations."""
    disk_bytes: float = 0.0
    """Bytes that stay on disk."""
    scratch_bytes: float = 0.0
    """Bytes on disk in addition while the stage is computed; of several stages the largest counts."""

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both stages, one after the other."""
        return Cost(
            operations=self.operations + other.operations,
            disk_bytes=self.disk_bytes + other.disk_bytes,
            scratch_bytes=max(self.scratch_bytes, other.scratch_bytes),
        )


def made_of(*, absent: str | None = None, reading: bool = False) -> Any:
    """Declare an input of a stage: an object with a key, a tuple or a mapping of such objects, or None.

    Args:
        absent: The key that stands for a missing input; None: a missing input has no key.
        reading: Whether the input is a model whose way of reading texts is a setting of the stage.
    """
    return field(metadata={"role": "input", "absent": absent, "reading": reading})


def setting(form: Callable[[Any], Any] | None = None, *, default: Any = MISSING) -> Any:
    """Declare a setting of a stage that is recorded in another form, or not at all at its default.

    Args:
        form: Function that returns the form of the value to record.
        default: Default value. At this value the setting is left out of the key, so that stages from before the setting
            existed keep their keys.
    """
    return field(default=default, metadata={"role": "setting", "form": form})


def implied(default: Any = MISSING, *, reading: bool = False) -> Any:
    """Declare a field that follows from the others, and is therefore left out of the key.

    Args:
        default: Default value of the field.
        reading: As for `made_of`.
    """
    return field(default=default, metadata={"role": "implied", "reading": reading})


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage(ABC, Generic[WorkT]):
    """One step of a run.

    The fields of a subclass are all that its result depends on, and all that its computation sees: inputs
    (`made_of`), and settings, which are every other field. So no setting can be missing from the key.
    """

    version: ClassVar[int] = 1
    """Version of the stage's code, a part of the key. Raise it when a change of the code changes the result."""
    is_of_machine: ClassVar[bool] = False
    """Whether the result holds on this machine only, so that no other run's is taken."""
    name: str
    """Name: letters, digits, `.`, `_`, `-`, in parts separated by `/`, such as `cycle-1/bi-encoder`."""

    def compute(self, work: WorkT) -> Any:
        """Compute, on every rank, the part of the stage that needs all ranks; a subclass may leave it out."""
        return None

    @abstractmethod
    def write(self, work: WorkT, computed: Any) -> Mapping[str, Any]:
        """Write the outputs, on the first rank only, and return the result, which JSON can hold.

        Args:
            work: Where the outputs are written, and what else the computation works with.
            computed: Return value of `compute`.
        """

    def cost(self) -> Cost:
        """Return the approximate cost of the stage; zero unless a subclass estimates it."""
        return Cost()

    @cached_property
    def key(self) -> str:
        """The stage's key: sha256 (64 hex digits) of its name, settings and inputs."""
        return stage_key(self.name, self.key_settings, self.key_inputs)

    @property
    def key_settings(self) -> dict[str, Any]:
        """The settings by name, as they stand in the key and the record."""
        found: dict[str, Any] = {"version": self.version}
        for each, value in self._of_role("setting"):
            if each.default is MISSING or value != each.default:
                form = each.metadata.get("form")
                found[each.name] = value if form is None else form(value)
        found |= {each.name: list(value) for each, value in self._of_role("input") if isinstance(value, Mapping)}
        for each, value in (*self._of_role("input"), *self._of_role("implied")):
            if each.metadata["reading"]:
                found |= value.reading
        return found

    @property
    def key_inputs(self) -> list[str]:
        """The keys of the inputs, in the order of their declaration."""
        keys: list[str] = []
        for each, value in self._of_role("input"):
            if value is None:
                keys += [] if each.metadata["absent"] is None else [each.metadata["absent"]]
            elif isinstance(value, tuple):
                keys += [one.key for one in value]
            elif isinstance(value, Mapping):
                keys += [one.key for one in value.values()]
            else:
                keys.append(value.key)
        return keys

    def _of_role(self, role: str) -> Iterator[tuple[Field[Any], Any]]:
        for each in fields(self):
            if each.name != "name" and each.metadata.get("role", "setting") == role:
                yield each, getattr(self, each.name)


def stage_key(name: str, config: Mapping[str, object], inputs: Sequence[str] = ()) -> str:
    """Return the key of a stage: the sha256 (64 hex digits) of its name, config and inputs.

    Args:
        name: the stage's name, for instance `cycle-1/cross`.
        config: everything that changes the stage's result, including the version of the relevant code.
        inputs: keys of earlier stages and fingerprints of data, in a fixed order.

    Raises:
        InputError: when the config holds something that has no JSON form, a NaN for instance.
    """
    text = canonical_json({"name": name, "config": config, "inputs": list(inputs)})
    return hashlib.sha256(text.encode()).hexdigest()


def stage_seed(seed: int, name: str) -> int:
    """Derive a stage's own seed, in [0, 2**31), from the run's seed and the stage's name."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


class Executor(Protocol):
    """Interface for computing stages: in this process, in several, or not at all, for a plan."""

    def make(self, stages: Sequence[Stage[Any]]) -> list[StageRecord]:
        """Return the records of stages that do not depend on each other, computing those that are not done."""
        ...


class Planner:
    """An executor that computes nothing: it collects the stages of a run and their total cost.

    Args:
        known: Keys of stages that another run will have computed; they are reused, and cost nothing.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self.known = known
        self.stages: dict[str, Stage[Any]] = {}
        """Requested stages by key."""

    def make(self, stages: Sequence[Stage[Any]]) -> list[StageRecord]:
        """Return records without results."""
        self.stages |= {stage.key: stage for stage in stages}
        return [
            StageRecord(name=stage.name, key=stage.key, folder=Path(stage_folder_name(stage.name, stage.key)))
            for stage in stages
        ]

    def of_kind(self, kind: type[StageT]) -> list[StageT]:
        """Return the stages of one kind."""
        return [stage for stage in self.stages.values() if isinstance(stage, kind)]

    @property
    def cost(self) -> Cost:
        """The total cost of the stages that are not known."""
        return sum((stage.cost() for key, stage in self.stages.items() if key not in self.known), Cost())
