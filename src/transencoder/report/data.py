"""What went into a run: its training text in numbers, and how its pairs were mined."""

from collections.abc import Sequence
from dataclasses import dataclass

from transencoder.records import CorpusRecord, MiningRecord, Result, TextStatistics
from transencoder.report.figures import Axis, Plot, Steps, short
from transencoder.report.words import markdown_table
from transencoder.results import training_data
from transencoder.wording import plural

_SOURCE_TITLES = {
    "neighbours": "nearest by the base model",
    "bm25": "rare words in common (BM25)",
    "random": "chance",
}
_BAR = 30

MIX_HEADER = ("found by", "candidates", "pairs", "share")


@dataclass(frozen=True)
class Texts:
    """The training text in numbers."""

    facts: Sequence[tuple[str, str]]
    lengths: Plot | None
    scripts: Sequence[tuple[str, str, str]]
    """Name, characters, share of the characters that have a script."""


def texts_of(result: Result) -> Texts | None:
    """Describe the training text; earlier runs did not count it."""
    texts = result.get("texts")
    if texts is None:
        return None
    kind, _ = training_data(result)
    share = texts["distinct_texts"] / max(texts["texts"], 1)
    facts = [
        (kind.capitalize(), f"{texts['rows']:,}"),
        ("Distinct texts", f"{texts['distinct_texts']:,} of {texts['texts']:,} ({100 * share:.0f} %)"),
        ("Most frequent text", f"{texts['most_repeated']:,} times"),
        (f"Repeated {kind}", f"{texts['repeated_rows']:,}"),
        *([("Pairs of the same text", f"{texts['same_text_rows']:,}")] if kind == "pairs" else []),
        ("Characters", f"{texts['characters']:,}"),
        ("Half have at most", f"{texts['median_length']:,.0f} characters"),
        ("Longest", f"{texts['longest']:,} characters"),
    ]
    total = sum(texts["letters"].values())
    scripts = [(name, f"{count:,}", _percent(count, total)) for name, count in texts["letters"].items()]
    return Texts(facts, length_plot(texts), scripts)


def _percent(count: int, total: int) -> str:
    """Return a share with one digit, which is 0 or 100 only where it is exactly that."""
    share = 100 * count / total
    if 0 < share < 0.1:
        return "below 0.1 %"
    return "above 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def length_plot(texts: TextStatistics) -> Plot | None:
    """Make the plot of how many texts there are of each length; None where there are none."""
    edges, counts = texts["length_edges"], texts["length_counts"]
    if not texts["texts"]:
        return None
    shares = [100 * count / texts["texts"] for count in counts]
    return Plot(
        name="lengths",
        title="Length of the texts",
        x=Axis(label="characters", is_whole=True),
        y=Axis(label="% of the texts"),
        marks=[Steps(label="texts", style="s1", edges=edges, heights=shares, is_filled=True)],
        about=f"Half of the texts have at most {texts['median_length']:,.0f} characters, the longest "
        f"{texts['longest']:,}; the last bar includes all longer texts.",
    )


def mining_lines(record: MiningRecord) -> list[str]:
    """Say what went in, which source gave how many pairs, and how the base model scores them; as Markdown."""
    edges, candidates, pairs = (record["histogram"][name] for name in ("edges", "candidates", "pairs"))
    strata = [
        (f"{low:.2f} to {high:.2f}", f"{n_found:,}", f"{n_pairs:,}", "█" * round(_BAR * n_pairs / max(pairs)))
        for low, high, n_found, n_pairs in zip(edges, edges[1:], candidates, pairs, strict=False)
    ]
    header = ("base model's score", "candidates", "pairs", "")
    mix = markdown_table(MIX_HEADER, mix_rows(record))
    return [mined_said(record), "", *mix, "", *markdown_table(header, strata)]


def mined_said(record: MiningRecord) -> str:
    """Say how many pairs came of how many texts, and what was left out."""
    n_pairs = sum(record["histogram"]["pairs"])
    parts = [_corpus("sentence", record["sentences"])]
    if "documents" in record:
        n_near = record.get("near_duplicate_pairs", 0)
        parts += [_corpus("document", record["documents"]), f"{n_near:,} pairs of near duplicates left out"]
    if not record["exact_search"]:
        parts.append("neighbours were searched in the nearest cells only")
    return f"{plural(n_pairs, 'pair')} of {plural(record['paired_sentences'], 'sentence')}. {'; '.join(parts)}."


def _corpus(noun: str, corpus: CorpusRecord) -> str:
    return (
        f"{plural(corpus['rows'], noun)} read, {corpus['exact_duplicates']:,} exact and "
        f"{corpus['near_duplicates']:,} near duplicates left out"
    )


def mix_rows(record: MiningRecord) -> list[tuple[str, str, str, str]]:
    """Return for each source what `MIX_HEADER` names: candidates, pairs, and their share of all pairs."""
    n_pairs = sum(record["histogram"]["pairs"])
    return [
        (
            _SOURCE_TITLES[source],
            f"{counts['candidates']:,}",
            f"{counts['pairs']:,}",
            f"{counts['pairs'] / n_pairs:.0%}",
        )
        for source, counts in record["mix"].items()
    ]


def mined_plot(record: MiningRecord) -> Plot:
    """Make the plot of how the start scores mined pairs, and the candidates that they were drawn from."""
    edges, shares = record["histogram"]["edges"], {}
    for what in ("pairs", "candidates"):
        counts = record["histogram"][what]
        shares[what] = [100 * count / sum(counts) for count in counts]
    return Plot(
        name="mined",
        title="The base model's scores of the mined pairs",
        x=Axis(label="base model's score"),
        y=Axis(label="% of each"),
        marks=[
            Steps(label="pairs", style="s1", edges=edges, heights=shares["pairs"], is_filled=True),
            Steps(label="candidates", style="s2", edges=edges, heights=shares["candidates"]),
        ],
        about=f"Pairs are drawn evenly over the scores from {short(edges[0])} to {short(edges[-1])}, as far as there "
        f"are enough: {short(min(shares['pairs']))} to {short(max(shares['pairs']))} % of them in each bin.",
    )
