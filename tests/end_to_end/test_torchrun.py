"""Two gloo processes on the CPU, as torchrun starts them."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from transencoder.cli import main

TRAIN = """
import hashlib, json, sys
from pathlib import Path
import torch.distributed as dist
from transencoder import FitConfig, Member, PretrainingConfig, train, TransEncoder

folder, pairs, dev, start, cross_start = sys.argv[1:]
fast = FitConfig(learning_rate=1e-3, batch_size=8, epochs=1, eval_steps=4, checkpoint_steps=4)
members = (Member(start=start, cross_start=cross_start), Member(start=cross_start, weight=2.0))
trained = train(TransEncoder(pairs=pairs, dev=dev, tests=(dev,), members=members, pretraining=PretrainingConfig(epochs=1, batch_size=8), bi=fast, cross=fast, output=folder + "/run", cycles=1,
    precision="fp32", device="cpu"))
values = b"".join(tensor.numpy().tobytes() for model in (trained.bi_encoder, trained.cross_encoder)
    for tensor in model.state_dict().values())
about = {"bm25s": "bm25s" in sys.modules, "weights": hashlib.sha256(values).hexdigest(), "result": trained.result}
Path(folder, f"rank-{dist.get_rank()}.json").write_text(json.dumps(about))
"""

# A whole fit, then one that every rank leaves in the second epoch, gone on with by the same processes.
RESUME = """
import hashlib, json, sys
from pathlib import Path
import numpy as np
from transencoder import FitConfig, distributed, read_pairs
from transencoder.encoders import load_bi
from transencoder.fit import TrainingData, Session, fit
from transencoder.losses import CosineLoss
from transencoder.tokens import TokenCache

folder, dev_file, start = sys.argv[1:]
distributed.start()
pairs = read_pairs(dev_file)
config = FitConfig(learning_rate=1e-3, batch_size=4, epochs=3, max_length=24, warmup_ratio=0.0, eval_steps=100,
    checkpoint_steps=2)

def run(name, stop_at=None):
    student = load_bi(Path(start), device="cpu")
    n_steps = 0
    class Loss(CosineLoss):
        def forward(self, *arguments):
            nonlocal n_steps
            n_steps += 1
            if n_steps == stop_at:
                raise InterruptedError
            return super().forward(*arguments)
    material = TrainingData(pairs=pairs, targets=np.array(pairs["score"], np.float32) / 5)
    cache = TokenCache(Path(folder, "tokens"))
    fit(student, Loss, material, None, config,
        Session(folder=Path(folder, name), seed=1, precision="fp32", cache=cache))
    values = b"".join(tensor.numpy().tobytes() for tensor in student.state_dict().values())
    return hashlib.sha256(values).hexdigest(), n_steps

whole = run("whole")
try:
    run("stopped", stop_at=9)  # 5 steps an epoch: the checkpoint of step 8 lies in the second
except InterruptedError:
    pass
distributed.barrier()
Path(folder, f"rank-{distributed.rank()}.json").write_text(json.dumps([whole, run("stopped")]))
"""

MINE = """
import json, sys
from pathlib import Path
from transencoder import distributed
from transencoder.cli import main

folder, *arguments = sys.argv[1:]
code = main([*arguments, "--output", folder + "/two.tsv"])
Path(folder, f"rank-{distributed.rank()}.json").write_text(json.dumps(code))
"""

# A language model, then spans whose lengths differ, so that the ranks' batches have different numbers of parts, and
# SimCSE with its projector, which DDP does not see; a student, whose teacher each rank asks about its share of the text; a
# cross-encoder that learns classes and teaches them.
STARTS = """
import hashlib, json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq
import torch.distributed as dist
from transencoder import MLM, DeCLUTR, DvBERT, EmbeddingMSE, SimCSE, train

folder, sentences, documents, labelled, start = sys.argv[1:]
shared = {"precision": "fp32", "device": "cpu", "seed": 1}
language = train(MLM(sentences=sentences, start=start, output=folder + "/mlm", fit=replace(MLM.fit, batch_size=8, max_length=16),
    **shared))
spans = train(DeCLUTR(documents=documents, start=folder + "/mlm", output=folder + "/declutr", document_words=64,
    fit=replace(DeCLUTR.fit, batch_size=12, max_length=64, learning_rate=1e-3), **shared))
views = train(SimCSE(sentences=sentences, start=folder + "/mlm", output=folder + "/simcse",
    fit=replace(SimCSE.fit, batch_size=12, max_length=16, learning_rate=1e-3), **shared))
