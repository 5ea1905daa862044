import logging
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from transencoder import progress
from transencoder.errors import InputError, RunError

TRAIN = ("train", "trans-encoder", "--pairs", "a.tsv", "--start", "x", "--output", "runs/mine")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("a.tsv:3: [red]bad[/red]"), 2, "transencoder: a.tsv:3: [red]bad[/red]\n"),
        (RunError("locked"), 3, "transencoder: locked\n"),
        (KeyboardInterrupt(), 130, "nothing is left half done: run the same command again\n"),
    ],
)
def test_an_error_is_one_line_and_a_code(error, code, message, run, training):
    def fail(config, recipe=None):
        raise error

    training.train = fail
    found, out, err = run(*TRAIN)
    assert (found, out) == (code, "")
    assert err.endswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize("typed", ["begun", "$RUNS/begun"])
def test_a_run_stopped_by_ctrl_c_says_where_it_goes_on(typed, run, training, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS", str(tmp_path))

    def stop(config, recipe=None):
        (tmp_path / "begun").mkdir()
        raise KeyboardInterrupt

    training.train = stop
    code, _, err = run(*TRAIN[:-1], typed if "$" in typed else str(tmp_path / typed))
    assert code == 130
    assert err == f"transencoder: stopped by Ctrl-C; run the same command again: it goes on from {tmp_path / 'begun'}\n"


def test_an_unexpected_error_shows_where_it_happened(run, training):
    def fail(config, recipe=None):
        raise ZeroDivisionError("oh")

    training.train = fail
    code, _, err = run(*TRAIN)
    assert code == 1
    assert "Traceback" in err
    assert "ZeroDivisionError: oh" in err
    assert "mistake of transencoder" in err


def test_a_dry_run_stopped_by_ctrl_c_promises_no_run(run, training):
    def stop(config, known):
        raise KeyboardInterrupt

    training.plan = stop
    code, _, err = run(*TRAIN, "--dry-run")
    assert code == 130
    assert "goes on from" not in err


@pytest.mark.parametrize("typed", [(), ("trian",), ("train",), ("train", "simce"), ("runs", "lst"), ("score", "x")])
def test_a_command_that_is_not_there_or_not_whole_is_code_2(typed, run):
    code, out, err = run(*typed)
    assert (code, out) == (2, "")
    assert "usage: transencoder" in err


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        (None, {"warning", "info"}),
        ("--quiet", {"warning"}),
        ("--verbose", {"warning", "info", "debug", "other"}),
    ],
)
def test_logs_go_to_stderr_as_much_as_asked(option, shown, run, training):
    def log(config, recipe=None):
        logging.getLogger("transencoder.fit").debug("say debug")
        logging.getLogger("transencoder.fit").info("say info")
        logging.getLogger("transencoder.fit").warning("say warning")
        logging.getLogger("urllib3").info("say other")
        raise InputError("end")

    training.train = log
    _, _, err = run(*TRAIN, *([option] if option else []))
    assert {word for word in ("warning", "info", "debug", "other") if f"say {word}" in err} == shown


def test_progress_without_a_terminal_is_a_line_now_and_then(run, training, monkeypatch):
    monkeypatch.setattr("transencoder.progress._SECONDS_BETWEEN_LINES", 0.0)

    def work(config, recipe=None):
        with progress.task("label pairs", total=4) as advance:
            advance(1)
            advance(3)
        raise InputError("end")

    training.train = work
    _, _, err = run(*TRAIN)
    assert "label pairs: 1 of 4, about" in err
    assert err.count("label pairs") == 1
    assert "label pairs" not in run(*TRAIN, "--quiet")[2]


def test_progress_is_told_to_nobody_by_default_and_to_the_one_in_use():
    told = []

    def record(description, total):
        told.append((description, total))
        return nullcontext(told.append)

    with progress.task("nothing", 3) as advance:
        advance(3)
    with progress.use(record), progress.task("a", total=2) as advance:
        advance(2)
    assert told == [("a", 2), 2]


@pytest.mark.parametrize("typed", [("recipes", "show", "minilm-sts"), ("--version",)])
def test_a_reader_that_has_seen_enough_is_no_error(typed):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        command = [sys.executable, "-m", "transencoder", *typed]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 120)  # 120: Python could not flush what argparse printed
