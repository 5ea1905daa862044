"""The demonstration: one real run on a small domain that the project wrote itself, what it found, what to do next."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from transencoder.configs import FitConfig, Member
from transencoder.methods import TransEncoder
from transencoder.models import MINILM, resolve_model

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from rich.console import RenderableType
    from rich.table import Table

    from transencoder.training import Trained

DATA = Path(__file__).parent / "data"


def run_demo(output: str = "demo-run", show: Callable[[RenderableType], None] | None = None) -> Trained:
    """Train on the demo's unlabelled pairs, then show the scores, five test pairs and what to do next.

    Args:
        output: The run folder. The same call on the same folder goes on where it stopped.
        show: Prints a table or text; None: on the terminal, with rich.

    Returns:
        What any run returns, whatever its numbers are.

    Raises:
        InputError: The packaged start is not the model it should be.
        RunError: The run folder is locked, foreign, or its disk is full.
    """
    import rich

    from transencoder.report.notes import notes_of
    from transencoder.report.scores import summary_table
    from transencoder.report.verdict import verdict_of
    from transencoder.training import train

    show = show or rich.print
    trained = train(demo_config(output))
    notes = "\n".join([verdict_of(trained.result).sentence, *notes_of(trained.result)])
    for part in (summary_table(trained.result), notes, _examples_table(trained), _next_steps(trained.folder)):
        show(part)
    return trained


def demo_config(output: str) -> TransEncoder:
    """Build the demo's settings: at most three minutes on two cores."""
    return TransEncoder(
        pairs=str(DATA / "pairs.tsv"),
        members=(Member(start=MINILM),),
        output=output,
        dev=str(DATA / "dev.tsv"),
        tests=(str(DATA / "test.tsv"),),
        cycles=1,
        label_policy="quantile",  # a third of the pairs have nothing in common: their cosines are all alike
        start_weight=0.5,
        cross=FitConfig(epochs=3, learning_rate=1e-4, eval_steps=100),
        bi=FitConfig(epochs=2, learning_rate=2e-5, batch_size=64, eval_steps=12),
    )


def read_questions(path: Path = DATA / "questions.tsv") -> list[tuple[str, str]]:
    """Read the demo's questions: (intent, text) each; an intent starts with its device, as in `fridge-too-warm`."""
    lines = path.read_text("utf-8").splitlines()[1:]
    return [(intent, text) for intent, text in (line.split("\t") for line in lines)]


def _examples_table(trained: Trained) -> Table:
    from rich.table import Table

    pairs = _five_pairs()
    table = Table(title="Five test pairs, at equal steps from unrelated to same meaning", show_lines=True)
    table.add_column("question")
    table.add_column("question")
    for title in ("gold 0-5", "start", "bi", "cross"):
        table.add_column(title, justify="right", no_wrap=True)
    scores = _scores_of_all(trained, pairs)
    for row, pair in enumerate(pairs):
        cells = [f"{column[row]:.2f}" for column in scores]
        table.add_row(pair["sentence1"], pair["sentence2"], f"{pair['score']:g}", *cells)
    return table


def _five_pairs() -> Dataset:
    """Choose by their gold scores alone: the first, the last and three between."""
    from transencoder.pairs import read_pairs

    pairs = read_pairs(DATA / "test.tsv")
    by_score = sorted(range(len(pairs)), key=lambda row: pairs[row]["score"])
    return pairs.select([by_score[step * (len(pairs) - 1) // 4] for step in range(5)])


def _scores_of_all(trained: Trained, pairs: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores of the start and the bi-encoder, in [-1, 1], and of the cross-encoder, in (0, 1)."""
    from sentence_transformers import SentenceTransformer

    from transencoder.scorers import BiScorer, CrossScorer

    start = SentenceTransformer(resolve_model(MINILM), device=str(trained.bi_encoder.device))
    return (
        BiScorer(start).score(pairs),
        BiScorer(trained.bi_encoder).score(pairs),
        CrossScorer(trained.cross_encoder).score(pairs),
    )


def _next_steps(folder: Path) -> str:
    command = "transencoder"
    if which(command) is None:  # installed by make into an environment that is not active
        command = os.path.relpath(Path(sys.executable).with_name(command))
    train = f"{command} train trans-encoder --pairs your-pairs.tsv --start minilm --output runs/yours"
    return f"""What to do next:
  score pairs of yours:     {command} score {folder}/bi-encoder --pairs your-pairs.tsv
  train on pairs of yours:  {train}
  list the runs you have:   {command} runs list {folder.parent}
This run's report is {folder}/report.html."""
