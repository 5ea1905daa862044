"""Teachers that are no members of a Trans-Encoder: models that only label, and scores that the pairs' file holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder.configs import OtherTeacher
from transencoder.context import Gold, Model, base_model
from transencoder.cycles import ContextTeacher
from transencoder.encoders import check_cross_start, fetch, is_cross
from transencoder.errors import InputError, plural
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs import fingerprint, read_pairs
from transencoder.training.text import reading

_LOW, _HIGH = 0.0, 1.0


def fetch_teachers(config: TransEncoder) -> dict[str, Path]:
    """Return the folder of each teacher that is a model.

    Raises:
        InputError: One cannot be had, or is a cross-encoder that gives several scores.
    """
    models = [each.teacher for each in config.teachers if each.column is None]
    folders = {name: fetch(name, token=config.token, cache_folder=config.cache_dir) for name in models}
    for name, folder in folders.items():
        if is_cross(folder):
            try:
                check_cross_start(folder, ())
            except InputError as error:
                raise InputError(f"teacher {name}: {error}") from error
    return folders


def teachers_of(config: TransEncoder, folders: dict[str, Path], pairs: Dataset) -> tuple[ContextTeacher, ...]:
    """Return the teachers that label beside the members.

    Args:
        config: The run's.
        folders: Those of `fetch_teachers`.
        pairs: The training pairs, n of them.

    Raises:
        InputError: A column is not there, has no score of a pair, or scores outside [0, 1] whose policy keeps them.
    """
    return tuple(
        ContextTeacher(
            name=f"teacher-{number}",
            source=_column(config, each, each.column, pairs)
            if each.column is not None
            else _model(folders[each.teacher], f"teacher-{number}"),
            weight=each.teacher_weight,
            policy=each.teacher_policy or config.label_policy,
        )
        for number, each in enumerate(config.teachers, 1)
    )


def in_words(teachers: Sequence[OtherTeacher]) -> str:
    """Say who labels beside the members: the end of a sentence."""
    names = [each.teacher if each.column is None else f"the column {each.column!r}" for each in teachers]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _model(folder: Path, name: str) -> Model:
    return replace(base_model(folder, name, form="cross" if is_cross(folder) else "bi"), only_teaches=True)


def _column(config: TransEncoder, teacher: OtherTeacher, column: str, pairs: Dataset) -> Gold:
    """Read a column of scores of the file of pairs: float32 (n,), row for row as the training pairs."""
    assert config.pairs is not None, "the config has checked it"
    read = read_pairs(
        config.pairs, columns=config.columns or None, score_column=column, **reading(config, bad_rows_file=None)
    )
    texts = zip(read["sentence1"][:], read["sentence2"][:], strict=True)
    score_of = dict(zip(texts, read["score"][:], strict=True))
    wanted = list(zip(pairs["sentence1"][:], pairs["sentence2"][:], strict=True))
    absent = [pair for pair in wanted if pair not in score_of]
    if absent:
        raise InputError(
            f"{plural(len(absent), 'training pair')} of {len(wanted)}, such as {absent[0]}, have no score in column "
            f"{column!r}: extra or labelled pairs have none; leave these out, or give a model as teacher"
        )
    scores = np.array([score_of[pair] for pair in wanted], np.float32)
    low, high = float(scores.min()), float(scores.max())
    if (teacher.teacher_policy or config.label_policy) == "clip" and not _LOW <= low <= high <= _HIGH:
        raise InputError(
            f"column {column!r} has scores from {low:g} to {high:g}, and the policy clip cuts off what is outside "
            "[0, 1]; give teacher_policy affine (stretched to [0, 1]) or quantile (ranks)"
        )
    return Gold(scores, fingerprint(read))
