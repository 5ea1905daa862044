"""A run killed by SIGKILL at random moments, gone on with until it ends, against one that nobody disturbed."""

import json
import subprocess
import sys

import pytest

# Forks each attempt from a process that has imported everything, and kills it: an attempt begins at once.
KILLS = """
import hashlib, json, os, random, signal, sys, time
from pathlib import Path
from transencoder import FitConfig, Member, TransEncoder, read_pairs
from transencoder import training

folder, pairs, dev, start, n_kills = sys.argv[1:]
fast = FitConfig(learning_rate=1e-3, batch_size=8, epochs=1, eval_steps=5, checkpoint_steps=2)

def begin(name):
    child = os.fork()
    if child:
        return child
    try:
        training.train(TransEncoder(pairs=pairs, dev=dev, tests=(dev,), members=(Member(start=start),), bi=fast, cross=fast,
            output=f"{folder}/{name}", cycles=1, precision="fp32", device="cpu", is_symmetric=False))
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)

def hashes(name):
    return [hashlib.sha256(Path(folder, name, form, "model.safetensors").read_bytes()).hexdigest()
        for form in ("bi-encoder", "cross-encoder")]

def wait(child, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None

started = time.monotonic()
code = wait(begin("whole"), 120)
whole_seconds = time.monotonic() - started
assert code == 0, code
randomly, n_killed, n_rounds, hurt = random.Random(0), 0, 0, []
while n_killed < int(n_kills) or n_rounds == 0:
    n_rounds += 1
    while True:
        is_last = n_killed >= int(n_kills)
        child = begin(f"killed-{n_rounds}")
        code = wait(child, 120 if is_last else randomly.uniform(0.1, 0.45) * whole_seconds)
        if code is not None:
            assert code == 0, code
            break
        assert not is_last
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        n_killed += 1
        found = list(Path(folder, f"killed-{n_rounds}").glob("stages/*/checkpoints/checkpoint-*"))
        hurt.append([path.name for path in found if not (path / "complete.json").exists()])
    assert hashes(f"killed-{n_rounds}") == hashes("whole")
print(json.dumps({"n_killed": n_killed, "n_rounds": n_rounds, "seconds": whole_seconds, "hurt": hurt}))
"""


@pytest.mark.slow
def test_a_run_killed_at_random_ends_with_the_same_models(tmp_path, tiny_files, tiny_bi_encoder):
    data = (tiny_files / "pairs.tsv", tiny_files / "dev.tsv", tiny_bi_encoder)
    command = [sys.executable, "-c", KILLS, tmp_path, *data, "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1])["n_killed"] == 5
