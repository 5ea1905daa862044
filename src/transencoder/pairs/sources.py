"""What the user typed, as a file or data set: an existing path wins, then the data folder, the hub."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transencoder.wording import shorten

from ..errors import InputError
from .formats import READERS
from .hub import load_from_hub
from .streams import File

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

STDIN = "-"
_SUFFIXES = [f".{file_format}{gz}" for file_format in READERS for gz in ("", ".gz")]
_FULL_ID = re.compile(r"(?P<id>[\w.-]+(/[\w.-]+)+)(:(?P<config>[\w.-]+))?(@(?P<revision>[\w./-]+))?")
_ALLOWED = f"Allowed are .{', .'.join(READERS)} (.txt for sentences only), each also with .gz"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and what to look for, beside the source itself."""

    split: str | None = None
    config: str | None = None
    revision: str | None = None
    token: str | bool | None = None
    cache_folder: Path | None = None
    data_folder: Path | None = None
    file_format: str | None = None

    @property
    def split_name(self) -> str | None:
        """The split without its slice."""
        return _parse_split(self.split)[0]

    @property
    def rows(self) -> tuple[int, int | None]:
        """First row and the one after the last, from a slice such as `validation[:1000]`."""
        return _parse_split(self.split)[1:]


def find_source(source: str | os.PathLike[str] | Dataset, place: Place) -> tuple[str, File | Dataset]:
    """The source's name for messages, and the file or data set it stands for.

    Raises:
        InputError: there is none, or an option does not go with it.
    """
    from datasets import Dataset

    if isinstance(source, Dataset):
        _refuse_unused(place, "<dataset>", "a Dataset")
        return "<dataset>", source
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"the source is of type {type(source).__name__}. A path, a hub id or a datasets.Dataset (one "
            "split, not streamed) is allowed. From a DatasetDict, take one split."
        )
    text = os.fspath(source)
    if text == STDIN:
        return _named(_file(None, text, place, "a stream"))
    if not text:
        raise InputError("the source is an empty text. A path, a hub id or - for stdin is needed.")
    path = Path(text).expanduser()
    if path.is_dir():
        return _named(_file_of_split(path, text, place))
    if path.exists():
        return _named(_file(path, text, place, "one file"))
    return _from_data_folder_or_hub(text, path, place)


def _from_data_folder_or_hub(text: str, path: Path, place: Place) -> tuple[str, File | Dataset]:
    text, place = _split_id(text, place)
    folder = _data_folder(place)
    if folder is not None and text.strip("/") and not path.is_absolute():
        local = folder / text / (place.config or "")
        if local.is_dir():
            return _named(_file_of_split(local, str(local), replace(place, config=None)))
        if local.is_file() and place.config is None:
            return _named(_file(local, str(local), place, "one file"))
    if (
        any(text.lower().endswith(suffix) for suffix in _SUFFIXES)
        or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text)
        or text.startswith(".")
    ):
        where = f" and not in the data folder {folder}" if folder else ""
        raise InputError(
            f"{text}: no such file (looked in {Path.cwd()}{where}). {_ALLOWED}, or a hub id such as "
            "mteb/sts12-sts. Check the path."
        )
    return load_from_hub(
        text,
        config=place.config,
        split=place.split_name,
        rows=place.rows,
        revision=place.revision,
        token=place.token,
        cache_folder=place.cache_folder,
        looked_in=f"the data folder {folder}" if folder else "no data folder (TRANSENCODER_DATA is not set)",
    )


def _split_id(text: str, place: Place) -> tuple[str, Place]:
    """`id:config@revision` into the id and a place that has both; any other text as it is."""
    match = _FULL_ID.fullmatch(text)
    if match is None:
        return text, place
    for name in ("config", "revision"):
        stated, found = getattr(place, name), match[name]
        if stated and found and stated != found:
            raise InputError(f"{text}: its {name} is {found}, and {name} {stated} is stated too; state one of them.")
    return match["id"], replace(
        place, config=place.config or match["config"], revision=place.revision or match["revision"]
    )


