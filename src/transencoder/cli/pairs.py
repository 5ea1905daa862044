"""`pairs` and `mine`: pairs to train on, from tasks and from plain sentences."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder.cli.files import STDOUT, Rows, Where, check_output, check_texts, write_rows
from transencoder.cli.flags import argument, option, part
from transencoder.cli.terminal import show
from transencoder.configs import Pooling, Precision
from transencoder.configs.ranges import Config, Contradictions
from transencoder.models import Prompts

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Options of `pairs`."""

    tasks: tuple[str, ...] = argument("TASK")
    """task or suite, such as sts or sickr"""
    output: str = option(metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    exclude_test_sentences: bool = False
    """leave out pairs that hold a sentence of a test set"""
    where: Where


def pairs(options: Pairs) -> None:
    """Write the unlabelled, deduplicated training pairs of tasks."""
    from transencoder.tasks import unlabelled_pairs

    is_inductive = options.exclude_test_sentences
    found, about = unlabelled_pairs(options.tasks, exclude_test_sentences=is_inductive, **vars(options.where))
    write_rows(found, options.output)
    if options.output == STDOUT:
        return
    show(f"{options.output}: {about['rows']} pairs of {', '.join(about['tasks'])}, from {about['source']}")
    if about["missing_rows"]:
        show(f"{about['missing_rows']} pairs of the paper's set could not be had")
    if is_inductive:
        show(f"{about['excluded_rows']} pairs with a sentence of a test set were left out")


@dataclass(frozen=True, kw_only=True)
class Starting:
    """How the start reads texts: parameters of `mine`."""

    revision: str | None = None
    """its hub revision"""
    pooling: Pooling | None = None
    """its pooling (default: its own)"""
    prompt: str | None = option(None, metavar="TEXT")
    """read before every text (default: its own default prompt, if any)"""
    document_prompt: str | None = option(None, metavar="TEXT")
    """read before every document instead (default: the same)"""
    max_length: int | None = option(None, metavar="TOKENS")
    """cut longer texts, as training does after 32 (default: its own)"""
    device: str | None = None
    """such as cpu or cuda:0 (default: the best there is)"""
    precision: Precision = "auto"
    """auto: bf16 where the hardware has it"""


@dataclass(frozen=True, kw_only=True)
class Mine(Config):
    """Options of `mine`."""

    sentences: str = argument("SENTENCES")
    """TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    output: str = option(metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    start: str = option(metavar="MODEL")
    """the bi-encoder to train from: folder, hub id, or minilm"""
    n_pairs: int | None = None
    """how many (default: 5 for each sentence up to 10,000, 2 for each up to 50,000)"""
    max_pairs_per_sentence: int = 20
    """that a sentence may be in"""
    documents: str | None = option(None, metavar="FILE")
    """pair each sentence with texts of this file, read as SENTENCES is: queries and documents"""
    column: str | None = option(None, metavar="NAME")
    """the text column (default: text, sentence, else the first)"""
    document_column: str | None = option(None, metavar="NAME")
    """the same in the documents"""
    seed: int = 2021
    """decides what is drawn"""
    json: bool = False
    """print the record as JSON instead of tables"""
    starting: Starting = part("start")
    rows: Rows
    where: Where

    def contradictions(self) -> Contradictions:
        """Yield what does not go together."""
        for source in filter(None, (self.sentences, self.documents)):
            check_output(self.output, source=source)
        if self.output == STDOUT and self.json:
            yield "--output - and --json both go to stdout. Leave one out."
        if self.documents and self.documents == self.sentences:
            yield "--documents are SENTENCES. Leave --documents out."
        if self.starting.document_prompt is not None and not self.documents:
            yield "--document-prompt is for --documents. Give both, or leave it out."
        if self.document_column and not self.documents:
            yield "--document-column is for --documents. Give both, or leave it out."
        if self.documents and self.rows.bad_rows_file:
            yield "--bad-rows-file is for one file, and --documents is another."


def mine(options: Mine) -> None:
    """Mine pairs to train on from plain sentences, spread evenly over what the start says of them."""
    from transencoder import mining
    from transencoder.report.data import mining_lines

    mining.check_numbers(options.n_pairs, options.max_pairs_per_sentence)
    start = dict(vars(options.starting))
    start["prompts"] = Prompts(start.pop("prompt"), start.pop("document_prompt"))
    with mining.open_workspace(options.start, **start, **options.where.hub) as workspace:
        sentences = _texts(options.sentences, options.column, options)
        documents = _texts(options.documents, options.document_column, options) if options.documents else None
        mined = mining.mine_pairs(
            mining.embed(sentences, documents, workspace.scorer, workspace.scratch),
            workspace.folder,
            n_pairs=options.n_pairs,
            max_pairs_per_sentence=options.max_pairs_per_sentence,
            seed=options.seed,
        )
    write_rows(mined.pairs, options.output)
    if options.json:
        show(json.dumps(mined.record))
    elif options.output != STDOUT:
        show(f"{options.output}: " + "\n".join(mining_lines(mined.record)))


def _texts(source: str, column: str | None, options: Mine) -> Dataset:
    from transencoder.pairs import read_sentences

    texts = read_sentences(source, column=column, **vars(options.rows), **vars(options.where))
    check_texts(texts, options.output)
    return texts
