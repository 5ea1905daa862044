"""Base-size self-distillation on the paper's pairs, ours and plain: seconds by stage, share of the machine's peak.

    python benchmarks/gpu.py                                        # on a GPU, some minutes
    python benchmarks/gpu.py --layers 2 --width 128 --pairs 200 --texts 500     # anywhere, to try it

The base model has BERT's shape and all-MiniLM-L6-v2's word pieces. Its weights are random: times do not depend on them,
but the dev metrics are meaningless. Sides and stages are those of vs_sentence_transformers.py. The share of the peak is
the rate of the matrix products for the texts' own tokens, without padding, divided by the rate of a large product on
this machine. A stage's seconds include its dev evaluations and all its other work.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel
from vs_sentence_transformers import DEVICE, HERE, OURS, PLAIN, STAGES, VARIANTS, measured, table

from transencoder.devices import computed_in, has_bf16
from transencoder.models import MINILM, resolve_model
from transencoder.pairs import read_pairs
from transencoder.scorers import BiScorer, CrossScorer

SIDES = (OURS, PLAIN, VARIANTS[0]) if has_bf16(DEVICE) else (OURS, PLAIN)
"""Sides that are compared: ours, plain, and plain trained in bf16 where that is faster than fp32."""

BATCH_TOKENS = (8192, 32768, 131072)
"""Numbers of tokens in a batch of scoring, padding included."""

BI_LENGTH, CROSS_LENGTH = 32, 64
"""Maximum lengths in tokens (paper, Table 16)."""


def main() -> None:
    """Measure the peak, scoring and the cycles, and write the record after each."""
    options = _options()
    options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-") as name:
        options.start = str(Path(name) / "start")
        write_start(Path(options.start), options.layers, options.width)
        record: dict[str, Any] = {"device": device_name(), "shape": [options.layers, options.width]}
        kinds = {"bf16": torch.bfloat16, "fp32": torch.float32}
        record["peak"] = {name: product_rate(kind) for name, kind in kinds.items()}
        record["computed_in"] = computed_in(DEVICE, "auto")
        record["scoring"] = list(scoring(options))
        _write(record, options.results)
        for cycles in measured([(side, i) for i in range(options.repeats) for side in SIDES], options):
            record["cycles"] = cycles
            cycles["settings"]["start"] = "of random weights"
            record["work"] = cycle_work(options)
            _write(record, options.results)
    print(page(record))


def write_start(folder: Path, layers: int, width: int) -> None:
    """Write a bi-encoder of BERT's shape with random weights."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(MINILM))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 64),
        intermediate_size=4 * width,
    )
    plain = folder.with_name("plain")
    BertModel(config).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    SentenceTransformer(modules=[Transformer(str(plain)), Pooling(width, "mean")]).save_pretrained(str(folder))


def device_name() -> str:
    """Return the name of the GPU, or the number of CPU threads."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"


def product_rate(kind: torch.dtype) -> float:
    """Return the operations per second of a large matrix product, the fastest within five seconds."""
    n = 8192 if DEVICE == "cuda" else 1024
    first, second = (torch.randn(n, n, device=DEVICE).to(kind) for _ in range(2))
    seconds, end = [], time.monotonic() + 5
    while not seconds or time.monotonic() < end:
        seconds.append(_seconds(lambda: first @ second))
    return 2 * n**3 / min(seconds)


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def scoring(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Yield the seconds to score the texts, tokenising included, and the operations, for each batch size and form."""
    pairs = texts(options)
    for batch_tokens in BATCH_TOKENS:
        model = SentenceTransformer(options.start)
        model.max_seq_length = BI_LENGTH
        bi = BiScorer(model, batch_tokens=batch_tokens)
        cross = CrossScorer(
            CrossEncoder(options.start, num_labels=1, max_length=CROSS_LENGTH), batch_tokens=batch_tokens
        )
        for form, scorer in (("bi", bi), ("cross", cross)):
            scorer.score(pairs.select(range(min(512, len(pairs)))))  # one-time work is not timed
            seconds = _seconds(lambda each=scorer: each.score(pairs))
            encode = _seconds(lambda each=scorer: _tokenised(each, pairs))
            inputs = lengths(form, pairs, distinct=True)
            yield {
                "form": form,
                "batch_tokens": batch_tokens,
                "texts": len(inputs),
                "seconds": seconds,
                "tokenising_seconds": encode,
                "operations": products(inputs, options.layers, options.width),
            }


def _tokenised(scorer: BiScorer | CrossScorer, pairs: Dataset) -> None:
    """Tokenise pairs again, as `score` does."""
    fresh = type(scorer)(scorer.model)  # type: ignore[arg-type]
    if isinstance(fresh, CrossScorer):
        fresh.tokens_of(pairs)
    else:
        fresh.cache.sides(fresh.model, pairs, None, None)


