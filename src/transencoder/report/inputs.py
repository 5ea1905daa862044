"""What went into a run: its data sets, and its training text in numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transencoder.records import Result
from transencoder.report.plots import Plot, length_plot
from transencoder.report.text import data_line, gold_or
from transencoder.results import training_data


@dataclass(frozen=True)
class Texts:
    """The training text in numbers."""

    facts: Sequence[tuple[str, str]]
    lengths: Plot | None
    scripts: Sequence[tuple[str, str, str]]
    """Name, characters, share of the characters that have a script."""


def data_sets(result: Result) -> Iterator[tuple[str, str]]:
    """Each data set, and it in a few words."""
    texts, record = training_data(result)
    yield f"training {texts}", f"{data_line(record)}, {gold_or('unlabelled', record)}"
    dev, tests = result["data"]["dev"], result["data"]["tests"]
    yield "dev", data_line(dev) if dev else "none"
    if not tests:
        yield "test", "none"
    for name, record in tests.items():
        yield f"test {name}", data_line(record)


def texts_of(result: Result) -> Texts | None:
    """The training text; earlier runs did not count it."""
    texts = result.get("texts")
    if texts is None:
        return None
    kind, _ = training_data(result)
    share = texts["distinct_texts"] / max(texts["texts"], 1)
    facts = [
        (kind.capitalize(), f"{texts['rows']:,}"),
        ("Different texts", f"{texts['distinct_texts']:,} of {texts['texts']:,} ({100 * share:.0f} %)"),
        ("Most frequent text", f"{texts['most_repeated']:,} times"),
        (f"Repeated {kind}", f"{texts['repeated_rows']:,}"),
        *([("Pairs of the same text", f"{texts['same_text_rows']:,}")] if kind == "pairs" else []),
        ("Characters", f"{texts['characters']:,}"),
        ("Half have at most", f"{texts['median_length']:,.0f} characters"),
        ("Longest", f"{texts['longest']:,} characters"),
    ]
    return Texts(facts, length_plot(texts), _scripts(texts["letters"]))


def _scripts(letters: Mapping[str, int]) -> list[tuple[str, str, str]]:
    total = sum(letters.values())
    return [(name, f"{count:,}", _percent(count, total)) for name, count in letters.items()]


def _percent(count: int, total: int) -> str:
    """A share with one digit, which is 0 or 100 only where it is exactly that."""
    share = 100 * count / total
    if 0 < share < 0.1:
        return "below 0.1 %"
    return "above 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"
