"""report.html: what it says, that hostile text stays text, that earlier runs and other methods have one."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transencoder.errors import RunError
from transencoder.report.figures import draw
from transencoder.report.plots import curve_plots
from transencoder.report.run_report import title_of, write_report
from transencoder.results import read_result


class Page(HTMLParser):
    """The tags of a page, with its attributes, and its visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data):
        if self._inside not in ("style", "script"):
            self.text += data


@pytest.fixture
def page(kept_run):
    return Page(write_report(kept_run()))


def page_of(result, make_run) -> Page:
    return Page(write_report(make_run("a", result)))


def headings(page: Page) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page.source)


def test_the_page_has_every_part(page):
    assert headings(page) == [
        "Summary",
        "Scores",
        "Curves",
        "Labels",
        "Where the models disagree",
        "Data",
        "Time",
        "Reproduce",
    ]
    for text in (
        "trans-encoder/minilm-sts",
        "Average of 2 tests: Spearman's rank correlation x 100",
        "no significant difference",  # the bi-encoder, by its interval, although its score is higher
        "better than the base model",
        "Dev by cycle",
        "Cycle 2, bi-encoder",
        "Score against label",
        "on 48 pairs",
        "Rank correlations over the whole sample",
        "37,077 rows of",
        "96 of 96 (100 %)",
        "Hebrew",
        "Arabic",
        "cycle-2/labels-for-bi",
        "Settings that differ from the defaults",
        "Peak learning rate",
        "transencoder recipes run trans-encoder/minilm-sts --output NEW_FOLDER",
        "The pairs file had 3 rows with the same sentence twice.",
    ):
        assert text.casefold() in page.text.casefold(), text


@pytest.mark.draws
def test_there_is_a_png_of_each_plot(kept_run):
    page = Page(write_report(folder := kept_run()))
    names = {path.name for path in (folder / "plots").iterdir()}
    assert {"gains.png", "dev-by-cycle.png", "dev-bi.png", "dev-cross.png", "lengths.png"} <= names
    assert {
        f"{kind}-cycle-{cycle}-{form}.png"
        for kind in ("labels", "calibration")
        for cycle in (1, 2)
        for form in ("bi", "cross")
    } <= names
    assert sum(tag == "figure" for tag, _ in page.tags) == len(names)
    drawn = {name: (folder / "plots" / name).read_bytes() for name in names}
    assert all(content.startswith(b"\x89PNG") for content in drawn.values())
    (again,) = (plot for plot in curve_plots(read_result(folder)) if plot.name == "dev-bi")
    draw(again, folder / "again.png")
    assert (folder / "again.png").read_bytes() == drawn["dev-bi.png"]


