"""Sources of rows: one `Source` for all readers, which is resolved to files or a data set.

An existing path takes precedence, then the data folder, then the hub. A pattern such as `text/*.parquet` or a folder of
parts stands for several files, read one after the other. URLs are read with fsspec.
"""

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from glob import glob, has_magic
from pathlib import Path, PurePath
from typing import Any

import datasets
from datasets import Dataset

from transencoder.errors import InputError, reason_of, shorten
from transencoder.in_memory import ALLOWED_FILES, SUFFIXES, as_source, no_such_file

logger = logging.getLogger(__name__)

STDIN = "-"
_OF_ALL = re.compile(r"-\d+-of-(\d+)$")
_PART = re.compile(r"part[-_.]?\d")
_FULL_ID = re.compile(r"(?P<id>[\w.-]+(/[\w.-]+)+)(:(?P<config>[\w.-]+))?(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True)
class Source:
    """Rows on disk, on the hub or in memory, and how to read them. `read_pairs` describes each field."""

    path: Any
    """Name of the source (a path, URL or hub id), or another value that `as_source` takes."""
    _: KW_ONLY
    columns: Sequence[str] | None = None
    score_column: str | None = None
    """Column of scores or of classes."""
    header: bool | None = None
    score_range: tuple[float, float] | None = None
    split: str | None = None
    config: str | None = None
    revision: str | None = None
    token: str | bool | None = None
    cache_folder: str | os.PathLike[str] | None = None
    data_folder: str | os.PathLike[str] | None = None
    skip_bad_rows: bool = False
    bad_rows_file: str | os.PathLike[str] | None = None
    file_format: str | None = None

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        if isinstance(self.columns, str):
            raise InputError(
                f"columns is the text {self.columns!r}. A list of names is needed, such as ['sentence1', 'sentence2']."
            )
        if self.bad_rows_file is not None and not self.skip_bad_rows:
            raise InputError(
                "bad_rows_file is stated without skip_bad_rows. It holds the rows that are skipped. State "
                "both, or neither."
            )
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise InputError(
                f"score_range is {self.score_range}. The lowest score comes first, then a higher one: (0, 5)."
            )


@dataclass(frozen=True, kw_only=True)
class Found:
    """Files, stdin or data set that a source was resolved to."""

    name: str
    """Name of the source, for messages."""
    dataset: Dataset | None = None
    files: tuple[Path | str | None, ...] = ()
    """Paths and URLs, in order; None is stdin."""
    file_format: str = ""
    packed: str = ""
    """Compression, `gz` or `zst`; empty: none."""
    start: int = 0
    stop: int | None = None
    """End of the rows that are read of the files, [start, stop), counted from 0; None: all rows from `start` on."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each file, for messages."""
        return (self.name,) if len(self.files) < 2 else tuple(map(str, self.files))


def find_source(source: Source) -> Found:
    """Find the files or the data set that a source refers to.

    Raises:
        InputError: there is none, or an option does not apply to it.
    """
    text = as_source(source.path)
    if isinstance(text, Dataset):
        _refuse_unused(source, "<dataset>", "a Dataset")
        if text.format["type"] == "custom":
            raise InputError(
                "<dataset>: it has a transform, which readers would not see. Apply it with map, or reset_format."
            )
        return Found(name="<dataset>", dataset=text.with_format(None))
    if text == STDIN:
        return _file(None, text, source, "a stream")
    if not text:
        raise InputError("the source is an empty text. A path, a hub id or - for stdin is needed.")
    if "://" in text:
        return _remote_files(text, source)
    path = Path(text).expanduser()
    if path.is_dir():
        return _file_of_split(path, text, source)
    if path.exists():
        return _file(path, text, source, "one file")
    if has_magic(text):
        return _files([Path(each) for each in sorted(glob(str(path), recursive=True))], text, source)
    return _in_data_folder_or_hub(text, path, source)


def warn_of_short_slice(name: str, n_rows: int, start: int, stop: int | None) -> None:
    """Warn when a split's slice, such as [0:1000], asks for more rows than there are."""
    if stop is not None and n_rows < stop - start:
        logger.warning(
            "%s: the split's slice [%d:%d] asks for more rows than there are: %d read", name, start, stop, n_rows
        )


def _in_data_folder_or_hub(text: str, path: Path, source: Source) -> Found:
    text, source = _split_id(text, source)
    folder = _data_folder(source)
    if folder is not None and text.strip("/") and not path.is_absolute():
        local = folder / text / (source.config or "")
        if local.is_dir():
            return _file_of_split(local, str(local), replace(source, config=None))
        if local.is_file() and source.config is None:
            return _file(local, str(local), source, "one file")
    if _suffix(text) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text) or text.startswith("."):
        raise no_such_file(text, folder)
    looked_in = f"the data folder {folder}" if folder else "no data folder (TRANSENCODER_DATA is not set)"
    return _from_hub(text, source, looked_in)


