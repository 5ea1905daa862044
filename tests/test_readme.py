"""What README and docs show exists: their Python compiles and names real fields, their commands parse."""

import ast
import dataclasses
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import transencoder

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
GUIDES = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
MODULE = "-m -- transencoder "


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands():
    lines = [
        line.strip() for block in blocks("bash", README + GUIDES) for line in block.replace("\\\n", " ").splitlines()
    ]
    ours = [line for line in lines if line.startswith("transencoder ") or MODULE in line]
    return [line.partition(MODULE)[2] or line.removeprefix("transencoder ") for line in ours]


@pytest.mark.parametrize("source", blocks("python"))
def test_python_names_exist(source):
    tree = ast.parse(source)
    compile(tree, "README.md", "exec")
    names = {
        alias.asname or alias.name: getattr(transencoder, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "transencoder"
        for alias in node.names
    }
    assert names
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = names.get(getattr(call.func, "id", ""))
        if dataclasses.is_dataclass(called):
            assert {word.arg for word in call.keywords} <= {field.name for field in dataclasses.fields(called)}


@pytest.mark.skipif(importlib.util.find_spec("transencoder.cli.models") is None, reason="no command line yet")
@pytest.mark.parametrize("command", commands())
def test_commands_parse(command):
    from transencoder import cli

    try:
        _, unknown = cli._parser().parse_known_args(shlex.split(command, comments=True))
    except SystemExit as stop:
        assert "--help" in command and stop.code == 0, f"transencoder {command}"
    else:
        assert not unknown


def test_torchrun_hands_our_options_on():
    """Without the two dashes it takes `--start` for one of its own, shortened."""
    from torch.distributed.run import get_args_parser

    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("torchrun ")]
    assert lines
    for line in lines:
        options = get_args_parser().parse_args(shlex.split(line)[1:])
        assert (options.module, options.training_script) == (True, "transencoder")


def test_make_targets_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    used = re.findall(r"\bmake ([a-z]+)", "\n".join(blocks("bash")))
    assert {"demo", "test"} <= set(used) <= set(targets)


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_lead_somewhere(link):
    if link.startswith("results/") and not (ROOT / "results").exists():
        pytest.skip("no results yet")
    assert (ROOT / link).exists()


def test_there_are_commands_and_python():
    assert len(commands()) >= 5
    assert blocks("python")


def test_results_are_those_of_the_results_page():
    rows = re.findall(r"^\| ([a-z- ]+) \|((?: \d+\.\d\d \|)+)$", README, re.MULTILINE)
    assert len(rows) >= 3
    page = (ROOT / "results" / "README.md").read_text("utf-8")
    for title, numbers in rows:
        assert re.search(rf"\| {title} \| \d+\.\d\d \|{re.escape(numbers)}", page), f"{title}{numbers}"
