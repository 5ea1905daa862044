"""Malformed inputs drawn by hypothesis: each must either work or be refused with one readable error."""

import csv
import gzip
import io
import json
import signal
import string
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

from transencoder import cli, recipes
from transencoder.cli import flags, train
from transencoder.errors import InputError, TransencoderError
from transencoder.methods import METHODS
from transencoder.pairs import (
    DOCUMENTS,
    RELEVANCE,
    read_candidates,
    read_classes,
    read_pairs,
    read_rows,
    read_sentences,
)
from transencoder.pairs.source import Source
from transencoder.settings import nested_settings, recipe_toml

SECONDS = 10
LONGEST_MESSAGE = 2000


class Hang(BaseException):
    """Error for a case that takes too long; not an `Exception`, so that no library's `except Exception` swallows it."""


@contextmanager
def alarm(seconds: int = SECONDS) -> Iterator[None]:
    """Raise `Hang` if the block takes longer than `seconds`."""

    def ring(*_: object) -> None:
        raise Hang(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fault(run: Callable[[], object], *names: str) -> tuple[str, str]:
    """Run a case and check how it ends.

    Args:
        run: The case.
        names: An error's message must contain one of these names; without names, this is not checked.

    Returns:
        `accepted`, `refused` or `failed`, and a description of what is wrong, empty if nothing is.
    """
    try:
        with alarm():
            run()
    except TransencoderError as error:
        message = str(error)
        if len(message) > LONGEST_MESSAGE:
            return "refused", f"a message of {len(message)} characters: {message[:200]}"
        if names and not any(name in message for name in names):
            return "refused", f"a message that names no file: {message[:200]}"
        return "refused", ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "failed", f"{type(error).__name__}: {str(error)[:300]}"
    return "accepted", ""


_PIECES = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"PAR1", b"PK\x03\x04", b"\xed\xa0\x80", b"\xf4\x90"),
    *(b'"', b'""', b"'", b"\t", b",", b"\r", b"\n", b"\r\n", b"\x0b", b"\x1c", b"\x85", b"\xe2\x80\xa8", b" ", b"\\"),
    *(b"[", b"{", b'{"a":', b"}", b"]", b"null", b"NaN", b"1e999", b"-", b"0x1", b"\\ud800", b"\\u0000", b"9" * 5000),
    *(b"sentence1", b"score", b"label", b"query\tpositive\tnegative\n", b"\x1b[2J", b"=1+1"),
)
_TIMES = (1, 1, 2, 3, 100, 10_000, 500_000)

_texts = st.text(max_size=12) | st.sampled_from(["", " ", "a b", "sentence1", "id", "x" * 200, "1", "0.5", "nan", "é"])
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | _texts
    | st.sampled_from([2**70, -(10**400), 5, "entailment"])
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3), max_leaves=5
)
_names = st.sampled_from(
    ["sentence1", "sentence2", "score", "text", "label", "query", "positive", "negative", "id", "query-id", "corpus-id"]
)


def _delimited(rows: list[list[Any]], separator: str) -> bytes:
    file = io.StringIO()
    if separator == ",":
        csv.writer(file).writerows(rows)
    else:
        file.writelines(separator.join(map(str, row)) + "\n" for row in rows)
    return file.getvalue().encode(errors="surrogatepass")


def _lines_of_json(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=len(rows) % 2 == 0) + "\n" for row in rows).encode(
        errors="surrogatepass"
    )


_COLUMNS: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.string(), st.none() | st.text(st.characters(codec="utf-8"), max_size=8) | st.just("a b")),
    (pa.large_string(), st.just("c d")),
    (pa.binary(), st.binary(max_size=6)),
    (pa.float64(), st.none() | st.floats()),
    (pa.float16(), st.just(None)),
    (pa.int64(), st.integers(-1, 5)),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
    (pa.list_(pa.string()), st.lists(st.just("e f"), max_size=2)),
    (pa.struct([("a", pa.int8())]), st.fixed_dictionaries({"a": st.integers(0, 5)})),
    (pa.timestamp("us"), st.integers(0, 10**9)),
    (pa.decimal128(9, 2), st.none()),
)


