"""What is declared about the package: the lowest versions, and the long description."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_the_lowest_versions_that_are_tested_are_those_that_are_allowed():
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["demo"], *extras["export"], *extras["lora"]]
    lowest = {re.sub(">=([^,]+).*", r"==\1", each) for each in declared if not each.startswith("torch>")}
    pinned = (ROOT / "constraints-lowest.txt").read_text("utf-8").splitlines()
    assert sorted(lowest) == sorted(line for line in pinned if not line.startswith("#"))


def test_the_long_description_has_no_link_into_the_repository():
    text = (ROOT / "README.md").read_text("utf-8")
    for each in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert re.findall(r"\]\((?!https?:|#)", text) == []
