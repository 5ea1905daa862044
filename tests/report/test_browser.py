"""The pages in a headless Chromium: sorting, no horizontal scroll on a phone, the dark, no errors."""

import shutil

import pytest

from transencoder.report.comparison import write_comparison
from transencoder.report.run_report import write_report

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.draws

_PHONE = {"width": 390, "height": 844}
_DESKTOP = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if _CHROMIUM is None:
        pytest.skip("there is no chromium or google-chrome")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens a file as a reader would; at the end the browser must have had nothing to complain of or to fetch."""
    contexts, complaints = [], []

    def open_(path, viewport, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [each for each in complaints if not each.startswith("data:")] == []


def overflow(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def luminance(page, name: str, of: str = "body") -> float:
    """Relative luminance (WCAG) of a computed colour."""
    colour = page.evaluate(f'getComputedStyle(document.querySelector("{of}")).{name}')
    channels = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_report_in_a_browser(kept_run, open_page):
    path = write_report(kept_run())

    page = open_page(path, _DESKTOP)
    assert page.title() == "trans-encoder/minilm-sts: report"  # no hostile text has changed it
    assert overflow(page) == 0
    table = page.locator("table.disagreements")
    rows = table.locator("tbody tr")
    assert rows.locator("visible=true").count() == 12
    page.get_by_role("button", name="Show all 48").click()
    assert rows.locator("visible=true").count() == 48
    head = table.get_by_role("columnheader", name="cross", exact=True)
    for direction in ("descending", "ascending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        values = rows.locator("td:nth-child(4)").evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
        assert values == sorted(values, reverse=direction == "descending")
    assert page.locator("[aria-sort]").count() == 1
    assert page.get_by_role("status").text_content() == "Sorted by cross, lowest first."
    table.get_by_role("button", name="pair").click()
    assert rows.first.locator("p").first.text_content().startswith("<script>")
    arabic = page.locator("p", has_text="متى يفتح المتجر؟")
    assert arabic.evaluate("element => getComputedStyle(element).direction") == "rtl"

    for scheme in ("light", "dark"):
        phone = open_page(path, _PHONE, scheme)
        assert overflow(phone) == 0
        paper, ink = luminance(phone, "backgroundColor"), luminance(phone, "color")
        assert (paper > ink) is (scheme == "light")
        for of in ("figcaption", ".change", "caption"):
            dark, light = sorted((paper, luminance(phone, "color", of)))
            assert (light + 0.05) / (dark + 0.05) > 4.5
        dark, light = sorted((paper, luminance(phone, "stroke", ".drawing [stroke='var(--bi)']")))
        assert (light + 0.05) / (dark + 0.05) > 3


def test_the_comparison_in_a_browser(kept_run, open_page, tmp_path):
    path = write_comparison([kept_run(name) for name in "abcd"], tmp_path / "page.html")
    for viewport in (_DESKTOP, _PHONE):
        assert overflow(open_page(path, viewport, "dark")) == 0
