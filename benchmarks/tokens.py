"""Measure what weighted tokens and late interaction add to a bi-encoder's cosine, without any training.

    python benchmarks/tokens.py minilm ../shared/models/plm-mini-simcse ../runs/domains/unsupervised/bi-encoder

Scores the tests of the ten domains of domain_data.py, and up to 500 pairs of each of the 24 genres of STS 2012 to 2016,
in three ways: by cosine, by the cosine of a model that `transencoder weight` makes with the same texts, and by tokens,
as `--bi-labels tokens` does. Token frequencies are those in the set's own texts. Runs in fp32 with one thread, and
writes results/tokens.md.
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from domain_data import DOMAINS, tests

from transencoder import BiScorer
from transencoder.encoders import fetch, load_bi, weight_tokens
from transencoder.metrics import METRICS
from transencoder.report.words import markdown_table
from transencoder.token_scores import TokenScorer

RESULTS = Path(__file__).parent / "results"
YEARS = range(2012, 2017)
N_GENRE = 500
_TEXTS = ["sentence1", "sentence2"]

_HOW = """\
# Tokens

Points over the cosine (Spearman's correlation or ROC-AUC times 100), without training. Weighted: the cosine of the
model that `transencoder weight` makes of it. Tokens: what `--bi-labels tokens` labels by, the mean of cosine, weighted
mean and late interaction. Genres: STS 2012 to 2016, up to 500 pairs each. The square root of the weights was chosen on
the genres; the mean of three was taken as it is. `benchmarks/tokens.py`, fp32."""


def sets_of(data: Path) -> Iterator[tuple[str, str, Dataset]]:
    """Yield the name of each set, its metric, and its graded pairs."""
    for year in YEARS:
        rows = defaultdict(list)
        with gzip.open(data / f"mteb/sts{year % 100}-sts/test.jsonl.gz", "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                rows[row.get("subset", "all")].append({name: row[name] for name in (*_TEXTS, "score")})
        for genre, pairs in sorted(rows.items()):
            yield f"{year} {genre}", "spearman", Dataset.from_list(pairs[:N_GENRE])
    for name, pairs in tests(data).items():
        yield name, DOMAINS[name].metric, pairs


def measured(folder: Path, pairs: Dataset, metric: str) -> tuple[float, float, float]:
    """Return the metric of three scores: the cosine, the weighted model's cosine, and token scores."""
    texts = pairs.select_columns(_TEXTS)
    distinct = dict.fromkeys([*pairs["sentence1"], *pairs["sentence2"]])
    with tempfile.TemporaryDirectory() as scratch:
        weight_tokens(folder, Dataset.from_dict({"text": list(distinct)}), Path(scratch) / "weighted")
        base, weighted = (load_bi(each, device="cpu") for each in (folder, Path(scratch) / "weighted"))
    scorers = (
        BiScorer(base, precision="fp32"),
        BiScorer(weighted, precision="fp32"),
        TokenScorer(base, precision="fp32"),
    )
    gold = np.array(pairs["score"])
    first, second, third = (METRICS[metric](gold, scorer.score(texts).astype(np.float64)) for scorer in scorers)
    return first, second, third


def table(gains: dict[str, list[tuple[float, float, float]]], names: list[str]) -> str:
    """Return a table with a row for each set, and for means and worst sets: each model's cosine and two gains."""
    header = ["set"] + [f"{name}{kind}" for name in gains for kind in ("", ", weighted", ", tokens")]
    rows: list[list[str]] = []
    for i, name in enumerate(names):
        rows.append([name, *(cell for each in gains.values() for cell in _cells(each[i]))])
    n_genres = len(names) - len(DOMAINS)
    for title, part in (("genres", slice(0, n_genres)), ("domains", slice(n_genres, None))):
        arrays = [np.array(each[part]) for each in gains.values()]
        rows.append([f"mean of {title}", *(cell for each in arrays for cell in _cells(each.mean(0)))])
        rows.append([f"worst of {title}", *(cell for each in arrays for cell in ("", *_cells(each.min(0))[1:]))])
    return "\n".join(markdown_table(header, rows))


def _cells(values: tuple[float, ...] | np.ndarray) -> list[str]:
    base, *gains = values
    return [f"{base:.1f}", *(f"{gain:+.1f}" for gain in gains)]


def main() -> None:
    """Measure each model on each set, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TRANSENCODER_DATA", "../shared/data")))
    options = parser.parse_args()
    torch.set_num_threads(1)
    sets = list(sets_of(options.data))
    gains: dict[str, list[tuple[float, float, float]]] = {}
    for model in options.models:
        folder, found = fetch(model, form="bi"), []
        for name, metric, pairs in sets:
            base, *others = measured(folder, pairs, metric)
            found.append((base, others[0] - base, others[1] - base))
            print(model, name, found[-1], file=sys.stderr, flush=True)
        gains[_short(model)] = found
    page = f"{_HOW}\n\n{table(gains, [name for name, _, _ in sets])}\n"
    (RESULTS / "tokens.md").write_text(page)
    print(page)


def _short(model: str) -> str:
    """Return the part of a path that tells models apart."""
    parts = [part for part in Path(model).parts if part != "bi-encoder"]
    return parts[-1]


if __name__ == "__main__":
    main()
