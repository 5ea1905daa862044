"""What reads exported models on a CPU: onnxruntime and OpenVINO, with sentence-transformers' `encode` and `predict`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder.errors import InputError
from transencoder.export.onnx import NEEDS

Runtime = Literal["onnxruntime", "openvino"]

_BATCH = 32
"""As `SentenceTransformer.encode`."""

_Run = Callable[[dict[str, np.ndarray]], np.ndarray]


class ExportedEncoder:
    """An exported bi-encoder with `encode`: batches of 32 texts of like length.

    Args:
        model: The bi-encoder that was exported; its tokenizer and default prompt are used, its weights are not.
        file: The ONNX file, or for openvino its own .xml.
        runtime: What computes, on the CPU.
        precision: `bf16` for openvino, where the processor has it; its own choice without.
        threads: None: as many as the runtime likes.

    Raises:
        InputError: The runtime is not installed.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        file: str | Path,
        runtime: Runtime,
        *,
        precision: Literal["fp32", "bf16"] = "fp32",
        threads: int | None = None,
    ) -> None:
        self.model = model
        self._run = _start(file, runtime, precision, threads)

    def encode(self, sentences: list[str]) -> np.ndarray:
        """Embeddings, float32 (n, dim), in the order of the sentences."""
        if not sentences:
            return np.empty((0, self.model.get_embedding_dimension() or 0), np.float32)
        return _in_batches(self.model, self._run, sentences, [len(sentence) for sentence in sentences])


class ExportedScorer:
    """An exported cross-encoder with `predict`: batches of 32 pairs of like length.

    Args:
        model: The cross-encoder that was exported; its tokenizer and default prompt are used, its weights are not.
        file: As in `ExportedEncoder`.
        runtime: As in `ExportedEncoder`.
        precision: As in `ExportedEncoder`.
        threads: As in `ExportedEncoder`.

    Raises:
        InputError: The runtime is not installed.
    """

    def __init__(
        self,
        model: CrossEncoder,
        file: str | Path,
        runtime: Runtime,
        *,
        precision: Literal["fp32", "bf16"] = "fp32",
        threads: int | None = None,
    ) -> None:
        self.model = model
        self._run = _start(file, runtime, precision, threads)

    def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Scores, float32 (n,), in the order of the pairs."""
        if not pairs:
            return np.empty(0, np.float32)
        return _in_batches(self.model, self._run, pairs, [len(first) + len(second) for first, second in pairs])


def _in_batches(
    model: SentenceTransformer | CrossEncoder, run: _Run, inputs: Sequence[Any], lengths: Sequence[int]
) -> np.ndarray:
    prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
    order = np.argsort([-length for length in lengths], kind="stable")
    parts = []
    for i in range(0, len(order), _BATCH):
        features = model.preprocess([inputs[row] for row in order[i : i + _BATCH]], prompt=prompt)
        parts.append(run({name: each.numpy() for name, each in features.items() if torch.is_tensor(each)}))
    found: np.ndarray = np.concatenate(parts)[np.argsort(order, kind="stable")]
    return found


def _start(file: str | Path, runtime: Runtime, precision: str, threads: int | None) -> _Run:
    start = {"onnxruntime": _onnxruntime, "openvino": _openvino}[runtime]
    try:
        return start(str(file), precision, threads)
    except ImportError as error:
        raise InputError(f"{file} cannot be read by {runtime}: {NEEDS.format(runtime)}") from error


def _onnxruntime(file: str, precision: str, threads: int | None) -> _Run:
    import onnxruntime

    if precision != "fp32":
        raise InputError(
            f"precision is {precision}; onnxruntime computes an fp32 model in fp32: give fp32, or openvino"
        )
    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}

    def run(features: dict[str, np.ndarray]) -> np.ndarray:
        (found,) = session.run(None, {name: each for name, each in features.items() if name in names})
        return np.asarray(found, np.float32)

    return run


def _openvino(file: str, precision: str, threads: int | None) -> _Run:
    import openvino

    hints: dict[str, Any] = {"INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision]}
    if threads is not None:
        hints["INFERENCE_NUM_THREADS"] = threads
    compiled = openvino.compile_model(file, "CPU", hints)
    names = {name for each in compiled.inputs for name in each.names}

    def run(features: dict[str, np.ndarray]) -> np.ndarray:
        found = compiled({name: each for name, each in features.items() if name in names})
        return np.array(found[0], np.float32)

    return run
