"""Compare what two commits compute: `python tools/golden.py BEFORE AFTER`.

Both sides run the same tiny configurations, one for each pipeline, on this machine and in the same folder, so that
stage keys can be equal too. The tool compares stages with their keys, the hash of every output, results without times,
recipes, what the commands print, their exit codes, and all help texts. Then AFTER continues with the run folders of
BEFORE, and must compute nothing again. BEFORE is a git revision; AFTER is a git revision, or a folder with a working
tree, such as `.`. The results of BEFORE are kept in `build/golden/` by commit, so that only AFTER runs the next time.

The wording of reports, model cards, pictures and messages may change. They are compared too, but a difference is not a
failure, and is shown only with `--reports`.
"""

import argparse
import difflib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import golden_cases
from golden_cases import CASES, WRONG, make_inputs

ROOT = Path(__file__).resolve().parents[1]
CASES_HASH = hashlib.sha256(Path(golden_cases.__file__).read_bytes()).hexdigest()[:8]
STORE = ROOT / "build" / "golden" / CASES_HASH
"""Folder of what these cases make: `inputs`, the folder `work` of both sides, and the results of BEFORE by commit."""
INPUTS, WORK, HUB = STORE / "inputs", STORE / "work", STORE / "hub"
HELP = "help"
"""Name of the case with all help texts and wrong commands."""

COMMANDS, COMPUTED = "commands.json", "computed.json"
"""Records of this tool: exit code and output of each command; stages of finished runs that were computed again."""
NOT_COMPARED = ("log.jsonl", "environment.json", ".lock")
WORDS = (".html", ".md", ".png", ".svg")
"""Suffixes of files whose wording may change."""
CHANGING = {
    "commit",
    "environment",
    "environments",
    "finished",
    "git",
    "reused",
    "sentences_a_second",
    "started",
    "time",
    "versions",
}
"""Keys of records that hold no result; keys that end in `seconds` are ignored too."""
_TIMES = re.compile(r"\b\d+(\.\d+)? ?(s|ms|min|h|seconds?|minutes?|hours?)\b|\b\d+:\d\d(:\d\d)?\b")
_CHANGING_WORDS = re.compile(r'\d{4}-\d\d-\d\d|\b[0-9a-f]{7,40}\b|(?<=<rect width=")[\d.]+')
"""Pattern of dates, commits, and widths of bars that show times."""
_PROGRESS = re.compile(r"[^\n\r]*%\|[^\n\r]*[\n\r]*")
_STAGE = re.compile(r"(stages/[^/]+)-[0-9a-f]{12}/")

Items = dict[str, str]
"""Items to compare by name: a text, or the hash of a file that is not text."""


def main() -> int:
    """Compare two commits; return 0 where they are equal, else 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits, so that worktrees are removed
    args = _arguments()
    names = args.only or [*CASES, HELP]
    if args.list:
        print("\n".join(names))
        return 0
    STORE.mkdir(parents=True, exist_ok=True)
    with open(STORE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # both sides use the same folder
        if not INPUTS.exists():
            make_inputs(INPUTS)
        before, after = STORE / _identity(args.before), Path(args.keep or STORE / "after").absolute()
        _run_side(args.before, [name for name in names if not (before / name).exists()], before, None, args.jobs)
        _run_side(args.after, names, after, before, args.jobs)
        return _compare(names, before, after, shows_words=args.reports)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", default="main", help="revision (default: main)")
    parser.add_argument("after", nargs="?", default=".", help="revision or folder (default: this folder)")
    parser.add_argument("--only", nargs="+", choices=[*CASES, HELP], metavar="CASE", help="run these cases")
    parser.add_argument("--keep", metavar="FOLDER", help="where to leave what AFTER gave (default: in build/golden)")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--reports", action="store_true", help="also show how reports, cards and messages differ")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases at once (default: 1)")
    return parser.parse_args()


class Server:
    """A process that runs commands with the code of one side."""

    def __init__(self, source: Path) -> None:
        data = Path(os.environ.get("TRANSENCODER_DATA", ROOT.parent / "shared" / "data"))
        settings = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
        settings |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(HUB), "MPLBACKEND": "Agg", "COLUMNS": "110"}
        settings |= {"PYTHONPATH": str(source / "src"), "TRANSENCODER_DATA": str(data)}
        command = [sys.executable, str(ROOT / "tools" / "golden_server.py"), str(source)]
        self._process = subprocess.Popen(
            command, env=os.environ | settings, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, command: str, folder: Path) -> dict[str, Any]:
        """Run a command in a folder; return its exit code and what it printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": shlex.split(command), "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        did: dict[str, Any] = json.loads(self._process.stdout.readline())
        return did

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _run_side(revision: str, names: Sequence[str], target: Path, before: Path | None, jobs: int) -> None:
    """Run cases with the code of a revision; run those that train once more on the run folders of `before`."""
    if not names:
        return
    shutil.rmtree(HUB, ignore_errors=True)
    servers: SimpleQueue[Server] = SimpleQueue()

    def run(name: str) -> None:
        begin, server = time.monotonic(), servers.get()
        _run_case(name, server, target / name)
        if before is not None and name in CASES and CASES[name].resumes:
            _run_case(name, server, target / _resumed(name), begun=before / name)
        servers.put(server)
        print(f"{revision}: {name}, {time.monotonic() - begin:.0f} s", flush=True)

    with _checkout(revision) as source, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            servers.put(Server(source))
        list(pool.map(run, names))
        for _ in range(jobs):
            servers.get().close()


