"""A smaller model made of some of another's layers: where small students start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel

from transencoder.encoders.forms import backbone, load_trained
from transencoder.errors import InputError
from transencoder.files import whole_folder


def truncate(folder: Path, layers: Sequence[int], output: Path) -> None:
    """Write a model that has some of another's transformer layers; embeddings, pooling and heads stay as they are.

    Args:
        folder: A sentence-transformers model, or a plain one; what is written is of the same form, in fp32.
        layers: Which layers to keep, from 0, in rising order.
        output: The folder to write, which is not there yet.

    Raises:
        InputError: A layer that the model does not have, layers that cannot be taken apart, or an `output`
            that is there or cannot be written.
    """
    if output.exists():
        raise InputError(f"{output} is there already; give a new folder, or remove it")
    model, plain = load_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder) if model is plain else None
    types = getattr(plain.config, "layer_types", None)
    if types and len(kinds := sorted(set(types))) > 1:
        raise InputError(
            f"{folder} has layers of several kinds ({', '.join(kinds)}), which cannot be taken apart; "
            "give a model whose layers are all alike, such as BERT"
        )
    modules = _layers_of(plain, folder)
    _check_layers(layers, len(modules), folder)
    for i in reversed(range(len(modules))):
        if i not in layers:
            del modules[i]
    plain.config.num_hidden_layers = len(modules)
    if types:
        plain.config.layer_types = types[: len(modules)]
    try:
        _write(model, tokenizer, output)
    except OSError as error:
        raise InputError(f"{output} cannot be written ({error.strerror}); give another output") from error


def check_layers(folder: Path, layers: Sequence[int]) -> None:
    """Refuse layers that a model does not have, without loading it.

    Args:
        folder: The model.
        layers: Which to keep, from 0, in rising order.

    Raises:
        InputError: There is no such layer, or one is named twice.
    """
    _check_layers(layers, transformers.AutoConfig.from_pretrained(folder).num_hidden_layers, folder)


def _check_layers(layers: Sequence[int], n_layers: int, folder: Path) -> None:
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= n_layers:
        raise InputError(
            f"layers are {', '.join(map(str, layers)) or 'none'}; {folder} has layers 0 to {n_layers - 1}: give "
            "some of them, each once, in rising order"
        )


def _write(model: SentenceTransformer | CrossEncoder | PreTrainedModel, tokenizer: Any, output: Path) -> None:
    """Under a temporary name first, so that the output is whole or not there."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(output) as made:
        model.save_pretrained(str(made))
        if tokenizer is not None:
            tokenizer.save_pretrained(str(made))


def load_model(folder: Path) -> tuple[SentenceTransformer | CrossEncoder | PreTrainedModel, PreTrainedModel]:
    """The model as it was saved, and its transformer."""
    if (folder / "modules.json").exists() or (folder / "config_sentence_transformers.json").exists():
        model = load_trained(folder, "cpu")
        assert isinstance(model.transformers_model, PreTrainedModel), "every model here has a transformer"
        return model, model.transformers_model
    config = transformers.AutoConfig.from_pretrained(folder)
    architecture = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
    plain: PreTrainedModel = architecture.from_pretrained(folder, dtype="float32")
    return plain, plain


def _layers_of(model: PreTrainedModel, folder: Path) -> nn.ModuleList:
    n_layers = model.config.num_hidden_layers
    lists = (module for module in backbone(model).modules() if isinstance(module, nn.ModuleList))
    found = next((each for each in lists if len(each) == n_layers), None)
    if found is None:
        raise InputError(f"{folder} has no list of {n_layers} layers to choose from (they may share their weights)")
    return found
