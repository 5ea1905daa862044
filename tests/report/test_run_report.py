"""report.html and report.md: what they say, that hostile text stays text, that all kinds of runs have one."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transencoder.errors import RunError
from transencoder.report.figures import draw
from transencoder.report.plots import curve_plots
from transencoder.report.run_report import report_text, title_of, write_report
from transencoder.report.words import reproduce_command
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
        self.headings = re.findall(r"<h2[^>]*>(.*?)</h2>", self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data):
        if self._inside not in ("style", "script"):
            self.text += data


@pytest.fixture
def page(kept_run):
    return Page(write_report(kept_run()))


@pytest.fixture
def written(make_run):
    """The page of a result, and the Markdown beside it."""

    def write(result):
        folder = make_run("a", result)
        assert write_report(folder) == folder / "report.html"
        return Page(folder / "report.html"), (folder / "report.md").read_text(encoding="utf-8")

    return write


def test_the_page_has_every_part(page):
    parts = (
        "Summary, Scores, Use it, Nearest neighbours, Curves, Labels, Where the models disagree, Data, Time, Reproduce"
    )
    assert ", ".join(page.headings) == parts
    for text in (
        "trans-encoder/minilm-sts",
        "Spearman's rank correlation x 100: 100 means that the model sorts the pairs exactly as people do, 0",
        "no significant difference",  # the bi-encoder, by its interval, although its score is higher
        'model = CrossEncoder("cross-encoder")',
        "transencoder score cross-encoder --pairs",
        "Of 40 training texts 30 have another nearest text",
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
    student_labels = [f"cycle-{cycle}-{form}.png" for cycle in (1, 2) for form in ("bi", "cross")]
    assert {f"{kind}-{learned}" for kind in ("labels", "calibration") for learned in student_labels} <= names
    assert sum(tag == "figure" for tag, _ in page.tags) == len(names)
    drawn = {name: (folder / "plots" / name).read_bytes() for name in names}
    assert all(content.startswith(b"\x89PNG") for content in drawn.values())
    (again,) = (plot for plot in curve_plots(read_result(folder)) if plot.name == "dev-bi")
    draw(again, folder / "again.png")
    assert (folder / "again.png").read_bytes() == drawn["dev-bi.png"]
    assert write_report(folder).read_text(encoding="utf-8") == page.source
    shown = re.findall(r"!\[.*?\]\((.*?)\)", (folder / "report.md").read_text(encoding="utf-8"))
    assert shown and all((folder / path).exists() for path in shown)


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
    assert "\u202e" not in page.source and "\x07" not in page.source
    assert "\\u202erevo denrut\\u202c b \\x07 & c" in page.text


def test_texts_run_in_their_own_direction_and_the_largest_disagreement_comes_first(page):
    shown = re.findall(r'<p dir="auto" lang="">(.*?)</p>', page.source)
    assert "متى يفتح المتجر؟" in shown and "מתי מגיע הרופא?" in shown
    assert len(shown) == 2 * 48
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


def test_tests_without_intervals_are_named(result, written):
    page, _ = written(result)
    assert "No interval for sts12, stsb, average: the run has no scores of its single pairs." in page.text
    assert "Where the models disagree" not in page.headings  # its stages have no labels at all
    assert "+1.50" in page.text and "Nearest neighbours" not in page.headings


def test_a_run_whose_stages_were_removed_says_so(kept_run):
    folder = kept_run()
    for stage in (folder / "stages").iterdir():
        (stage / "stage.json").unlink()
    page = Page(write_report(folder))
    assert "This run kept its models' scores of single training pairs, but its stages were removed." in page.text
    assert "Not shown: cross-encoder of cycle 1, bi-encoder of cycle 1" in " ".join(page.text.split())
    assert "Run its command again" not in page.text  # that would train everything again


def test_a_student_that_was_never_scored_is_named(kept_run):
    folder = kept_run()
    (sample,) = folder.glob("stages/sample-*/sample.parquet")
    sample.write_bytes(b"no parquet")
    page = Page(write_report(folder))
    assert "Not shown: bi-encoder of cycle 2." in page.text and "Cycle 1, bi-encoder" in page.text


def test_the_markdown_says_what_was_done_and_what_came_of_it(result, make_run):
    write_report(folder := make_run("a", result))
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# trans-encoder/minilm-sts\n")
    for part in (
        "started from `sentence-transformers/all-MiniLM-L6-v2`",
        "cycles 2, bi.learning_rate 5e-05, bi.batch_size 128, bi.epochs 3",
        "seed 2021",
        "| sts12 | 70.00 | 71.50 | +1.50 | 69.00 | -1.00 |",
        "| cycle 1 | **83.00** | 84.00 |",
        "| cycle 2 | 84.00 | **85.00** |",
        "| labels/cycle-1/bi | 12.3 s | reused |",
        "| whole run | 6.1 min |  |",
        "37,077 rows of `pairs/sts-sickr`, fingerprint `abababababab`",
        "transencoder recipes run trans-encoder/minilm-sts",
        "`0123abc`",
        "(transductive)",
        "3 rows with the same sentence twice",
        "![Dev by cycle](plots/dev-by-cycle.png)",
    ):
        assert part in text, part
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["log.jsonl", "plots", "report.html", "report.md", "result.json"]


def test_a_run_with_neither_dev_nor_tests_reads_well(bare_result, make_run):
    bare_result["notes"] = ["Targets may lie outside [0, 1]."]
    folder = make_run("a", bare_result)
    (folder / "plots").mkdir()
    page = Page(write_report(folder))
    assert "is unknown without labels" in page.text and "Curves" not in page.headings
    assert "Scores" not in page.headings
    assert "None" not in page.text
    assert "transencoder mine texts.txt --start sentence-transformers/all-MiniLM-L6-v2 --n-pairs 100" in page.text
    bare_result["stages"].append({"name": "sample", "key": "a" * 64, "seconds": 1.0, "reused": False})
    assert "transencoder grade ." in Page(write_report(make_run("b", bare_result))).text
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "Nothing was measured" in text and "The run had no dev set." in text
    assert "the last checkpoint of the last cycle was kept" in text and "- Targets may lie outside [0, 1]." in text
    assert "- dev: none" in text and "- test: none" in text and "`recipe.toml` has every default" in text
    assert "transductive" not in text and "None" not in text and "![" not in text
    assert [path.name for path in (folder / "plots").iterdir()] == ["lengths.png"]


def test_dev_is_shown_where_there_are_no_tests(result, written):
    result["scores"], result["data"]["tests"] = {}, {}
    page, _ = written(result)
    assert "Spearman's rank correlation x 100" in page.text and "81.80" in page.text
    assert "Gains over the base model" not in page.text


def test_a_page_of_a_method_without_cycles(result, written):
    """As SimCSE's: sentences, one form, one training."""
    result["method"], result["data"] = "simcse", result["data"] | {"sentences": result["data"].pop("pairs")}
    result["cycles"] = [{"cycle": 1, "bi": result["cycles"][0]["bi"]}]
    result["best"], result["dev"] = {"bi": result["best"]["bi"]}, {"start": 81.8, "bi": 84.0}
    del result["scores"]["cross"]
    page, _ = written(result)
    assert page.headings == ["Summary", "Scores", "Use it", "Curves", "Data", "Time", "Reproduce"]
    assert "training sentences" in page.text and "cross-encoder" not in page.text