@st.composite
def _parquet(draw: st.DrawFn, header: list[str]) -> bytes:
    n_rows = draw(st.integers(0, 4))
    fields, arrays = [], []
    for name in [*header, *draw(st.lists(_texts.filter(str.isprintable), max_size=1))]:
        kind, values = draw(st.just(_COLUMNS[0]) | st.sampled_from(_COLUMNS))
        fields.append(pa.field(name, kind))
        arrays.append(pa.array(draw(st.lists(values, min_size=n_rows, max_size=n_rows)), kind))
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), file)
    return file.getvalue()


_good = st.sampled_from(["a b", "c d", "e f g", "中 文", "0.5", "1", "2"])
_cells = _good | _good | _good | _good | _good | _texts
_HEADERS = (
    *((["sentence1", "sentence2"], "pairs"), (["sentence1", "sentence2", "score"], "pairs"), (["text"], "sentences")),
    *((["premise", "hypothesis", "label"], "classes"), (["id", "text"], "documents"), (["a b", "c d"], "pairs")),
    *((["query-id", "corpus-id", "score"], "relevance"), (["query", "positive", "negative"], "candidates")),
    *(([], "pairs"), ([], "sentences")),
)
"""First rows of files, with or without names of columns, and the reader of each."""


@st.composite
def _tables(draw: st.DrawFn, header: list[str]) -> list[list[str]]:
    """Draw rows, most as long as the header."""
    fitting = st.just(len(header) or 2)
    lengths = draw(st.lists(fitting | fitting | fitting | st.integers(0, 4), max_size=5))
    rows = [draw(st.lists(_cells, min_size=length, max_size=length)) for length in lengths]
    return [header, *rows] if header else rows


@st.composite
def _objects(draw: st.DrawFn, names: list[str]) -> list[Any]:
    kinds = {
        "positive": st.lists(_cells, max_size=2),
        "negative": st.lists(_cells, max_size=2),
        "score": st.floats(0, 1),
    }
    row = st.fixed_dictionaries({name: kinds.get(name, _cells) for name in names})
    return draw(st.lists(row | row | row | row | _values, max_size=4))


_CONTENTS: dict[str, Callable[[list[str]], st.SearchStrategy[bytes]]] = {
    "tsv": lambda header: _tables(header).map(lambda rows: _delimited(rows, "\t")),
    "csv": lambda header: _tables(header).map(lambda rows: _delimited(rows, ",")),
    "txt": lambda _: st.lists(_cells, max_size=5).map(lambda rows: _delimited([[row] for row in rows], "\t")),
    "jsonl": lambda header: _objects(header).map(_lines_of_json),
    "parquet": _parquet,
}