def _data_folder(place: Place) -> Path | None:
    stated = place.data_folder or os.environ.get("TRANSENCODER_DATA")
    if not stated:
        return None
    folder = Path(stated).expanduser()
    if not folder.is_dir():
        by = "data_folder (--data-dir)" if place.data_folder else "the variable TRANSENCODER_DATA"
        raise InputError(
            f"the data folder {folder}, stated by {by}, is not a folder. It holds <id>/<split>.jsonl.gz. "
            "Correct or unset it."
        )
    return folder


def _file_of_split(folder: Path, name: str, place: Place) -> File:
    inner = folder / place.config if place.config else folder
    files = (
        {}
        if not inner.is_dir()
        else {path: path.name[: -len(suffix)] for path in sorted(inner.iterdir()) if (suffix := _suffix(path.name))}
    )
    splits = sorted(set(files.values()))
    split = place.split_name or (splits[0] if len(splits) == 1 else None)
    matching = [path for path, stem in files.items() if stem == split]
    if len(matching) != 1:
        found = f"its splits are {', '.join(splits)}" if splits else "it has no such files"
        folders = [path.name for path in sorted(folder.iterdir()) if path.is_dir()][:20]
        configs = f"; its sub-folders, to be stated as config, are {', '.join(folders)}" if folders else ""
        wanted = f"no single file for split {split}" if split else "a folder, and no split is stated"
        raise InputError(
            f"{name}{'/' + place.config if place.config else ''}: {wanted}. A folder holds one "
            f"<split>.jsonl.gz (or .tsv, .csv, .parquet) a split; {found}{configs}. State a file, or one of "
            "its splits (split=..., --split)."
        )
    if place.split is None:
        logger.info("%s: split %s is read, the only one", name, split)
    if place.revision:
        logger.info(
            "%s: a local copy is read; revision %s speaks of the hub's and is not checked",
            name,
            place.revision,
        )
    return _file(
        matching[0],
        str(matching[0]),
        replace(place, split=None, config=None, revision=None, file_format=None),
        "",
        rows=place.rows,
    )


def _file(path: Path | None, name: str, place: Place, what: str, rows: tuple[int, int | None] = (0, None)) -> File:
    _refuse_unused(place, name, what)
    stated = place.file_format or (_suffix(name) if path else ".tsv")
    suffix = "." + stated.lower().removeprefix(".")
    if suffix not in _SUFFIXES:
        problem = (
            f"unknown file format {shorten(place.file_format)}"
            if place.file_format
            else "unknown kind of file by its name"
        )
        raise InputError(
            f"{name}: {problem}. {_ALLOWED}. Rename the file, or state file_format='tsv' (--file-format tsv)."
        )
    return File(
        name="<stdin>" if path is None else name,
        path=path,
        file_format=suffix.split(".")[1],
        is_gzip=suffix.endswith(".gz"),
        start=rows[0],
        stop=rows[1],
    )


def _suffix(name: str) -> str:
    return max((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix)), key=len, default="")


def _refuse_unused(place: Place, name: str, what: str) -> None:
    for option, value in (("split", place.split), ("config", place.config)):
        if value is not None:
            raise InputError(
                f"{name}: {option} {shorten(value)} is stated, but the source is {what}. Only a hub id or a "
                "folder has splits and configs. Leave it out."
            )


def _parse_split(split: str | None) -> tuple[str | None, int, int | None]:
    if split is None:
        return None, 0, None
    match = re.fullmatch(r"([\w.-]+)(?:\[(\d*):(\d*)\])?", split)
    if match is None:
        raise InputError(
            f"split {shorten(split)} is not understood. Allowed are a name (test) and a name with rows "
            "counted from 0 (validation[:1000]). State one."
        )
    name, start, stop = match.groups()
    return name, int(start or 0), int(stop) if stop else None


def _named(file: File) -> tuple[str, File]:
    return file.name, file