def test_members_and_ensemble_have_their_table(result, written):
    result["members"] = [{name: result[name] for name in ("cycles", "best", "dev", "scores", "analysis")}] * 2
    result["ensemble"], result["member"] = {"dev": None, "scores": result["scores"]}, 1
    result["config"]["members"] *= 2
    page, _ = written(result)
    assert "ensemble, average" in page.text and "Members and ensemble" in page.text


@pytest.mark.draws
def test_test_curves_and_odd_names(result, written):
    name = '_$x$ "<b>測試</b>'
    for scores in (result["data"]["tests"], *result["scores"].values()):
        scores[name] = scores.pop("stsb")
    result["analysis"] = {"bi": [(1, 200, {"sts12": 70.0, name: 80.0}), (2, 200, {"sts12": 71.0, name: None})]}
    page, _ = written(result)
    assert "Bi-encoder, tests by step" in page.text and name in page.text and ("b", {}) not in page.tags


def test_half_a_character_does_not_stop_the_page(result, make_run):
    result["notes"] = ["from \udcff.tsv"]
    folder = make_run("a", result)
    write_report(folder)
    for name in ("report.html", "report.md"):
        assert "from \\udcff.tsv" in (folder / name).read_text(encoding="utf-8")


def test_an_undefined_metric_is_a_dash_and_a_note(result, written):
    result["scores"]["cross"]["sts12"] = None
    _, text = written(result)
    assert "The cross-encoder gave every pair of a set the same score" in text
    assert "| sts12 | 70.00 | 71.50 | +1.50 | – | – |" in text


