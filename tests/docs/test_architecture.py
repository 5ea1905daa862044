"""The page on the architecture says what the imports are."""

import re
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


@pytest.fixture(scope="module")
def imports():
    """Which parts of the package import which, lazy and type-checking imports counted."""
    graph = grimp.build_graph("transencoder")
    parts = {module.split(".")[1] for module in graph.modules if "." in module}
    found = {
        (importer.split(".")[1], imported.split(".")[1])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if "." in importer and "." in imported
    }
    return parts, {(one, other) for one, other in found if one != other}


@pytest.fixture(scope="module")
def floors():
    """The table's floors, the highest first: the parts on each."""
    table = PAGE.partition("## The floors")[2].partition("## What happens")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "|---" not in line][1:]
    return [re.findall(r"`(\w+)`", row.split("|")[2]) for row in rows]


def test_every_part_stands_on_one_floor(imports, floors):
    parts, _ = imports
    assert sorted(part for floor in floors for part in floor) == sorted(parts)


def test_no_floor_imports_from_above(imports, floors):
    height = {part: n_th for n_th, floor in enumerate(floors) for part in floor}
    assert [pair for pair in sorted(imports[1]) if height[pair[0]] > height[pair[1]]] == []


def test_the_floors_are_those_that_are_held(floors):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    held = [re.findall(r"\w+", layer) for layer in layers]
    order = {part: n_th for n_th, layer in enumerate(held) for part in layer}
    for above, below in zip(floors, floors[1:], strict=False):
        assert max(order[part] for part in above) <= min(order[part] for part in below), (above, below)


def test_every_arrow_is_an_import(imports):
    picture = re.search(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)[1]
    chains = [re.findall(r"\w+", line) for line in picture.splitlines()[1:]]
    arrows = {pair for chain in chains for pair in zip(chain, chain[1:], strict=False)}
    assert arrows and arrows <= imports[1], arrows - imports[1]


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE))
    assert named and [name for name in named if not (ROOT / "src" / "transencoder" / name).is_file()] == []
