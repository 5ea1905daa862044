"""Damage one file of a run or an index: commands that read it must give the same result, or say what is damaged.

    python benchmarks/damage.py                 # 1,000 damages: about 15 minutes of one core
    python benchmarks/damage.py --damages 40    # a trial

The files are those of a finished run, of a run that was interrupted inside a stage with a checkpoint, and of a search
index, all of tiny models. Each file is damaged in each way, in random order. A case is good if each command gives the
same result as before, or says what is damaged, without a traceback. Each command runs in a fork of a process that has
imported everything.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

WAYS = ("bit flip", "truncated", "emptied", "zeroed", "another file's content", "removed")
SILENT, SAID, BAD = "same, silently", "damage named", "bad"
_MODELS = ("bi-encoder", "cross-encoder")
_TIMES = ("finished", "seconds", "environment", "stages", "sha256", "sizes")
_STOPPED_AT_STEP = 4
_TOLD = re.compile("WARNING|^transencoder: ")
_WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "e", "io") for c in ("lo", "ma")]


@dataclass(frozen=True)
class Target:
    """A folder to damage, and the commands that read it; the last one is the command that made it."""

    name: str
    folder: Path
    commands: dict[str, list[str]]
    expected: dict[str, object] = field(default_factory=dict)
    """Exit code and output of each command before any damage."""

    @property
    def whole(self) -> Path:
        """Path of a copy of the folder that is never damaged."""
        return self.folder.with_name(f"{self.folder.name}-whole")

    def restore(self) -> None:
        """Replace the folder by its undamaged copy."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.whole, self.folder)

    def readers(self, path: Path) -> list[str]:
        """Return the commands that may read a file; the last one is the command that made the folder."""
        first, own = path.parts[0], []
        for name in self.commands:
            is_other_model = name.startswith("score") and first not in name
            is_far = (name in ("results", "runs list") and len(path.parts) > 1) or (
                name == "report" and first in _MODELS
            )
            own += [] if is_other_model or is_far else [name]
        return own

    def files(self) -> list[Path]:
        """Return every file, relative to the folder."""
        return sorted(path.relative_to(self.whole) for path in self.whole.rglob("*") if path.is_file())


def damage(path: Path, way: str, other: Path, randomly: random.Random) -> bool:
    """Damage a file; return whether its content has changed."""
    before = path.read_bytes()
    content = bytearray(before)
    if way == "removed":
        path.unlink()
        return True
    if way == "bit flip" and content:
        content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
    elif way == "truncated":
        del content[randomly.randrange(len(content) + 1) :]
    elif way == "emptied":
        content.clear()
    elif way == "zeroed":
        content = bytearray(len(content))
    elif way == "another file's content":
        content = bytearray(other.read_bytes())
    path.write_bytes(content)
    return content != before


def check(target: Target, damages: Sequence[tuple[Path, str]], randomly: random.Random) -> Iterator[dict[str, str]]:
    """Yield the outcome of each damage for each command that may read the file."""
    files = target.files()
    for path, way in damages:
        target.restore()
        if not damage(target.folder / path, way, target.whole / randomly.choice(files), randomly):
            continue
        for name in target.readers(path):
            found, said = run(target, name)
            what = _outcome(found, target.expected[name], said, path)
            row = {"target": target.name, "file": path.as_posix(), "way": way, "command": name, "outcome": what}
            yield row | ({"said": "\n".join(said)[-1500:], "found": str(found)} if what == BAD else {})


def _outcome(found: tuple[int, object], expected: object, said: list[str], path: Path) -> str:
    names = {path.name, *path.parts[1:2]}
    is_named = any(name in line for name in names for line in said if _TOLD.search(line))
    if found[0] not in (0, 2, 3) or any("Traceback" in line for line in said):
        return BAD
    return SAID if is_named else SILENT if found == expected else BAD


def run(target: Target, name: str) -> tuple[tuple[int, object], list[str]]:
    """Run a command in a fork; return its exit code and output, and the lines of its messages."""
    said, shown = (target.folder.with_name(each) for each in ("stderr.txt", "stdout.txt"))
    code = in_fork(lambda: _main(target.commands[name]), said, shown)
    lines = [line for line in said.read_text(errors="replace").splitlines() if "it/s]" not in line]
    if name == "results":
        page = shown.with_name("results.md").read_text().splitlines()
        lines += [f"WARNING result.json, log.jsonl: {line}" for line in page if line.startswith("- `")]
    return (code, _left(target.folder, name, shown)), lines


