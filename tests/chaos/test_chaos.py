"""A sample of what `benchmarks/chaos.py` does: commands crash, are run again, and leave the same bytes and nothing else."""

import sys
from dataclasses import replace

import pytest

from tests.chaos.commands import COMMANDS, write_given
from tests.chaos.walk import Walk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="crashes are recorded on Linux only")


@pytest.fixture(scope="module")
def given(tmp_path_factory, tiny_plm):
    """Folder of what the commands read; with a tiny model what was imported is set aside, and a fork is quick."""
    folder = tmp_path_factory.mktemp("given")
    write_given(folder)
    return folder


@pytest.fixture
def walk(given, tmp_path):
    """Makes the walk through a command, given by its name; training has one cycle."""

    def make(name):
        command = COMMANDS[name]
        return Walk(replace(command, argv=command.argv.replace("--cycles 2", "--cycles 1")), given, tmp_path)

    return make


@pytest.mark.parametrize(
    ("name", "n_tried"), [("self", 2), ("search build", 2), ("mine", 2), ("score", 2), ("truncate", 3)]
)
def test_a_command_that_crashed_anywhere_goes_on_to_the_same_bytes(walk, name, n_tried):
    walked = walk(name)
    crashes = walked.record()
    sample = [*crashes[:: len(crashes) // n_tried], crashes[-1]]
    assert [each for each in walked.try_all(sample) if each.is_fault] == []


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(walk):
    outcome = walk("self").kill(3, seed=0)
    assert not outcome.is_fault, outcome
