"""`export` and `push`: a trained model to another runtime, or to the hub."""

import argparse
from pathlib import Path

from transencoder.cli.options import Commands, add_command
from transencoder.cli.terminal import show, size
from transencoder.errors import InputError

_MODEL = "folder, a run's bi-encoder or cross-encoder"


def add(commands: Commands) -> None:
    """Add the commands."""
    parser = add_command(
        commands, "export", _export, "write a model for onnxruntime or OpenVINO, once its scores agree with PyTorch's"
    )
    parser.add_argument("model", metavar="MODEL", help=f"{_MODEL}, hub id, or minilm")
    parser.add_argument(
        "--to", required=True, choices=("onnx", "openvino"), help="what reads it: onnxruntime or OpenVINO"
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="the folder to write, which must be new")
    parser.add_argument("--cache-dir", help="folder for hub downloads (default: the usual one)")
    parser.add_argument("--token", help="hub access token (default: the one you are logged in with)")

    parser = add_command(
        commands,
        "push",
        _push,
        "upload a model with its card to the hub, as a private repository unless told otherwise",
    )
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument("repo_id", metavar="REPO_ID", help="name or owner/name")
    parser.add_argument("--public", action="store_true", help="let everybody see the new repository")
    parser.add_argument("--update", action="store_true", help="add a commit to a repository that is there already")
    parser.add_argument("--branch", help="branch to push to (default: the main one)")
    parser.add_argument("--token", help="hub access token that may write (default: the one you are logged in with)")


def _export(args: argparse.Namespace) -> None:
    from transencoder.encoders import fetch
    from transencoder.export import export_model
    from transencoder.runs.files import folder_bytes

    found = export_model(fetch(args.model, token=args.token, cache_folder=args.cache_dir), args.to, args.output)
    show(
        f"{args.output}: {args.to}, {size(folder_bytes(Path(args.output)))}; scores of {found.n_pairs} pairs of up to "
        f"{found.longest} tokens differ by at most {found.max_difference:.1g} from PyTorch's"
    )


def _push(args: argparse.Namespace) -> None:
    if not Path(args.model).expanduser().is_dir():
        raise InputError(f"{args.model} is no folder; give the folder of a trained model")
    from transencoder.encoders import fetch
    from transencoder.export import push

    where = push(
        fetch(args.model),
        args.repo_id,
        is_private=not args.public,
        is_update=args.update,
        branch=args.branch,
        token=args.token,
    )
    show(f"{args.repo_id}: {where}")
