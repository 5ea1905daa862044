"""`truncate`: a smaller model made of some of another's layers."""

import argparse
from pathlib import Path

from transencoder.cli.options import Commands, add_command
from transencoder.cli.terminal import show
from transencoder.settings import Setting, value_from_text


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "truncate", _run, "write a smaller model that has some of another's layers: a start for a student"
    )
    parser.add_argument("model", metavar="MODEL", help="folder, run, hub id (id@revision), or minilm")
    parser.add_argument("--layers", nargs="+", required=True, metavar="N", help="layers to keep, from 0: 0,2,5")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="the folder to write, which must be new")
    parser.add_argument("--cache-dir", help="folder for hub downloads (default: the usual one)")
    parser.add_argument("--token", help="hub access token (default: the one you are logged in with)")


def _run(args: argparse.Namespace) -> None:
    from transencoder.encoders import count_parameters, fetch, truncate

    output = Path(args.output)
    layers = value_from_text(Setting(name="layers", kind=int, is_list=True), args.layers, "--layers")
    folder = fetch(args.model, token=args.token, cache_folder=args.cache_dir)
    truncate(folder, layers, output)
    kept, all_ = count_parameters(output), count_parameters(folder)
    show(f"{output}: layers {', '.join(map(str, layers))} of {args.model}, {kept:,} of {all_:,} parameters")
