"""A world in which what the pages show can be run: tiny models under the names of real ones, tiny files, tiny trainings."""

import gzip
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from transencoder import cli, training
from transencoder.configs.encoder import EncoderConfig
from transencoder.demo import read_questions
from transencoder.methods import MLM, TransEncoder
from transencoder.tasks import SUITES, TASKS

ROOT = Path(__file__).resolve().parents[2]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BI_ENCODERS = ("A", "B", "princeton-nlp/unsup-simcse-bert-base-uncased", "princeton-nlp/unsup-simcse-roberta-base")
LANGUAGE_MODELS = (
    *("A-plain", "B-plain", "bert-base-uncased", "roberta-base", "distilbert-base-uncased"),
    "nreimers/BERT-Mini_L-4_H-256_A-4",
)

GIVEN = {
    "docs/use.md": ("runs/mine",),
    "docs/reliability.md": ("runs/mine",),
    "docs/reports.md": ("runs/mine", "runs/other"),
    "docs/reference/pairs.md": ("runs/mine",),
}
"""Page -> runs that it speaks of as finished ones."""


@dataclass(frozen=True)
class World:
    """What is the same for all pages."""

    files: Path
    """What the pages' files are copied from."""
    data: Path
    """Data sets in the hub's layout."""
    models: dict[str, str]
    """Hub id -> folder of what stands for it; `minilm` has three layers."""
    six_layers: str
    """A `minilm` for the page that chooses among six."""


@pytest.fixture(scope="session")
def world(tmp_path_factory, tiny_plm, tiny_pairs, tiny_sentences):
    """Tiny models and files."""
    folder = tmp_path_factory.mktemp("world")
    rows = [dict(row) for row in tiny_pairs]
    write_files(folder / "files", rows, tiny_sentences["text"][:40])
    write_data(folder / "data", rows)
    plain, bi_encoder = write_models(tiny_plm, folder / "two-layers", n_layers=2)
    models = dict.fromkeys(LANGUAGE_MODELS, plain) | dict.fromkeys(BI_ENCODERS, bi_encoder)
    models |= {f"sentence-transformers/{name}": folder for name, folder in models.items()}
    models[MINILM] = write_models(tiny_plm, folder / "three-layers", n_layers=3)[1]
    six_layers = write_models(tiny_plm, folder / "six-layers", n_layers=6)[1]
    return World(folder / "files", folder / "data", models, six_layers)


@pytest.fixture(scope="session")
def finished(world, tmp_path_factory):
    """A finished run, which pages that begin with one are given."""
    folder = tmp_path_factory.mktemp("finished")
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        settle(patched, world, folder)
        assert cli.main(["train", "trans-encoder", "--pairs", "pairs.tsv", "--start", "minilm", "--output", "run"]) == 0
    return folder / "run"


@pytest.fixture
def place(world, tmp_path, monkeypatch):
    """Makes the folder in which a page is run, and goes there."""
    settle(monkeypatch, world, tmp_path)

    def given(page, request):
        if "small-models" in page:
            monkeypatch.setitem(world.models, MINILM, world.six_layers)
        for name in GIVEN.get(page, ()):
            shutil.copytree(request.getfixturevalue("finished"), tmp_path / name)
        return tmp_path

    return given


