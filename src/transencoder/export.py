"""Bi-encoders outside PyTorch: ONNX files, and the runtimes that read them, with sentence-transformers' `encode`."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from transencoder.errors import InputError

Runtime = Literal["onnxruntime", "openvino"]

_BATCH = 32
"""As `SentenceTransformer.encode`."""

_NEEDS = "it needs the packages onnx, onnxscript and {}: pip install '.[export]'"


class _Forward(nn.Module):
    """A bi-encoder as a function of tensors."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            features["token_type_ids"] = token_type_ids
        embeddings: Tensor = self.model(features)["sentence_embedding"]
        return embeddings


def export_onnx(model: SentenceTransformer, file: str | Path) -> None:
    """Write a bi-encoder, pooling and normalisation included, as one ONNX file.

    Its inputs are those of the model's tokenizer, int64 (batch, tokens), its output `sentence_embedding`, float32
    (batch, dim); batch and tokens may be any.

    Args:
        model: The bi-encoder, on a CPU, in fp32.
        file: The file to write.

    Raises:
        InputError: The packages are not installed.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"{file} cannot be written: {_NEEDS.format('onnxruntime')}") from error
    features = model.preprocess(["a first text of some words", "another"])
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in features]
    shape = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("tokens", min=2)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own parts
        torch.onnx.export(
            _Forward(model).eval(),
            tuple(features[name] for name in names),
            str(file),
            input_names=names,
            output_names=["sentence_embedding"],
            dynamic_shapes=dict.fromkeys(names, shape),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


class ExportedEncoder:
    """An exported bi-encoder with `encode`: batches of 32 texts of like length.

    Args:
        model: The bi-encoder that was exported; its tokenizer and default prompt are used, its weights are not.
        file: The ONNX file.
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
        self.prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
        start = {"onnxruntime": _onnxruntime, "openvino": _openvino}[runtime]
        try:
            self._run = start(str(file), precision, threads)
        except ImportError as error:
            raise InputError(f"{file} cannot be read by {runtime}: {_NEEDS.format(runtime)}") from error

    def encode(self, sentences: list[str]) -> np.ndarray:
        """Embeddings, float32 (n, dim), in the order of the sentences."""
        if not sentences:
            return np.empty((0, self.model.get_embedding_dimension() or 0), np.float32)
        order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
        parts = []
        for i in range(0, len(order), _BATCH):
            texts = [sentences[row] for row in order[i : i + _BATCH]]
            features = self.model.preprocess(texts, prompt=self.prompt)
            parts.append(self._run({name: each.numpy() for name, each in features.items() if torch.is_tensor(each)}))
        embeddings = np.concatenate(parts)
        return embeddings[np.argsort(order, kind="stable")]


_Run = Callable[[dict[str, np.ndarray]], np.ndarray]


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
        (embeddings,) = session.run(None, {name: each for name, each in features.items() if name in names})
        return np.asarray(embeddings, np.float32)

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
