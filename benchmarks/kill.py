"""The kill test on a real run: SIGKILLs at chosen and random moments, resumed each time, against a run left in peace.

    python benchmarks/kill.py                                  # 20 kills, two stages of a minute or more: about an hour
    python benchmarks/kill.py --rows 400 --kills 4 --steps 5   # a trial of some minutes

Three kinds of kills take turns, in an order that the seed decides: inside a checkpoint's writing (a checkpoint folder
is there and its marker is not), inside training (between two checkpoints), and at any time; the second half of them
in the bi-encoder's stage. Where a run ends before all kills are done, its models are compared and the next kills meet a
new run.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
FORMS = ("bi-encoder", "cross-encoder")
PAUSE_SECONDS = 0.0005


def main() -> None:
    """Run the test and write its record."""
    args = _arguments()
    folder = Path(args.folder or tempfile.mkdtemp(prefix="transencoder-kill-"))
    folder.mkdir(parents=True, exist_ok=True)
    pairs = _write_pairs(folder / "pairs.tsv", args.rows)
    command = _command(args, pairs)
    started = time.monotonic()
    whole = folder / "whole"
    _finish(_start(command, whole, folder / "whole.txt"), folder / "whole.txt")
    record = {
        "command": _shown(command, folder),
        "rows": args.rows,
        "threads": os.environ["OMP_NUM_THREADS"],
        "seconds_uninterrupted": round(time.monotonic() - started, 1),
        "stages": {stage["name"]: stage["seconds"] for stage in _result(whole)["stages"]},
        "sha256_uninterrupted": _hashes(whole),
    }
    kills, runs = _kill_and_resume(command, folder, args.kills, random.Random(args.seed), started)
    record["kills"] = kills
    record["n_kills"] = len(kills)
    record["n_kills_by_kind"] = {kind: sum(kill["was_in"] == kind for kill in kills) for kind in _KINDS}
    record["runs"] = runs
    record["all_equal"] = all(run["sha256"] == record["sha256_uninterrupted"] for run in runs)
    record["seconds"] = round(time.monotonic() - started, 1)
    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    shown = {name: record[name] for name in ("n_kills", "n_kills_by_kind", "all_equal", "seconds")}
    print(json.dumps(shown, indent=1), f"\n{output}")
    sys.exit(0 if record["all_equal"] else 1)


def _kill_and_resume(
    command: list[str], folder: Path, n_kills: int, randomly: random.Random, started: float
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Kill until there are enough, with every run gone on with to its end; what was hit, and the models' hashes."""
    aims = [_AIMS[i % 3] for i in range(n_kills)]
    randomly.shuffle(aims)
    plan = [(aim, "bi-encoder" if i >= n_kills // 2 else "") for i, aim in enumerate(aims)]
    kills: list[dict[str, object]] = []
    runs: list[dict[str, object]] = []
    while plan or not runs or "sha256" not in runs[-1]:
        if not runs or "sha256" in runs[-1]:
            runs.append({"run": f"killed-{len(runs) + 1}", "n_kills": 0})
        run, log = folder / str(runs[-1]["run"]), folder / f"{runs[-1]['run']}.txt"
        process = _start(command, run, log)
        if plan and _wait(*plan[0], run, process, randomly):
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills.append(_what_was_hit(run, plan.pop(0)[0], time.monotonic() - started))
            runs[-1]["n_kills"] = int(str(runs[-1]["n_kills"])) + 1
            print(f"kill {len(kills)} of {n_kills}: {kills[-1]}", flush=True)
            continue
        _finish(process, log)
        runs[-1]["sha256"] = _hashes(run)
        print(f"{runs[-1]}", flush=True)
    return kills, runs


def _wait(kind: str, stage: str, run: Path, process: subprocess.Popen[bytes], randomly: random.Random) -> bool:
    """Wait for the stage and the moment to kill; False when the process ended before it came."""
    if not _until(lambda: stage in (_stage_under_way(run) or ""), process):
        return False
    if kind == "anywhere":
        return _until(lambda: True, process, delay_seconds=randomly.uniform(0.0, 60.0))
    if kind == "checkpoint":
        n_to_pass = randomly.randrange(4)
        for _ in range(n_to_pass):  # not always the first after a resume
            if not (_until(lambda: bool(_incomplete(run)), process) and _until(lambda: not _incomplete(run), process)):
                return False
        return _until(lambda: bool(_incomplete(run)), process, delay_seconds=randomly.uniform(0.0, 0.02))
    while _until(lambda: _steps_were_logged(run), process, delay_seconds=randomly.uniform(0.0, 15.0)):
        if _steps_were_logged(run) and not _incomplete(run):
            return True
    return False


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], *, delay_seconds: float = 0.0) -> bool:
    """Wait until the condition holds and the delay has passed; False when the process has ended by then."""
    while not condition():
        if process.poll() is not None:
            return False
        time.sleep(PAUSE_SECONDS)
    try:
        process.wait(delay_seconds)
    except subprocess.TimeoutExpired:
        return True
    return process.poll() is None


