import os
import signal
import socket
import threading

import pytest

from transencoder.errors import RunError
from transencoder.runs import clean_run, list_runs, wait_until_free

HOLDER = """
import os, sys, time
from transencoder.runs import Run
run = Run.open(sys.argv[1], "method = 'trans-encoder'\\nseed = 1\\n", "trans-encoder")
child = os.fork() if sys.argv[2] == "fork" else 0
if sys.argv[2] == "fork" and child == 0:
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_killed_one_leaves_nothing(tmp_path, start_child, open_run):
    child = start_child(HOLDER, tmp_path / "run", "alone")
    child.stdout.readline()
    with pytest.raises(RunError) as refusal:
        open_run()
    assert f"process {child.pid} on {socket.gethostname()} since 20" in str(refusal.value)
    assert "choose another output folder" in str(refusal.value)
    assert [run.state for run in list_runs(tmp_path)] == ["running"]
    with pytest.raises(RunError, match="in use"):
        clean_run(tmp_path / "run", everything=True, dry_run=True)
    child.kill()
    child.wait()
    assert [run.state for run in list_runs(tmp_path)] == ["unfinished"]
    open_run().close()


def test_a_forked_worker_does_not_keep_the_lock_of_a_killed_process(tmp_path, start_child, open_run):
    child = start_child(HOLDER, tmp_path / "run", "fork")
    worker = int(child.stdout.readline())
    try:
        with pytest.raises(RunError, match=f"process {child.pid} "):
            open_run()
        child.kill()
        child.wait()
        os.kill(worker, 0)  # it lives
        open_run().close()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_who_waits_goes_on_when_the_other_process_ends(tmp_path, start_child, open_run):
    child = start_child(HOLDER, tmp_path / "run", "alone")
    child.stdout.readline()
    waiting = threading.Thread(target=wait_until_free, args=[tmp_path / "run"])
    waiting.start()
    waiting.join(0.7)
    assert waiting.is_alive()
    child.kill()
    child.wait()
    waiting.join(10)
    assert not waiting.is_alive()
    open_run().close()


def test_the_same_process_is_refused_too_until_it_closes(open_run):
    with open_run():
        with pytest.raises(RunError, match=f"process {os.getpid()} "):
            open_run()
    open_run().close()


def test_the_lock_is_given_back_when_opening_fails(open_run, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("no")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="no"):
        patch.setattr("transencoder.runs.folder.write_checked_json", fail)
        open_run()
    open_run().close()


def test_a_run_that_was_killed_while_it_was_made_opens_again(tmp_path, open_run):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".tmp-environment.json-1234").touch()
    open_run().close()
    (tmp_path / "run" / "tokens" / ".tmp-sentences-1234").mkdir(parents=True)
    open_run().close()
    assert not list((tmp_path / "run").rglob(".tmp-*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path, open_run):
    (tmp_path / "run").mkdir(mode=0o500)
    with pytest.raises(RunError, match="cannot be written"):
        open_run()
