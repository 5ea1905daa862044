"""`demo`: the real command on a small domain that comes with the project, in about three minutes."""

import argparse

from transencoder.cli.options import Commands, add_command
from transencoder.cli.terminal import show


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "demo", _run, "train on a small domain that comes along, in about three minutes")
    parser.add_argument("--output", default="demo-run", help="the run folder (default: demo-run)")


def _run(args: argparse.Namespace) -> None:
    from transencoder.demo import run_demo

    args.run_folder = args.output
    run_demo(args.output, show)
