import io
import os

import pytest
from rich.console import Console

from transencoder.cli import terminal


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


@pytest.mark.parametrize(("n_bytes", "shown"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2 * 10**9, "2.0 GB")])
def test_sizes_are_shown_in_the_unit_that_fits(n_bytes, shown):
    assert terminal.size(n_bytes) == shown


def test_other_libraries_are_quiet_unless_asked_or_set_otherwise(monkeypatch):
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS", raising=False)
    with terminal.session(is_verbose=False, is_quiet=False):
        assert os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
        assert os.environ["TRANSFORMERS_VERBOSITY"] == "info"
    assert "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ
    with terminal.session(is_verbose=True, is_quiet=False):
        assert "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ
