"""Cases of `golden.py`: tiny configurations, one for each pipeline, wrong commands, and their models and data."""

import random
from dataclasses import dataclass
from pathlib import Path

FIT = "learning-rate=1e-3 batch-size=16 epochs=1 eval-steps=3 checkpoint-steps=3 max-length=16"
CPU = "--output run --precision fp32 --device cpu"
SCORED = "--dev {inputs}/dev.tsv --tests {inputs}/test.tsv"
PAIRS, SENTENCES = "--pairs {inputs}/pairs.tsv", "--sentences {inputs}/sentences.txt"


def _fit(*names: str) -> str:
    return " ".join(f"--{name}.{setting.replace('=', ' ')}" for name in names for setting in FIT.split())


def _pairs_run(options: str) -> str:
    return f"train trans-encoder {options} {CPU} {_fit('bi', 'cross')}"


def _encoder_run(method: str, options: str = SENTENCES) -> str:
    return f"train {method} --start {{inputs}}/plm {options} {SCORED} {CPU} {_fit('fit')}"


@dataclass(frozen=True)
class Case:
    """Commands that run one after the other in a folder of their own; `{inputs}` is the folder of models and data."""

    commands: tuple[str, ...]
    resumes: bool = False
    """Whether the commands train; when run again on finished run folders, they must then compute nothing."""


def _trains(*commands: str) -> Case:
    return Case(commands, resumes=True)


_SELF = f"--start {{inputs}}/bi --cross-start {{inputs}}/plm {PAIRS} --cycles 2 {SCORED}"
_MUTUAL = f"--recipe {{inputs}}/mutual.toml {PAIRS} --cycles 1 {SCORED}"
CASES = {
    "self": _trains(_pairs_run(_SELF)),
    "without-dev": _trains(_pairs_run(f"--start {{inputs}}/bi {PAIRS} --cycles 1")),
    "mutual": _trains(_pairs_run(f"{_MUTUAL} --pretraining.epochs 1 --record-criteria")),
    "workers": _trains(_pairs_run(f"{_MUTUAL} --workers 2")),
    "same-form": _trains(_pairs_run(f"--start {{inputs}}/bi {PAIRS} --cycles 1 --same-form {SCORED}")),
    "labelled": _trains(
        _pairs_run(
            f"--start {{inputs}}/bi {PAIRS} --labelled {{inputs}}/dev.tsv --score-range 0 5 --cycles 1 "
            "--bi-loss log_cosh --cross-loss mse --initialisation sequential --no-is-symmetric "
            "--tests {inputs}/test.tsv"
        )
    ),
    "mined": _trains(_pairs_run(f"--start {{inputs}}/bi {SENTENCES} --n-pairs 64 --cycles 1 {SCORED}")),
    "vary": Case(
        (
            "recipes run {inputs}/simcse.toml --vary seed=1,2",
            "report run-seed-1 run-seed-2 --output comparison.html",
            "results run-seed-1 run-seed-2 --output results.md",
            "runs list .",
            "runs clean --dry-run run-seed-1",
        )
    ),
    "sweep": _trains("recipes run {inputs}/simcse.toml --sweep fit.learning_rate=1e-3,1e-4"),
    "simcse": _trains(_encoder_run("simcse"), "report run"),
    "mirror-bert": _trains(_encoder_run("mirror-bert")),
    "contrastive-tension": _trains(_encoder_run("contrastive-tension", f"{SENTENCES} --n-negatives 1")),
    "declutr": _trains(_encoder_run("declutr", "--documents {inputs}/documents.txt --document-words 32 --n-samples 3")),
    "diffcse": _trains(_encoder_run("diffcse", f"{SENTENCES} --generator {{inputs}}/plm")),
    "dclr": _trains(_encoder_run("dclr", f"{SENTENCES} --complement {{inputs}}/bi")),
    "sct": _trains(_encoder_run("sct", f"{SENTENCES} --queue-size 40 --teacher {{inputs}}/wide")),
    "congen": _trains(
        _encoder_run("congen", f"{SENTENCES} --view-kind word-deletion --queue-size 20 --teacher {{inputs}}/wide")
    ),
    "ckd": _trains(_encoder_run("ckd", f"{SENTENCES} --queue-size 40 --teacher {{inputs}}/bi")),
    "embedding-mse": _trains(
        _encoder_run("embedding-mse", f"{SENTENCES} --teacher {{inputs}}/wide --projection training")
    ),
    "dvbert": _trains(
        _encoder_run("dvbert", f"--labelled {{inputs}}/classes.tsv --teacher {{inputs}}/plm {_fit('cross')}")
    ),
    "sbert": _trains(_encoder_run("dvbert", "--labelled {inputs}/labelled.tsv --label-kind scores --score-range 0 5")),
    "mlm": _trains(f"train mlm --start {{inputs}}/plm {SENTENCES} {CPU} {_fit('fit')}"),
    "plans": Case(
        tuple(
            f"{command} --dry-run"
            for command in (_pairs_run(_SELF), _pairs_run(_MUTUAL), _encoder_run("simcse"), _encoder_run("mirror-bert"))
        )
    ),
    "scores": Case(
        (
            "evaluate {inputs}/bi {inputs}/wide --pairs {inputs}/test.tsv --json --device cpu",
            "score {inputs}/bi --pairs {inputs}/test.tsv --output scores.tsv --device cpu",
            "label {inputs}/bi {inputs}/wide --pairs {inputs}/pairs.tsv --output labels.parquet --device cpu",
            "truncate {inputs}/bi --layers 0 --output truncated",
        )
    ),
    "texts": Case(
        (
            "mine {inputs}/sentences.txt --start {inputs}/bi --n-pairs 64 --output mined.tsv --json --device cpu",
            "views --sentences {inputs}/sentences.txt --second word-deletion --output views.tsv",
            "views --sentences {inputs}/sentences.txt --second span-mask mlm --mlm {inputs}/plm --stats --json "
            "--model {inputs}/bi --device cpu",
        )
    ),
    "search": Case(
        (
            "search build {inputs}/sentences.txt --model {inputs}/bi --output index --device cpu",
            "search query index --queries {inputs}/queries.txt --top-k 3 --output found.tsv --device cpu",
            "search query index balo dema --top-k 3 --json --device cpu",
            "duplicates {inputs}/sentences.txt --model {inputs}/bi --output duplicates.tsv --kept kept.tsv "
            "--threshold 0.9 --device cpu",
        )
    ),
}

