"""Re-ranking: queries, each with candidates that are right (positive) or not; measured by MAP over queries.

AskUbuntu is Lei et al.'s (NAACL 2016) in the splits of its authors, which the sentence-transformers page and
Wang et al.'s benchmark (2021), and so the SCT paper, measure on: titles of questions, 20 candidates each, queries
without a positive left out. mteb's AskUbuntuDupQuestions is another set: its test split holds 361 queries.

SciDocs (Cohan et al., ACL 2020) is mteb's: titles of papers, about 30 candidates each, seemingly of all four
relations (cited, co-cited, co-viewed, co-read) in one list. Wang et al. average the MAPs of the four; here the mean is
over all queries. AskUbuntu has no pinned revision: no commit of it could be looked up.
"""

from transencoder.tasks.task import Task

_COLUMNS = ("query", "positive", "negative")
_RANGE = (0.0, 1.0)

ASKUBUNTU = Task(
    name="askubuntu",
    title="AskUbuntu",
    dataset="sentence-transformers/askubuntu",
    layout="candidates",
    columns=_COLUMNS,
    splits={"dev": "dev", "test": "test"},
    unlabelled=(),
    score_range=_RANGE,
    metric="map",
    symmetric=True,
)

SCIDOCS = Task(
    name="scidocs",
    title="SciDocs",
    dataset="mteb/scidocs-reranking",
    revision="d3c5e1fc0b855ab6097bf1cda04dd73947d7caab",
    layout="candidates",
    columns=_COLUMNS,
    splits={"dev": "validation", "test": "test"},
    unlabelled=(),
    score_range=_RANGE,
    metric="map",
    symmetric=False,
)
