"""Run folders: each stage is computed once, records are complete or absent, and running again resumes."""

from transencoder.runs.files import atomic_write_bytes as atomic_write_bytes
from transencoder.runs.folder import wait_until_free as wait_until_free
from transencoder.runs.folder import warn_of_absent as warn_of_absent
from transencoder.runs.listing import clean_run as clean_run
from transencoder.runs.listing import list_runs as list_runs
from transencoder.runs.log import read_log as read_log
from transencoder.runs.records import StageRecord as StageRecord
from transencoder.runs.records import is_finished as is_finished
from transencoder.runs.records import stage_file as stage_file
from transencoder.runs.run import Ranks as Ranks
from transencoder.runs.run import Run as Run
from transencoder.runs.stages import Cost as Cost
from transencoder.runs.stages import Executor as Executor
from transencoder.runs.stages import Planner as Planner
from transencoder.runs.stages import Stage as Stage
from transencoder.runs.stages import implied as implied
from transencoder.runs.stages import made_of as made_of
from transencoder.runs.stages import setting as setting
from transencoder.runs.stages import stage_seed as stage_seed
