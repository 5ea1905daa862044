"""Models as ONNX files."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import Tensor, nn

from transencoder.errors import InputError

NEEDS = "it needs the packages onnx, onnxscript and {}: pip install '.[export]'"


class _Forward(nn.Module):
    """A model as a function of tensors: embeddings, or scores as its `predict` gives them."""

    def __init__(self, model: SentenceTransformer | CrossEncoder) -> None:
        super().__init__()
        self.model = model
        self.activation = model.activation_fn if isinstance(model, CrossEncoder) else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            features["token_type_ids"] = token_type_ids
        found: dict[str, Tensor] = self.model(features)
        return found["sentence_embedding"] if self.activation is None else self.activation(found["scores"]).squeeze(1)


def export_onnx(model: SentenceTransformer | CrossEncoder, file: str | Path) -> None:
    """Write a model as one ONNX file: a bi-encoder with pooling and normalisation, a cross-encoder with its activation.

    Its inputs are those of the model's tokenizer, int64 (batch, tokens); batch and tokens may be any. Its output is
    `sentence_embedding`, float32 (batch, dim), or `scores`, float32 (batch,).

    Args:
        model: On a CPU, in fp32; a cross-encoder with one output.
        file: The file to write.

    Raises:
        InputError: The packages are not installed, or a cross-encoder has several outputs.
    """
    is_cross = isinstance(model, CrossEncoder)
    if isinstance(model, CrossEncoder) and model.num_labels != 1:
        raise InputError(f"the cross-encoder has {model.num_labels} outputs; one with num_labels=1 can be exported")
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"{file} cannot be written: {NEEDS.format('onnxruntime')}") from error
    texts = ["a first text of some words", "another"]
    features = model.preprocess([("a", text) for text in texts] if is_cross else texts)
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in features]
    shape = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("tokens", min=2)}
    with torch.no_grad(), _without_remarks():
        torch.onnx.export(
            _Forward(model).eval(),
            tuple(features[name] for name in names),
            str(file),
            input_names=names,
            output_names=["scores" if is_cross else "sentence_embedding"],
            dynamic_shapes=dict.fromkeys(names, shape),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def _without_remarks() -> Iterator[None]:
    """The exporter warns of its own parts, and of packages that nothing here needs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
