"""Ten domains: each has unlabelled pairs, single sentences, and a graded test whose texts are in no training data.

Tests are drawn first. Then every pair that shares a text with any domain's test is removed, because a model trained on
one domain is measured on all tests. Texts are compared in lower case, without spaces and punctuation. Settings are
chosen on the development domains.
"""

import csv
import gzip
import json
import random
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets

from transencoder.demo import DATA as DEVICES

N_PAIRS, N_TEST = 1500, 600
"""Largest number of training pairs and of test pairs in a domain."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of pairs, below the data folder unless its path is absolute."""

    path: str
    columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
    """Names of the columns of both texts and of the gold score or class."""
    positive: int | None = None
    """The positive class; None: gold is a score, and the test is measured by Spearman's correlation."""
    only: tuple[str, ...] = ()
    """Subsets or sources whose rows are read; empty: all rows."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A kind of text with its own meaning of similarity."""

    about: str
    pairs: tuple[Source, ...]
    tests: tuple[Source, ...]
    questions: str | None = None
    """File of the sentences that the pairs were made from; None: the sentences are the pairs' texts."""
    is_symmetric: bool = True
    is_development: bool = False

    @property
    def metric(self) -> str:
        """Return the metric of the domain's test."""
        return "spearman" if self.tests[0].positive is None else "roc_auc"


@dataclass(frozen=True, kw_only=True)
class DomainText:
    """Training text of a domain."""

    pairs: Dataset
    sentences: Dataset
    documents: Dataset | None
    """Answers, where pairs are a question and an answer; `sentences` are then the questions."""

    @property
    def texts(self) -> Dataset:
        """Return sentences and documents together."""
        return self.sentences if self.documents is None else concatenate_datasets([self.sentences, self.documents])


_NLI = ("premise", "hypothesis", "label")
_QQP = ("question1", "question2", "label")
_QNLI = ("question", "sentence", "label")
_GLUE_PAIR = ("sentence1", "sentence2", "label")
_SICK = ("sentence_A", "sentence_B", "relatedness_score")
_UNSCORED = "pairs/sts-sickr/train"


def _task(train: str, test: str, columns: tuple[str, str, str], positive: int | None, **more: Any) -> Domain:
    """Build a domain from two splits of one data set, or from one split, from which the test is drawn too."""
    train_source, test_source = (Source(path=path, columns=columns, positive=positive) for path in (train, test))
    return Domain(pairs=(train_source,), tests=(test_source,), **more)


def _genre(year_to_name: dict[int, str], unscored: tuple[str, ...], **more: Any) -> Domain:
    """Build a domain from SemEval's unscored pairs, with a test from the scored ones."""
    tests = tuple(Source(path=f"mteb/sts{year}-sts/test", only=(name,)) for year, name in year_to_name.items())
    return Domain(pairs=(Source(path=_UNSCORED, only=unscored),), tests=tests, **more)


DOMAINS: dict[str, Domain] = {
    "devices": Domain(
        about="the demo's questions about household devices, how alike",
        pairs=(Source(path=str(DEVICES / "pairs.tsv")),),
        tests=(Source(path=str(DEVICES / "test.tsv")),),
        questions=str(DEVICES / "questions.tsv"),
        is_development=True,
    ),
    "qqp": _task(
        *("nyu-mll/glue/qqp/train", "nyu-mll/glue/qqp/test", _QQP, 1),
        about="questions on the web, duplicates or not",
        is_development=True,
    ),
    "sickr": _task(
        *("RobZamp/sick/train", "RobZamp/sick/test", _SICK, None),
        about="captions, composed, how related",
        is_development=True,
    ),
    "mnli": _task(
        *("nyu-mll/glue/mnli/train", "nyu-mll/glue/mnli/train", _NLI, 0),
        about="speech and print, entailed or not",
        is_development=True,
    ),
    "qnli": _task(
        *("nyu-mll/glue/qnli/train", "nyu-mll/glue/qnli/validation", _QNLI, 0),
        about="questions and Wikipedia's sentences, answered or not",
        is_symmetric=False,
    ),
    "mrpc": _task(
        *("nyu-mll/glue/mrpc/train", "nyu-mll/glue/mrpc/test", _GLUE_PAIR, 1), about="news, paraphrases or not"
    ),
    "snli": _task("stanfordnlp/snli/train", "stanfordnlp/snli/test", _NLI, 0, about="captions, entailed or not"),
    "stsb": _task(
        *("mteb/stsbenchmark-sts/train", "mteb/stsbenchmark-sts/test", ("sentence1", "sentence2", "score"), None),
        about="news, captions and forums, how alike",
    ),
    "headlines": _genre(
        {13: "headlines", 15: "headlines", 16: "headlines"},
        ("sts15-headlines", "sts16-headlines"),
        about="headlines, how alike",
    ),
    "answers": _genre(
        {15: "answers-forums", 16: "answer-answer"},
        ("sts15-answers-forums", "sts16-answer-answer"),
        about="answers in forums, how alike",
    ),
}


