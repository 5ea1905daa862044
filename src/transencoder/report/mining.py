"""How pairs were mined: duplicates, the mix of sources, the histogram of the start's scores."""

from transencoder.records import CorpusRecord, MiningRecord
from transencoder.report.tables import markdown_table
from transencoder.wording import plural

_SOURCE_TITLES = {
    "neighbours": "near by the start",
    "bm25": "rare words in common (BM25)",
    "random": "chance",
}
_BAR = 30

MIX_HEADER = ("found by", "candidates", "pairs", "share")


def mining_lines(record: MiningRecord) -> list[str]:
    """What went in, which source gave how many pairs, and how the start scores them; as Markdown."""
    return [
        mined_said(record),
        "",
        *markdown_table(MIX_HEADER, mix_rows(record)),
        "",
        *markdown_table(("start's score", "candidates", "pairs", ""), _strata(record)),
    ]


def mined_said(record: MiningRecord) -> str:
    """How many pairs came of how many texts, and what was left out."""
    n_pairs = sum(record["histogram"]["pairs"])
    parts = [_pile("sentence", record["sentences"])]
    if "documents" in record:
        n_near = record.get("near_duplicate_pairs", 0)
        parts += [_pile("document", record["documents"]), f"{n_near:,} pairs of near duplicates left out"]
    if not record["exact_search"]:
        parts.append("neighbours were searched in the nearest cells only")
    return f"{plural(n_pairs, 'pair')} of {plural(record['paired_sentences'], 'sentence')}. {'; '.join(parts)}."


def mix_rows(record: MiningRecord) -> list[tuple[str, str, str, str]]:
    """Of each source what `MIX_HEADER` names: candidates, pairs, and their share of all pairs."""
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


def _pile(noun: str, pile: CorpusRecord) -> str:
    return (
        f"{plural(pile['rows'], noun)} read, {pile['exact_duplicates']:,} exact and {pile['near_duplicates']:,} near "
        "duplicates left out"
    )


def _strata(record: MiningRecord) -> list[tuple[str, str, str, str]]:
    """One row for each stratum; the bars are of the pairs."""
    edges, candidates, pairs = (record["histogram"][name] for name in ("edges", "candidates", "pairs"))
    most = max(pairs)
    return [
        (f"{low:.2f} to {high:.2f}", f"{n_found:,}", f"{n_pairs:,}", "█" * round(_BAR * n_pairs / most))
        for low, high, n_found, n_pairs in zip(edges, edges[1:], candidates, pairs, strict=False)
    ]
