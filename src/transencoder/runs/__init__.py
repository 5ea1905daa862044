"""Run folders: each stage is computed once, records are complete or absent, and running again resumes."""

from transencoder.runs.files import atomic_json, atomic_write_bytes, atomic_write_text, canonical_json
from transencoder.runs.folder import is_run, read_result, wait_until_free, warn_of_absent
from transencoder.runs.listing import clean_run, list_runs
from transencoder.runs.log import describe_environment, read_log
from transencoder.runs.records import StageRecord, is_finished, stage_file
from transencoder.runs.run import Ranks, Run
from transencoder.runs.stages import Cost, Executor, Planner, Stage, implied, made_of, setting, stage_key, stage_seed

__all__ = [
    "Cost",
    "Executor",
    "Planner",
    "Ranks",
    "Run",
    "Stage",
    "StageRecord",
    "atomic_json",
    "atomic_write_bytes",
    "atomic_write_text",
    "canonical_json",
    "clean_run",
    "describe_environment",
    "stage_file",
    "implied",
    "is_finished",
    "is_run",
    "list_runs",
    "made_of",
    "read_log",
    "read_result",
    "setting",
    "stage_key",
    "stage_seed",
    "wait_until_free",
    "warn_of_absent",
]
