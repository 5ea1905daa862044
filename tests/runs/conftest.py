import subprocess
import sys

import pytest

from transencoder.runs import Run

RECIPE = 'method = "trans-encoder"\nseed = 1\n'


@pytest.fixture
def open_run(tmp_path):
    """Opens the run folder `tmp_path / "run"`; the recipe's text may be given."""
    return lambda recipe=RECIPE, **options: Run.open(tmp_path / "run", recipe, "trans-encoder", **options)


@pytest.fixture
def run_stage(open_run):
    """Computes the stage `a` in the run folder, or finds it there, and returns its record."""

    def make(compute):
        with open_run() as run:
            return run.stage("a", config={}, compute=compute)

    return make


@pytest.fixture
def write_number():
    """Makes a compute that writes a number into a file and counts its calls in its attribute `calls`."""

    def make(number):
        def compute(folder):
            compute.calls += 1
            (folder / "model").mkdir(exist_ok=True)
            (folder / "model" / "weights.bin").write_bytes(bytes([number]) * 1000)
            return {"number": number}

        compute.calls = 0
        return compute

    return make


@pytest.fixture
def start_child():
    """Starts Python on a piece of code in a process that is killed when the test ends."""
    children = []

    def start(code, *arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()
