"""Run folders: stages done once, records that are whole or absent, and resumption by running again."""

from transencoder.runs.canonical import canonical_json, stage_key, stage_seed
from transencoder.runs.cleaning import CleanSummary, clean_run
from transencoder.runs.environment import describe_environment
from transencoder.runs.files import atomic_json, atomic_write_bytes, atomic_write_text
from transencoder.runs.listing import RunSummary, is_run, list_runs, read_result
from transencoder.runs.lock import wait_until_free
from transencoder.runs.log import read_log
from transencoder.runs.opening import warn_of_absent
from transencoder.runs.records import StageRecord, finished_stage
from transencoder.runs.run import Run
from transencoder.runs.stages import Cost, Executor, Planner, Stage, implied, made_of, setting

__all__ = [
    "CleanSummary",
    "Cost",
    "Executor",
    "Planner",
    "Run",
    "RunSummary",
    "Stage",
    "StageRecord",
    "atomic_json",
    "atomic_write_bytes",
    "atomic_write_text",
    "canonical_json",
    "clean_run",
    "describe_environment",
    "finished_stage",
    "implied",
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
