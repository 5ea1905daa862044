"""A model's folder for another runtime, written only when its scores are those of PyTorch."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

from transencoder.encoders import load_trained, weights_fingerprint
from transencoder.errors import InputError
from transencoder.export.onnx import NEEDS, export_onnx
from transencoder.export.runtimes import ExportedEncoder, ExportedScorer, Runtime
from transencoder.files import whole_folder
from transencoder.prompts import default_prompt
from transencoder.runs.files import atomic_json

Target = Literal["onnx", "openvino"]

TOLERANCE = 1e-4
"""Of scores; in fp32 the runtimes differ from PyTorch by about 1e-6."""

_N_CHECKED = 32
_FILES: dict[Target, tuple[str, Runtime]] = {
    "onnx": ("model.onnx", "onnxruntime"),
    "openvino": ("model.xml", "openvino"),
}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far an exported model is from the one in PyTorch."""

    n_pairs: int
    """Pairs of texts that both scored."""
    longest: int
    """Tokens of the longest input; the shortest has a token of text."""
    max_difference: float
    """Greatest difference of two scores: cosines of a bi-encoder, what `predict` gives of a cross-encoder."""


def export_model(folder: Path, to: Target, output: str | Path) -> Agreement:
    """Write a model for another runtime, with its tokenizer and `export.json`, after comparing scores.

    The pairs compared are random words of the model's own vocabulary, from one token to its greatest length.

    Args:
        folder: The model, a bi-encoder or a cross-encoder of one output.
        to: `onnx`: model.onnx; `openvino`: model.xml and model.bin.
        output: The folder to write, which must be new.

    Raises:
        InputError: The packages are not installed, the folder is there, or scores differ by more than 1e-4.
    """
    output = Path(output)
    if output.exists():
        raise InputError(f"{output} is there already; give the name of a new folder")
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output} cannot be written: there is no folder {output.parent}. Make it first")
    model = load_trained(folder, "cpu")
    file, runtime = _FILES[to]
    with whole_folder(output) as draft:
        export_onnx(model, draft / "model.onnx")
        if to == "openvino":
            _convert(draft / "model.onnx", draft / file)
        agreement = _compare(model, draft / file, runtime)
        model.tokenizer.save_pretrained(draft)
        about = {
            "form": "cross" if isinstance(model, CrossEncoder) else "bi",
            "file": file,
            "max_length": model.max_seq_length,
            "prompt": default_prompt(model) or "",
            "model_fingerprint": weights_fingerprint(folder),
            "agreement": asdict(agreement),
        }
        atomic_json(draft / "export.json", about)
    return agreement


def _convert(onnx_file: Path, file: Path) -> None:
    try:
        import openvino
    except ImportError as error:
        raise InputError(f"{file} cannot be written: {NEEDS.format('openvino')}") from error
    openvino.save_model(openvino.convert_model(onnx_file), file, compress_to_fp16=False)
    onnx_file.unlink()


def _compare(model: SentenceTransformer | CrossEncoder, file: Path, runtime: Runtime) -> Agreement:
    pairs, longest = _pairs(model)
    difference = float(np.abs(_exported_scores(model, file, runtime, pairs) - _own_scores(model, pairs)).max())
    if not difference <= TOLERANCE:  # NaN too
        raise InputError(
            f"the exported model's scores differ from PyTorch's by up to {difference:.2g}, {TOLERANCE:g} is allowed: "
            "it is not written. Is the model damaged, or has it parts that follow the prompt?"
        )
    return Agreement(n_pairs=len(pairs), longest=longest, max_difference=difference)


def _own_scores(model: SentenceTransformer | CrossEncoder, pairs: list[tuple[str, str]]) -> np.ndarray:
    if isinstance(model, SentenceTransformer):
        sides = zip(*pairs, strict=True)
        return _cosines(*(np.asarray(model.encode(list(side), show_progress_bar=False)) for side in sides))
    return np.asarray(model.predict(pairs, show_progress_bar=False))


def _exported_scores(
    model: SentenceTransformer | CrossEncoder, file: Path, runtime: Runtime, pairs: list[tuple[str, str]]
) -> np.ndarray:
    if isinstance(model, SentenceTransformer):
        exported = ExportedEncoder(model, file, runtime)
        return _cosines(*(exported.encode(list(side)) for side in zip(*pairs, strict=True)))
    return ExportedScorer(model, file, runtime).predict(pairs)


def _cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return pairwise_cos_sim(torch.from_numpy(first), torch.from_numpy(second)).numpy()


def _pairs(model: SentenceTransformer | CrossEncoder) -> tuple[list[tuple[str, str]], int]:
    """Pairs of random words, of all lengths that the model reads."""
    rng, tokenizer = np.random.default_rng(0), model.tokenizer
    longest = min(int(model.max_seq_length or 512), 512)
    words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)

    def text(n_tokens: int) -> str:
        return str(tokenizer.decode(rng.choice(words, n_tokens))).strip() or "a"

    lengths = np.geomspace(1, longest, _N_CHECKED).astype(int).tolist()
    return [(text(length), text(length)) for length in lengths], longest
