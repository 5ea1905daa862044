"""Teachers that are not members of a Trans-Encoder run: models that only label, and scores in the pairs' file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import AutoConfig

from transencoder.configs import Form, OtherTeacher
from transencoder.context import GivenScores, Model, base_model
from transencoder.cycles import ContextTeacher
from transencoder.encoders import is_classifier, is_cross
from transencoder.errors import InputError, plural, shorten
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.models import Prompts, warn_of_unused_prompts
from transencoder.pairs import read_pairs, row_hashes
from transencoder.training.data import task_names
from transencoder.training.parts import fetched
from transencoder.training.text import reading

_TEXTS = ("sentence1", "sentence2")


def fetch_teachers(config: TransEncoder) -> dict[str, Path]:
    """Return the folder of each teacher that is a model.

    Raises:
        InputError: A model cannot be loaded, or is a cross-encoder with several outputs; or the teacher is a column of
            scores, and the pairs come from a task or from stdin.
    """
    folders = {}
    for each in config.teachers:
        if each.column is not None:
            if config.pairs == "-" or task_names(config.pairs):
                raise InputError(
                    f"teacher is {each.teacher}, and pairs is {config.pairs!r}, which has no such column or can be "
                    "read only once; give a file"
                )
            continue
        folder = fetched(config, each.teacher)
        if is_classifier(folder) and (n_outputs := AutoConfig.from_pretrained(folder).num_labels) != 1:
            raise InputError(
                f"teacher {each.teacher} gives {n_outputs} scores of a pair, which are no labels; give a cross-encoder "
                "or re-ranker with one output, or a bi-encoder"
            )
        if not is_cross(folder):
            warn_of_unused_prompts(folder, f"teacher {each.teacher}", each.prompts)
        folders[each.teacher] = folder
    return folders


def teachers_of(config: TransEncoder, folders: Mapping[str, Path], pairs: Dataset) -> tuple[ContextTeacher, ...]:
    """Return the teachers that label in addition to the members.

    Args:
        config: Config of the run.
        folders: Folders that `fetch_teachers` returned.
        pairs: The training pairs, n of them.

    Raises:
        InputError: A column is missing, lacks a pair's score, or has scores outside [0, 1] that `clip` would cut off.
    """
    return tuple(
        ContextTeacher(
            name=f"teacher-{number}",
            source=_column(config, each, each.column, pairs)
            if each.column is not None
            else _model(folders[each.teacher], f"teacher-{number}", each.prompts),
            weight=each.teacher_weight,
            policy=each.teacher_policy or config.label_policy,
        )
        for number, each in enumerate(config.teachers, 1)
    )


def names_of(teachers: Sequence[OtherTeacher]) -> str:
    """Return the names of teachers in words: `A, B and the column 'score'`."""
    names = [each.teacher if each.column is None else f"the column {each.column!r}" for each in teachers]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _model(folder: Path, name: str, prompts: Prompts) -> Model:
    form: Form = "cross" if is_cross(folder) else "bi"
    return replace(base_model(folder, name, form=form, prompts=prompts), only_teaches=True)


def _column(config: TransEncoder, teacher: OtherTeacher, column: str, pairs: Dataset) -> GivenScores:
    """Read a column of scores from the file of pairs; a pair that occurs several times gets the mean."""
    assert config.pairs is not None, "the config has checked it"
    options = reading(config, bad_rows_file=None)
    read = read_pairs(config.pairs, columns=config.columns or None, score_column=column, **options)
    keys, positions = np.unique(row_hashes(read, _TEXTS), return_inverse=True)
    means = np.bincount(positions, weights=read["score"][:]) / np.bincount(positions)
    wanted = row_hashes(pairs, _TEXTS)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    absent = np.flatnonzero(keys[places] != wanted)
    if len(absent):
        row = pairs[int(absent[0])]
        raise InputError(
            f"{plural(len(absent), 'training pair')} of {len(wanted)}, such as "
            f"{shorten((row['sentence1'], row['sentence2']))}, have no score in column {column!r}: it is bad there, or "
            "they are extra or labelled pairs; leave these out, or give a model as teacher"
        )
    scores = means[places].astype(np.float32)
    low, high = float(scores.min()), float(scores.max())
    if (teacher.teacher_policy or config.label_policy) == "clip" and not 0.0 <= low <= high <= 1.0:
        raise InputError(
            f"column {column!r} has scores from {low:g} to {high:g}, and the policy clip cuts off what is outside "
            "[0, 1]; give teacher_policy affine (stretched to [0, 1]) or quantile (ranks)"
        )
    return GivenScores(scores, hashlib.sha256(scores.tobytes()).hexdigest())
