import errno
import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from transencoder.errors import InputError, RunError
from transencoder.runs import Run, atomic_write_bytes, read_log
from transencoder.runs.files import output_explained, system_error

RECIPE = "seed = 1\n"


def raise_enospc(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def failing_from(call, nth):
    """Make a system call that works until its n-th use and finds the disk full from then on."""
    uses = count(1)
    return lambda *arguments: call(*arguments) if next(uses) < nth else raise_enospc()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_at_any_moment_is_explained_and_the_same_command_goes_on(tmp_path, monkeypatch, write_number, call):
    def train(folder: Path) -> None:
        with Run.open(folder, RECIPE, "test") as run:
            record = run.stage("a", config={}, compute=write_number(1))
            run.stage("b", config={}, inputs=[record.key], compute=write_number(2))
            run.finish({})

    def fails_at(nth: int) -> bool:
        folder = tmp_path / str(nth)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing_from(getattr(os, call), nth))
            try:
                train(folder)
                return False
            except RunError as error:
                assert f"no space is left for {folder}" in str(error)
                assert "MiB free" in str(error) and "run the same command again" in str(error)
        assert not (folder / "result.json").exists() or call == "fsync"  # replaced, its folder's fsync to come
        train(folder)
        return True

    n_failures = next(nth for nth in range(1, 100) if not fails_at(nth)) - 1
    assert n_failures >= 5


def test_an_output_that_cannot_be_written_is_told_from_other_files(tmp_path):
    output = tmp_path / "new" / "scores.tsv"

    def fail(error):
        with output_explained(output):
            raise error

    for named in (None, str(output), str(output.parent / ".tmp-transencoder-a" / "x"), str(tmp_path)):
        with pytest.raises(InputError, match="scores.tsv cannot be written .*Choose another --output"):
            fail(PermissionError(errno.EACCES, "Permission denied", named))
    for other in (tmp_path / "other" / "x", output.parent / "model" / "config.json"):
        with pytest.raises(PermissionError):
            fail(PermissionError(errno.EACCES, "Permission denied", str(other)))
    with pytest.raises(RunError, match="no space is left for .*/other"):
        (tmp_path / "other").mkdir()
        fail(OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "other" / "x")))


def test_what_was_finished_before_the_disk_was_full_is_kept(open_run, write_number):
    first, second = write_number(1), write_number(2)
    with pytest.raises(RunError, match="no space is left"), open_run() as run:
        run.stage("a", config={}, compute=first)
        run.stage("b", config={}, compute=raise_enospc)
    assert [entry["event"] for entry in read_log(run.folder)][-2:] == ["stage_failed", "run_failed"]
    with open_run() as run:
        assert run.stage("a", config={}, compute=first).reused
        assert not run.stage("b", config={}, compute=second).reused
    assert first.calls == second.calls == 1


def test_a_full_disk_between_stages_is_explained_and_other_errors_pass_through(open_run):
    with pytest.raises(RunError, match="no space is left"), open_run():
        raise_enospc()
    with pytest.raises(FileNotFoundError), open_run() as run:
        run.stage("a", config={}, compute=lambda folder: {"text": (folder / "absent").read_text()})


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_full_disks_of_other_libraries_are_known(tmp_path, error):
    assert isinstance(system_error(error, tmp_path), RunError)
    wrapped = ValueError("saving failed")
    wrapped.__cause__ = error
    assert isinstance(system_error(wrapped, tmp_path), RunError)
    assert system_error(RunError(str(error)), tmp_path) is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EIO, "Input/output error", "run/a"), "Input/output error: 'run/a': the disk, or the network"),
        (OSError(errno.EMFILE, "Too many open files"), "`ulimit -n`"),
        (OSError(errno.EFBIG, "File too large"), "`ulimit -f`"),
        (OSError(errno.EROFS, "Read-only file system", "run/a"), "the file system is read-only"),
        (RuntimeError("Error while serializing: I/O error: File too large (os error 27)"), "`ulimit -f`"),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), "a quota"),
        (OSError("3000000 requested and 1048544 written"), "a quota"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:5"), "another process"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), "smaller batches"),
        (shutil.Error([("a", "b", "[Errno 5] Input/output error: 'run/b'")]), "'run/b': the disk, or the network"),
        (MemoryError(), "MemoryError: memory is short"),
        (FileNotFoundError(errno.ENOENT, "No such file", "run/a"), None),
        (ValueError("out of memory"), None),
    ],
)
def test_what_the_system_refuses_is_one_line_and_a_mistake_of_ours_is_none(tmp_path, error, message):
    found = [system_error(error, tmp_path), system_error(error)]
    if message is None:
        assert found == [None, None]
    for each in found if message else ():
        assert message in str(each) and "run the same command again" in str(each) and "\n" not in str(each)


def test_the_folder_of_the_failing_file_is_named(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    error = OSError(errno.ENOSPC, "No space left on device", str(cache / "file"))
    assert f"left for {cache} (" in str(system_error(error, tmp_path / "run"))


def test_a_failed_atomic_write_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    atomic_write_bytes(tmp_path / "file", b"old")
    with monkeypatch.context() as patch, pytest.raises(RunError, match="no space"):
        patch.setattr(os, "fsync", raise_enospc)
        atomic_write_bytes(tmp_path / "file", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_a_small_file_system_that_fills_up(small_disk: Path):
    def compute(folder):
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        for step in range(len(list(checkpoints.glob("step-*"))), 8):
            atomic_write_bytes(checkpoints / f"step-{step}", bytes(100_000))
            steps.append(step)
        (folder / "weights.bin").write_bytes(bytes(100_000))
        return {}

    steps: list[int] = []
    (small_disk / "filler").write_bytes(bytes(3_600_000))
    with pytest.raises(RunError) as failure, Run.open(small_disk / "run", RECIPE, "test") as run:
        run.stage("a", config={}, compute=compute)
    assert str(small_disk / "run") in str(failure.value) and "run the same command again" in str(failure.value)
    with (
        pytest.raises(RunError, match="no space is left"),
        Run.open(small_disk / "run", RECIPE, "test") as run,
    ):
        run.stage("a", config={}, compute=compute)
    (small_disk / "filler").unlink()
    with Run.open(small_disk / "run", RECIPE, "test") as run:
        record = run.stage("a", config={}, compute=compute)
        run.finish({})
    assert steps == list(range(8))  # no step twice
    assert record.outputs["weights.bin"]["size"] == 100_000