def in_fork(action: Callable[[], int], said: Path, shown: Path) -> int:
    """Run an action in a fork and return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        for path, stream in ((shown, 1), (said, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        code = action()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _main(command: list[str]) -> int:
    from transencoder import cli
    from transencoder.report import figures

    figures.draw = lambda plot, png: png.touch() or plot.title  # a figure takes 0.2 s, and nobody looks at it
    return cli.main(command)


def _left(folder: Path, name: str, shown: Path) -> object:
    """Return the output of a command: a run's models and result, a page, or what it printed."""
    if name in ("train", "search build"):
        names = _MODELS if name == "train" else (".",)
        files = sorted(path for each in names for path in (folder / each).rglob("*") if path.is_file())
        hashes = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        try:
            result = json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            result = {}
        return hashes, _without_times(result)
    if name in ("report", "results"):
        page = folder / "report.html" if name == "report" else folder.with_name("results.md")
        return hashlib.sha256(page.read_bytes()).hexdigest() if page.exists() else None
    return None if name == "runs list" else shown.read_text(errors="replace")


def _without_times(record: object) -> object:
    if isinstance(record, dict):
        return {name: _without_times(value) for name, value in record.items() if name not in _TIMES}
    return record if not isinstance(record, list) else [_without_times(value) for value in record]


def make(folder: Path, start: str | None = None) -> list[Target]:
    """Make a finished run, an interrupted one and an index."""
    start = start or _tiny_model(folder / "model")
    pairs, dev = _write_pairs(folder / "pairs.tsv", 32, with_score=False), _write_pairs(folder / "dev.tsv", 16)
    train = ["train", "trans-encoder", "--pairs", pairs, "--dev", dev, "--tests", dev, "--start", start]
    train += ["--cycles", "1", "--no-is-symmetric", "--precision", "fp32", "--device", "cpu"]
    for form in ("bi", "cross"):
        settings = {"learning-rate": "1e-3", "batch-size": "8", "epochs": "2", "eval-steps": "2"}
        for name, value in {**settings, "checkpoint-steps": "2"}.items():
            train += [f"--{form}.{name}", value]

    def commands(run: Path) -> dict[str, list[str]]:
        return {
            **{f"score {form}": ["score", str(run / form), "--pairs", pairs, "--device", "cpu"] for form in _MODELS},
            "runs list": ["runs", "list", str(run)],
            "results": ["results", str(run), "--output", str(folder / "results.md")],
            "report": ["report", str(run)],
            "train": [*train, "--output", str(run)],
        }

    index = folder / "index"
    build = ["search", "build", pairs, "--column", "sentence1", "--model", start, "--output", str(index)]
    query = ["search", "query", str(index), " ".join(_WORDS[:4]), "--top-k", "3", "--json", "--device", "cpu"]
    targets = [
        Target("finished run", folder / "finished", commands(folder / "finished")),
        Target("interrupted run", folder / "interrupted", commands(folder / "interrupted")),
        Target("index", index, {"search query": query, "search build": [*build, "--device", "cpu"]}),
    ]
    for target in targets:
        _make(target)
    return targets


def _make(target: Target) -> None:
    name, command = list(target.commands.items())[-1]
    said = target.folder.with_name("stderr.txt")
    action = (lambda: _interrupted(command)) if "interrupted" in target.name else (lambda: _main(command))
    code = in_fork(action, said, Path(os.devnull))
    if code not in (0, 130):
        sys.exit(f"{name} failed:\n{said.read_text()}")
    shutil.copytree(target.folder, target.whole)
    for name in target.commands:
        target.expected[name] = run(target, name)[0]


def _interrupted(command: list[str]) -> int:
    """Run a command until the bi-encoder's second checkpoint is saved, then stop it as Ctrl-C does."""
    from transencoder.checkpoints import KeepBest

    save = KeepBest.on_save

    def stop(self: KeepBest, args: object, state: Any, control: object, **kwargs: Any) -> None:
        save(self, args, state, control, **kwargs)
        if "-bi-" in str(self.folder) and state.global_step == _STOPPED_AT_STEP:
            raise KeyboardInterrupt

    KeepBest.on_save = stop
    return _main(command)


def plan(target: Target, n_damages: int, randomly: random.Random) -> list[tuple[Path, str]]:
    """Return `n_damages` damages: each file in each way, in random order, repeated if there are too few."""
    every = [(path, way) for path in target.files() for way in WAYS]
    randomly.shuffle(every)
    return [every[i % len(every)] for i in range(n_damages)]


