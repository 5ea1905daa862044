"""Export of models: ONNX and OpenVINO files, classes that run them on a CPU, and upload to the hub."""

import importlib
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import disable_logging, pairwise_cos_sim
from torch import Tensor, nn

from transencoder import progress
from transencoder.encoders import CARD_NAME, check_is_new, load_trained, weights_fingerprint
from transencoder.errors import InputError, reason_of, shorten
from transencoder.files import whole_folder
from transencoder.models import default_prompt
from transencoder.runs.files import atomic_json

__all__ = ["Agreement", "ExportedEncoder", "ExportedScorer", "Runtime", "export_model", "export_onnx", "push"]

logger = logging.getLogger(__name__)

Target = Literal["onnx", "openvino"]
Runtime = Literal["onnxruntime", "openvino"]

TOLERANCE = 1e-4
"""Largest difference of scores that is allowed; in fp32 the runtimes differ from PyTorch by about 1e-6."""

_FILES: dict[Target, tuple[str, Runtime]] = {
    "onnx": ("model.onnx", "onnxruntime"),
    "openvino": ("model.xml", "openvino"),
}
_N_CHECKED = 32
_BATCH = 32
"""Batch size, as in `SentenceTransformer.encode`."""

_Run = Callable[[dict[str, np.ndarray]], np.ndarray]
"""Function that computes a model's output from its inputs, by their names."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of an exported model with the model in PyTorch."""

    n_pairs: int
    """Number of pairs of texts that both models scored."""
    longest: int
    """Number of random tokens in the longest text; the shortest has one."""
    max_difference: float
    """Largest difference of two scores: cosines of a bi-encoder, outputs of `predict` of a cross-encoder."""


@progress.shown()
def export_model(folder: str | Path, to: Target, output: str | Path) -> Agreement:
    """Export a model for another runtime, with its tokenizer and `export.json`, after comparing scores.

    The compared pairs are random words of the model's own vocabulary, from one token to its maximum length or 512.

    Args:
        folder: Folder of the model, a bi-encoder or a cross-encoder with one output.
        to: Format to write; `onnx`: model.onnx; `openvino`: model.xml and model.bin.
        output: The folder to write, which must be new.

    Raises:
        InputError: The packages are not installed, the output folder exists, or scores differ by more than 1e-4.
    """
    folder, output = Path(folder), Path(output)
    if to not in _FILES:
        raise InputError(f"a model is exported to {' or '.join(_FILES)}, not to {shorten(to)}")
    check_is_new(output)
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output} cannot be written: there is no folder {output.parent}. Make it first")
    model = load_trained(folder, "cpu")
    file, runtime = _FILES[to]
    with whole_folder(output) as draft:
        export_onnx(model, draft / "model.onnx")
        if to == "openvino":
            openvino = _needed("openvino", f"{file} cannot be written", runtime)
            openvino.save_model(openvino.convert_model(draft / "model.onnx"), draft / file, compress_to_fp16=False)
            (draft / "model.onnx").unlink()
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


def export_onnx(model: SentenceTransformer | CrossEncoder, file: str | Path) -> None:
    """Write a model as one ONNX file: a bi-encoder with pooling and normalisation, a cross-encoder with its activation.

    Its inputs are those of the model's tokenizer, int64 (batch, tokens), where both sizes may vary. Its output is
    `sentence_embedding`, float32 (batch, dim), or `scores`, float32 (batch,).

    Args:
        model: Model on a CPU, in fp32; a cross-encoder must have one output.
        file: The file to write.

    Raises:
        InputError: The packages are not installed, or a cross-encoder has several outputs.
    """
    is_cross = isinstance(model, CrossEncoder)
    if isinstance(model, CrossEncoder) and model.num_labels != 1:
        raise InputError(f"the cross-encoder has {model.num_labels} outputs; one with num_labels=1 can be exported")
    _needed("onnxscript", f"{file} cannot be written", "onnxruntime")
    texts = ["a first text of some words", "another"]
    features = model.preprocess([("a", text) for text in texts] if is_cross else texts)
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in features]
    shape = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("tokens", min=2)}
    with torch.no_grad(), disable_logging(logging.WARNING), warnings.catch_warnings(action="ignore"):
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


class _Forward(nn.Module):
    """A model as a function of tensors, which returns embeddings, or scores as `predict` returns them."""

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


def _needed(package: str, problem: str, runtime: Runtime) -> Any:
    """Import a package that the extra `export` installs."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{problem}: it needs the packages onnx, onnxscript and {runtime}: pip install 'transencoder[export]'"
        ) from error


def _compare(model: SentenceTransformer | CrossEncoder, file: Path, runtime: Runtime) -> Agreement:
    pairs, longest = _random_pairs(model)
    exported = (ExportedScorer if isinstance(model, CrossEncoder) else ExportedEncoder)(model, file, runtime)
    difference = float(np.abs(_scores(exported, pairs) - _scores(model, pairs)).max())
    if not difference <= TOLERANCE:  # also true for NaN
        raise InputError(
            f"the exported model's scores differ from PyTorch's by up to {difference:.2g}, {TOLERANCE:g} is allowed: "
            "it is not written. Is the model damaged, or has it parts that follow the prompt?"
        )
    return Agreement(n_pairs=len(pairs), longest=longest, max_difference=difference)


def _random_pairs(model: SentenceTransformer | CrossEncoder) -> tuple[list[tuple[str, str]], int]:
    """Draw pairs of random words, of lengths up to the model's maximum; return the pairs and the greatest length."""
    rng, tokenizer = np.random.default_rng(0), model.tokenizer
    longest = min(int(model.max_seq_length or 512), 512)
    words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)

    def text(n_tokens: int) -> str:
        return str(tokenizer.decode(rng.choice(words, n_tokens))).strip() or "a"

    lengths = np.geomspace(1, longest, _N_CHECKED).astype(int).tolist()
    return [(text(length), text(length)) for length in lengths], longest


