"""What a run says of itself: report, results page, model card and summary table, from its records alone."""

from transencoder.report.mining import mining_lines
from transencoder.report.model_card import model_card
from transencoder.report.notes import notes_of, weak_cross_notes, weak_start_notes
from transencoder.report.paper_page import paper_page
from transencoder.report.plots import PLOTS
from transencoder.report.result import Result, read_result
from transencoder.report.results_page import results_page
from transencoder.report.run_report import write_report
from transencoder.report.tables import score_rows, summary_table
from transencoder.report.text import pretraining_lines
from transencoder.report.unlabelled import unlabelled_of
from transencoder.report.verdict import Verdict, verdict_of

__all__ = [
    "PLOTS",
    "Result",
    "Verdict",
    "mining_lines",
    "model_card",
    "notes_of",
    "paper_page",
    "pretraining_lines",
    "read_result",
    "results_page",
    "score_rows",
    "summary_table",
    "unlabelled_of",
    "verdict_of",
    "weak_cross_notes",
    "weak_start_notes",
    "write_report",
]
