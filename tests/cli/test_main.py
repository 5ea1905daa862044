"""What every command has in common: its help, its exit codes, what it logs and shows."""

import argparse
import errno
import io
import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table

from transencoder import progress
from transencoder.cli import _parser, main, recipes, terminal
from transencoder.cli.files import write_table
from transencoder.errors import InputError, RunError
from transencoder.methods import METHODS
from transencoder.settings import help_of, nested_settings, plain_help, settings_of

HEAVY = "torch sentence_transformers transformers datasets pyarrow pandas scipy sklearn matplotlib faiss bm25s".split()


def commands(parser=None, words=()):
    parser = parser or _parser()
    yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, (*words, name))


def test_all_commands_are_there():
    groups = {
        "": "train evaluate grade score label search duplicates pairs mine views truncate weight export push recipes runs "
        "report results demo completion",
        "train ": "trans-encoder simcse mirror-bert contrastive-tension declutr mlm diffcse dclr sct congen ckd dvbert "
        "embedding-mse",
        "search ": "build query evaluate",
        "recipes ": "list show run",
        "runs ": "list clean",
    }
    expected = {group + name for group, names in groups.items() for name in names.split()}
    assert {" ".join(words) for words in commands() if words} == expected


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_says_what_each_option_is(words, run):
    code, out, err = run(*words, "--help")
    assert (code, err) == (0, "")
    parser = _parser()
    for word in words:
        parser = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices[word]
    assert parser.description
    for action in parser._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action.option_strings


@pytest.mark.parametrize("method", METHODS)
def test_every_field_of_a_method_is_a_flag_with_its_docstring_as_help_and_its_default(method, run):
    _, out, _ = run("train", method, "--help-all")
    lists = [each for each in settings_of(METHODS[method]).values() if each.is_nested and each.is_list]
    inner = {name: setting for each in lists for name, setting in settings_of(each.kind).items()}
    for name, setting in (nested_settings(METHODS[method]) | inner).items():
        assert f"--{name.replace('_', '-')}" in out
        assert setting.help
        assert help_of(setting) in out, name
    assert "(default: auto)" in out
    assert "(required)" in out or method == "trans-encoder"
    assert not re.search(r"\bTable \d|[Rr]eleased code:", out)


def test_short_help_has_what_is_required_examples_and_the_flags_that_people_change(done):
    out = done("train", "--help")
    assert out.startswith("usage: transencoder train [trans-encoder] (--sentences FILE | --pairs FILE) [SETTING ...]")
    assert "transencoder train --sentences sentences.txt" in out and "--help-all" in out
    flags = set(re.findall(r"^  (--[a-z.-]+)", out, re.M)) - {"--verbose", "--quiet", "--recipe", "--set", "--dry-run"}
    assert {"--sentences", "--start", "--budget", "--preset", "--output", "--dev"} <= flags and len(flags) < 17
    everything = done("train", "--help-all")
    assert "--bi.epochs N, --cross.epochs N" in everything and "(default: bi 10, cross 1)" in everything


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Peak rate. Paper, Table 16: 2e-5. None: own.", "Peak rate. None: own."),
        ("Tokens of a pair (Table 16: 64), or (long) more.", "Tokens of a pair, or (long) more."),
        ("Share of 0.5 (paper: 0.05).", "Share of 0.5."),
        ("Table 16's.", "Table 16's."),
        ("Peak rate (papers). Papers: 1. Cut (GradCache, Gao et al., 2021).", "Peak rate. Cut."),
        ("Values of `standard`. Default: `paper`.", "Values of `standard`. Default: `paper`."),
    ],
)
def test_help_leaves_papers_to_the_docs(text, plain):
    assert plain_help(text) == plain


@pytest.mark.parametrize(
    ("default", "help_text", "shown"),
    [
        (None, "Rate; None: own.", "Rate; default: own."),
        (None, "None: the own rate. Else this.", "Default: the own rate. Else this."),
        ((), "Names. None: all.", "Names. Default: all."),
        ("mean", "Pooling. None: own; None: ours.", "Pooling. `none`: own; `none`: ours."),
    ],
)
def test_help_says_default_where_python_says_none(default, help_text, shown):
    setting = next(iter(settings_of(METHODS["simcse"]).values()))
    assert help_of(replace(setting, default=default, help=help_text)) == shown


def test_every_default_stands_in_the_help_as_it_is_typed(done):
    everything = done("train", "--help-all")
    assert "(default: 0.0 1.0)" in everything and "(default: 2021)" in everything
    assert "default: none)" not in everything and "(default: ()" not in everything


def test_completion_is_of_all_commands(run, monkeypatch):
    seen = SimpleNamespace(complete=lambda parser, shell: f"{shell} completes {parser.prog}")
    monkeypatch.setitem(sys.modules, "shtab", seen)
    assert run("completion", "zsh")[1] == "zsh completes transencoder\n"
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install shtab" in run("completion", "bash")[2]