def settle(patch, world, folder):
    """Go to a folder with the files, where names of models mean tiny ones and trainings are short."""
    shutil.copytree(world.files, folder, dirs_exist_ok=True)
    for name in ("results", "benchmarks", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    patch.chdir(folder)
    patch.setenv("COLUMNS", "1000")
    patch.setenv("TRANSENCODER_DATA", str(world.data))
    patch.setenv("TRANSENCODER_CACHE", str(folder / "cache"))
    patch.setattr("transencoder.models._packaged_minilm", lambda: None)
    patch.setattr("huggingface_hub.snapshot_download", lambda hub_id, **_: world.models[hub_id])
    patch.setattr("transencoder.demo.read_questions", lambda: read_questions()[:60])
    patch.setattr("transencoder.training.budget.Timing.compute", lambda *_: (0.001, 0.0))
    patch.setattr(training, "train", small(training.train))


def small(train):
    """A `train` that does as told, but for sizes and how long it trains."""

    def train_small(config=None, recipe=None, **settings):
        config = config or TransEncoder(**settings)
        tests = ("stsb",) if set(config.tests) & set(SUITES) else config.tests
        small_config = replace(config, tests=tests, device="cpu", precision="fp32", **sizes(config))
        return train(small_config, recipe=recipe)

    return train_small


def sizes(config):
    """Settings of a training that takes a second."""

    def fast(fit):
        return replace(fit, epochs=1, batch_size=32, max_length=32, gradient_accumulation_steps=1)

    if isinstance(config, TransEncoder):
        pretraining = replace(config.pretraining, epochs=min(config.pretraining.epochs, 1))
        cycles = len(config.members) if config.alternate_members else 1
        more = {"n_pairs": min(config.n_pairs or 48, 48), "cycles": cycles, "pretraining": pretraining}
        return more | {"bi": fast(config.bi), "cross": fast(config.cross)}
    if isinstance(config, MLM):
        small_model = {"vocabulary": 200, "layers": 1, "width": 64} if config.from_scratch else {}
        return small_model | {"fit": fast(config.fit)}
    assert isinstance(config, EncoderConfig)
    more = {"queue_size": 32} if getattr(config, "queue_size", 0) != 0 else {}
    more |= {"cross": fast(config.cross)} if hasattr(config, "cross") else {}
    return more | {"fit": fast(config.fit)}


def write_models(plm, folder, n_layers):
    """Save a random language model of 512 positions, as BERT has, with the tiny one's tokenizer; a bi-encoder of it."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    plain, bi_encoder = folder / "plain", folder / "bi-encoder"
    config = BertConfig.from_pretrained(plm, num_hidden_layers=n_layers, max_position_embeddings=512)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForMaskedLM(config).save_pretrained(plain)
        AutoTokenizer.from_pretrained(plm, model_max_length=512).save_pretrained(plain)
        transformer = Transformer(str(plain), max_seq_length=64)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    model.save(str(bi_encoder), create_model_card=False)
    return str(plain), str(bi_encoder)


def write_files(folder, rows, sentences):
    """Write every file that the pages begin with."""
    folder.mkdir()
    pairs, gold = [(row["sentence1"], row["sentence2"]) for row in rows], [str(row["score"]) for row in rows]
    scored = [(*pair, score) for pair, score in zip(pairs, gold, strict=True)]
    header = ("sentence1", "sentence2", "score")
    tables = {
        "pairs.tsv": pairs[:64],
        "other-pairs.tsv": pairs[64:80],
        "views.tsv": [header[:2], *pairs[:64]],
        "dev.tsv": [header, *scored[100:124]],
        "test.tsv": [header, *scored[124:148]],
        "gold.tsv": [header, *scored[148:164]],
        "labelled.tsv": [(*header[:2], "label"), *((*pair, str(row % 3)) for row, pair in enumerate(pairs[:64]))],
        "relevant.tsv": [("query", "document"), *((text, text) for text in sentences[:4])],
        "qrels.tsv": [("query", "document"), *((f"q{row}", f"d{row}") for row in range(4))],
        "scored.csv": [("anchor", "positive", "score"), *scored[:64]],
    }
    for name, lines in tables.items():
        mark = "," if name.endswith(".csv") else "\t"
        (folder / name).write_text("".join(mark.join(line) + "\n" for line in lines))
    texts = {
        "sentences.txt": sentences,
        "general.txt": sentences,
        "corpus.txt": sentences,
        "questions.txt": sentences[:4],
    }
    texts |= {"documents.txt": [" ".join(sentences)] * 8, "queries.txt": [pair[0] for pair in pairs[:32]]}
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    for name, mark in (("queries", "q"), ("corpus", "d"), ("passages", "p")):
        lines = [json.dumps({"_id": f"{mark}{row}", "text": text}) + "\n" for row, text in enumerate(sentences[:32])]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    generated = [_generated(*pair, row) for row, pair in enumerate(pairs[:64])]
    (folder / "generated.jsonl").write_text("".join(json.dumps(row) + "\n" for row in generated))


def _generated(anchor, positive, row):
    """A row as distilabel writes it, with a score beside it."""
    raw = {"raw_output_generate_sentence_pair_0": f"## Positive\n{positive}"}
    texts = {"anchor": anchor, "positive": positive, "negative": f"{anchor} not"}
    return {**texts, "distilabel_metadata": raw, "model_name": "some/model", "score": row % 6}


def write_data(folder, rows):
    """Write all tasks of pairs, and MultiNLI, 16 rows a split."""
    kept = {}
    for task in TASKS.values():
        for split in {name.partition("[")[0] for name in (*task.splits.values(), *task.unlabelled)}:
            if task.layout == "candidates":
                continue
            low, high = (0, 1) if task.positive_label is not None else task.score_range
            lines = kept.setdefault(folder / task.dataset / (task.config or "") / f"{split}.jsonl.gz", [])
            lines += [{} for _ in range(16 - len(lines))]
            for number, line in enumerate(lines):
                score = number % 3 if task.metric == "accuracy" else round(low + (high - low) * number / 15)
                pair = rows[(number + 16 * len(kept)) % len(rows)]
                line |= dict(zip(task.columns, (pair["sentence1"], pair["sentence2"], score), strict=True)) | line
    kept[folder / "nyu-mll" / "glue" / "mnli" / "train.jsonl.gz"] = [
        {"premise": row["sentence1"], "hypothesis": row["sentence2"], "label": number % 3}
        for number, row in enumerate(rows[:16])
    ]
    for place, lines in kept.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(place, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
