"""Instance queues that are updated in place against concatenated ones: peak memory and time of a training step.

    python benchmarks/queues.py                 # 16,384, 65,536 and 131,072 vectors of width 1024, batches of 128
    python benchmarks/queues.py --precision fp32

A step is SCT's distillation loss (equation 4) on the first three layers of all-MiniLM-L6-v2 with a projector to the
width of the queues: forward, backward and AdamW, in the precision that training uses on this machine. Measurements run
one after the other, each in a process of its own with one thread. Times are medians; the peak includes a checkpoint.
The concatenated queues have K + batch candidates in a step, as in the released code: concatenation, similarities,
softmax, slice.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from starts import write_first_layers
from torch.nn.functional import kl_div, normalize
from usage import peak_rss_bytes

from transencoder.checkpoints import own_state
from transencoder.devices import quick_products, uses_bf16
from transencoder.losses import SCTLoss, ViewComparison, mlp_projector
from transencoder.runs.log import source_commit

WORDS = "the cat sat on a mat while two dogs ran over green grass near an old house".split()
TEMPERATURES = (0.05, 0.04)


class Concatenated(torch.nn.Module):
    """The loss with both queues as tensors that each step creates anew."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.queues = [normalize(torch.randn(size, width)) for _ in range(2)]

    def forward(self, online: Any, references: Any) -> torch.Tensor:
        """Compute equation 4 with whole matrices."""
        temperature, reference_temperature = TEMPERATURES
        loss = torch.zeros(())
        for view, reference in enumerate(references):
            size = len(self.queues[view])
            candidates = torch.cat([self.queues[view], normalize(reference)])
            targets = (normalize(reference) @ candidates.T / reference_temperature).softmax(1)
            learned = (normalize(online[1 - view]) @ candidates.T / temperature).log_softmax(1)
            loss = loss + kl_div(learned, targets, reduction="batchmean") / 2
            self.queues[view] = candidates[-size:].clone()
        return loss


def main() -> None:
    """Measure every size both ways and write the record."""
    options = _options()
    if options.measure:
        with quick_products(uses_bf16("cpu", options.precision)):
            print(json.dumps(_measure(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_first_layers(Path(folder) / "encoder")
        rows = []
        for size in options.sizes:
            for way in ("in place", "concatenated"):
                rows.append({"size": size, "way": way} | _in_process(options, size, way, folder))
                print(json.dumps(rows[-1]), flush=True)
    record = {"width": options.width, "batch": options.batch, "has_bf16": uses_bf16("cpu", options.precision)}
    record |= {"rows": rows, "ratios": _ratios(rows)}
    record["commit"] = source_commit()
    (options.results / "queues.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record["ratios"], indent=2))


def _in_process(options: argparse.Namespace, size: int, way: str, folder: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", way, "--sizes", str(size), "--folder", f"{folder}/encoder"]
    command += ["--width", str(options.width), "--batch", str(options.batch), "--steps", str(options.steps)]
    command += ["--precision", options.precision]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of a step, those of the loss's comparison alone, and the process's peak memory in GB."""
    torch.manual_seed(0)
    (size,) = options.sizes
    model = SentenceTransformer(options.folder, device="cpu").train()
    if uses_bf16("cpu", options.precision):  # as the trainer does it
        model.forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(model.forward))
    compared: Any = Concatenated(options.width, size)
    if options.measure == "in place":
        compared = ViewComparison(options.width, size, *TEMPERATURES)
    loss = SCTLoss(model, teacher=compared, teacher_projector=mlp_projector(384, options.width))
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-5, fused=True)
    texts = [" ".join(WORDS[i % 7 : i % 7 + 10]) for i in range(options.batch)]
    steps, parts = [], []
    for _ in range(options.steps + 1):  # the first one is not counted
        teacher = torch.randn(options.batch, 2, options.width)
        begin = time.perf_counter()
        loss([dict(model.preprocess(texts)) for _ in range(2)], teacher).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.append(time.perf_counter() - begin)
        online = [torch.randn(options.batch, options.width, requires_grad=True) for _ in range(2)]
        begin = time.perf_counter()
        compared(online, teacher.unbind(1)).backward()
        parts.append(time.perf_counter() - begin)
    save_file(own_state(loss), Path(options.folder) / "loss.safetensors")  # as at a checkpoint
    return {
        "step_seconds": round(statistics.median(steps[1:]), 3),
        "comparison_seconds": round(statistics.median(parts[1:]), 3),
        "peak_gb": round(peak_rss_bytes() / 1e9, 2),
    }


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return ratios of the largest queue to the smallest, and of concatenated to in place at the largest size."""
    found = {(row["size"], row["way"]): row for row in rows}
    least, greatest = min(row["size"] for row in rows), max(row["size"] for row in rows)
    ours, theirs = found[greatest, "in place"], found[greatest, "concatenated"]
    names = ("step_seconds", "comparison_seconds", "peak_gb")
    ratios = {f"{name}, largest to smallest": ours[name] / found[least, "in place"][name] for name in names}
    ratios |= {f"{name}, concatenated to in place": theirs[name] / ours[name] for name in names}
    return {name: round(value, 2) for name, value in ratios.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[16_384, 65_536, 131_072])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--measure", choices=("in place", "concatenated"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