def _run_case(name: str, server: Server, target: Path, begun: Path | None = None) -> None:
    """Run a case's commands in its folder, which is empty or a copy of `begun`, and move the folder to `target`."""
    work = WORK / name
    shutil.rmtree(work, ignore_errors=True)
    if begun is None:
        work.mkdir(parents=True)
    else:
        shutil.copytree(begun, work)
    logs = {path: len(path.read_text("utf-8").splitlines()) for path in work.glob("**/log.jsonl")}
    commands = [*_help_commands(server, work), *WRONG] if name == HELP else CASES[name].commands
    record = {command: server.run(command.format(inputs=INPUTS), work) for command in commands}
    for command in (each for each in commands if name != HELP and record[each]["code"]):
        print(f"{name}: exit code {record[command]['code']}: {command}\n{record[command]['stderr'][-500:]}")
    (work / COMMANDS).write_text(json.dumps(record), encoding="utf-8")
    if begun is not None:
        computed = [stage for path, n_lines in logs.items() for stage in _computed(path, n_lines)]
        (work / COMPUTED).write_text(json.dumps(computed), encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(work, target)


def _help_commands(server: Server, work: Path, path: str = "") -> Iterator[str]:
    """Yield `... --help` for a command and for the subcommands that its help lists."""
    command = f"{path} --help".strip()
    yield command
    listed = re.search(
        r"^(?:commands|actions|methods):\n.*\n((?:    .*\n?)*)", server.run(command, work)["stdout"], re.M
    )
    for name in re.findall(r"^    (\w\S*)", listed[1] if listed else "", re.M):
        yield from _help_commands(server, work, f"{path} {name}")


def _computed(log: Path, n_lines: int) -> Iterator[str]:
    """Yield the stages that were started after the first `n_lines` lines of a log."""
    for line in log.read_text("utf-8").splitlines()[n_lines:]:
        entry = json.loads(line)
        if entry["event"] == "stage_started":
            yield f"{log.parent.name}: {entry['name']}"


def _compare(names: Sequence[str], before: Path, after: Path, *, shows_words: bool) -> int:
    """Print how the sides differ and a table of how much is equal; return 1 if a difference counts, else 0."""
    differences: list[str] = []
    lines = [f"{'case':28}{'stages':>10}{'files':>10}{'commands':>10}{'words':>10}"]
    for name in names:
        pairs = [(name, before / name, after / name)]
        if (after / _resumed(name)).exists():
            pairs.append((_resumed(name), before / name, after / _resumed(name)))
        for title, old, new in pairs:
            expected, found = collect(old), collect(new)
            if title != name:
                expected[f"stages: {COMPUTED}"] = "[]"  # no stage of a finished run may be computed again
                expected, found = (
                    {item: each[item] for item in each if item.startswith(("stages", "files"))}
                    for each in (expected, found)
                )
            lines.append(f"{title:28}" + "".join(f"{count:>10}" for count in _counts(expected, found)))
            differences += difference(expected, found, title, shows_words=shows_words)
    is_equal = not any(line.startswith("*** ") for line in differences)
    print("\n".join([*differences, "", *lines, "", "equal" if is_equal else "NOT EQUAL"]))
    return int(not is_equal)


def collect(folder: Path) -> Items:
    """Return the items of a case to compare, named `stages: ...`, `files: ...`, `commands: ...` and `words: ...`."""
    items: Items = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = _STAGE.sub(r"\1/", path.relative_to(folder).as_posix())
        if name == COMMANDS:
            items |= _commands(json.loads(path.read_bytes()), says_progress=folder.name != HELP)
        elif path.name not in NOT_COMPARED:
            is_stage = path.name in ("stage.json", COMPUTED)
            kind = "stages" if is_stage else "words" if path.suffix in WORDS else "files"
            items[f"{kind}: {name}"] = content(path)
    return items


def content(path: Path) -> str:
    """Return a text, or a hash, of a file that is the same for the same results."""
    if path.suffix == ".json":
        record = json.loads(path.read_bytes())
        if isinstance(record, dict):
            record.pop("sha256", None)  # that of the record itself, times included
        return json.dumps(without_times(record), indent=1, sort_keys=True)
    if path.suffix in (".md", ".toml", ".tsv", ".txt", ".html"):
        text = path.read_text("utf-8")
        return _CHANGING_WORDS.sub("...", _TIMES.sub("TIME", text)) if path.suffix in WORDS else text
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_times(value: Any) -> Any:
    """Return a JSON value without times, versions and commits."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if key not in CHANGING and not key.endswith("seconds")}
        return {key: without_times(part) for key, part in kept.items()}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def difference(before: Items, after: Items, title: str, *, shows_words: bool) -> list[str]:
    """Return a unified diff of each item that is not equal; one that counts begins with `*** `."""
    lines: list[str] = []
    for item in sorted(before.keys() | after.keys()):
        old, new = before.get(item), after.get(item)
        is_word = item.startswith("words")
        if old == new or (is_word and not shows_words):
            continue
        lines.append(f"{'~~~' if is_word else '***'} {title}, {item}")
        if old is None or new is None:
            lines.append("only BEFORE has it" if new is None else "only AFTER has it")
        else:
            lines += difflib.unified_diff(old.splitlines(), new.splitlines(), "BEFORE", "AFTER", lineterm="", n=2)
    return lines


def _counts(before: Items, after: Items) -> Iterator[str]:
    """Yield `equal/all` for each kind of item."""
    items = before.keys() | after.keys()
    every = Counter(item.partition(":")[0] for item in items)
    equal = Counter(item.partition(":")[0] for item in items if before.get(item) == after.get(item))
    yield from (f"{equal[kind]}/{every[kind]}" for kind in ("stages", "files", "commands", "words"))


def _commands(record: Mapping[str, Any], *, says_progress: bool) -> Items:
    """Return the items of commands; their messages on progress are `words`, which may change."""
    items: Items = {}
    for command, did in record.items():
        printed, said = did["stdout"], _PROGRESS.sub("", did["stderr"])
        if not command.endswith("--help"):
            printed, said = _TIMES.sub("TIME", printed), _TIMES.sub("TIME", said)
        items[f"commands: {command}"] = f"exit code {did['code']}\n{printed}"
        if says_progress:
            items[f"words: {command}"] = said
        else:
            items[f"commands: {command}"] += re.sub("^TIME INFO.*\n", "", said, flags=re.M)
    return items


def _resumed(name: str) -> str:
    return f"{name}, resumed"


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """Yield a worktree with the code of a revision, beside this repository; a folder with code is yielded as it is."""
    if Path(revision, "src", "transencoder").is_dir():
        yield Path(revision).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="golden-", dir=ROOT.parent, ignore_cleanup_errors=True) as folder:
        _git("worktree", "add", "--quiet", "--detach", folder, revision)
        try:
            yield Path(folder)
        finally:
            _git("worktree", "remove", "--force", folder)


def _identity(revision: str) -> str:
    """Return the name of the folder for the results of a revision."""
    return _git("rev-parse", "--short=12", "--verify", f"{revision}^{{commit}}")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
