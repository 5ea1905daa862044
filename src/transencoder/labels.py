"""Teachers x pairs -> pseudo-labels: each teacher's raw scores, the policy that maps them to targets, their mean."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """A scorer that labels, and who it is."""

    name: str
    """Column and record name, such as `cross-encoder` or `start`."""
    scorer: Scorer
    """What scores the pairs."""
    fingerprint: str = ""
    """Which weights these are: a stage key or a folder's hash."""
    weight: float = 1.0
    """Share in the mean; normalised over the teachers."""


class Provenance(TypedDict):
    """Where one teacher's part of the labels comes from, as JSON."""

    teacher: str
    """Its name."""
    fingerprint: str
    """Which weights it had: a stage key or a folder's hash."""
    weight: float
    """Its share in the mean, in (0, 1]."""
    policy: str
    """How its raw scores became targets."""
    raw_min: float
    raw_max: float
    raw_mean: float
    raw_std: float
    """Of its raw scores, over n."""
    n_outside: int
    """Raw scores outside [0, 1]."""


@dataclass(frozen=True)
class PseudoLabels:
    """One target a pair, with everything it was made from."""

    targets: np.ndarray
    """float32 (n,), in [0, 1] unless the policy is `raw`."""
    raw: dict[str, np.ndarray]
    """Each teacher's raw scores, float32 (n,)."""
    provenance: list[Provenance]
    """One record a teacher."""

    def write(self, path: Path, pairs: Dataset) -> None:
        """Write `sentence1, sentence2, label` as Parquet, which any sentence-transformers trainer takes as it is.

        The provenance stands in the file's metadata under `transencoder`; the raw scores are `write_raw`'s.
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
        """Write each teacher's raw scores as a column of its name: Parquet, row for row as the labels."""
        pq.write_table(pa.table(self.raw), path)


def label(teachers: Sequence[Teacher], pairs: Dataset, policy: LabelPolicy = "clip") -> PseudoLabels:
    """Label pairs: every teacher scores them, the policy maps its scores, the weighted mean is the target.

    Under torchrun each rank scores its share. Trans-Encoder section 2.2 (one teacher) and 2.4 (the mean of several).

    Args:
        teachers: Who labels.
        pairs: n pairs with `sentence1` and `sentence2`.
        policy: How a teacher's raw scores become targets; see `POLICIES`.

    Returns:
        Targets, raw scores and provenance.

    Raises:
        InputError: No teacher, two of one name, a weight that is not positive, or no pairs.
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
    """Combine raw scores that were made before into labels; see `label`.

    Args:
        raw: Each teacher's scores, float32 (n,).
        policies: How each teacher's raw scores become targets.
        weights: Each teacher's share in the mean, above 0; normalised.
        fingerprints: Each teacher's, for the record.

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
        for i in range(0, n_pairs, _CHUNK):  # no third array of all pairs
            targets[i : i + _CHUNK] += np.float32(share) * part[i : i + _CHUNK]
        records.append(_provenance(name, fingerprints[name], share, policies[name], scores))
    if "raw" not in policies.values():
        np.clip(targets, 0.0, 1.0, out=targets)  # shares that add up to 1 may not do so in float32
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
    """Set scores below 0 to 0 and above 1 to 1; our default."""
    clipped: np.ndarray = np.clip(scores, 0.0, 1.0)
    return clipped


def raw(scores: np.ndarray) -> np.ndarray:
    """Leave scores as they are (released code); a cross-entropy of cosines below 0 has no lower bound."""
    return scores


def affine(scores: np.ndarray) -> np.ndarray:
    """Stretch scores linearly so that the smallest is 0 and the largest 1; all equal: 0.5."""
    low, high = scores.min(), scores.max()
    stretched: np.ndarray = (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)
    return stretched


def quantile(scores: np.ndarray) -> np.ndarray:
    """Take each score's rank among all, (rank - 1/2) / n, ties sharing theirs: uniform on (0, 1)."""
    ranks: np.ndarray = rankdata(scores)
    return ((ranks - 0.5) / len(scores)).astype(np.float32)


POLICIES: dict[LabelPolicy, Callable[[np.ndarray], np.ndarray]] = {
    "clip": clip,
    "affine": affine,
    "quantile": quantile,
    "raw": raw,
}


def _provenance(name: str, fingerprint: str, weight: float, policy: str, scores: np.ndarray) -> Provenance:
    def parts() -> Iterator[np.ndarray]:
        return (scores[i : i + _CHUNK].astype(np.float64) for i in range(0, len(scores), _CHUNK))

    mean = sum(float(part.sum()) for part in parts()) / len(scores)
    return Provenance(
        teacher=name,
        fingerprint=fingerprint,
        weight=weight,
        policy=policy,
        raw_min=float(scores.min()),
        raw_max=float(scores.max()),
        raw_mean=mean,
        raw_std=math.sqrt(sum(float(((part - mean) ** 2).sum()) for part in parts()) / len(scores)),
        n_outside=int(((scores < 0) | (scores > 1)).sum()),
    )
