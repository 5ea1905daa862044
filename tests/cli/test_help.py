import argparse
import subprocess
import sys

import pytest

from transencoder.cli import _parser
from transencoder.methods import METHODS
from transencoder.settings import nested_settings, settings_of

HEAVY = (
    "torch",
    "sentence_transformers",
    "transformers",
    "datasets",
    "pyarrow",
    "pandas",
    "scipy",
    "sklearn",
    "matplotlib",
    "faiss",
    "bm25s",
)


def commands(parser=None, words=()):
    parser = parser or _parser()
    yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, (*words, name))


def test_all_commands_are_there():
    assert {" ".join(words) for words in commands() if words} == {
        "train",
        "train trans-encoder",
        "train simcse",
        "train mirror-bert",
        "train contrastive-tension",
        "train declutr",
        "train mlm",
        "train diffcse",
        "train dclr",
        "train sct",
        "train congen",
        "train ckd",
        "train dvbert",
        "train embedding-mse",
        "evaluate",
        "score",
        "label",
        "search",
        "search build",
        "search query",
        "search evaluate",
        "duplicates",
        "pairs",
        "mine",
        "views",
        "truncate",
        "export",
        "push",
        "recipes",
        "recipes list",
        "recipes show",
        "recipes run",
        "runs",
        "runs list",
        "runs clean",
        "report",
        "results",
        "demo",
    }


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
    _, out, _ = run("train", method, "--help")
    lists = [each for each in settings_of(METHODS[method]).values() if each.is_nested and each.is_list]
    inner = {name: setting for each in lists for name, setting in settings_of(each.kind).items()}
    for name, setting in (nested_settings(METHODS[method]) | inner).items():
        assert f"--{name.replace('_', '-')}" in out
        assert setting.help
        assert f"{setting.help} (" in out, name
    assert "(default: auto)" in out
    assert "(required)" in out


def test_help_and_recipes_import_nothing_heavy():
    calls = [[*words, "--help"] for words in commands()] + [
        ["recipes", "list"],
        ["recipes", "show", "minilm-sts", "--full"],
    ]
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
