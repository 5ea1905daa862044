"""Progress goes to the one who shows it; the Python API shows its own bars and hides those of other libraries."""

import io
from contextlib import nullcontext, redirect_stderr

import datasets.utils
import pytest
from transformers.utils import logging as of_transformers

import transencoder
from transencoder import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _others_are_shown():
    of_transformers.enable_progress_bar()
    datasets.utils.enable_progress_bars()


def are_others_shown():
    return of_transformers.is_progress_bar_enabled(), not datasets.utils.are_progress_bars_disabled()


def test_progress_is_told_to_nobody_by_default_and_to_the_one_in_use():
    told = []

    def record(description, total):
        told.append((description, total))
        return nullcontext(told.append)

    with progress.task("nothing", 3) as advance:
        advance(3)
    with progress.use(record), progress.shown(), progress.task("a", total=2) as advance:
        advance(2)
    assert told == [("a", 2), 2]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_first_process_shows_bars_and_hides_those_of_others(rank, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    with redirect_stderr(Terminal()) as terminal, progress.shown():
        assert are_others_shown() == (False, False)
        with progress.shown(), progress.task("label pairs", total=4) as advance:
            advance(4)
    assert are_others_shown() == (True, True)
    assert ("label pairs" in terminal.getvalue()) == (rank == "0")


def test_scores_in_python_show_only_our_own_bars(tiny_bi_encoder):
    with redirect_stderr(Terminal()) as terminal:
        transencoder.score(tiny_bi_encoder, [("balo", "bama")])
    shown = terminal.getvalue()
    assert "tokenise" in shown and "Loading weights" not in shown and "Batches" not in shown


@pytest.mark.parametrize("rank", ["0", "1"])
def test_where_nobody_watches_the_first_process_writes_lines(rank, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with redirect_stderr(io.StringIO()) as file, progress.shown(), progress.task("label pairs", total=4) as advance:
        advance(1)
    assert file.getvalue().startswith("label pairs: 1 of 4, about ") == (rank == "0")
