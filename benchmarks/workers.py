"""Train two members in turn and side by side, one thread each: wall time, and whether models are equal to the byte.

    python benchmarks/workers.py                # 2,000 pairs, one cycle: about 15 minutes on two idle cores
    python benchmarks/workers.py --pairs 200    # a trial

The members are the first three layers of all-MiniLM-L6-v2, and plm-mini, whose bi-encoder starts from its SimCSE
model. In a third run, also side by side, one worker is killed while it trains its cross-encoder, and the same command
is run again.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from starts import write_first_layers

from transencoder.results import read_result

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"


def main() -> None:
    """Do all three runs and write the record."""
    options = _options()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="transencoder-workers-"))
    minilm = folder / "minilm-3"
    if not minilm.exists():
        write_first_layers(minilm)
    command = _command(options, minilm)
    seconds = {name: _run([*command, *more], folder / name) for name, more in _WAYS.items()}
    killed = _killed([*command, *_WAYS["side-by-side"]], folder / "killed")
    found = {name: _hashes(folder / name) for name in (*_WAYS, "killed")}
    record = {
        "pairs": options.pairs,
        "threads": "1 each",
        "seconds": seconds,
        "ratio": round(seconds["in-turn"] / seconds["side-by-side"], 2),
        "sha256": found["in-turn"],
        "all_equal": bool(found["killed"]) and len({json.dumps(each) for each in found.values()}) == 1,
        "killed": killed,
        "commit": read_result(folder / "in-turn")["environment"]["commit"],
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "workers.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))
    sys.exit(0 if record["all_equal"] else 1)


_WAYS = {"in-turn": ["--workers", "1"], "side-by-side": ["--workers", "2"]}


def _command(options: argparse.Namespace, minilm: Path) -> list[str]:
    settings = (
        f"--pairs sts --n-pairs {options.pairs} --dev stsb --cycles 1 --start {minilm} "
        f"--start {MODELS / 'plm-mini-simcse'} --cross-start {MODELS / 'plm-mini'} "
        "--cross.learning-rate 1e-4 --bi.epochs 3 --cross.checkpoint-steps 20"
    )
    return [sys.executable, "-m", "transencoder", "train", "trans-encoder", *settings.split()]


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    log = folder.with_suffix(".log").open("ab")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--output", str(folder)], env=environment, stdout=log, stderr=log)


def _run(command: list[str], folder: Path) -> float:
    started = time.monotonic()
    if _start(command, folder).wait():
        sys.exit(f"failed: see {folder.with_suffix('.log')}")
    return round(time.monotonic() - started, 1)


def _killed(command: list[str], folder: Path) -> dict[str, object]:
    """Kill the second worker after a checkpoint of its cross-encoder, then run the command again to its end."""
    process = _start(command, folder)
    while not list(folder.glob("stages/member-2-cycle-1-cross-encoder-*/checkpoints/checkpoint-*/complete.json")):
        time.sleep(0.1)
        if process.poll() is not None:
            sys.exit("the run ended before its worker could be killed; give more pairs")
    worker = json.loads((folder / "workers" / "2" / ".lock").read_text())["pid"]
    os.kill(worker, signal.SIGKILL)
    code = process.wait()
    said = folder.with_suffix(".log").read_text().strip().splitlines()[-1]
    return {"exit_code": code, "said": said, "seconds_to_end": _run(command, folder)}


def _hashes(folder: Path) -> dict[str, str]:
    paths = sorted(folder.glob("members/*/*/model.safetensors"))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--folder", help="where the runs go (default: a temporary one)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
