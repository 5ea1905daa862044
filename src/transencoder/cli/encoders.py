"""`truncate`, `export`, `push`: a model made smaller, for another runtime, or on the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show, size
from transencoder.errors import InputError
from transencoder.settings import Setting, value_from_text


@dataclass(frozen=True, kw_only=True)
class Hub:
    """How models are had from the hub."""

    cache_folder: str | None = option(None, flag="--cache-dir", metavar="CACHE_DIR")
    """folder for hub downloads (default: the usual one)"""
    token: str | None = None
    """hub access token (default: the one you are logged in with)"""


@dataclass(frozen=True, kw_only=True)
class Truncate:
    """Options of `truncate`."""

    model: str = argument("MODEL")
    """folder, run, hub id (id@revision), or minilm"""
    layers: tuple[str, ...] = option(metavar="N")
    """layers to keep, from 0: 0,2,5"""
    output: str = option(metavar="FOLDER")
    """the folder to write, which must be new"""
    hub: Hub


def truncate(options: Truncate) -> None:
    """Write a smaller model that has some of another's layers: a start for a student."""
    from transencoder import encoders

    output = Path(options.output)
    layers = value_from_text(Setting(name="layers", kind=int, is_list=True), options.layers, "--layers")
    folder = encoders.fetch(options.model, **vars(options.hub))
    encoders.truncate(folder, layers, output)
    kept, all_ = encoders.count_parameters(output), encoders.count_parameters(folder)
    show(f"{output}: layers {', '.join(map(str, layers))} of {options.model}, {kept:,} of {all_:,} parameters")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Options of `export`."""

    model: str = argument("MODEL")
    """folder, a run's bi-encoder or cross-encoder, hub id, or minilm"""
    to: Literal["onnx", "openvino"]
    """what reads it: onnxruntime or OpenVINO"""
    output: str = option(metavar="FOLDER")
    """the folder to write, which must be new"""
    hub: Hub


def export(options: Export) -> None:
    """Write a model for onnxruntime or OpenVINO, once its scores agree with PyTorch's."""
    from transencoder.encoders import fetch
    from transencoder.export import export_model
    from transencoder.runs.files import folder_bytes

    found = export_model(fetch(options.model, **vars(options.hub)), options.to, options.output)
    show(
        f"{options.output}: {options.to}, {size(folder_bytes(Path(options.output)))}; scores of {found.n_pairs} pairs "
        f"of up to {found.longest} tokens differ by at most {found.max_difference:.1g} from PyTorch's"
    )


@dataclass(frozen=True, kw_only=True)
class Push:
    """Options of `push`."""

    model: str = argument("MODEL")
    """folder, a run's bi-encoder or cross-encoder"""
    repo_id: str = argument("REPO_ID")
    """name or owner/name"""
    public: bool = False
    """let everybody see the new repository"""
    update: bool = False
    """add a commit to a repository that is there already"""
    branch: str | None = None
    """branch to push to (default: the main one)"""
    token: str | None = None
    """hub access token that may write (default: the one you are logged in with)"""


def push(options: Push) -> None:
    """Upload a model with its card to the hub, as a private repository unless told otherwise."""
    if not Path(options.model).expanduser().is_dir():
        raise InputError(f"{options.model} is no folder; give the folder of a trained model")
    from transencoder import export
    from transencoder.encoders import fetch

    where = export.push(
        fetch(options.model),
        options.repo_id,
        is_private=not options.public,
        is_update=options.update,
        branch=options.branch,
        token=options.token,
    )
    show(f"{options.repo_id}: {where}")
