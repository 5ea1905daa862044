"""Pseudo-labels of pairs: each teacher's raw scores, the policy that maps them to targets, and the targets' mean."""

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset
from scipy.stats import rankdata

from transencoder.configs import LabelPolicy
from transencoder.errors import InputError
from transencoder.scorers import Scorer, score_on_ranks

logger = logging.getLogger(__name__)

_CHUNK = 1 << 13


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """A scorer that labels pairs, with its name, fingerprint and weight."""

    name: str
    """Column and record name, such as `cross-encoder` or `start`."""
    scorer: Scorer
    """Scorer of the pairs."""
    fingerprint: str = ""
    """Identifier of the scorer's weights: a stage key or a folder's hash."""
    weight: float = 1.0
    """Share in the mean; normalised over the teachers."""


class Provenance(TypedDict):
    """Origin of one teacher's part of the labels, as JSON."""

    teacher: str
    """Name of the teacher."""
    fingerprint: str
    """Identifier of the teacher's weights: a stage key or a folder's hash."""
    weight: float
    """Share of the teacher in the mean, in (0, 1]."""
    policy: str
    """Policy that mapped its raw scores to targets."""


@dataclass(frozen=True)
class PseudoLabels:
    """One target per pair, with everything it was made from."""

    targets: np.ndarray
    """float32 (n,), in [0, 1] unless the policy is `raw`."""
    raw: dict[str, np.ndarray]
    """Each teacher's raw scores, float32 (n,)."""
    provenance: list[Provenance]
    """One record per teacher."""

    def write(self, path: Path, pairs: Dataset) -> None:
        """Write `sentence1, sentence2, label` as Parquet, which any sentence-transformers trainer takes as it is.

        The provenance is in the file's metadata under `transencoder`; `write_raw` writes the raw scores.
        """
        about = {"transencoder": json.dumps(self.provenance)}
        texts = [("sentence1", pa.string()), ("sentence2", pa.string())]
        schema = pa.schema([*texts, ("label", pa.float32())], metadata=about)
        with pq.ParquetWriter(path, schema) as writer:
            for i in range(0, len(pairs), _CHUNK):
                rows = pairs[i : i + _CHUNK]
                columns = {name: rows[name] for name, _ in texts} | {"label": self.targets[i : i + _CHUNK]}
                writer.write_table(pa.table(columns, schema=schema))

    def write_raw(self, path: Path) -> None:
        """Write each teacher's raw scores as a Parquet column with its name, in the same row order as the labels."""
        pq.write_table(pa.table(self.raw), path)


def label(teachers: Sequence[Teacher], pairs: Dataset, policy: LabelPolicy = "clip") -> PseudoLabels:
    """Label pairs: every teacher scores them, the policy maps its scores to targets, which are averaged by weight.

    Under torchrun each rank scores its share. Trans-Encoder section 2.2 (one teacher) and 2.4 (the mean of several).

    Args:
        teachers: Teachers that label, one or more.
        pairs: n pairs with `sentence1` and `sentence2`.
        policy: How a teacher's raw scores become targets; see `POLICIES`.

    Returns:
        Targets, raw scores and provenance.

    Raises:
        InputError: No teacher, two with the same name, a weight that is not positive, or no pairs.
    """
    names = [teacher.name for teacher in teachers]
    if not names or len(set(names)) < len(names):
        raise InputError(f"teachers are {names}; give at least one, each with a name of its own")
    weights = {teacher.name: teacher.weight for teacher in teachers}
    _check(weights, len(pairs))
    raw = {teacher.name: score_on_ranks(teacher.scorer, pairs) for teacher in teachers}
    fingerprints = {teacher.name: teacher.fingerprint for teacher in teachers}
    return combine(raw, dict.fromkeys(names, policy), weights, fingerprints)


def combine(
    raw: Mapping[str, np.ndarray],
    policies: Mapping[str, LabelPolicy],
    weights: Mapping[str, float],
    fingerprints: Mapping[str, str],
) -> PseudoLabels:
    """Combine raw scores that were computed before into labels; see `label`.

    Args:
        raw: Each teacher's scores, float32 (n,).
        policies: How each teacher's raw scores become targets.
        weights: Each teacher's share in the mean, above 0; normalised.
        fingerprints: Each teacher's fingerprint, for the provenance.

    Raises:
        InputError: A weight that is not positive, or no scores.
    """
    n_pairs = len(next(iter(raw.values())))
    _check(weights, n_pairs)
    total = sum(weights.values())
    targets = np.zeros(n_pairs, np.float32)
    records = []
    for name, scores in raw.items():
        share = weights[name] / total
        part = POLICIES[policies[name]](scores)
        for i in range(0, n_pairs, _CHUNK):  # in chunks, to avoid a third array of all pairs
            targets[i : i + _CHUNK] += np.float32(share) * part[i : i + _CHUNK]
        records.append(Provenance(teacher=name, fingerprint=fingerprints[name], weight=share, policy=policies[name]))
    if "raw" not in policies.values():
        np.clip(targets, 0.0, 1.0, out=targets)  # shares that add up to 1 may exceed it in float32
    n_outside = int(((targets < 0) | (targets > 1)).sum())
    if n_outside:
        names = ", ".join(dict.fromkeys(policies.values()))
        logger.warning("%d of %d targets lie outside [0, 1] (label policy %s)", n_outside, len(targets), names)
    return PseudoLabels(targets, dict(raw), records)


def _check(weights: Mapping[str, float], n_pairs: int) -> None:
    if not all(0 < weight < math.inf for weight in weights.values()):
        raise InputError(f"weights of the teachers are {dict(weights)}; give each a finite number above 0")
    if not n_pairs:
        raise InputError("there are no pairs to label; give at least one")


def clip(scores: np.ndarray) -> np.ndarray:
    """Clip scores to [0, 1]; our default."""
    clipped: np.ndarray = np.clip(scores, 0.0, 1.0)
    return clipped


def raw(scores: np.ndarray) -> np.ndarray:
    """Return scores unchanged, as the released code does; with cosines below 0, a cross-entropy has no lower bound."""
    return scores


def affine(scores: np.ndarray) -> np.ndarray:
    """Scale scores linearly so that the smallest is 0 and the largest 1; 0.5 where all are equal."""
    low, high = scores.min(), scores.max()
    stretched: np.ndarray = (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)
    return stretched


def quantile(scores: np.ndarray) -> np.ndarray:
    """Replace each score by its quantile, (rank - 1/2) / n, with mean ranks for ties: uniform on (0, 1)."""
    ranks: np.ndarray = rankdata(scores)
    return ((ranks - 0.5) / len(scores)).astype(np.float32)


POLICIES: dict[LabelPolicy, Callable[[np.ndarray], np.ndarray]] = {
    "clip": clip,
    "affine": affine,
    "quantile": quantile,
    "raw": raw,
}