_AIMS = ("checkpoint", "training", "anywhere")
_KINDS = ("checkpoint", "training", "elsewhere")


def _what_was_hit(run: Path, aim: str, seconds: float) -> dict[str, object]:
    """Return the stage under way, and whether a checkpoint was half written, when the process was killed."""
    incomplete = _incomplete(run)
    is_training = _steps_were_logged(run)
    was_in = "checkpoint" if incomplete else "training" if is_training else "elsewhere"
    return {
        "aim": aim,
        "was_in": was_in,
        "stage": _stage_under_way(run),
        "checkpoints": [path.name for path in _checkpoints(run)],
        "incomplete": [path.name for path in incomplete],
        "at_seconds": round(seconds, 1),
    }


def _steps_were_logged(run: Path) -> bool:
    """Whether a fit is under way: its stage has begun and its checkpoints' folder is there."""
    stage = _stage_under_way(run)
    return stage is not None and stage.endswith("-encoder") and bool(list(_folders(run, stage)))


def _stage_under_way(run: Path) -> str | None:
    log = run / "log.jsonl"
    name = None
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            event = json.loads(line)
        except ValueError:  # the last line of a killed process
            continue
        name = event["name"] if event["event"] == "stage_started" else None
    return name


def _folders(run: Path, stage: str) -> Iterator[Path]:
    return run.glob(f"stages/{stage.replace('/', '-')}-*/checkpoints")


def _checkpoints(run: Path) -> list[Path]:
    return sorted(run.glob("stages/*/checkpoints/checkpoint-*"))


def _incomplete(run: Path) -> list[Path]:
    return [path for path in _checkpoints(run) if not (path / "complete.json").exists() and path.exists()]


def _start(command: list[str], run: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen([*command, "--output", str(run)], stdout=file, stderr=file)


def _finish(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.wait() != 0:
        sys.exit(f"a run failed with exit code {process.returncode}; see {log}:\n{log.read_text()[-3000:]}")


def _hashes(run: Path) -> dict[str, str]:
    """SHA-256 over the safetensors files of each saved model."""
    return {
        form: hashlib.sha256(
            b"".join(path.read_bytes() for path in sorted((run / form).rglob("*.safetensors")))
        ).hexdigest()
        for form in FORMS
    }


def _result(run: Path) -> dict[str, list[dict[str, str]]]:
    return json.loads((run / "result.json").read_text())


def _write_pairs(path: Path, n_rows: int) -> Path:
    """Write the first pairs of STS and SICK-R, in an order of their own."""
    from transencoder.tasks import unlabelled_pairs

    pairs, _ = unlabelled_pairs(["sts"], data_folder=os.environ.get("TRANSENCODER_DATA", str(MODELS.parent / "data")))
    pairs = pairs.shuffle(seed=0).select(range(min(n_rows, len(pairs))))
    pairs.to_csv(path, sep="\t", index=False)
    return path


def _command(args: argparse.Namespace, pairs: Path) -> list[str]:
    every = ("--{form}.checkpoint-steps", str(args.steps), "--{form}.eval-steps", str(2 * args.steps))
    return [
        *(sys.executable, "-m", "transencoder", "train", "trans-encoder", "--quiet"),
        *("--pairs", str(pairs), "--dev", "stsb", "--cycles", "1", "--device", "cpu"),
        *("--start", str(MODELS / "plm-mini-simcse"), "--cross-start", str(MODELS / "plm-mini")),
        *("--cross.learning-rate", "2e-4", "--cross.epochs", "1", "--bi.epochs", str(args.bi_epochs)),
        *(part.format(form=form) for form in ("bi", "cross") for part in every),
    ]


def _shown(command: list[str], folder: Path) -> str:
    """Return the command without the machine's paths."""
    shown = " ".join(["python", *command[1:], "--output", "RUN"])
    return shown.replace(f"{folder}/", "").replace(f"{MODELS.parents[1]}/", "../")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12_000, help="pairs to train on")
    parser.add_argument("--bi-epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where the runs live; default: a temporary folder, kept")
    parser.add_argument("--output", default=str(Path(__file__).with_name("results") / "kill.json"))
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
    os.environ.setdefault("TRANSENCODER_DATA", str(MODELS.parent / "data"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return parser.parse_args()


if __name__ == "__main__":
    main()
