"""Files and folders come whole under their names, or not at all."""

import os
import signal
import subprocess
import sys

import pytest

from transencoder import files
from transencoder.files import make_folder, scratch_folder, whole_file, whole_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_replaces_the_old_one_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with whole_file(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and names(tmp_path) == ["a.txt"]


def test_a_folder_gets_its_name_when_it_is_complete_and_never_over_another(tmp_path):
    for number in range(2):
        with whole_folder(tmp_path / str(number)) as draft:
            (draft / "in").mkdir()
            (draft / "in" / "x").write_text("x")
            assert not (tmp_path / str(number)).exists()
    assert names(tmp_path) == ["0", "1"] and (tmp_path / "0" / "in" / "x").read_text() == "x"
    with pytest.raises(OSError, match="not empty"), whole_folder(tmp_path / "0") as draft:
        (draft / "y").write_text("y")
    assert names(tmp_path) == ["0", "1"] and names(tmp_path / "0") == ["in"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    """Was: stopped between the two moves, neither the old nor the new one was left."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").touch()
    replace = os.replace

    def stopped(source, path):
        if path == tmp_path / "a" and not (source / "old").exists():
            raise KeyboardInterrupt
        replace(source, path)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "a", replaces=True) as draft:
        (draft / "new").touch()
    assert names(tmp_path / "a") == ["old"]


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_an_error_leaves_nothing(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt), whole(tmp_path / "a") as draft:
        (draft if whole is whole_file else draft / "x").write_text("a part")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(files, "sync", lambda path: events.append(path.name))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda draft, path: events.append("named") or replace(draft, path))
    with whole_folder(tmp_path / "a") as draft:
        (draft / "x").write_text("x")
    assert events == ["x", draft.name, "named", tmp_path.name]


@pytest.mark.parametrize("whole", [scratch_folder, whole_file, whole_folder])
def test_what_a_killed_process_left_goes_with_the_next_use(whole, tmp_path):
    in_use = "from transencoder.files import scratch_folder; from pathlib import Path; import sys, time\n"
    in_use += "with scratch_folder(Path(sys.argv[1])) as f: (f / 'x').touch(); print(f, flush=True); time.sleep(60)"
    command = [sys.executable, "-c", in_use, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        left = process.stdout.readline().strip()
        with scratch_folder(tmp_path):
            assert os.path.exists(f"{left}/x")
        process.send_signal(signal.SIGKILL)
    assert os.path.exists(f"{left}/x")
    with whole(tmp_path / "a" if whole is not scratch_folder else tmp_path) as draft:
        assert not os.path.exists(left)
        if whole is whole_file:
            draft.touch()


def test_the_names_of_new_folders_are_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync", synced.append)
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"] and (tmp_path / "a" / "b").is_dir()
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_folder_keeps_its_name_until_the_one_in_its_place_is_on_the_disk(tmp_path, monkeypatch):
    there, sync = [], files.sync
    monkeypatch.setattr(files, "sync", lambda path: there.append((tmp_path / "a").exists()) or sync(path))
    for number in range(2):
        with whole_folder(tmp_path / "a", replaces=True) as draft:
            (draft / str(number)).touch()
    assert there == [False, False, True] + [True] * 3 and names(tmp_path / "a") == ["1"] and names(tmp_path) == ["a"]
