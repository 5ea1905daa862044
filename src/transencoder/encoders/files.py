"""Pretrained models as files: found or downloaded, fingerprinted, counted."""

import hashlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open

from transencoder.config import Form
from transencoder.encoders.whole import check_whole, short_reason
from transencoder.errors import InputError
from transencoder.models import resolve_model

logger = logging.getLogger(__name__)

_LAYER = re.compile(r"\blayers?\.(\d+)\.")
"""In the names of a transformer's weights."""

_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm"]


def fetch(
    name: str,
    *,
    form: Form | None = None,
    revision: str | None = None,
    token: str | None = None,
    cache_folder: str | None = None,
) -> Path:
    """The local folder of a model, downloaded from the hub when `name` is no folder.

    Args:
        name: A folder, a run's folder, a hub id with or without `@revision`, or `minilm`.
        form: Which of a run's models is meant; None: the only one.
        revision: Hub revision; None: the one in `name`, if any.
        token: Hub token.
        cache_folder: Where hub downloads go; None: the hub's usual folder.

    Raises:
        InputError: No such folder or id, its weights are not safetensors, its files are damaged or do not fit
            together, or a run has no such model.
    """
    resolved = resolve_model(name)
    folder = Path(resolved)
    if not folder.is_dir():
        hub_id, _, own_revision = resolved.partition("@")
        folder = _download(name, hub_id, revision or own_revision or None, token, cache_folder)
    if (folder / "recipe.toml").exists():
        folder = _model_of_run(name, folder, form)
    if not any(folder.rglob("*.safetensors")):
        raise InputError(
            f"{name} has no .safetensors file in {folder}; pickled weights are not loaded, since they can run code. "
            "The hub has many such models converted, in a pull request named `Adding safetensors variant of this "
            f"model`: give its revision, such as {name.partition('@')[0]}@refs/pr/1. Or convert it once with "
            "transformers' save_pretrained and give that folder"
        )
    if not (folder / "config.json").exists():
        raise InputError(
            f"{name} has no config.json in {folder}; give the folder of a transformers or sentence-transformers model"
        )
    check_whole(name, folder)
    return folder


def _model_of_run(name: str, folder: Path, form: Form | None) -> Path:
    models = [model for model in ("bi-encoder", "cross-encoder", "masked-lm") if (folder / model).is_dir()]
    if not models:
        raise InputError(f"{name} is a run that is not finished; run its command again, then give it as a model")
    wanted = models if form is None else [model for model in models if model in (f"{form}-encoder", "masked-lm")]
    if len(wanted) != 1:
        teachers = sorted(path.relative_to(folder).as_posix() for path in folder.glob("teachers/*"))
        shown = " and ".join(f"{name}/{model}" for model in models + teachers)
        what = "has several models" if len(models) > 1 and form is None else f"has no {form}-encoder"
        raise InputError(f"{name} is a run that {what}; it has {shown}: give one of these")
    return folder / wanted[0]


def weights_fingerprint(folder: Path) -> str:
    """SHA-256 over a model folder's weights, configs and tokenizer: the same model, the same value anywhere."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _FILES for path in folder.rglob(pattern)):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder)}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def count_parameters(folder: Path, layers: Sequence[int] = ()) -> int:
    """Numbers in a model folder's safetensors files, read from their headers.

    Args:
        folder: The model.
        layers: Count these of its transformer layers, from 0; empty: all.
    """
    total = 0
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no dict
                of_layer = _LAYER.search(name)
                if layers and of_layer is not None and int(of_layer[1]) not in layers:
                    continue
                total += torch.Size(file.get_slice(name).get_shape()).numel()
    return total


def _download(name: str, resolved: str, revision: str | None, token: str | None, cache_folder: str | None) -> Path:
    from huggingface_hub import snapshot_download

    logger.info("%s is no local folder; it is taken from the hub, or from the hub's cache", name)
    try:
        found = snapshot_download(
            resolved, revision=revision, token=token, cache_dir=cache_folder, allow_patterns=_FILES
        )
    except Exception as error:  # the hub's client raises errors of many kinds
        raise InputError(
            f"the model {name!r} is no local folder, and the hub did not give it ({short_reason(error)}). "
            "Give a folder that holds config.json and model.safetensors, minilm (all-MiniLM-L6-v2 as a package), "
            "or check the id, the revision, the token and the network"
        ) from error
    return Path(found)
