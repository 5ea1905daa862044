"""Load a trained bi-encoder and cross-encoder in the libraries people use: `python benchmarks/compatibility.py`.

Each library (reader) is installed into an environment of its own and loads the saved folders without this package. Its
numbers for the same texts are compared with those of sentence-transformers here. The table says which readers could not
be installed.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-6
TORCH = "torch==2.13.0"
RECORD = Path(__file__).parent / "results" / "compatibility.md"
TEXTS = [
    "my washer won't drain",
    "the drum is full of water",
    "The fridge is too warm!",
    "a " * 60 + "long text",
    "ja",
]
PAIRS = list(pairwise(TEXTS))


# These functions run in the readers' environments. Each takes the folder of a model and returns embeddings (texts, dim)
# or scores (pairs,), which are saved as float32.


def _sentence_transformers_bi(folder: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu").encode(TEXTS)


def _sentence_transformers_cross(folder: str) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(folder, device="cpu").predict(PAIRS)


def _transformers_bi(folder: str) -> Any:
    import torch
    from transformers import AutoModel, AutoTokenizer

    features = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder)(**features).last_hidden_state
    mask = features["attention_mask"].unsqueeze(-1)
    mean = (states * mask).sum(1) / mask.sum(1)
    return (torch.nn.functional.normalize(mean) if (Path(folder) / "2_Normalize").is_dir() else mean).numpy()


def _transformers_cross(folder: str) -> Any:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    first, second = zip(*PAIRS, strict=True)
    features = AutoTokenizer.from_pretrained(folder)(
        list(first), list(second), padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        logits = AutoModelForSequenceClassification.from_pretrained(folder)(**features).logits
    return torch.sigmoid(logits).squeeze(1).numpy()


def _langchain_bi(folder: str) -> Any:
    from langchain_huggingface import HuggingFaceEmbeddings

    return HuggingFaceEmbeddings(model_name=folder, model_kwargs={"device": "cpu"}).embed_documents(TEXTS)


def _langchain_cross(folder: str) -> Any:
    from langchain_community.cross_encoders import HuggingFaceCrossEncoder

    return HuggingFaceCrossEncoder(model_name=folder, model_kwargs={"device": "cpu"}).score(PAIRS)


def _llama_index_bi(folder: str) -> Any:
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    model = HuggingFaceEmbedding(model_name=folder, device="cpu", normalize=(Path(folder) / "2_Normalize").is_dir())
    return model.get_text_embedding_batch(TEXTS)


def _haystack_bi(folder: str) -> Any:
    from haystack import Document
    from haystack.utils import ComponentDevice

    try:
        from haystack.components.embedders import SentenceTransformersDocumentEmbedder
    except ImportError:  # a separate package since Haystack 3
        from haystack_integrations.components.embedders.sentence_transformers import (
            SentenceTransformersDocumentEmbedder,
        )

    embedder = SentenceTransformersDocumentEmbedder(model=folder, device=ComponentDevice.from_str("cpu"))
    embedder.warm_up()
    return [each.embedding for each in embedder.run([Document(content=text) for text in TEXTS])["documents"]]


def _fastembed_bi(folder: str) -> Any:
    """Read the ONNX export, which includes pooling and normalisation."""
    import onnxruntime
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    width = onnxruntime.InferenceSession(f"{folder}/model.onnx").get_outputs()[0].shape[1]
    TextEmbedding.add_custom_model(
        model="own/model",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(hf="own/model"),
        dim=width,
        model_file="model.onnx",
    )
    return list(TextEmbedding("own/model", specific_model_path=folder).embed(TEXTS))


def _model2vec_bi(folder: str) -> Any:
    """Distil a static model. Its embeddings are different ones, so that only their width and finiteness are checked."""
    from model2vec.distill import distill

    return distill(folder, pca_dims=None).encode(TEXTS)


Reader = tuple[list[str], Callable[[str], Any] | None, Callable[[str], Any] | None]
READERS: dict[str, Reader] = {
    "sentence-transformers 5.1": (
        ["sentence-transformers==5.1.*"],
        _sentence_transformers_bi,
        _sentence_transformers_cross,
    ),
    "sentence-transformers 6": (
        ["sentence-transformers>=6,<7"],
        _sentence_transformers_bi,
        _sentence_transformers_cross,
    ),
    "transformers": (["transformers"], _transformers_bi, _transformers_cross),
    "LangChain": (
        ["langchain-huggingface", "langchain-community", "sentence-transformers"],
        _langchain_bi,
        _langchain_cross,
    ),
    "LlamaIndex": (["llama-index-embeddings-huggingface"], _llama_index_bi, None),
    "Haystack": (["haystack-ai", "sentence-transformers-haystack"], _haystack_bi, None),
    "fastembed, ONNX": (["fastembed"], _fastembed_bi, None),
    "model2vec": (["model2vec[distill,quantization]"], _model2vec_bi, None),
}
"""Packages to install and functions that load a bi- and a cross-encoder, by reader; None: the reader cannot load it."""


# These functions run in the environment of this package.


def main() -> None:
    """Train, export, install, read and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/compatibility"), help="for runs and environments")
    parser.add_argument("--read", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        name, form, folder, output = options.read
        reader = READERS[name][1 if form == "bi" else 2]
        assert reader is not None
        np.save(output, np.asarray(reader(folder), np.float32))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = {name: train(name, options.folder / name) for name in ("tiny", "minilm")}
    RECORD.write_text(table({name: compare(run, options.folder) for name, run in runs.items()}, cards(runs)), "utf-8")


def train(name: str, output: Path) -> Path:
    """Train both forms on the demo's pairs and export the bi-encoder; `tiny` starts from a random model of 2 layers."""
    import transencoder
    from transencoder.demo import DATA
    from transencoder.export import export_model

    start = "minilm" if name == "minilm" else str(_random_model(output.with_name("random")))
    transencoder.train(
        pairs=DATA / "pairs.tsv",
        dev=DATA / "dev.tsv",
        tests=[DATA / "test.tsv"],
        start=start,
        output=output,
        cycles=1,
        precision="fp32",
        n_pairs=None if name == "minilm" else 200,
        bi={"epochs": 1},
        cross={"epochs": 1},
    )
    exported = output.with_name(f"{name}-onnx")
    if not exported.exists():
        export_model(output / "bi-encoder", "onnx", exported)
    return output


def _random_model(folder: Path) -> Path:
    """Save a random BERT with 2 layers of width 32 and the tokenizer of `minilm`; return its folder."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    from transencoder.models import resolve_model

    if not folder.exists():
        torch.manual_seed(0)
        tokenizer = AutoTokenizer.from_pretrained(resolve_model("minilm"))
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def compare(run: Path, folder: Path) -> dict[str, dict[str, str]]:
    """Return each reader's version and, by form, its greatest difference from sentence-transformers or an error."""
    expected = {
        "bi": _sentence_transformers_bi(str(run / "bi-encoder")),
        "cross": _sentence_transformers_cross(str(run / "cross-encoder")),
    }
    found: dict[str, dict[str, str]] = {}
    for name, (packages, *readers) in READERS.items():
        environment = folder / "environments" / name.replace(" ", "-").replace(",", "")
        problem = _install(environment, packages)
        found[name] = {"version": problem or _version(environment, packages[0])}
        for form, reader in zip(expected, readers, strict=True):
            if reader is None or problem:
                found[name][form] = "–"
                continue
            model = run / ("bi-encoder" if form == "bi" else "cross-encoder")
            model = run.with_name(f"{run.name}-onnx") if "ONNX" in name else model
            found[name][form] = _read(environment, name, form, model, expected[form])
    return found


def _install(environment: Path, packages: list[str]) -> str:
    """Install packages into an environment, torch first and pinned; return the error message, empty on success."""
    mark = environment / "installed.txt"
    if mark.exists():
        return ""
    python = str(environment / "bin" / "python")
    commands = [[sys.executable, "-m", "venv", str(environment)]]
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile", TORCH]
    commands += [install, [*install, *packages]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"not installed: {_last_line(done.stderr)}"
    mark.write_text("\n".join(packages) + "\n", "utf-8")
    return ""


def _version(environment: Path, package: str) -> str:
    name = re.split(r"[\[=>]", package, maxsplit=1)[0]
    code = f"from importlib.metadata import version; print(version({name!r}))"
    command = [str(environment / "bin" / "python"), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _read(environment: Path, name: str, form: str, model: Path, expected: np.ndarray) -> str:
    output = environment / f"{form}.npy"
    command = [str(environment / "bin" / "python"), __file__, "--read", name, form, str(model), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"error: {_last_line(done.stderr)}"
    found = np.load(output)
    if name == "model2vec":
        return f"static, {found.shape[1]} numbers" if np.isfinite(found).all() else "not finite"
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    difference = float(np.abs(found - expected).max())
    return f"{difference:.1e}" + ("" if difference <= TOLERANCE else " (too large)")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:160].replace("|", "/")


def cards(runs: dict[str, Path]) -> list[tuple[str, str, str]]:
    """Read each model's card with huggingface_hub; return its name, its library and base model, and its results."""
    from huggingface_hub import ModelCard

    rows = []
    for name, run in runs.items():
        for form in ("bi-encoder", "cross-encoder"):
            data = ModelCard.load(run / form / "README.md").data
            results = f"{len(data.eval_results)} results" if data.eval_results else "no results"
            rows.append((f"{name}, {form}", f"{data.library_name}, {data.base_model}", results))
    return rows


def table(found: dict[str, dict[str, dict[str, str]]], card_rows: list[tuple[str, str, str]]) -> str:
    """Return the page as Markdown: readers, then cards."""
    columns = [(run, form) for run in found for form in ("bi", "cross")]
    lines = [
        "# Where saved models load",
        "",
        f"Greatest difference from sentence-transformers {version('sentence-transformers')} here, in fp32 on a CPU; at "
        f"most {TOLERANCE:g} is the same. By `python benchmarks/compatibility.py`; "
        f"torch {version('torch')} everywhere.",
        "",
        "| reader | version | " + " | ".join(f"{run}, {form}" for run, form in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for reader in READERS:
        cells = [found[run][reader][form] for run, form in columns]
        lines.append("| " + " | ".join([reader, next(iter(found.values()))[reader]["version"], *cells]) + " |")
    lines += ["", "Model cards as `huggingface_hub.ModelCard.load` reads them:", ""]
    lines += ["| model | library, base model | `eval_results` |", "|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in card_rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
