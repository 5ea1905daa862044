"""One cycle of Trans-Encoder with transencoder and its defaults. Run by vs_sentence_transformers.py."""

import argparse
from pathlib import Path

from usage import Usage

from transencoder import FitConfig, Member, TransEncoder
from transencoder.training import train


def main() -> None:
    """Train, and report time and memory."""
    options = _options()
    usage = Usage()
    buckets = {} if options.bucket_batches is None else {"bucket_batches": options.bucket_batches}
    trained = train(
        TransEncoder(
            pairs=str(options.pairs),
            dev=str(options.dev),
            members=(Member(start=options.start),),
            output=str(options.output / "run"),
            cycles=1,
            bi=FitConfig(epochs=options.bi_epochs, **buckets),
            cross=FitConfig(epochs=1, **buckets),
            precision=options.precision,
            cache_dir=str(options.output / "cache"),
            seed=options.seed,
        )
    )
    result = trained.result
    names = {
        "start/scores": "labels for the cross-encoder",
        "cycle-1/cross-encoder/scores": "labels for the bi-encoder",
        "cycle-1/labels-for-cross": "labels for the cross-encoder",
        "cycle-1/cross-encoder": "cross-encoder",
        "cycle-1/labels-for-bi": "labels for the bi-encoder",
        "cycle-1/bi-encoder": "bi-encoder",
    }
    for stage in result["stages"]:
        name = names.get(stage["name"], stage["name"])
        usage.stages[name] = usage.stages.get(name, 0.0) + stage["seconds"]
    usage.write(
        options.output / "usage.json",
        dev={form: result["best"][form]["dev"] for form in ("cross", "bi")},
        precision=result["config"]["precision"],
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--start", default="minilm")
    parser.add_argument("--bi-epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--precision", choices=("auto", "bf16", "fp32"), default="auto")
    parser.add_argument("--bucket-batches", type=int, help="batches in a window sorted by length; 1: random batches")
    return parser.parse_args()


if __name__ == "__main__":
    main()