WRONG = (
    "",
    "trian",
    "train simcs",
    "train simcse",
    "train simcse --fit.epoch 3",
    "train simcse --fit.epochs 0 --start x --output run --sentences a.txt",
    "train trans-encoder --pairs none.tsv --start {inputs}/bi --output run",
    "train trans-encoder --pairs {inputs}/pairs.tsv --start x --output run --label-policy row",
    "train trans-encoder --recipe none",
    "train sct --start {inputs}/plm --sentences none.txt --output run --temperature -1",
    "train dvbert --start {inputs}/plm --labelled {inputs}/pairs.tsv --output run",
    "recipes run simcse/none",
    "recipes run simcse/minilm-3 --vary fit.epoch=1,2",
    "evaluate {inputs}/bi",
    "evaluate {inputs}/none --pairs {inputs}/test.tsv",
    "score {inputs}/bi --pairs {inputs}/test.tsv --columns a b",
    "mine none.txt --start {inputs}/bi --output mined.tsv",
    "search query none hello",
    "report none",
    "runs clean none",
    "recipes list",
    "recipes show trans-encoder/twin-losses",
    "recipes show sct/twin-3 --full",
)
"""Commands that end at once, most of them with an error."""

_WORDS = [f"{first}{second}lo" for first in "bdfgklmnprst" for second in ("a", "e", "io")]
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789'.,?!-"
_N_TOPICS = 12


def make_inputs(folder: Path) -> None:
    """Write the random models and the data. Each word of a sentence stands for a topic; each topic has three words."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    pairs = [_pair(rng, row % 5) for row in range(200)]
    columns = "sentence1\tsentence2"
    texts = [f"{first}\t{second}" for first, second, _ in pairs]
    graded = [f"{text}\t{1.25 * shared}" for text, (_, _, shared) in zip(texts, pairs, strict=True)]
    classes = [
        f"{text}\t{('none', 'some', 'many')[shared // 2]}" for text, (_, _, shared) in zip(texts, pairs, strict=True)
    ]
    sentences = [f"{first} {second}" for first, second, _ in pairs[:96]]
    files = {
        "pairs.tsv": [columns, *texts[:96]],
        "classes.tsv": [f"{columns}\tlabel", *classes[:96]],
        "labelled.tsv": [f"{columns}\tscore", *graded[:96]],
        "dev.tsv": [f"{columns}\tscore", *graded[100:140]],
        "test.tsv": [f"{columns}\tscore", *graded[140:180]],
        "sentences.txt": sentences,
        "documents.txt": [" ".join(sentences[row : row + 3] * 2) for row in range(0, 96, 3)],
        "queries.txt": [first for first, _, _ in pairs[180:184]],
        "mutual.toml": _MUTUAL_RECIPE.format(inputs=folder).splitlines(),
        "simcse.toml": _SIMCSE_RECIPE.format(inputs=folder).splitlines(),
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    _make_models(folder)


def _pair(rng: random.Random, n_shared: int) -> tuple[str, str, int]:
    topics = rng.sample(range(_N_TOPICS), 8 - n_shared)
    first, second = (
        [_WORDS[topic + _N_TOPICS * rng.randrange(3)] for topic in side] for side in (topics[:4], topics[-4:])
    )
    return " ".join(first), " ".join(second), n_shared


def _make_models(folder: Path) -> None:
    """Write two masked language models, the second twice as wide as the first, and a bi-encoder on each."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS]
    tokenizer = BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, model_max_length=128)
    for width, plain, encoder in ((32, "plm", "bi"), (64, "wide-plm", "wide")):
        torch.manual_seed(width)
        config = BertConfig(
            vocab_size=len(pieces),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=128,
            initializer_range=0.2,
        )
        BertForMaskedLM(config).save_pretrained(folder / plain)
        tokenizer.save_pretrained(folder / plain)
        transformer = Transformer(str(folder / plain), max_seq_length=64)
        modules = [transformer, Pooling(width, pooling_mode="mean")]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder / encoder), create_model_card=False)


_MUTUAL_RECIPE = """method = "trans-encoder"
[[members]]
start = "{inputs}/bi"
cross_start = "{inputs}/plm"
[[members]]
start = "{inputs}/wide"
cross_start = "{inputs}/wide-plm"
weight = 2.0
"""

_SIMCSE_RECIPE = """method = "simcse"
sentences = "{inputs}/sentences.txt"
start = "{inputs}/plm"
dev = "{inputs}/dev.tsv"
tests = ["{inputs}/test.tsv"]
output = "run"
precision = "fp32"
device = "cpu"
[fit]
learning_rate = 1e-3
batch_size = 16
epochs = 1
eval_steps = 3
max_length = 16
"""
