"""Commands that crash, on tiny models and data; each works in a folder of its own, which is all that it may write to."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """What is run, and what it leaves."""

    argv: str
    """Of the command line, with {given} for the folder of models and data."""
    done: str
    """When this file is there, `outputs` must be whole."""
    outputs: tuple[str, ...]
    """Files and folders."""


def _fit(*forms: str) -> str:
    every = "--{0}learning-rate 1e-3 --{0}batch-size 16 --{0}epochs 1 --{0}eval-steps 3 --{0}checkpoint-steps 3 "
    return "".join(every.format(f"{form}.") for form in forms)


_DEV = "--dev {given}/dev.tsv --device cpu --precision fp32 --output out "
_PAIR = f"train trans-encoder --start {{given}}/bi {_fit('bi', 'cross')} {_DEV} "
_MODELS = ("out/bi-encoder", "out/cross-encoder", "out/members", "out/plots", "out/report.html", "out/report.md")

COMMANDS = {
    "self": Command(_PAIR + "--pairs {given}/pairs.tsv --cycles 2", "out/result.json", _MODELS),
    "mutual": Command(
        _PAIR.replace("--start {given}/bi", "--start {given}/bi --start {given}/other")
        + "--pairs {given}/pairs.tsv --cycles 1 --workers 2",
        "out/result.json",
        _MODELS,
    ),
    "mined": Command(_PAIR + "--sentences {given}/sentences.txt --n-pairs 48 --cycles 1", "out/result.json", _MODELS),
    "sct": Command(
        f"train sct --start {{given}}/plm --sentences {{given}}/sentences.txt --queue-size 40 {_fit('fit')} {_DEV}",
        "out/result.json",
        _MODELS,
    ),
    "search build": Command(
        "search build {given}/sentences.txt --model {given}/bi --device cpu --output out", "out/index.json", ("out",)
    ),
    "mine": Command(
        "mine {given}/sentences.txt --start {given}/bi --n-pairs 48 --device cpu --precision fp32 --output out.tsv",
        "out.tsv",
        ("out.tsv",),
    ),
    "score": Command(
        "score {given}/bi --pairs {given}/pairs.tsv --device cpu --precision fp32 --output out.jsonl",
        "out.jsonl",
        ("out.jsonl",),
    ),
    "label": Command(
        "label {given}/bi --pairs {given}/pairs.tsv --device cpu --precision fp32 --output out.parquet",
        "out.parquet",
        ("out.parquet",),
    ),
    "views": Command(
        "views --sentences {given}/sentences.txt --second word-deletion --output out.tsv", "out.tsv", ("out.tsv",)
    ),
    "export": Command("export {given}/bi --to onnx --output out", "out/export.json", ("out",)),
    "truncate": Command("truncate {given}/plm --layers 0 --output out", "out/config.json", ("out",)),
    "weight": Command("weight {given}/bi --sentences {given}/sentences.txt --output out", "out/modules.json", ("out",)),
}


def write_given(folder: Path) -> None:
    """Write the models and data that commands are given."""
    from tests.conftest import planted_pairs, save_tiny_bi_encoder, save_tiny_plm

    save_tiny_plm(folder / "plm")
    save_tiny_bi_encoder(folder / "plm", folder / "bi")
    shutil.copytree(folder / "bi", folder / "other")
    config = folder / "other" / "1_Pooling" / "config.json"
    config.write_text(config.read_text().replace("mean", "cls"))
    pairs = planted_pairs()
    pairs.select(range(48)).select_columns(["sentence1", "sentence2"]).to_csv(
        folder / "pairs.tsv", sep="\t", index=False
    )
    pairs.select(range(100, 124)).to_csv(folder / "dev.tsv", sep="\t", index=False)
    texts = [f"{row['sentence1']} {row['sentence2']}" for row in pairs.select(range(48))]
    (folder / "sentences.txt").write_text("\n".join(texts) + "\n")