@st.composite
def _damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw a damaged copy of a valid file, or the file as it is."""
    kind = draw(st.sampled_from([*["nothing"] * 6, "flip", "insert", "insert", "delete", "cut", "encoding", "noise"]))
    at = draw(st.integers(0, len(content)))
    if kind == "flip" and at < len(content):
        return content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
    if kind == "insert":
        return content[:at] + draw(st.sampled_from(_PIECES)) * draw(st.sampled_from(_TIMES)) + content[at:]
    if kind == "delete":
        return content[:at] + content[draw(st.integers(at, len(content))) :]
    if kind == "encoding":
        return content.decode(errors="replace").encode(
            draw(st.sampled_from(["utf-16", "utf-32", "cp037"])), errors="ignore"
        )
    if kind == "noise":
        return draw(st.binary(max_size=100))
    return content[:at] if kind == "cut" else content


_READERS: dict[str, Callable[[Source], object]] = {
    "pairs": lambda source: read_pairs(**_keywords(source)),
    "sentences": lambda source: read_sentences(**_keywords(source, column=source.columns and source.columns[0])),
    "documents": partial(read_rows, wanted=DOCUMENTS),
    "relevance": partial(read_rows, wanted=RELEVANCE),
    "candidates": read_candidates,
    "classes": read_classes,
}


def _keywords(source: Source, **more: Any) -> dict[str, Any]:
    names = ["header", "skip_bad_rows", "file_format"] + ([] if more else ["columns", "score_range"])
    return {"source": source.path, **{name: getattr(source, name) for name in names}, **more}


@st.composite
def input_files(draw: st.DrawFn) -> tuple[str, bytes, str, dict[str, Any]]:
    """Draw a file's name and bytes, its reader, and the reader's options."""
    suffix = draw(st.sampled_from(list(_CONTENTS)))
    header, reader = draw(st.sampled_from(_HEADERS))
    content = draw(_CONTENTS[suffix](header).flatmap(_damaged))
    if draw(st.integers(0, 4)) == 0:
        suffix, content = f"{suffix}.gz", draw(_damaged(gzip.compress(content, 1, mtime=0)))
    options: dict[str, Any] = {
        "skip_bad_rows": draw(st.booleans()),
        "header": draw(st.sampled_from([None, bool(header)])),
    }
    if draw(st.integers(0, 3)) == 0:
        options["columns"] = draw(st.sampled_from([("1", "2"), ("sentence1", "sentence2")]))
        options["score_range"] = draw(st.sampled_from([None, (0.0, 5.0)]))
        reader = draw(st.sampled_from([name for name in _READERS if name != "candidates"]))  # these have three columns
    if suffix.startswith("txt") and draw(st.integers(0, 3)):
        reader, options["header"] = "sentences", None
    return f"fuzzed.{suffix}", content, reader, options


def read(case: tuple[str, bytes, str, dict[str, Any]], folder: Path) -> tuple[str, str]:
    """Write a drawn file and read it; the environment says where the cache is."""
    name, content, reader, options = case
    path = folder / name
    path.write_bytes(content)
    return fault(lambda: _READERS[reader](Source(str(path), **options)), path.name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return "nan" if value is None else value if isinstance(value, str) and len(value) % 2 else json.dumps(value)


_WORDS = (
    *(
        "1979-05-27",
        "07:32:00",
        "inf",
        "-nan",
        "0x" + "f" * 5000,
        "1" * 400,
        "1" * 5000,
        "1e400",
        "'''a\nb'''",
        "1_000",
    ),
    *(
        "[" * 2000,
        "{a=" * 400 + "1" + "}" * 400,
        "[" * 80 + "]" * 80,
        '"' + "x" * 100_000 + '"',
        "none",
        "=",
        '"\\ud800"',
    ),
    *(".".join("a" * 3000), '["a.tsv"]', "[[]]", "[{}]", "²", "٣", "3", "0.5", "true", "a b"),
)
_likely = st.sampled_from(["3", "0.5", "true", "none", "cls", '"a.tsv"', '["a.tsv"]', "1e-4", "2", "1e999", "0"])
_plain = _likely | _likely | _values | st.sampled_from(_WORDS) | st.text(string.printable, max_size=10)


_FITTING = {int: ["1", "3", "2021"], float: ["0.5", "0.1", "1e-4", "1"], bool: ["true", "false"], str: ['"a.tsv"']}
_ODD_NAMES = (
    *("a" * 100_000, ".".join("a" * 3000), "members.2.start", "members.²", f"members.{'1' * 5000}.start", ""),
    *("vary", "after", "parity", "method", "bi.epochs.x", "members.1.weight", "members.1.start", "members", "bi"),
)


@st.composite
def _assignment(draw: st.DrawFn, method: str, plain: st.SearchStrategy[str]) -> tuple[str, str]:
    """Draw a setting and a value, mostly of its type."""
    settings = nested_settings(METHODS[method])
    name = draw(st.sampled_from(list(settings)) | st.sampled_from(list(settings)) | st.sampled_from(_ODD_NAMES))
    if name not in settings or draw(st.integers(0, 3)) == 0:
        return name, draw(plain)
    setting = settings[name]
    value = draw(st.sampled_from([f'"{each}"' for each in setting.choices] or _FITTING[setting.kind]))
    return name, f"[{', '.join([value] * (setting.n_items or 1))}]" if setting.is_list else value


_RECIPE = 'method = "{}"\noutput = "run"\n{}\n'
_TEXTS = {"trans-encoder": "pairs", "declutr": "documents", "dvbert": "labelled"}
_methods = st.sampled_from(list(METHODS))


@st.composite
def recipe_files(draw: st.DrawFn) -> bytes:
    """Draw a recipe's bytes: valid lines, any setting with any value, and damage."""
    method = draw(_methods | st.just("trans-encoder"))
    lines = [" = ".join(draw(_assignment(method, _plain.map(_toml)))) for _ in range(draw(st.integers(0, 3)))]
    start = '[[members]]\nstart = "x"' if method == "trans-encoder" else 'start = "x"'
    text = _RECIPE.format(method, "\n".join([f"{_TEXTS.get(method, 'sentences')} = 'a.txt'", *lines, start]))
    if draw(st.integers(0, 9)) == 0:
        text = text.replace(f'method = "{method}"', f"method = {_toml(draw(_plain))}")
    content = text.encode(errors="surrogatepass")
    return draw(st.just(content) | st.just(content) | _damaged(content))