def _split_id(text: str, source: Source) -> tuple[str, Source]:
    """Split `id:config@revision` into the id and a source with config and revision; return other texts unchanged."""
    match = _FULL_ID.fullmatch(text)
    if match is None:
        return text, source
    for name in ("config", "revision"):
        stated, found = getattr(source, name), match[name]
        if stated and found and stated != found:
            raise InputError(f"{text}: its {name} is {found}, and {name} {stated} is stated too; state one of them.")
    config, revision = source.config or match["config"], source.revision or match["revision"]
    return match["id"], replace(source, config=config, revision=revision)


def _data_folder(source: Source) -> Path | None:
    stated = source.data_folder or os.environ.get("TRANSENCODER_DATA")
    if not stated:
        return None
    folder = Path(stated).expanduser()
    if not folder.is_dir():
        by = "data_folder (--data-dir)" if source.data_folder else "the variable TRANSENCODER_DATA"
        raise InputError(
            f"the data folder {folder}, stated by {by}, is not a folder. It holds <id>/<split>.jsonl.gz. "
            "Correct or unset it."
        )
    return folder


def _from_hub(hub_id: str, source: Source, looked_in: str) -> Found:
    """Load one split of a data set on the hub; `looked_in` says where else it was searched, for messages."""
    split, start, stop = _parse_split(source.split)
    config = f"/{source.config}" if source.config else ""
    try:
        loaded = datasets.load_dataset(
            hub_id,
            source.config,
            split=split,
            revision=source.revision,
            token=source.token,
            cache_dir=str(Path(source.cache_folder).expanduser() / "hub") if source.cache_folder else None,
        )
    except Exception as error:  # load_dataset raises many kinds of errors, most of which do not name the id
        stated = (("config", source.config), ("split", split), ("revision", source.revision))
        asked = ", ".join(f"{key} {value}" for key, value in stated if value)
        raise InputError(
            f"{hub_id}{f' ({asked})' if asked else ''} could not be loaded. Tried: a path of that name "
            f"(none), {looked_in}, the hub ({type(error).__name__}: {shorten(str(error), 300)}). Check the "
            "id and the network; a private one needs a token. Without the network, state a local file, or a "
            f"data folder that holds {hub_id}{config}/{split or 'train'}.jsonl.gz "
            "(data_folder, --data-dir or TRANSENCODER_DATA)."
        ) from error
    if isinstance(loaded, datasets.DatasetDict):
        if len(loaded) != 1:
            raise InputError(
                f"{hub_id} has the splits {', '.join(loaded)} and none is stated. State one of them "
                "(split=..., --split)."
            )
        split, loaded = next(iter(loaded.items()))
    name = f"{hub_id}{config}/{split}"
    rows = range(len(loaded))[start:stop]
    warn_of_short_slice(name, len(rows), start, stop)
    return Found(name=name, dataset=loaded.select(rows))


def _file_of_split(folder: Path, name: str, source: Source) -> Found:
    """Find the files of a split in a folder with the hub's layout."""
    inner = folder / source.config if source.config else folder
    paths = sorted(inner.iterdir()) if inner.is_dir() else []
    return _files_of_split(paths, [path.name for path in sorted(folder.iterdir()) if path.is_dir()], name, source)


def _files_of_split(paths: Sequence[Path | str], folders: Sequence[str], name: str, source: Source) -> Found:
    """Choose the files of a split among those of a folder; `folders` are its sub-folders, for messages."""
    names = {path: PurePath(path).name for path in paths}
    files = {path: _split_of(own[: -len(suffix)]) for path, own in names.items() if (suffix := _suffix(own))}
    splits = sorted(set(files.values()))
    split, start, stop = _parse_split(source.split)
    split = split or (splits[0] if len(splits) == 1 else None)
    matching = [path for path, own in files.items() if own == split]
    if not matching:
        found = f"its splits are {', '.join(splits)}" if splits else "it has no such files"
        configs = f"; its sub-folders, to be stated as config, are {', '.join(folders[:20])}" if folders else ""
        wanted = f"no file for split {split}" if split else "a folder, and no split is stated"
        raise InputError(
            f"{name}{'/' + source.config if source.config else ''}: {wanted}. A folder holds one "
            f"<split>.jsonl.gz (or .tsv, .csv, .parquet) a split; {found}{configs}. State a file, or one of "
            "its splits (split=..., --split)."
        )
    if source.split is None:
        logger.info("%s: split %s is read, the only one", name, split)
    if source.revision:
        logger.info(
            "%s: a local copy is read; revision %s speaks of the hub's and is not checked", name, source.revision
        )
    return replace(_files(matching, name, Source(name)), start=start, stop=stop)