def summary(rows: Sequence[dict[str, str]]) -> str:
    """Return a Markdown table of outcomes by target and command."""
    counts = Counter((row["target"], row["command"], row["outcome"]) for row in rows)
    lines = [f"| folder | command | {SILENT} | {SAID} | {BAD} |", "| --- | --- | ---: | ---: | ---: |"]
    for target, command in dict.fromkeys((row["target"], row["command"]) for row in rows):
        cells = (str(counts[target, command, outcome]) for outcome in (SILENT, SAID, BAD))
        lines.append(f"| {target} | `{command}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _tiny_model(folder: Path) -> str:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(pieces), max_position_embeddings=64, initializer_range=0.2, **sizes)
    BertModel(config).save_pretrained(folder)
    BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=64).save_pretrained(folder)
    parts = [Transformer(str(folder), max_seq_length=32), Pooling(16, pooling_mode="mean")]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder), create_model_card=False)
    return str(folder)


def _write_pairs(path: Path, n_rows: int, *, with_score: bool = True) -> str:
    randomly = random.Random(path.name)
    lines = ["sentence1\tsentence2" + "\tscore" * with_score]
    for row in range(n_rows):
        words = randomly.sample(_WORDS, 8)
        second = words[: row % 5] + words[4 : 8 - row % 5]
        lines.append(f"{' '.join(words[:4])}\t{' '.join(second)}" + f"\t{row % 5}" * with_score)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def import_everything() -> None:
    """Import and prepare what the commands share. Start no thread, because the process forks afterwards."""
    import datasets  # noqa: F401
    import faiss  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import sentence_transformers.cross_encoder.trainer
    import sentence_transformers.sentence_transformer.trainer  # noqa: F401

    import transencoder.report.comparison
    import transencoder.report.run_report
    import transencoder.search
    import transencoder.training  # noqa: F401
    from transencoder import cli
    from transencoder.report import words

    cli._parser()
    for name in words._environment("txt").list_templates():
        if name.endswith("jinja"):
            words._environment(name.split(".")[-2]).get_template(name)


def main() -> None:
    """Run the damages and write the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", default=str(Path(__file__).with_name("results") / "damage.md"))
    args = parser.parse_args()
    import_everything()
    gc.freeze()  # each training collects garbage
    with tempfile.TemporaryDirectory(prefix="damage-") as folder:
        parts = [Path(folder, str(number)) for number in range(args.processes)]
        children = [os.fork() or _part(part, args, number) for number, part in enumerate(parts)]
        if any([os.waitpid(child, 0)[1] for child in children]):
            sys.exit("a process failed")
        rows = [json.loads(line) for part in parts for line in part.with_suffix(".jsonl").read_text().splitlines()]
    text = summary(rows)
    print(text)
    n = sum(row["command"] in ("train", "search build") for row in rows)
    Path(args.output).write_text(_PAGE.format(**vars(args), n=n, table=text))
    sys.exit(any(row["outcome"] == BAD for row in rows))


def _part(folder: Path, args: argparse.Namespace, number: int) -> NoReturn:
    """Check a share of the damages in a folder of its own, and end the process."""
    code = 1
    try:
        folder.mkdir()
        targets, randomly = make(folder), random.Random(args.seed)
        shares = [max(0.1, len(target.files()) / 100) for target in targets]  # an index has few files
        with folder.with_suffix(".jsonl").open("w", buffering=1) as file:
            for target, share in zip(targets, shares, strict=True):
                planned = plan(target, round(args.damages * share / sum(shares)), randomly)
                for row in check(target, planned[number :: args.processes], random.Random(number)):
                    file.write(json.dumps(row) + "\n")
                    if row["outcome"] == BAD:
                        print(json.dumps(row), flush=True)
        code = 0
    finally:
        os._exit(code)


_PAGE = """# Damaged files

`python benchmarks/damage.py --damages {damages} --seed {seed}`: {n} single damages (bit flip, truncation, emptied, \
zeroed, another file's content, removed) over all files of a finished run, of one that was interrupted inside a stage \
with a checkpoint, and of a search index, of tiny models on a CPU. After each damage every command runs.

{table}

*Same, silently*: the command gives what it gave before the damage, to the byte. *Damage named*: a line names the \
file, and the command gives the same or refuses. *Bad*: a traceback, or another result without a word.
"""


if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", MPLBACKEND="Agg")
    main()