_typed = _plain.map(lambda value: value if isinstance(value, str) else json.dumps(value))


@st.composite
def overrides(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a method and the text after `--set`."""
    method = draw(_methods)
    name, value = draw(_assignment(method, _typed))
    return method, f"{name}{draw(st.sampled_from(['=', '=', '=', ' = ', '']))}{value}"


@st.composite
def arguments(draw: st.DrawFn) -> list[str]:
    """Draw the arguments of `transencoder`: a method, settings as flags, `--set`."""
    method = draw(_methods)
    typed = ["train", method, "--output", "run", f"--{_TEXTS.get(method, 'sentences')}", "a.txt", "--start", "x"]
    for _ in range(draw(st.integers(0, 3))):
        name, value = draw(_assignment(method, _typed))
        as_flag = [flags.flag_of(name.replace("members.1.", "")), value.strip('[]"')]
        typed += draw(st.sampled_from([as_flag, as_flag, as_flag[:1], ["--set", f"{name}={value}"]]))
    return typed


def load_recipe(content: bytes, folder: Path) -> tuple[str, str]:
    """Load a drawn recipe; check that its config, written as a recipe, loads as the same config."""
    path = folder / "fuzzed.toml"
    path.write_bytes(content)
    return fault(lambda: _check_written(recipes.load_recipe(path)), path.name)


def load_override(case: tuple[str, str], folder: Path) -> tuple[str, str]:
    """Load a valid recipe with a drawn `--set`."""
    method, override = case
    path = folder / "good.toml"
    members = '[[members]]\nstart = "x"' if method == "trans-encoder" else 'start = "x"'
    path.write_text(_RECIPE.format(method, f"{_TEXTS.get(method, 'sentences')} = 'a.txt'\n{members}"), encoding="utf-8")
    return fault(lambda: _check_written(recipes.load_recipe(path, [override])))


def parse(typed: list[str]) -> tuple[str, str]:
    """Parse a drawn command line into a config. When argparse refuses it, it exits with code 2."""
    parser = _parser()

    def run() -> None:
        try:
            with redirect_stderr(io.StringIO()) as printed:
                args, _ = parser.parse_known_args(typed)
        except SystemExit as stop:
            if stop.code != cli.EXIT_INPUT:
                raise
            raise InputError(printed.getvalue().rpartition("error: ")[2]) from None
        train._config(flags.options_from(train.Train, args), args)

    return fault(run)


@cache
def _parser() -> Any:
    return cli._parser()


def _check_written(config: Any) -> None:
    written = tomllib.loads(recipe_toml(config))
    written.pop("method")
    again = recipes.build(type(config), written, "written")
    assert repr(again) == repr(replace(config, token=None)), f"{again} was {config}"
