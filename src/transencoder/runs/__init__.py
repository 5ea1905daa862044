"""Run folders: each stage is computed once, records are complete or absent, and running again resumes."""

from transencoder.runs.files import atomic_write_bytes
from transencoder.runs.folder import wait_until_free, warn_of_absent
from transencoder.runs.listing import clean_run, list_runs
from transencoder.runs.log import read_log
from transencoder.runs.records import StageRecord, is_finished, stage_file
from transencoder.runs.run import Ranks, Run
from transencoder.runs.stages import Cost, Executor, Planner, Stage, implied, made_of, setting, stage_seed

__all__ = [
    "Cost",
    "Executor",
    "Planner",
    "Ranks",
    "Run",
    "Stage",
    "StageRecord",
    "atomic_write_bytes",
    "clean_run",
    "stage_file",
    "implied",
    "is_finished",
    "list_runs",
    "made_of",
    "read_log",
    "setting",
    "stage_seed",
    "wait_until_free",
    "warn_of_absent",
]