def texts(options: argparse.Namespace) -> Dataset:
    """Return distinct pairs: the available ones, and copies of them with numbers appended."""
    rows = pairs_at_hand(options, options.texts)
    columns = ("sentence1", "sentence2")
    rounds = -(-options.texts // len(rows))
    made = [{name: f"{row[name]} {i}" if i else row[name] for name in columns} for i in range(rounds) for row in rows]
    return Dataset.from_list(made[: options.texts])


def pairs_at_hand(options: argparse.Namespace, n_pairs: int) -> Dataset:
    """Return the first pairs of the paper's STS and SICK-R sentences, all if there are fewer than `n_pairs`."""
    pairs = read_pairs(str(options.data_dir / "pairs" / "sts-sickr" / "train.jsonl.gz"))
    return pairs.select(range(min(n_pairs, len(pairs))))


def lengths(form: str, pairs: Dataset, *, distinct: bool = False) -> np.ndarray:
    """Return the number of tokens of each input: each sentence for the bi-encoder, each pair for the cross-encoder.

    With `distinct` each different sentence counts once: in scoring nothing needs to encode it again.
    """
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(MINILM))
    first, second = list(pairs["sentence1"]), list(pairs["sentence2"])
    if form == "cross":
        ids = tokenizer(first, second, truncation=True, max_length=CROSS_LENGTH)["input_ids"]
    else:
        sentences = list(dict.fromkeys(first + second)) if distinct else first + second
        ids = tokenizer(sentences, truncation=True, max_length=BI_LENGTH)["input_ids"]
    return np.array([len(each) for each in ids])


def products(n_tokens: np.ndarray, layers: int, width: int) -> float:
    """Return the operations of a forward pass's matrix products: 24 t w^2 + 4 t^2 w per layer and text of t tokens."""
    tokens = n_tokens.astype(np.float64)
    return float(layers * (24 * width**2 * tokens + 4 * width * tokens**2).sum())


def cycle_work(options: argparse.Namespace) -> dict[str, float]:
    """Return the operations of each stage; a training step needs three times those of a forward pass."""
    pairs = pairs_at_hand(options, options.pairs)
    bi, cross = (products(lengths(form, pairs), options.layers, options.width) for form in ("bi", "cross"))
    labels = products(lengths("bi", pairs, distinct=True), options.layers, options.width)
    return dict(zip(STAGES, (labels, 2 * 3 * cross, cross, options.bi_epochs * 3 * bi), strict=True))


def page(record: dict[str, Any]) -> str:
    """Return the record as Markdown."""
    layers, width = record["shape"]
    kind = record["computed_in"]
    peak = record["peak"][kind]
    lines = [
        "# Base-size models on one GPU",
        "",
        f"Made by `benchmarks/gpu.py` on {record['device']}, {layers} layers of width {width}, random weights. A large "
        f"product: {' and '.join(f'{rate / 1e12:.3g} TFLOP/s in {name}' for name, rate in record['peak'].items())}.",
        "",
        f"| scoring | tokens a batch | texts | seconds | of them tokenising | texts a second | share of {kind} peak |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {row['form']} | {row['batch_tokens']:,} | {row['texts']:,} | {row['seconds']:.2f} | "
            f"{row['tokenising_seconds']:.2f} | {row['texts'] / row['seconds']:,.0f} | "
            f"{row['operations'] / row['seconds'] / peak:.1%} |"
            for row in record["scoring"]
        ),
    ]
    if "cycles" not in record:
        return "\n".join([*lines, ""])
    sides, runs = record["cycles"]["summary"]["sides"], record["cycles"]["runs"]
    lines += [
        "",
        f"| share of {kind} peak | " + " | ".join(sides) + " |",
        "|---|" + "---:|" * len(sides),
        *(
            f"| {stage} | "
            + " | ".join(f"{work / max(side['stages'][stage], 1e-9) / peak:.1%}" for side in sides.values())
            + " |"
            for stage, work in record["work"].items()
        ),
        "| peak memory of the GPU, GB | "
        + " | ".join(f"{max(run['peak_gpu_bytes'] for run in runs if run['side'] == side) / 1e9:.1f}" for side in sides)
        + " |",
        "",
        table(record["cycles"]).replace("# One cycle", "## One cycle"),
    ]
    return "\n".join(lines)


def _write(record: dict[str, Any], results: Path) -> None:
    (results / "gpu.json").write_text(json.dumps(record, indent=2) + "\n")
    (results / "gpu.md").write_text(page(record))


def _options() -> argparse.Namespace:
    data = os.environ.get("TRANSENCODER_DATA") or HERE.resolve().parents[1] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--texts", type=int, default=100_000, help="pairs to score")
    parser.add_argument("--pairs", type=int, default=10_000, help="pairs of a cycle")
    parser.add_argument("--bi-epochs", type=int, default=3, help="the paper's Table 16 has 10")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--data-dir", type=Path, default=Path(data))
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where the two files go")
    parser.set_defaults(variant_repeats=0, threads=os.cpu_count() or 1, seed=2021)
    return parser.parse_args()


if __name__ == "__main__":
    main()