def test_an_inductive_run_says_so(result):
    result["data"]["pairs"] |= {"transductive": False, "excluded_rows": 9000, "missing_rows": 13358}
    text = report_text(result)
    assert "9,000 pairs that contain a sentence of a test set were left out" in text
    assert "13,358 of the paper's training pairs are missing" in text
    assert "(transductive)" not in text


def test_what_held_out_pairs_say_is_set_beside_the_start(result):
    found = {"self_retrieval": 90.0, "alignment": -0.5}
    result["criteria"] = {"start": found, "bi": found | {"self_retrieval": 91.5}, "cross": {"start_agreement": None}}
    result["data"]["pairs"]["held_out_rows"] = 1000
    result["selection"] = {
        "criteria": {"bi": "self_retrieval", "cross": "last"},
        "left_out_regrets": {"bi": 1.0, "cross": 2.0},
        "last_regrets": {"bi": 3.0, "cross": 4.0},
        "runs": 8,
        "starts": 4,
    }
    section = report_text(result).partition("## Without labels")[2].partition("## ")[0]
    assert "On 1,000 held-out pairs." in section
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines[0] == "|  | base model | bi-encoder | cross-encoder | what it says |"
    assert lines[2].startswith("| self retrieval | 90.00 | 91.50 | – |")
    assert lines[2].endswith("find it among all; chose the bi-encoders |")
    assert lines[3].startswith("| alignment | -0.50 | -0.50 | – |") and len(lines) == 4
    assert "Without labels" not in report_text(result | {"criteria": {"start": found}})  # dev chose: nothing to compare


@pytest.mark.parametrize("measured", ["tests", "dev"])
def test_the_gain_is_said_by_the_verdict_and_the_table_alone(result, written, measured):
    """Was: cards and a note said it again, and the precision stood among the notes."""
    result["scores"] = {
        "start": {"stsb": 80.0},
        "start_as_is": {"stsb": 79.5},
        "bi": {"stsb": 78.77},
        "cross": {"stsb": 82.0},
    }
    if measured == "dev":
        result["scores"], result["dev"] = {}, {"start": 80.0, "bi": 78.77, "cross": 82.0}
    result["config"] |= {"precision": "bf16", "bi": {"max_length": 32}, "cross": {"max_length": 64}}
    page, text = written(result)
    assert page.text.count("-1.23") + page.text.count("\N{MINUS SIGN}1.23") == 2 and page.text.count("78.77") == 1
    for said in (page.text, text):
        footnote = "Measured in bf16, on the first 32 tokens of a text and 64 of a pair, as in training."
        assert said.index("78.77") < said.index(footnote) < said.rindex("Use it")


def test_the_title_is_the_recipe_or_the_folder(result):
    assert title_of(result) == "trans-encoder/minilm-sts"
    del result["recipe"]
    assert title_of(result) == "a"
    result["config"] = {}
    assert title_of(result) == "trans-encoder"


def test_an_unfinished_run_has_no_report(make_run):
    folder = make_run("a", None)
    with pytest.raises(RunError, match="not finished"):
        write_report(folder)
    assert [path.name for path in folder.iterdir()] == ["log.jsonl"]


def test_rows_that_were_in_no_file_are_asked_for_when_a_run_is_made_again(result):
    result["config"]["sentences"] = "400 rows given in Python"
    assert reproduce_command(result).endswith(" --output NEW_FOLDER --set sentences=FILE")