student = train(EmbeddingMSE(sentences=sentences, start=folder + "/mlm", teacher=folder + "/simcse",
    output=folder + "/student", fit=replace(EmbeddingMSE.fit, epochs=1, batch_size=12, max_length=16, learning_rate=1e-3),
    **shared))
(taught,) = Path(folder).glob("student/stages/teacher-embeddings-*/embeddings.npy")
texts = list(dict.fromkeys(Path(sentences).read_text().splitlines()))
np.testing.assert_allclose(np.load(taught), views.bi_encoder.encode(texts), atol=1e-5)
labels = replace(DvBERT.fit, batch_size=12, max_length=24, learning_rate=1e-3)
classes = train(DvBERT(labelled=labelled, start=folder + "/mlm", teacher=(folder + "/mlm",), output=folder + "/classes",
    fit=labels, cross=labels, **shared))
(said,) = Path(folder).glob("classes/stages/teacher-1-labels-*/labels.parquet")
assert len(pq.read_table(said)) == 45
values = b"".join(tensor.numpy().tobytes() for model in (language.model, spans.bi_encoder, views.bi_encoder,
    student.bi_encoder, classes.bi_encoder) for tensor in model.state_dict().values())
steps = [language.result["pretraining"]["steps"], spans.result["stages"][1]["name"]]
Path(folder, f"rank-{dist.get_rank()}.json").write_text(json.dumps([hashlib.sha256(values).hexdigest(), steps]))
"""


# All of them by the same two processes, which take seconds to begin. As elsewhere in the tests, nothing is drawn or flushed
# to the disk, and what was imported is left out where garbage is collected.
ALL = """
import gc, json, os, runpy, sys
import datasets, sentence_transformers.cross_encoder.trainer, sentence_transformers.sentence_transformer.trainer
import transencoder.training
from transencoder.report import figures

figures.draw = lambda plot, png: png.touch() or plot.title
os.fsync = lambda descriptor: None
gc.freeze()
for words in json.loads(sys.argv[1]):
    sys.argv = words
    runpy.run_path(words[0])
"""

JOIN = """
import json, sys
from pathlib import Path
import numpy as np
from transencoder import distributed

distributed.start()
rank = distributed.rank()
assert distributed.world_size() == 2
assert distributed.broadcast({"from": rank}) == {"from": 0}
distributed.barrier()
joined = distributed.concatenate(np.arange(3 - rank, dtype=np.float32) + 10 * rank)
assert joined.dtype == np.float32
distributed.start()
Path(sys.argv[1], f"rank-{rank}.json").write_text(json.dumps(joined.tolist()))
"""


# Another process holds the run's lock for a second, and the ranks look for it at different moments.
WAIT = """
import json, multiprocessing, sys, time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from transencoder import distributed
from transencoder.cli import recipes
from transencoder.runs import Run
from transencoder.runs.folder import take_lock

folder, seen = Path(sys.argv[1]), []

def hold(held):
    take_lock(folder)
    held.set()
    time.sleep(1)

def train(config, recipe):
    seen.append("asked")
    with Run.open(folder, "seed = 1", "test", ranks=distributed.ranks()):
        seen.append("trained")

distributed.start()
rank = distributed.rank()
if rank == 0:
    context = multiprocessing.get_context("fork")
    held = context.Event()
    holder = context.Process(target=hold, args=[held])
    holder.start()
    held.wait()
distributed.barrier()
time.sleep(0.25 * rank)
run = SimpleNamespace(config=SimpleNamespace(output=str(folder)), recipe=None)
with mock.patch.multiple(recipes, train_and_show=train, expanded=lambda config: config):
    recipes._train_before(run)
if rank == 0:
    holder.join()