def _split_of(stem: str) -> str:
    """Return the split in a file's name: `train` for `train-00000-of-00005`, `part` for Spark's `part-00017`."""
    return "part" if _PART.match(stem) else _OF_ALL.sub("", stem)


def _files(paths: Sequence[Path | str], name: str, source: Source) -> Found:
    """Combine several files of one format into one source.

    Raises:
        InputError: There is no file, the formats differ, or a name such as `train-00000-of-00005` shows that files are
            missing.
    """
    if not paths:
        raise InputError(
            f"{name}: no file has such a name (looked in {Path.cwd()}). {ALLOWED_FILES}. Check the pattern."
        )
    for path in paths:
        n_all = _OF_ALL.search(str(path).removesuffix(_suffix(str(path))))
        if n_all and int(n_all[1]) != len(paths):
            raise InputError(
                f"{path}: is one of {int(n_all[1])} files by its name, and {len(paths)} are given. All of them are "
                "needed. Copy or download the others."
            )
    found = [_file(path, str(path), replace(source, path=path), "files") for path in paths]
    kinds = sorted({f"{each.file_format} {each.packed}".strip() for each in found})
    if len(kinds) > 1:
        raise InputError(f"{name}: its files are of several kinds, {', '.join(kinds)}. State files of one kind.")
    return replace(found[0], name=found[0].name if len(found) == 1 else name, files=tuple(paths))


def _remote_files(url: str, source: Source) -> Found:
    """Find the files of a URL: a single one, those that match a pattern, or those of a split in a folder.

    Raises:
        InputError: They cannot be read.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
        is_folder = not has_magic(path) and system.isdir(path)
        if is_folder:
            inner = f"{path}/{source.config}" if source.config else path
            paths = sorted(system.ls(inner, detail=False)) if system.isdir(inner) else []
        else:
            paths = sorted(system.glob(path)) if has_magic(path) else [path]
    except ImportError as error:
        raise InputError(f"{url}: {error}. Or copy the files to a disk and state their path.") from error
    except Exception as error:  # each file system raises its own kinds of errors
        raise InputError(
            f"{url}: cannot be read ({reason_of(error)}). Check the URL, the network and your rights."
        ) from error
    found = [system.unstrip_protocol(each) for each in paths if _suffix(each) or len(paths) == 1]
    if is_folder:
        folders = [PurePath(each).name for each in paths if not _suffix(each)]
        return _files_of_split(found, [] if source.config else folders, url, source)
    return _files(found, url, source)


def _file(path: Path | str | None, name: str, source: Source, what: str) -> Found:
    _refuse_unused(source, name, what)
    stated = source.file_format or (_suffix(name) if path else ".tsv")
    suffix = "." + stated.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        problem = "unknown kind of file by its name"
        if source.file_format:
            problem = f"unknown file format {shorten(source.file_format)}"
        raise InputError(
            f"{name}: {problem}. {ALLOWED_FILES}. Rename the file, or state file_format='tsv' (--file-format tsv)."
        )
    name = "<stdin>" if path is None else name
    _, file_format, packed = f"{suffix}.".split(".")[:3]
    return Found(name=name, files=(path,), file_format=file_format, packed=packed)


def _suffix(name: str) -> str:
    return max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len, default="")


def _refuse_unused(source: Source, name: str, what: str) -> None:
    for option, value in (("split", source.split), ("config", source.config)):
        if value is not None:
            raise InputError(
                f"{name}: {option} {shorten(value)} is stated, but the source is {what}. Only a hub id or a "
                "folder has splits and configs. Leave it out."
            )


def _parse_split(split: str | None) -> tuple[str | None, int, int | None]:
    """Split a text such as `validation[:1000]` into the name, the first row and the one after the last."""
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
