"""The docs site builds without a warning, has every setting and command, and loads nothing from anywhere."""

import argparse
import html
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transencoder import cli
from transencoder.cli.flags import flag_of
from transencoder.methods import METHODS
from transencoder.recipes import list_recipes
from transencoder.settings import nested_settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("mkdocs-material and mkdocstrings are not installed; pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def words(page):
    """A page's text without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_every_setting_is_on_the_page_of_its_method(site):
    for name, method in METHODS.items():
        page = words(site / "settings" / f"{name}.html")
        for setting in nested_settings(method).values():
            assert setting.help.replace("`", "") in page, f"{name}: {setting.name}"
        assert not [each for each in nested_settings(method) if flag_of(each) not in page]


def test_every_command_and_option_is_on_the_page_of_commands(site):
    page = words(site / "command-line.html")
    for parser in leaves(cli._parser()):
        name = parser.prog.removeprefix("transencoder ")
        if not name.startswith("train "):
            assert name in page
            assert not [each for each in parser._option_string_actions if len(each) > 2 and each not in f"{page}--help"]


def leaves(parser):
    """The parsers of the commands that do something."""
    children = [
        child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for child in action.choices.values()
    ]
    return [leaf for child in children for leaf in leaves(child)] if children else [parser]


def test_every_recipe_is_named(site):
    page = words(site / "papers.html")
    assert not [name for name in list_recipes() if name not in page]


def test_nothing_is_loaded_from_elsewhere(site):
    loads = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?:)?//|<link\b[^>]*\bhref=\"?(https?:)?//")
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text("utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text("utf-8")), style