Path(folder, f"rank-{rank}.json").write_text(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, tiny_files, tiny_bi_encoder, tiny_plm, tiny_pairs, tiny_sentences):
    """Run each script in two processes; returns its folder and what each rank wrote."""
    parent = tmp_path_factory.mktemp("ranks")
    folders = {name: parent / name for name in ("join", "wait", "train", "resume", "mine", "starts")}
    for folder in folders.values():
        folder.mkdir()
    scripts = {
        "join": (JOIN,),
        "wait": (WAIT,),
        "train": (TRAIN, tiny_files / "pairs.tsv", tiny_files / "dev.tsv", tiny_bi_encoder, tiny_plm),
        "resume": (RESUME, tiny_files / "dev.tsv", tiny_bi_encoder),
        "mine": (MINE, *mining(folders["mine"], tiny_pairs, tiny_bi_encoder)),
        "starts": (STARTS, *text_files(folders["starts"], tiny_sentences), tiny_plm),
    }
    calls = []
    for name, (script, *arguments) in scripts.items():
        (parent / f"{name}.py").write_text(script)
        calls.append([str(word) for word in (parent / f"{name}.py", folders[name], *arguments)])
    (parent / "all.py").write_text(ALL)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    process = subprocess.Popen(
        [*command, "--", parent / "all.py", json.dumps(calls)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:  # it hangs: end the launcher and both ranks
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, output[-4000:]
    return {
        name: (folder, [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)])
        for name, folder in folders.items()
    }


def mining(folder, tiny_pairs, tiny_bi_encoder):
    """The command that mines 3,000 sentences of random words, which it writes."""
    words = [word for side in ("sentence1", "sentence2") for text in tiny_pairs[side] for word in text.split()]
    drawn = random.Random(1)
    sentences = (" ".join(drawn.choices(words, k=drawn.randint(3, 20))) for _ in range(3000))
    (folder / "sentences.txt").write_text("\n".join(sentences) + "\n")
    settings = ["--start", tiny_bi_encoder, "--n-pairs", "500", "--precision", "fp32"]
    return ["mine", str(folder / "sentences.txt"), *settings]


def text_files(folder, tiny_sentences):
    """Write sentences, documents and labelled pairs; returns their paths."""
    texts = tiny_sentences["text"][:]
    documents = [" ".join((texts[i : i + 8] * 2)[: 8 + i % 5]) for i in range(0, 88, 2)]
    rows = [f"{texts[row]}\t{texts[row + 1]}\t{row % 3}" for row in range(45)]
    labelled = ["sentence1\tsentence2\tlabel", *rows]
    paths = []
    for name, lines in (("sentences.txt", texts), ("documents.txt", documents), ("labelled.tsv", labelled)):
        paths.append(folder / name)
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


@pytest.mark.slow
def test_two_processes_agree_on_values_and_join_their_parts_in_order(ranks):
    assert ranks["join"][1] == [[0.0, 1.0, 2.0, 10.0, 11.0]] * 2


@pytest.mark.slow
def test_two_processes_wait_for_the_run_of_another(ranks):
    assert ranks["wait"][1] == [["asked", "asked", "trained"]] * 2


@pytest.mark.slow
def test_two_processes_train_two_members_in_one_run(ranks):
    folder, (first, second) = ranks["train"]
    assert first["weights"] == second["weights"]
    assert not first["bm25s"] and not second["bm25s"], "it starts JAX, and is loaded by none but who mines"
    assert [path.relative_to(folder) for path in folder.rglob("result.json")] == [Path("run/result.json")]
    on_disk = json.loads((folder / "run" / "result.json").read_text())
    for name in ("cycles", "best", "dev", "scores", "members", "ensemble"):
        assert first["result"][name] == second["result"][name] == on_disk[name], name
    stages = [stage["name"] for stage in on_disk["stages"]]
    assert len(stages) == len(set(stages))
    for number, member in enumerate(on_disk["members"], 1):
        assert member["cycles"][0]["bi"]["curve"][-1][0] == 6  # 96 pairs, 8 in each of two processes
        for form in ("bi", "cross"):
            assert list((folder / "run" / "members" / str(number) / f"{form}-encoder").glob("*.safetensors"))
    pretrainings = list((folder / "run" / "stages").glob("*cross-start-pretraining-*/stage.json"))
    assert pretrainings
    for stage in pretrainings:
        pretrained = json.loads(stage.read_text())["result"]
        assert pretrained["n_steps"] == 12  # in both orders
        assert 3 < pretrained["losses"][0][1] < 7  # of one process: a sum over both would be twice that
    log = [json.loads(line)["event"] for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    assert log.count("run_opened") == log.count("run_finished") == 1


@pytest.mark.slow
def test_resumed_in_the_second_epoch_two_processes_end_with_the_same_bytes(ranks):
    """accelerate does not tell a batch sampler its epoch where it skips batches under several processes."""
    for whole, resumed in ranks["resume"][1]:
        assert whole[1] == 15
        assert resumed[1] == 7
        assert whole[0] == resumed[0]


@pytest.mark.slow
def test_two_processes_mine_the_pairs_that_one_does(ranks, tiny_pairs, tiny_bi_encoder, tmp_path):
    folder, codes = ranks["mine"]
    assert codes == [0, 0]
    assert main([*mining(tmp_path, tiny_pairs, tiny_bi_encoder), "--output", str(tmp_path / "one.tsv")]) == 0
    assert (folder / "two.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()


@pytest.mark.slow
def test_two_processes_train_a_language_model_and_a_start(ranks):
    _, (first, second) = ranks["starts"]
    assert first == second
    assert first[1][1] == "bi-encoder"
