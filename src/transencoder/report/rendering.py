"""Templates into pages: in HTML every text is escaped, and what could hide in one is made visible."""

import base64
import hashlib
import json
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from transencoder.metrics import Interval
from transencoder.progress import duration
from transencoder.records import FORM_TITLES
from transencoder.report.figures import SHAPES
from transencoder.report.words import data_line, gold_or, markdown_table
from transencoder.wording import number, plural

_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, marks that turn the order of the text around them, and what is no character at all."""


def render(template: str, values: dict[str, Any]) -> str:
    """Fill a template; in HTML what is not `Markup` is escaped."""
    return _environment(template.endswith(".html.jinja")).get_template(template).render(**values)


@cache
def _environment(is_html: bool) -> Environment:
    loader = PackageLoader("transencoder.report")
    environment = Environment(
        loader=loader,
        autoescape=is_html,
        undefined=StrictUndefined,
        finalize=_visible if is_html else None,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "between": _between,
        "data_line": data_line,
        "decimal": _decimal,
        "digest": _digest,
        "direction": _direction,
        "duration": duration,
        "gold_or": lambda record, without: gold_or(without, record),
        "number": number,
        "plural": plural,
        "quoted": json.dumps,
        "signed": _signed,
        "table": lambda rows, header: "\n".join(markdown_table(header, rows)),
        "ticked": _ticked,
        "title_of": FORM_TITLES.__getitem__,
    }
    style, script = (Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "page.js"))
    environment.globals |= {"style": style, "script": script, "shapes": SHAPES}
    return environment


def _visible(value: Any) -> Any:  # noqa: ANN401 (whatever a template prints)
    """Put a replacement character in the place of each character that does not show."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else _INVISIBLE.sub("\ufffd", value)


def _between(interval: Interval, signed: bool = False) -> Markup:
    sign = "+" if signed else ""
    low, high = (f"{value:{sign}.1f}".replace("-", "\N{MINUS SIGN}") for value in (interval.low, interval.high))
    return Markup("[{}, {}]").format(low, high)


def _decimal(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _signed(gain: float) -> str:
    return f"{gain:+.2f}".replace("-", "\N{MINUS SIGN}")


def _direction(gain: float, interval: Interval | None) -> str:
    """Return the class of a gain: `up`, `down`, or none where the difference is not significant, or shows as zero."""
    low, high = (interval.low, interval.high) if interval else (round(gain, 2), round(gain, 2))
    return "up" if low > 0 else "down" if high < 0 else ""


def _ticked(text: str) -> Markup:
    """Return escaped text in which what stands between backticks is code, as in Markdown."""
    parts = _visible(text).split("`")
    return Markup("").join(
        Markup("<code><bdi>{}</bdi></code>").format(part) if position % 2 else escape(part)
        for position, part in enumerate(parts)
    )


def _digest(content: str) -> str:
    """Return what the page's policy names a script or style by: nothing else on the page may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
