"""An open run, which computes each stage of a recipe once. To resume it, run it again."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from transencoder.errors import RunError
from transencoder.files import make_folder, remove_folder
from transencoder.runs import folder as run_folder
from transencoder.runs.files import (
    DamagedError,
    disk_full_explained,
    plain,
    system_error,
    write_checked_json,
)
from transencoder.runs.log import describe_environment, interrupted_seconds, now, read_log, write_log
from transencoder.runs.records import (
    STAGES_NAME,
    StageRecord,
    copy_finished,
    drop_leftovers,
    read_record,
    stage_folder_name,
    write_record,
)
from transencoder.runs.stages import stage_key

Value = TypeVar("Value")

_SEEN_SECONDS = 60.0
"""Time within which NFS shows every rank what rank 0 wrote."""
_LOOK_SECONDS = 0.1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Communication between the processes of a run (torchrun); the defaults are for a single process.

    Rank 0 locks, decides and writes; the others follow. What fails on rank 0 between computations (locking, checking,
    writing a record) fails on every rank. What fails inside `compute` is raised at once on the rank where it happened,
    without telling the others: they may be in the middle of a collective operation, where a message of ours would hang
    both. The launcher must end them, as torchrun does when one of its processes fails. If the processes are started by
    hand, give the process group a timeout.
    """

    rank: int = 0
    barrier: Callable[[], None] = field(default=lambda: None)
    """Function that returns when every rank has called it."""
    broadcast: Callable[[Any], Any] = field(default=lambda value: value)
    """Function that returns rank 0's value on every rank; all ranks call it."""
    gather: Callable[[Any], list[Any]] = field(default=lambda value: [value])
    """Function that returns all ranks' values, in their order, on every rank; all ranks call it."""

    def from_first(self, action: Callable[[], Value]) -> Value:
        """Run an action on rank 0 only. Every rank returns its value, or raises if it failed.

        Raises:
            RunError: on the other ranks, when the action failed on rank 0, where the error itself is raised; if that is
                a `RunError`, one of its kind.
        """
        value: Value | None = None
        failure: Exception | None = None
        if self.rank == 0:
            try:
                value = action()
            except Exception as error:
                failure = error
        kind = type(failure) if isinstance(failure, RunError) else RunError
        value, told = self.broadcast((value, None if failure is None else (kind, f"rank 0 failed: {failure}")))
        if failure is not None:
            raise failure
        if told is not None:
            kind, message = told
            raise kind(message)
        return value