def key(text: str) -> str:
    """Return a text in lower case without spaces and punctuation; texts with equal keys count as the same text."""
    return "".join(re.findall(r"\w+", text.lower()))


@cache
def tests(data: Path) -> dict[str, Dataset]:
    """Draw every domain's test: `sentence1`, `sentence2` and `score`; 1 is the positive class if gold is a class."""
    return {name: Dataset.from_list(_drawn(_scored(data, domain), N_TEST)) for name, domain in DOMAINS.items()}


@cache
def test_keys(data: Path) -> frozenset[str]:
    """Return the keys of all texts of all tests."""
    columns = ("sentence1", "sentence2")
    return frozenset(key(text) for test in tests(data).values() for column in columns for text in test[column])


@cache
def text_of(name: str, data: Path) -> DomainText:
    """Read a domain's training text, without the texts of any test."""
    domain, seen = DOMAINS[name], test_keys(data)
    rows = [row for source in domain.pairs for row in _rows(data, source)]
    columns = ("sentence1", "sentence2")
    pairs = _drawn(_distinct({side: row[side] for side in columns} for row in rows if not _keys(row) & seen), N_PAIRS)
    if domain.questions is not None:
        sides = [[row["text"] for row in _lines(Path(domain.questions)) if key(row["text"]) not in seen]]
    elif domain.is_symmetric:
        sides = [[row[side] for row in pairs for side in columns]]
    else:
        sides = [[row[side] for row in pairs] for side in columns]
    sentences, *documents = (Dataset.from_dict({"text": list(dict.fromkeys(side))}) for side in sides)
    return DomainText(
        pairs=Dataset.from_list(pairs),
        sentences=sentences,
        documents=documents[0] if documents else None,
    )


def general_text(n_sentences: int, data: Path) -> Dataset:
    """Draw sentences of mixed English, none of which is in any test."""
    rows = _lines(data / "sentences/english-mixed/train.jsonl.gz")
    usable = dict.fromkeys(row["text"] for row in rows if key(row["text"]) not in test_keys(data))
    return Dataset.from_dict({"text": random.Random(0).sample(list(usable), n_sentences)})


def _scored(data: Path, domain: Domain) -> list[Row]:
    rows = (row for source in domain.tests for row in _rows(data, source))
    return [row for row in _distinct(rows) if row["score"] >= 0]  # SNLI has -1 where its annotators did not agree


def _rows(data: Path, source: Source) -> Iterator[Row]:
    path = Path(source.path)
    first, second, gold = source.columns
    for row in _lines(path if path.is_absolute() else data / f"{path}.jsonl.gz"):
        if source.only and row.get("subset", row.get("source")) not in source.only:
            continue
        score = float(row.get(gold, -1))
        if source.positive is not None and score >= 0:
            score = float(score == source.positive)
        yield {"sentence1": row[first].strip(), "sentence2": row[second].strip(), "score": score}


def _lines(path: Path) -> list[Row]:
    if path.suffix == ".tsv":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _keys(row: Row) -> set[str]:
    return {key(row["sentence1"]), key(row["sentence2"])}


def _distinct(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without empty texts, and only the first of those with the same two texts in either order."""
    first = {frozenset(_keys(row)): row for row in reversed(list(rows)) if all(_keys(row))}
    return list(reversed(first.values()))


def _drawn(rows: Collection[Row], n: int) -> list[Row]:
    return random.Random(0).sample(list(rows), min(n, len(rows)))