def _scores(
    model: "SentenceTransformer | CrossEncoder | ExportedEncoder | ExportedScorer", pairs: list[tuple[str, str]]
) -> np.ndarray:
    """Score pairs with a model, or with its exported version."""
    if isinstance(model, SentenceTransformer | ExportedEncoder):
        first, second = (torch.from_numpy(np.asarray(model.encode(list(side)))) for side in zip(*pairs, strict=True))
        return pairwise_cos_sim(first, second).numpy()
    return np.asarray(model.predict(pairs))


class _Exported:
    """A model that runs in another runtime, in batches of 32 inputs of similar length."""

    def __init__(
        self,
        model: SentenceTransformer | CrossEncoder,
        file: str | Path,
        runtime: Runtime,
        *,
        precision: Literal["fp32", "bf16"] = "fp32",
        threads: int | None = None,
    ) -> None:
        self.model = model
        package = _needed(runtime, f"{file} cannot be read by {runtime}", runtime)
        start = {"onnxruntime": _onnxruntime, "openvino": _openvino}[runtime]
        self._names, self._run = start(package, str(file), precision, threads)

    def _outputs(self, inputs: Sequence[Any], lengths: Sequence[int]) -> np.ndarray:
        """Compute outputs, float32, in the order of the inputs."""
        prompt = default_prompt(self.model)
        order = np.argsort([-length for length in lengths], kind="stable")
        parts = []
        for i in range(0, len(order), _BATCH):
            features = self.model.preprocess([inputs[row] for row in order[i : i + _BATCH]], prompt=prompt)
            outputs = self._run({name: features[name].numpy() for name in features if name in self._names})
            parts.append(np.array(outputs, np.float32))
        found: np.ndarray = np.concatenate(parts)[np.argsort(order, kind="stable")]
        return found


class ExportedEncoder(_Exported):
    """An exported bi-encoder with `encode`, in batches of 32 texts of similar length.

    Args:
        model: The model that was exported; its tokenizer and default prompt are used, its weights are not.
        file: The ONNX file, or the .xml file of OpenVINO.
        runtime: Runtime that runs the model, on the CPU.
        precision: `fp32`, or `bf16` for openvino; where the processor has no bf16, openvino chooses the precision.
        threads: Number of threads; None: the runtime's choice.

    Raises:
        InputError: The runtime is not installed.
    """

    model: SentenceTransformer

    def encode(self, sentences: list[str]) -> np.ndarray:
        """Embed sentences: float32 (n, dim), in their order."""
        if not sentences:
            return np.empty((0, self.model.get_embedding_dimension() or 0), np.float32)
        return self._outputs(sentences, [len(sentence) for sentence in sentences])


class ExportedScorer(_Exported):
    """An exported cross-encoder with `predict`, in batches of 32 pairs of similar length.

    The arguments are those of `ExportedEncoder`.
    """

    def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Score pairs: float32 (n,), in their order."""
        if not pairs:
            return np.empty(0, np.float32)
        return self._outputs(pairs, [len(first) + len(second) for first, second in pairs])


def _onnxruntime(package: Any, file: str, precision: str, threads: int | None) -> tuple[set[str], _Run]:
    if precision != "fp32":
        raise InputError(
            f"precision is {precision}; onnxruntime computes an fp32 model in fp32: give fp32, or openvino"
        )
    options = package.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    session = package.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return {each.name for each in session.get_inputs()}, lambda features: session.run(None, features)[0]


def _openvino(package: Any, file: str, precision: str, threads: int | None) -> tuple[set[str], _Run]:
    hints: dict[str, Any] = {"INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision]}
    if threads is not None:
        hints["INFERENCE_NUM_THREADS"] = threads
    compiled = package.compile_model(file, "CPU", hints)
    return {name for each in compiled.inputs for name in each.names}, lambda features: compiled(features)[0]


def push(
    folder: Path,
    repo_id: str,
    *,
    is_private: bool = True,
    is_update: bool = False,
    branch: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a model's folder as it is, including its card, with sentence-transformers' `push_to_hub`.

    Args:
        folder: Folder of a bi-encoder or a cross-encoder.
        repo_id: `name` or `owner/name`.
        is_private: Whether to make the repository private, where it is new.
        is_update: Whether to add a commit to an existing repository; otherwise the repository must be new.
        branch: Branch to push to; None: the main one.
        token: Hub token; None: the one you are logged in with.

    Returns:
        URL of the commit.

    Raises:
        InputError: The folder holds no such model, the id is invalid, or the hub refuses the upload.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"{repo_id!r} is no id of a repository: {error} Give name or owner/name") from error
    if not (folder / "modules.json").exists() and not (folder / "config_sentence_transformers.json").exists():
        raise InputError(f"{folder} is no sentence-transformers model; give a bi-encoder or a cross-encoder")
    if not (folder / CARD_NAME).exists():
        logger.warning("%s has no model card (%s); the repository will have none", folder, CARD_NAME)
    model = load_trained(folder, "cpu")
    try:
        return model.push_to_hub(
            repo_id, token=token, private=is_private, exist_ok=is_update, revision=branch, local_model_path=str(folder)
        )
    except Exception as error:  # the hub's client raises errors of many kinds
        reason = reason_of(error)
        raise InputError(
            f"{repo_id} could not be pushed ({reason}). Check the token, that it may write, and the network; where the "
            "repository is there already, say that it is an update (is_update, --update)"
        ) from error