class Run:
    """An open run folder; use it as `with Run.open(...) as run:`.

    Under torchrun every rank opens the run, calls `stage` with the same arguments in the same order, and
    needs the folder on a file system that all share; only rank 0 locks and writes. `Ranks` says what happens
    on a failure.
    """

    def __init__(self, folder: str | Path, method: str, *, ranks: Ranks, stage_caches: Sequence[str | Path]) -> None:
        """Set the run up without locking its folder; use `Run.open` to get a run."""
        self.folder = Path(folder)
        """The run folder."""
        self.method = method
        """Name of the method, for instance `trans-encoder`."""
        self.environment: dict[str, Any] = {}
        """Environment of the run: the content of environment.json."""
        self._ranks = ranks
        self._stage_caches = [Path(stage_cache) for stage_cache in stage_caches]
        self._recipe_hash = ""
        self._lock: int | None = None
        self._records: dict[str, StageRecord] = {}
        self._outputs: Sequence[str] = ()

    @classmethod
    def open(
        cls,
        folder: str | Path,
        recipe_toml: str,
        method: str,
        *,
        details: Mapping[str, object] | None = None,
        outputs: Sequence[str] = (),
        stage_caches: Sequence[str | Path] = (),
        ranks: Ranks = Ranks(),
    ) -> Self:
        """Lock a run folder, which is made if needed, and write its recipe and environment.

        A result of another recipe is moved to `previous` with its outputs. Stages are kept, and those that the new
        recipe shares are reused.

        Args:
            folder: a new or empty folder, or a run folder.
            recipe_toml: the run's whole config as TOML, every default written out.
            method: the method's name.
            details: what else belongs in the environment, for instance the device.
            outputs: files and folders of the run folder that belong to a result, besides its record.
            stage_caches: other run folders, whose finished stages are copied if they have the same key.
            ranks: this process's place among several, and its communication with them.

        Raises:
            RunError: when another process holds the folder, it is no run, its disk is full, or ranks do not share it.
            InputError: when the recipe is not TOML.
        """
        run = cls(folder, method, ranks=ranks, stage_caches=stage_caches)
        run._recipe_hash = run_folder.recipe_hash(method, recipe_toml)
        run._outputs = outputs
        run.environment = ranks.from_first(lambda: run._prepare(recipe_toml, details))
        if apart := [str(rank) for rank, shared in enumerate(ranks.gather(run._is_shared())) if not shared]:
            run.close()
            raise RunError(
                f"{run.folder} is not the same folder for rank {', '.join(apart)} as for rank 0, whose record did not "
                f"show there in {_SEEN_SECONDS:g} s; choose an output folder on a file system that all machines share."
            )
        run_folder.warn_of_absent(run._stage_caches)
        return run

    @classmethod
    def join(
        cls,
        folder: str | Path,
        place: str,
        method: str,
        *,
        details: Mapping[str, object] | None = None,
        stage_caches: Sequence[str | Path] = (),
    ) -> Self:
        """Join a run that another process has open, to compute some of its stages.

        The other process holds the lock and writes the result.

        Args:
            folder: the run folder.
            place: a subfolder that this process locks, so that no other process takes its place.
            method: the method's name.
            details: what else belongs in the environment of these stages.
            stage_caches: other run folders, as for `open`.

        Raises:
            RunError: when another process has locked the subfolder.
        """
        run = cls(folder, method, ranks=Ranks(), stage_caches=stage_caches)
        own = run.folder / place
        own.mkdir(parents=True, exist_ok=True)
        run._lock = run_folder.take_lock(own)
        run.environment = {"method": method, **describe_environment(details)}
        return run

    def stage(
        self,
        name: str,
        *,
        config: Mapping[str, object],
        inputs: Sequence[str] = (),
        compute: Callable[[Path], Mapping[str, Any]],
        can_be_copied: bool = True,
    ) -> StageRecord:
        """Return the record of a stage. Compute the stage if it is not finished or its files have changed.

        Args:
            name: letters, digits, `.`, `_`, `-`, in parts separated by `/`.
            config: all that changes the result; order is irrelevant, NaN is refused.
            inputs: keys of earlier stages and fingerprints of data.
            compute: function that writes its files into the folder that it is given and returns a result that JSON
                can hold. It may be called again on the folder of an interrupted attempt. What it needs to resume goes
                under `checkpoints/`, which is deleted when the stage is finished. Files whose names begin with `.tmp-`
                or end in `.tmp` are not outputs and are deleted too.
            can_be_copied: whether the stage of another run, in a stage cache, may be taken.

        Raises:
            RunError: when the disk is full. Errors of `compute` are passed on; its folder is kept.
        """
        key = stage_key(name, config, inputs)
        folder = self.folder / STAGES_NAME / stage_folder_name(name, key)
        try:
            record = self._ranks.from_first(lambda: self._reuse_or_begin(name, key, folder, can_be_copied))
            if record is None:
                draft = StageRecord(name=name, key=key, folder=folder, started=now(), environment=self.environment)
                asked, begin = plain(config, "config"), time.monotonic()  # before compute might change the config
                result = compute(folder)
                self._ranks.barrier()  # other ranks may still be writing

                def conclude() -> StageRecord:
                    seconds = interrupted_seconds(read_log(self.folder), key) + time.monotonic() - begin
                    done = write_record(
                        replace(draft, result=dict(result), seconds=seconds), config=asked, inputs=inputs
                    )
                    self.log("stage_done", name=name, key=key, seconds=done.seconds)
                    drop_leftovers(folder)
                    return done

                record = self._ranks.from_first(conclude)
        except BaseException as error:
            self._note_failure("stage", error, name=name, key=key)
            raise
        self._records.setdefault(key, record)
        return record

    def adopt(self, name: str, key: str, *, reused: bool) -> StageRecord:
        """Take over a stage that a worker process has finished, after checking every output.

        Args:
            name: The stage's name.
            key: The stage's key.
            reused: Whether the stage was finished before the worker came to it.

        Raises:
            RunError: when the stage is missing, or its files have changed.
        """
        record = read_record(self.folder / STAGES_NAME / stage_folder_name(name, key), key)
        if record is None:
            raise RunError(f"the stage {name} of {self.folder} is gone; run the command again")
        return self._records.setdefault(key, replace(record, reused=reused))

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes: rank 0 under torchrun."""
        return self._ranks.rank == 0

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The stages of this session in order, as result.json lists them: name, key, seconds, reused."""
        return [
            {"name": record.name, "key": record.key, "seconds": record.seconds, "reused": record.reused}
            for record in self._records.values()
        ]

    @property
    def environments(self) -> list[dict[str, Any]]:
        """The environment of each of these stages when it was computed: the content of environment.json at the time."""
        return [record.environment for record in self._records.values()]

    def log(self, event: str, **fields: object) -> None:
        """Append one line to log.jsonl (rank 0 only), of JSON types."""
        if self._lock is not None:
            write_log(self.folder, event, fields)

    def set_outdated_result_aside(self, written: Collection[str] = ()) -> None:
        """Move an earlier result of this recipe, with its outputs, to `previous` if a stage of it has another key now.

        Then data or models have changed since. Every rank calls it before these outputs are overwritten; rank 0 moves.
        Outputs in `written`, which this session has written already, stay.
        """
        self._ranks.from_first(lambda: self._set_outdated_result_aside(written))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json, atomically and last; every rank calls it, rank 0 writes.

        The recipe's hash is added and, unless the result has them, the session's `stages`.

        Raises:
            InputError: when the result holds something that has no JSON form, a NaN for instance.
            RunError: when the disk is full.
        """
        self._ranks.from_first(lambda: self._write_result(result))

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            run_folder.release_lock(self._lock)
        self._lock = None

    def __enter__(self) -> Self:
        """Return the run."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Log the error that ended the block, explain a system error, and release the lock."""
        try:
            if error is not None:
                self._note_failure("run", error)
        finally:
            self.close()

    def _prepare(self, recipe_toml: str, details: Mapping[str, object] | None) -> dict[str, Any]:
        with disk_full_explained(self.folder):
            self._lock = run_folder.take_folder(self.folder)
            try:
                environment = {"method": self.method, **describe_environment(details)}
                run_folder.describe_run(self.folder, recipe_toml, environment, self._outputs)
            except BaseException:
                self.close()
                raise
            return environment

    def _is_shared(self) -> bool:
        """Check whether this rank sees in its folder what rank 0 has just written; NFS shows it with a delay."""
        end = time.monotonic() + _SEEN_SECONDS
        while run_folder.read_environment(self.folder) != self.environment:
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _reuse_or_begin(self, name: str, key: str, folder: Path, can_be_copied: bool) -> StageRecord | None:
        """Return the record of a finished, unchanged stage; otherwise prepare the stage's folder and return None."""
        try:
            record = read_record(folder, key)
        except DamagedError as error:
            _logger.warning("stage %s is done again: %s", name, error)
            self.log("stage_damaged", name=name, key=key, reason=str(error))
            remove_folder(folder)
            record = None
        record = record or (self._borrowed(name, key, folder) if can_be_copied else None)
        if record is None:
            make_folder(folder)
            self.log("stage_started", name=name, key=key)
            return None
        drop_leftovers(folder)
        self.log("stage_reused", name=name, key=key)
        return record

    def _borrowed(self, name: str, key: str, folder: Path) -> StageRecord | None:
        """Copy a stage from the first stage cache that has it, and return its record; None if none has it."""
        for stage_cache in self._stage_caches:
            record = copy_finished(stage_cache / STAGES_NAME / folder.name, folder, key)
            if record is not None:
                self.log("stage_borrowed", name=name, key=key, stage_cache=str(stage_cache))
                return record
        return None

    def _set_outdated_result_aside(self, written: Collection[str]) -> None:
        before = run_folder.read_result(self.folder, expected_hash=self._recipe_hash)
        keys = {record.name: record.key for record in self._records.values()}
        stages = before["stages"] if before else []
        changed = [each["name"] for each in stages if keys.get(each["name"], each["key"]) != each["key"]]
        if changed:
            reason = f"is of other data or models (the stage {changed[0]} is another now)"
            outputs = [name for name in self._outputs if name not in written]
            run_folder.set_result_aside(self.folder, outputs, reason)

    def _write_result(self, result: Mapping[str, Any]) -> None:
        content = {"format": 2, "stages": self.stages, **result, "recipe_sha256": self._recipe_hash}
        write_checked_json(self.folder / run_folder.RESULT_NAME, content)
        self._log_quietly("run_finished")

    def _note_failure(self, scope: str, error: BaseException, **fields: object) -> None:
        """Log a failure or a Ctrl-C, which the caller raises again; raise an explanation of a system error instead."""
        ending = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        explained = system_error(error, self.folder)
        self._log_quietly(f"{scope}_{ending}", **fields, error=repr(explained or error))
        if explained is not None:
            raise explained from error

    def _log_quietly(self, event: str, **fields: object) -> None:
        """Log an event; if that fails, for instance on a full disk, only warn, so as not to hide another error."""
        try:
            self.log(event, **fields)
        except (OSError, RunError) as error:
            _logger.warning("%s could not be logged in %s: %s", event, self.folder, error)