def test_prose_wraps_at_words_on_a_terminal_and_data_do_not(monkeypatch, capsys):
    console = Console(force_terminal=True, width=20, color_system=None)
    monkeypatch.setattr(terminal, "_console", lambda *, is_stderr: console)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    terminal.show("a sentence of more than twenty")
    terminal.show("a,row,of,data,longer,than,twenty", as_it_is=True)
    assert capsys.readouterr().out == "a sentence of more \nthan twenty\na,row,of,data,longer,than,twenty\n"


def test_help_and_recipes_import_nothing_heavy():
    calls = [[*words, "--help"] for words in commands()]
    calls += [["recipes", "list"], ["recipes", "show", "minilm-sts", "--full"]]
    code = f"""
import sys
from transencoder.cli import main
for call in {calls!r}:
    assert main(call) == 0, call
assert not set({HEAVY!r}) & set(sys.modules), set({HEAVY!r}) & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "transencoder", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:13]) == (0, "transencoder ")


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


TRAIN = ("train", "trans-encoder", "--pairs", "a.tsv", "--start", "x", "--output", "runs/mine")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("a.tsv:3: [red]bad[/red]"), 2, "transencoder: a.tsv:3: [red]bad[/red]\n"),
        (RunError("locked"), 3, "transencoder: locked\n"),
        (OSError(errno.EMFILE, "Too many open files"), 3, "run the same command again.\n"),
        (KeyboardInterrupt(), 130, "nothing is left half done: run the same command again\n"),
    ],
)
def test_an_error_is_one_line_and_a_code(error, code, message, run, training):
    training.train = failing(error)
    found, out, err = run(*TRAIN)
    assert (found, out) == (code, "")
    assert err.endswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("typed", ["begun", "$RUNS/begun"])
def test_a_run_that_is_stopped_says_where_it_goes_on(sent, typed, run, training, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS", str(tmp_path))

    def stop(config, recipe=None):
        (tmp_path / "begun").mkdir()
        signal.raise_signal(sent)

    training.train = stop
    code, _, err = run(*TRAIN[:-1], typed if "$" in typed else str(tmp_path / typed))
    assert code == 130
    assert err == f"transencoder: stopped; run the same command again: it goes on from {tmp_path / 'begun'}\n"


def test_an_unexpected_error_shows_where_it_happened(run, training):
    training.train = failing(ZeroDivisionError("oh"))
    code, _, err = run(*TRAIN)
    assert code == 1
    assert all(text in err for text in ("Traceback", "ZeroDivisionError: oh", "bug in transencoder"))


def test_a_dry_run_stopped_by_ctrl_c_promises_no_run(run, training):
    training.plan = failing(KeyboardInterrupt())
    code, _, err = run(*TRAIN, "--dry-run")
    assert code == 130 and "goes on from" not in err


@pytest.mark.parametrize("typed", [(), ("trian",), ("train", "simce"), ("runs", "lst"), ("score", "x")])
def test_a_command_that_is_not_there_or_not_whole_is_code_2(typed, refused):
    refused("usage: transencoder", *typed)


@pytest.mark.parametrize(
    ("option", "shown"),
    [("", {"warning", "info"}), ("--quiet", {"warning"}), ("--verbose", {"warning", "info", "debug", "other"})],
)
def test_logs_go_to_stderr_as_much_as_asked(option, shown, run, training):
    def log(config, recipe=None):
        logging.getLogger("transencoder.fit").debug("say debug")
        logging.getLogger("transencoder.fit").info("say info")
        logging.getLogger("transencoder.fit").warning("say warning")
        logging.getLogger("urllib3").info("say other")
        raise InputError("end")

    training.train = log
    _, _, err = run(*TRAIN, *option.split())
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


@pytest.mark.parametrize("typed", [("recipes", "show", "minilm-sts"), ("--version",)])
def test_a_reader_that_has_seen_enough_is_no_error(typed):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        command = [sys.executable, "-m", "transencoder", *typed]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_broken_pipe_is_an_error(run, training):
    """Was: a training whose tracker or worker had died ended without a word and with 0."""
    training.train = failing(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    code, _, err = run(*TRAIN)
    assert code == 1 and "BrokenPipeError" in err


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_is_closed_is_not_written_to(closed):
    command = f"{sys.executable} -m transencoder recipes list {closed}>&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_bars_that_an_error_leaves_are_gone_before_it_is_said(monkeypatch, capsys):
    """Was: they were erased later, and the lines of the error with them."""
    console = Console(force_terminal=True, force_interactive=True, width=80, stderr=True)
    monkeypatch.setattr(terminal, "_console", lambda *, is_stderr: console)
    left = []
    with terminal.session(is_verbose=False, is_quiet=False):
        left.append(progress.task("train", 10))
        left[0].__enter__()
        assert console._live_stack
    assert not console._live_stack
    said = capsys.readouterr().err
    left[0].__exit__(None, None, None)
    assert "train" in said and "\x1b[1A" not in capsys.readouterr().err, "no line above is erased"


@pytest.mark.parametrize("typed", [("recipes", "show", "minilm-sts"), ("--help",)])
def test_a_full_disk_is_said_where_it_is_stdouts(typed):
    command = [sys.executable, "-m", "transencoder", *typed]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 3
    assert done.stderr.startswith("transencoder: no space is left") and done.stderr.count("\n") == 1


def test_a_terminal_of_few_characters_shows_the_others_escaped_and_rows_stay_utf_8(monkeypatch):
    bytes_shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_shown, encoding="ascii"))
    monkeypatch.setattr(terminal, "session", lambda **_: nullcontext())
    monkeypatch.setattr(recipes.ListRecipes, "__call__", lambda self: terminal.show("é"))
    assert main(["recipes", "list"]) == 0
    monkeypatch.setattr(recipes.ListRecipes, "__call__", lambda self: write_table(["text"], [("é",)], "-"))
    assert main(["recipes", "list"]) == 0
    assert bytes_shown.getvalue() == b"\\xe9\ntext\n" + "é\n".encode()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("s3://bucket/run", "output is 's3://bucket/run'; it is written on this machine"),
        (os.fsdecode(b"run-\xff"), r"'run-\udcff' is not UTF-8"),
    ],
)
@pytest.mark.parametrize("typed", [TRAIN[:-1], ("demo", "--output"), ("results", "run", "--output")], ids="-".join)
def test_what_cannot_be_a_file_here_is_refused_as_output(typed, output, message, refused, tmp_path):
    refused(message, *typed, output)
    assert list(tmp_path.iterdir()) == []


HOSTILE, SHOWN = "\x1b]0;owned\x9b31m\u202e[red]:x:[/z]", r"\x1b]0;owned\x9b31m\u202e[red]:x:[/z]"


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, SHOWN), (False, HOSTILE)])
def test_texts_are_exact_in_files_and_act_on_no_terminal(is_terminal, shown, run, training, monkeypatch):
    """Was: names and sentences went to the terminal as they are, and a Table took `[/z]` for markup."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)

    def say(config, recipe=None):
        logging.getLogger("transencoder").warning(HOSTILE)
        write_table(("text",), [(HOSTILE,)], "-")
        terminal.show(HOSTILE)
        terminal.show(Table(HOSTILE, caption=HOSTILE))
        raise InputError(HOSTILE)

    training.train = say
    _, out, err = run(*TRAIN)
    data, text = out.splitlines()[1:3]
    assert data == text == shown and out.count(SHOWN) == 2 + 2 * is_terminal and err.count(SHOWN) == 2


