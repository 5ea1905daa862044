"""Demonstration: a real run on a small data set that the project wrote itself, examples of its scores, next steps."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from transencoder.configs import FitConfig, Member
from transencoder.methods import TransEncoder
from transencoder.models import MINILM, resolve_model

if TYPE_CHECKING:
    from rich.table import Table

    from transencoder.training import Trained

DATA = Path(__file__).parent / "data"


def demo_config(output: str) -> TransEncoder:
    """Build the demo's config, whose run takes one to three minutes on two cores.

    The bi-encoder learns its base model's own ranking. There is no cross-encoder: 1,500 pairs are too few for one.
    """
    return TransEncoder(
        pairs=str(DATA / "pairs.tsv"),
        members=(Member(start=MINILM),),
        output=output,
        dev=str(DATA / "dev.tsv"),
        tests=(str(DATA / "test.tsv"),),
        same_form=True,
        cycles=1,
        label_policy="quantile",
        bi=FitConfig(epochs=3, learning_rate=6e-5, batch_size=64, eval_steps=24),
    )


def read_questions(path: Path = DATA / "questions.tsv") -> list[tuple[str, str]]:
    """Read the demo's questions as (intent, text); an intent starts with its device, as in `fridge-too-warm`."""
    lines = path.read_text("utf-8").splitlines()[1:]
    return [(intent, text) for intent, text in (line.split("\t") for line in lines)]


def examples_table(trained: Trained) -> Table:
    """Make a table of five test pairs, chosen by their gold scores alone: the lowest, the highest and three between.

    Scores are cosines, in [-1, 1].
    """
    from rich.table import Table
    from sentence_transformers import SentenceTransformer

    from transencoder.pairs import read_pairs
    from transencoder.scorers import BiScorer

    test = read_pairs(DATA / "test.tsv")
    by_score = sorted(range(len(test)), key=lambda row: test[row]["score"])
    pairs = test.select([by_score[step * (len(test) - 1) // 4] for step in range(5)])
    start = SentenceTransformer(resolve_model(MINILM), device=str(trained.bi_encoder.device))
    scores = [BiScorer(model).score(pairs) for model in (start, trained.bi_encoder)]
    table = Table("question", "question", title="Five test pairs, at equal steps from unrelated to same meaning")
    table.show_lines = True
    for title in ("gold 0-5", "base model", "bi-encoder"):
        table.add_column(title, justify="right", no_wrap=True)
    for row, pair in enumerate(pairs):
        cells = [f"{column[row]:.2f}" for column in scores]
        table.add_row(pair["sentence1"], pair["sentence2"], f"{pair['score']:g}", *cells)
    return table


def next_steps(folder: Path) -> str:
    """Return the next steps after the demo with this run folder, as commands that can be copied."""
    command = "transencoder"
    if which(command) is None:  # make installed it into an environment that is not active
        command = os.path.relpath(Path(sys.executable).with_name(command))
    train = f"{command} train trans-encoder --pairs your-pairs.tsv --start minilm --output runs/yours"
    return f"""What was done: the bi-encoder learned its base model's own ranking of the pairs, spread evenly from 0
to 1. Its scores then follow shared words less. That helps where words mislead, as on this test; on most other
text it costs up to six points. A hundred grades, ten minutes, tell which text yours is.
What to do next:
  score pairs of yours:     {command} score {folder}/bi-encoder --pairs your-pairs.tsv
  train on pairs of yours:  {train}
  grade pairs of that run:  {command} grade runs/yours
  list the runs you have:   {command} runs list {folder.parent}
This run's report is {folder}/report.html."""
