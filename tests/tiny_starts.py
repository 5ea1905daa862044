"""Configs of all methods that train an encoder in a second, and what tests of their runs share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transencoder import (
    CKD,
    DCLR,
    SCT,
    ConGen,
    ContrastiveTension,
    DeCLUTR,
    DiffCSE,
    DvBERT,
    EmbeddingMSE,
    MirrorBERT,
    SimCSE,
)
from transencoder.configs.encoder import EncoderConfig
from transencoder.configs.run import RunConfig

FAST = {"batch_size": 16, "epochs": 1, "eval_steps": 3, "checkpoint_steps": 3, "max_length": 16}
CONFIGS: dict[str, tuple[type[EncoderConfig], dict[str, Any]]] = {
    "simcse": (SimCSE, {"fit": replace(SimCSE.fit, learning_rate=1e-3, **FAST), "pooling": "mean"}),
    "mirror-bert": (MirrorBERT, {"fit": replace(MirrorBERT.fit, learning_rate=1e-3, **FAST)}),
    "mirror-bert-drophead": (
        MirrorBERT,
        {"fit": replace(MirrorBERT.fit, learning_rate=1e-3, dropout=0.0, **FAST), "drophead": 0.5},
    ),
    "contrastive-tension": (
        ContrastiveTension,
        {"fit": replace(ContrastiveTension.fit, learning_rate=1e-4, **FAST), "n_negatives": 1},
    ),
    "contrastive-tension-in-batch": (
        ContrastiveTension,
        {
            "fit": replace(ContrastiveTension.fit, learning_rate=1e-3, optimizer="adamw", dropout=0.1, **FAST),
            "negatives": "in_batch",
        },
    ),
    "diffcse": (
        DiffCSE,
        {"fit": replace(DiffCSE.fit, learning_rate=1e-3, **FAST), "pooling": "mean", "generator": "tiny_plm"},
    ),
    "declutr": (
        DeCLUTR,
        {
            "fit": replace(DeCLUTR.fit, learning_rate=1e-3, **FAST),
            "documents": "documents",
            "document_words": 32,
            "n_samples": 3,
        },
    ),
    "dclr": (
        DCLR,
        {"fit": replace(DCLR.fit, learning_rate=1e-3, **FAST), "pooling": "mean", "complement": "tiny_bi_encoder"},
    ),
    "sct": (SCT, {"fit": replace(SCT.fit, learning_rate=1e-3, **FAST), "queue_size": 40, "momentum": 0.9}),
    "sct-distilled": (
        SCT,
        {"fit": replace(SCT.fit, learning_rate=1e-3, **FAST), "queue_size": 40, "teacher": "tiny_bi_encoder"},
    ),
    "congen": (
        ConGen,
        {
            "fit": replace(ConGen.fit, learning_rate=1e-3, **FAST),
            "view_kind": "word-deletion",
            "queue_size": 20,
            "teacher": "tiny_bi_encoder",
            "projection": "auto",
        },
    ),
    "ckd": (CKD, {"fit": replace(CKD.fit, learning_rate=1e-3, **FAST), "queue_size": 40, "teacher": "tiny_bi_encoder"}),
    "dvbert": (
        DvBERT,
        {
            "fit": replace(DvBERT.fit, learning_rate=1e-3, **FAST),
            "cross": replace(DvBERT.fit, learning_rate=1e-3, **FAST | {"max_length": 24}),
            "labelled": "classes",
            "teacher": ("tiny_plm",),
        },
    ),
    "embedding-mse": (
        EmbeddingMSE,
        {
            "fit": replace(EmbeddingMSE.fit, learning_rate=1e-3, **FAST),
            "pooling": "mean",
            "teacher": "tiny_bi_encoder",
            "projection": "training",
        },
    ),
}


@pytest.fixture(scope="session", params=list(CONFIGS))
def method(request: pytest.FixtureRequest) -> str:
    """Each method that makes a starting encoder, as `tiny_start` takes it."""
    return request.param


@pytest.fixture(scope="session")
def sentences(tmp_path_factory: pytest.TempPathFactory, tiny_sentences: "Dataset") -> str:  # noqa: F821
    """A file of 96 sentences, most of them longer than Mirror-BERT's 30 characters."""
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("\n".join(tiny_sentences["text"]) + "\n")
    return str(path)


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory, tiny_sentences: "Dataset") -> str:  # noqa: F821
    """A file of 32 documents of three sentences each, 33 words or more."""
    path = tmp_path_factory.mktemp("documents") / "documents.txt"
    texts = tiny_sentences["text"][:]
    path.write_text("\n".join(" ".join(texts[i : i + 3] * 2) for i in range(0, len(texts), 3)) + "\n")
    return str(path)


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory, tiny_pairs: "Dataset") -> str:  # noqa: F821
    """A file of 96 pairs with three classes: no word in common, some, many."""
    path = tmp_path_factory.mktemp("classes") / "classes.tsv"
    lines = ["sentence1\tsentence2\tlabel"]
    for row in tiny_pairs.select(range(96)):
        name = ("none", "some", "many")[min(2, int(row["score"] / 2))]
        lines.append(f"{row['sentence1']}\t{row['sentence2']}\t{name}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="session")
def wide_teacher(tiny_bi_encoder, tmp_path_factory) -> str:
    """A bi-encoder whose embeddings have 48 numbers, the student's 32."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    folder = tmp_path_factory.mktemp("teacher") / "wide"
    torch.manual_seed(5)
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    SentenceTransformer(modules=[*model, Dense(32, 48)], device="cpu").save(str(folder), create_model_card=False)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_start(
    sentences: str,
    documents: str,
    classes: str,
    tiny_plm: str,
    tiny_bi_encoder: str,
    tiny_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., EncoderConfig]:
    """Makes the config of a method that trains in a second; any field can be changed."""
    models = {"tiny_plm": tiny_plm, "tiny_bi_encoder": tiny_bi_encoder, "documents": documents, "classes": classes}

    def named(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(named, value))
        return models.get(value, value) if isinstance(value, str) else value

    def make(method: str, **changes: object) -> EncoderConfig:
        config_class, own = CONFIGS[method]
        own = {name: named(value) for name, value in own.items()}
        fields = {
            **({} if {"documents", "labelled"} & own.keys() else {"sentences": sentences}),
            "start": tiny_plm,
            "output": str(tmp_path_factory.mktemp("runs") / "run"),
            "dev": str(tiny_files / "dev.tsv"),
            "tests": (str(tiny_files / "test.tsv"),),
            "precision": "fp32",
            "device": "cpu",
        }
        return config_class(**(fields | own | changes))

    return make


@pytest.fixture(scope="session")
def weights() -> Callable[[str | Path], tuple[tuple[str, bytes], ...]]:
    """Reads the weights of all models that a run leaves, by where they lie."""

    def read(folder: str | Path) -> tuple[tuple[str, bytes], ...]:
        folder = Path(folder)
        paths = [path for pattern in ("*", "members/*/*") for path in folder.glob(f"{pattern}/model.safetensors")]
        return tuple((str(path.relative_to(folder)), path.read_bytes()) for path in sorted(paths))

    return read


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Trains a config until a checkpoint is saved, as if somebody pressed Ctrl-C then."""
    from transencoder import train
    from transencoder.checkpoints import KeepBest

    def run(config: RunConfig, at: Callable[[Path, int], bool] = lambda folder, step: True) -> None:
        save = KeepBest.on_save

        def stop(self, args, state, control, **kwargs):
            save(self, args, state, control, **kwargs)
            if at(self.folder, state.global_step):
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(KeepBest, "on_save", stop)
            train(config)

    return run