def test_a_line_says_stage_loss_and_the_time_of_later_stages(caplog, monkeypatch):
    monkeypatch.setattr("transencoder.progress._SECONDS_BETWEEN_LINES", 0.0)
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("transencoder.progress.time.monotonic", lambda: float(next(clock)))
    caplog.set_level("INFO")
    run = progress.Run({"a": 1.0, "b": 2.0, "c": 3.0})
    with run.stage("a", "start-scores"):
        pass
    with run.stage("b", "cycle-1/cross-encoder"), progress.use(progress.lines), progress.task("train", 4) as advance:
        progress.tell("loss 0.25")
        advance(1)
        progress.tell("")
        assert (
            "train; stage 2 of 3, cycle-1/cross-encoder; later stages 30.0 s; loss 0.25: 1 of 4, about" in caplog.text
        )
    with run.stage("c", "cycle-1/bi-encoder"):
        assert str(run) == "stage 3 of 3, cycle-1/bi-encoder", "no stage is later than the last"


def test_bars_show_the_time_left_and_vanish():
    stream = io.StringIO()
    bars = terminal._Bars(Console(file=stream, force_terminal=True, width=100))
    with bars.show("label pairs", 10) as advance, bars.show("encode sentences", 4) as inner:
        advance(5)
        inner(4)
        assert bars._bars.live.is_started
    assert not bars._bars.live.is_started
    assert "label pairs" in stream.getvalue()
    assert "0:00:00" in stream.getvalue()


def test_other_libraries_are_quiet_unless_asked_or_set_otherwise(monkeypatch):
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS", raising=False)
    with terminal.session(is_verbose=False, is_quiet=False):
        assert os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
        assert os.environ["TRANSFORMERS_VERBOSITY"] == "info"
    assert "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ
    with terminal.session(is_verbose=True, is_quiet=False):
        assert "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ


def test_an_option_before_the_command_is_told_where_it_belongs(run):
    """Was: "--quiet is not an option of transencoder evaluate; the nearest is --quiet"."""
    code, _, err = run("--quiet", "evaluate", "minilm", "--tasks", "stsb")
    assert code == 2
    assert "--quiet is before the command; put it after transencoder evaluate" in err
