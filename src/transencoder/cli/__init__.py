"""The command line. Nothing heavy is imported before a command needs it: `--help` answers at once."""

import argparse
import io
import os
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from transencoder import __version__
from transencoder.cli import evaluate, grade, pairs, recipes, runs, scoring, search, terminal, train
from transencoder.cli.flags import Commands, Logs, add_command, argument, options_from
from transencoder.configs import nearest
from transencoder.configs.ranges import NO_URL
from transencoder.errors import InputError, TransencoderError
from transencoder.runs.files import system_error

EXIT_UNEXPECTED, EXIT_INPUT, EXIT_RUN, EXIT_INTERRUPTED = 1, 2, 3, 130


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes commands and options, for `eval "$(transencoder completion bash)"`."""

    shell: Literal["bash", "zsh"] = argument("SHELL")
    """bash or zsh"""

    def __call__(self) -> None:
        try:
            import shtab
        except ModuleNotFoundError as error:
            raise InputError("completion needs the package shtab; pip install shtab") from error
        terminal.show(shtab.complete(_parser(), self.shell), as_it_is=True)


_COMMANDS: dict[str, type | None] = {
    "train": None,  # a command for each method
    "score": scoring.Score,
    "label": scoring.Label,
    "evaluate": evaluate.Evaluate,
    "grade": grade.Grade,
    "search build": search.Build,
    "search query": search.Query,
    "search evaluate": search.Evaluate,
    "duplicates": search.FindDuplicates,
    "pairs": pairs.Pairs,
    "mine": pairs.Mine,
    "views": pairs.Views,
    "truncate": runs.Truncate,
    "weight": runs.Weight,
    "export": runs.Export,
    "push": runs.Push,
    "recipes list": recipes.ListRecipes,
    "recipes show": recipes.ShowRecipe,
    "recipes run": recipes.RunRecipes,
    "runs list": runs.ListRuns,
    "runs clean": runs.Clean,
    "report": runs.Report,
    "results": runs.Results,
    "demo": train.Demo,
    "completion": Completion,
}
"""Name of each command -> dataclass of its options, which is called to run it."""

_GROUPS = {
    "train": ("METHOD", "train models without labels, or resume an interrupted run"),
    "search": ("ACTION", "embed a corpus into an index, search in it, and measure the search"),
    "recipes": ("ACTION", "list, show and run the recipes that come with the project"),
    "runs": ("ACTION", "list run folders and free their disk space"),
}
"""First word of a command -> placeholder for the second, and help of the group."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments after the program's name; None: those of the process.

    Returns:
        0, or 1 for an unexpected error, 2 for bad input, 3 for trouble with a run folder, 130 after Ctrl-C or SIGTERM.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # None if it was closed, as by `>&-`
    sys.stderr = sys.stderr or open(os.devnull, "w")
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):  # escape what the terminal's encoding lacks
            sys.stdout.reconfigure(errors="backslashreplace")
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except TransencoderError as error:
        terminal.say_error(str(error))
        return EXIT_INPUT if isinstance(error, InputError) else EXIT_RUN
    except KeyboardInterrupt as stop:
        terminal.say_error(_how_to_go_on(stop))
        return EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():  # such as `head`: no error
            return 0
        if (refused := system_error(error)) is not None:
            terminal.say_error(str(refused))
            return EXIT_RUN
        traceback.print_exc()
        terminal.say_error("this is a bug in transencoder; please report it with the lines above")
        return EXIT_UNEXPECTED
    finally:
        _drop_what_nobody_takes()


def _run(argv: Sequence[str]) -> int:
    for each in argv:
        if any("\ud800" <= character <= "\udfff" for character in each):
            raise InputError(f"{each!r} is not UTF-8, as names must be. Rename the file or folder, or give another.")
    try:
        args, unknown = _parser().parse_known_args(train.with_method(argv))
    except SystemExit as stop:  # argparse has printed the help or what is wrong
        return int(stop.code or 0)
    if unknown:
        raise _unknown_option(unknown[0], args.parser)
    if "://" in (getattr(args, "output", None) or ""):
        raise InputError(f"--output is {args.output!r}; {NO_URL}")
    logs = options_from(Logs, args)
    with terminal.session(is_verbose=logs.verbose, is_quiet=logs.quiet):
        args.run(args)
    return 0


def _reader_has_left() -> bool:
    """Tell whether nobody can read our output any more; other pipes break too, such as a tracker's or a worker's."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # of a stream that is no file
            poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_what_nobody_takes() -> None:
    """Redirect stdout to /dev/null if its rest cannot be written: Python would try again when it ends, and fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="transencoder", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"transencoder {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_CommandParser)
    groups: dict[str, Commands] = {}
    for typed, command in _COMMANDS.items():
        first, _, action = typed.partition(" ")
        if first in _GROUPS and first not in groups:
            second, summary = _GROUPS[first]
            group = commands.add_parser(first, help=summary, description=summary)
            groups[first] = group.add_subparsers(title=f"{second.lower()}s", metavar=second, required=True)
        if command is None:
            train.add_methods(groups[first])
        else:
            add_command(groups.get(first, commands), action or first, command)
    return parser


_DESCRIPTION = """Train a bi-encoder, or a cross-encoder too, on your own sentences or pairs, without labels.
Each command has its own --help."""


class _CommandParser(argparse.ArgumentParser):
    """Parser of a command that names a mistyped option, not the required one that is then missing."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words after the command, as always."""
        self._words = args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Say which option is unknown or, if none is, what argparse says."""
        known = {"--", *self._option_string_actions}
        for word in self._words:
            if word.startswith("--") and word.partition("=")[0] not in known:
                raise _unknown_option(word, self)
        super().error(message)


def _unknown_option(option: str, parser: argparse.ArgumentParser) -> InputError:
    if not option.startswith("-"):
        return InputError(f"{option!r} is one argument too many. {parser.format_usage().strip()}")
    name = option.partition("=")[0]
    options = [known for known in parser._option_string_actions if known.startswith("--")]
    if name in options:
        return InputError(f"{name} is before the command; put it after {parser.prog}")
    instead = (parser.get_default("instead") or {}).get(name, f"the nearest is {nearest(name, options)}")
    return InputError(f"{name} is not an option of {parser.prog}; {instead}. `{parser.prog} --help` shows all.")


def _how_to_go_on(stop: KeyboardInterrupt) -> str:
    if not isinstance(stop, terminal.Interrupted) or not Path(stop.args[0]).exists():
        return "stopped; nothing is left half done: run the same command again"
    return f"stopped; run the same command again: it goes on from {stop.args[0]}"
