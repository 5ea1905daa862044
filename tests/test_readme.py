"""The README's links lead somewhere, and its numbers are those of the results page; its blocks are run in `docs/`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()


def test_results_are_those_of_the_results_page():
    rows = re.findall(r"^\| ([a-z- ]+) \|((?: \d+\.\d\d \|)+)$", README, re.MULTILINE)
    assert len(rows) >= 3
    page = (ROOT / "results" / "README.md").read_text("utf-8")
    for title, numbers in rows:
        assert re.search(rf"\| {title} \| \d+\.\d\d \|{re.escape(numbers)}", page), f"{title}{numbers}"
