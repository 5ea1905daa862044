"""Generate the docs pages that are not in `docs/` while mkdocs builds the site: settings, commands, recipes, results.

No text is written twice: settings come from the docstrings of the configs, commands from the parser, recipes from
their files, results and the lab notebook from their files in the repository.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from html import escape
from inspect import get_annotations
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from transencoder import cli
from transencoder.cli.flags import flag_of
from transencoder.configs.encoder import EncoderConfig
from transencoder.configs.run import RunConfig
from transencoder.methods import METHODS
from transencoder.recipes import list_recipes
from transencoder.settings import Setting, settings_of

ROOT = Path(__file__).resolve().parents[1]

OUTSIDE = {
    "LOG.md": "notebook.md",
    "CHANGELOG.md": "changes.md",
    "results/README.md": "results/index.md",
    **{f"results/{path.name}": f"results/{path.name}" for path in sorted((ROOT / "results").glob("[!R]*.*"))},
    **{
        f"benchmarks/results/{path.name}": f"benchmarks/{path.name}"
        for path in sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    },
}
"""Page on the site for each file of the repository."""


_WIDE = "---\nhide: [toc]\n---\n\n"
"""Page header that hides the table of contents, because tables of results need its width."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {page: _WIDE * ("results/" in path) + (ROOT / path).read_text("utf-8") for path, page in OUTSIDE.items()}
    pages |= {f"settings/{name}.md": _settings_page(name) for name in METHODS}
    pages["command-line.md"] = _commands_page()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    for plot in sorted((ROOT / "benchmarks" / "results").glob("*.png")):
        files.append(File.generated(config, f"benchmarks/{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links that leave `docs/` to the site's pages, and replace marks by tables of methods and recipes."""
    markdown = re.sub(r"\]\((\.\./)?([^)#]+)", _link, markdown)
    markdown = markdown.replace("<!-- methods -->", _methods_table())
    return re.sub(r"<!-- recipes: (\S+) -->", lambda match: _recipes(match[1]), markdown)


def _link(match: re.Match[str]) -> str:
    """Return the link to a file's page on the site, for links such as `../LOG.md` in `docs/` or `results/paper.md`."""
    return f"]({OUTSIDE.get(match[2], (match[1] or '') + match[2])}"


def _methods_table() -> str:
    rows = ["| `train` | in Python | what |", "|---|---|---|"]
    rows += [
        f"| [`{name}`](../settings/{name}.md) | `{method.__name__}` | {_plain(_summary(method))} |"
        for name, method in METHODS.items()
    ]
    return "\n".join(rows)


def _recipes(method: str) -> str:
    """Return a collapsed list of a method's recipes with the first line of each."""
    found = {name: path for name, path in list_recipes().items() if name.startswith(f"{method}/")}
    lines = [f'??? note "{len(found)} recipes"', ""]
    for name, path in found.items():
        lines.append(f"    - `{name}`: {_plain(path.read_text('utf-8').partition(chr(10))[0].removeprefix('# '))}")
    return "\n".join(lines)


def _settings_page(name: str) -> str:
    method = METHODS[name]
    groups: dict[str, list[str]] = {}
    for setting in settings_of(method).values():
        if setting.is_nested:
            title = f"`{setting.name}`"
            groups[title] = [_plain(setting.help), ""]
            prefix = "" if setting.is_list else f"{setting.name}."
            groups[title] += [_entry(each, prefix) for each in setting.inner.values()]
        else:
            groups.setdefault(_group(method, setting), []).append(_entry(setting))
    order = sorted(groups, key=lambda title: title in (_RUN, _START))
    parts = [f"# {name}", _plain(_summary(method)), _HOW_TO_READ.format(name=name, method=method.__name__)]
    for title in order:
        parts += [f"## {title}", "\n".join(groups[title])]
    return "\n\n".join(parts) + "\n"


_RUN, _START = "The run, its data and its device", "The encoder and its text"

_HOW_TO_READ = """`transencoder train {name} SETTING ...` on the command line, `train({method}(...))` in Python,
or the same names in a recipe. `--bi.learning-rate`, for example, is `learning_rate` in a recipe's table `[bi]`, and
`bi=FitConfig(learning_rate=...)` in Python; a method with values of its own, such as SimCSE, takes
`fit=dataclasses.replace(SimCSE.fit, learning_rate=...)`. What is not set is chosen when the run starts, as the text
says."""


def _group(method: type, setting: Setting) -> str:
    """Return the section of a setting on its page, by the class that declares the setting."""
    home = next(each for each in method.__mro__ if is_dataclass(each) and setting.name in get_annotations(each))
    return {RunConfig: _RUN, EncoderConfig: _START}.get(home, "The method")


def _entry(setting: Setting, prefix: str = "") -> str:
    """Return a setting as an entry of a definition list."""
    typed = flag_of(f"{prefix}{setting.name}")
    if setting.kind is bool:
        typed = f"{typed}`, `{typed.replace('--', '--no-', 1)}"
    return f"`{typed}` <small>{_allowed(setting)}; {_default(setting)}</small>\n:   {_plain(setting.help)}\n"


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    words = {str: "text", int: "whole number", float: "number", bool: "yes or no"}[setting.kind]
    return f"{words}, or several" if setting.is_list else words


def _default(setting: Setting) -> str:
    if setting.is_required:
        return "required"
    if setting.default is None:
        return "not set"
    if setting.default == ():
        return "none"
    if isinstance(setting.default, bool):
        return "default yes" if setting.default else "default no"
    values = setting.default if isinstance(setting.default, tuple) else (setting.default,)
    return "default " + " ".join(f"`{value}`" for value in values)


def _commands_page() -> str:
    """Return the page of all commands with their arguments; settings of methods have pages of their own."""
    parts = ["# Command line", _COMMANDS_INTRO]
    for parser in _leaves(cli._parser()):
        name = parser.prog.removeprefix("transencoder ")
        if name.startswith("train "):
            continue
        parts += [f"## {name}", _plain(_sentence(parser.description or ""))]
        parts.append("\n".join(_argument(action, parser) for action in parser._actions if _is_own(action)))
    return "\n\n".join(parts) + "\n"


_COMMANDS_INTRO = """`transencoder COMMAND --help` prints what stands here. All commands take `--quiet`, which leaves
warnings and errors, and `--verbose`. `transencoder train METHOD` has
[a page for each method](reference/python.md#methods). Exit codes: 0, 1 for an unexpected error, 2 for bad input, 3 for
trouble with a run folder, 130 after Ctrl-C."""


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield parser
    for action in nested:
        for child in action.choices.values():
            yield from _leaves(child)


def _is_own(action: argparse.Action) -> bool:
    return not {"--help", "--verbose", "--quiet"} & set(action.option_strings)


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    formatter = parser._get_formatter()
    value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    if not action.option_strings:
        value = formatter._format_args(action, action.dest)
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    typed = f"{names} `{value}`" if names and value else names or f"`{value}`"
    return f"{typed}\n:   {_plain(formatter._expand_help(action) if action.help else '')}\n"


def _summary(method: type) -> str:
    return str(method.__doc__).partition("\n")[0]


def _sentence(text: str) -> str:
    first = text.partition("\n")[0]
    return first[:1].upper() + first[1:].rstrip(".") + "."


def _plain(text: str) -> str:
    """Return a docstring as Markdown in which everything but code spans is escaped."""
    mend: Callable[[str], str] = lambda part: re.sub(r"([*_\[\]|])", r"\\\1", escape(part, quote=False))  # noqa: E731
    return "`".join(part if number % 2 else mend(part) for number, part in enumerate(text.split("`")))
