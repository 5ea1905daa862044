"""A few damages of the benchmark: no traceback, and no other result without a word."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "damage.py"


@pytest.mark.slow
def test_no_damage_goes_unsaid(tmp_path):
    command = [sys.executable, BENCHMARK, "--damages", "6", "--processes", "1", "--output", tmp_path / "damage.md"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| finished run | `train` |" in (tmp_path / "damage.md").read_text()