@pytest.mark.draws
def test_the_page_loads_nothing_and_says_so_to_the_browser(page):
    assert not re.search(r"(?:src|href)=\"(?!#|data:,)", page.source)
    assert "@import" not in page.source and not re.search(r"url\((?!#)|style=", page.source)
    policy = next(values["content"] for tag, values in page.tags if values.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "script-src 'sha256-" in policy


def test_hostile_text_stays_text(page):
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not [values for tag, values in page.tags if tag == "img" or any(name.startswith("on") for name in values)]
    assert "<script>document.title = 'owned'</script>" in page.text
    assert (
        "\u202e" not in page.source
        and "\x07" not in page.source
        and "\ufffdrevo denrut\ufffd b \ufffd & c" in page.text
    )


def test_texts_run_in_their_own_direction(page):
    shown = re.findall(r'<p dir="auto" lang="">(.*?)</p>', page.source)
    assert "متى يفتح المتجر؟" in shown and "מתי מגיע הרופא?" in shown
    assert len(shown) == 2 * 48


def test_the_largest_disagreement_comes_first(page):
    rows = re.findall(r'<tr role="row"><th scope="row".*?</tr>', page.source, re.DOTALL)
    spreads = [float(re.findall(r'data-value="([\d.]+)"', row)[-1]) for row in rows]
    assert spreads == sorted(spreads, reverse=True) and spreads[0] > 90
    assert all(any(text in row for row in rows[:3]) for text in ("owned", "المتجر", "הרופא"))


@pytest.mark.draws
def test_a_screen_reader_finds_its_way(page):
    tags = [tag for tag, _ in page.tags]
    assert all(tags.count(tag) == 1 for tag in ("h1", "main", "header", "nav", "footer"))
    assert dict(page.tags)["html"]["lang"] == "en"
    ids = [values["id"] for _, values in page.tags if "id" in values]
    assert len(ids) == len(set(ids))
    assert {values["aria-labelledby"] for tag, values in page.tags if tag == "section"} <= set(ids)
    assert {values["href"][1:] for tag, values in page.tags if tag == "a"} <= set(ids)
    assert tags.count("table") == tags.count("caption")
    assert all(values.get("scope") in ("row", "col") for tag, values in page.tags if tag == "th")
    drawings = [values for tag, values in page.tags if tag == "svg" and values.get("role") == "img"]
    assert len(drawings) == tags.count("figure") and all(len(values["aria-label"]) > 40 for values in drawings)
    assert all("role" in values or "aria-hidden" in values for tag, values in page.tags if tag == "svg")


@pytest.mark.draws
def test_the_same_records_give_the_same_bytes(kept_run):
    folder = kept_run()

    def written():
        return write_report(folder).read_bytes()

    assert written() == written()


def test_a_run_of_an_earlier_version_says_what_is_missing(result, make_run):
    page = page_of(result, make_run)
    assert "There are no intervals. This run was made by an earlier version" in page.text
    assert "did not keep numbers about its training text" in page.text
    assert "Where the models disagree" not in headings(page)  # its stages have no labels at all
    assert "+1.50" in page.text and "above the base model" in page.text


def test_a_run_whose_stages_were_removed_says_so(kept_run):
    folder = kept_run()
    for stage in (folder / "stages").iterdir():
        (stage / "stage.json").unlink()
    page = Page(write_report(folder))
    assert "This run kept the gold scores of its tests, but its stages were removed." in page.text
    assert "This run kept its models' scores of single training pairs, but its stages were removed." in page.text
    assert "Not shown: cross-encoder of cycle 1, bi-encoder of cycle 1" in " ".join(page.text.split())
    assert "Run its command again" not in page.text  # that would train everything again


def test_a_student_that_was_never_scored_is_named(kept_run):
    folder = kept_run()
    (sample,) = folder.glob("stages/sample-*/sample.parquet")
    sample.write_bytes(b"no parquet")
    page = Page(write_report(folder))
    assert "Not shown: bi-encoder of cycle 2." in page.text and "Cycle 1, bi-encoder" in page.text


def test_a_run_with_neither_dev_nor_tests_has_a_page(bare_result, make_run):
    page = page_of(bare_result, make_run)
    assert "is unknown without labels" in page.text and "No curve was recorded" in page.text
    assert "Scores" not in headings(page)
    assert "test" in page.text and "None" not in page.text


def test_dev_is_shown_where_there_are_no_tests(result, make_run):
    result["scores"], result["data"]["tests"] = {}, {}
    page = page_of(result, make_run)
    assert "Dev: Spearman's rank correlation x 100" in page.text and "81.80" in page.text
    assert "Gains over the base model" not in page.text


def test_a_page_of_a_method_without_cycles(result, make_run):
    """As SimCSE's: sentences, one form, one training."""
    result["method"], result["data"] = "simcse", result["data"] | {"sentences": result["data"].pop("pairs")}
    result["cycles"] = [{"cycle": 1, "bi": result["cycles"][0]["bi"]}]
    result["best"], result["dev"] = {"bi": result["best"]["bi"]}, {"start": 81.8, "bi": 84.0}
    del result["scores"]["cross"]
    page = page_of(result, make_run)
    assert headings(page) == ["Summary", "Scores", "Curves", "Data", "Time", "Reproduce"]
    assert "training sentences" in page.text and "cross-encoder" not in page.text


def test_members_and_ensemble_have_their_table(result, make_run):
    result["members"] = [{name: result[name] for name in ("cycles", "best", "dev", "scores", "analysis")}] * 2
    result["ensemble"], result["member"] = {"dev": None, "scores": result["scores"]}, 1
    result["config"]["members"] *= 2
    page = page_of(result, make_run)
    assert "ensemble, average" in page.text and "Members and ensemble" in page.text


@pytest.mark.draws
def test_test_curves_and_odd_names(result, make_run):
    name = '_$x$ "<b>測試</b>'
    for scores in (result["data"]["tests"], *result["scores"].values()):
        scores[name] = scores.pop("stsb")
    result["analysis"] = {"bi": [(1, 200, {"sts12": 70.0, name: 80.0}), (2, 200, {"sts12": 71.0, name: None})]}
    page = page_of(result, make_run)
    assert "Bi-encoder, tests by step" in page.text and name in page.text and ("b", {}) not in page.tags


def test_half_a_character_does_not_stop_the_page(result, make_run):
    result["notes"] = ["from \udcff.tsv"]
    folder = make_run("a", result)
    with pytest.raises(UnicodeEncodeError):  # report.md, which comes last
        write_report(folder)
    assert "from \ufffd.tsv" in (folder / "report.html").read_text(encoding="utf-8")


def test_an_undefined_metric_is_a_dash(result, make_run):
    result["scores"]["cross"]["sts12"] = None
    assert "not measured" in page_of(result, make_run).text


def test_the_title_is_the_recipe_or_the_folder(result):
    assert title_of(result) == "trans-encoder/minilm-sts"
    del result["recipe"]
    assert title_of(result) == "a"
    result["config"] = {}
    assert title_of(result) == "trans-encoder"


def test_an_unfinished_run_has_no_page(make_run):
    folder = make_run("a", None)
    with pytest.raises(RunError, match="not finished"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_the_report_in_markdown_shows_the_same_plots(kept_run):
    folder = kept_run()
    write_report(folder)
    shown = re.findall(r"!\[.*?\]\((.*?)\)", (folder / "report.md").read_text(encoding="utf-8"))
    assert shown and all((folder / path).exists() for path in shown)
    assert json.loads((folder / "result.json").read_text())["method"] == "trans-encoder"
