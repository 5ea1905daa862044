"""Save models in a form that sentence-transformers 5 and 6, and servers of such models, can all read.

Version 6 of sentence-transformers names modules and settings in a way that version 5 and text-embeddings-inference do
not know; it still reads the older names.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights
from torch import nn

from transencoder.encoders.loading import n_positions

_MODULES, _TOKENIZER, _TRANSFORMER = "modules.json", "tokenizer_config.json", "sentence_bert_config.json"
_LENGTHS = {_TRANSFORMER: "max_seq_length", _TOKENIZER: "model_max_length"}
"""File -> its name for the number of tokens that are read of a text."""

_POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"} | {
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
}
"""Pooling in version 6 -> end of its setting's name in version 5: `cls_token` in `pooling_mode_cls_token`."""
_TEXT_ENCODER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""Settings of a transformer in version 6 that version 5 assumes."""
_WEIGHTED_PATHS = {"WordWeights": "2_WordWeights", "Pooling": "1_Pooling"}
_NO_LIMIT = 10**9


def save(model: SentenceTransformer | CrossEncoder, folder: Path) -> None:
    """Save a model so that old and new versions of sentence-transformers, and servers, can load it."""
    forget_last_call(model.tokenizer)
    model.save_pretrained(str(folder), create_model_card=False)
    if isinstance(model, SentenceTransformer):
        _write_older_form(model, folder)
    write_length(folder, _bounded(model.max_seq_length))


def write_length(folder: Path, max_length: int | None) -> None:
    """Set how many tokens of a text a saved model reads; None: leave it as it was saved."""
    for name, setting in _LENGTHS.items():
        path = folder / name
        if max_length is not None and path.exists():
            _write(path, json.loads(path.read_text(encoding="utf-8")) | {setting: max_length})


def read_length(folder: Path) -> int | None:
    """Return how many tokens of a text a saved model reads; None: there is no limit, or its files name none."""
    files = {**_LENGTHS, "config.json": "max_position_embeddings"}
    found = {name: json.loads((folder / name).read_text("utf-8")) for name in files if (folder / name).exists()}
    lengths = {name: each[files[name]] for name, each in found.items() if each.get(files[name])}
    shortest = _bounded(min(lengths.values(), default=None))
    if shortest is None or shortest < lengths.get("config.json", math.inf):
        return shortest
    return int(min(shortest, n_positions(folder, str(folder))))  # RoBERTa reads fewer than its config says


def forget_last_call(tokenizer: Any) -> None:
    """Clear the truncation and padding that a fast tokenizer keeps from its last call and would save with the model.

    They depend on what was tokenised last, so a resumed run would save a different file.
    """
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()


def _write_older_form(model: SentenceTransformer, folder: Path) -> None:
    """Name a bi-encoder's modules and their settings as version 5 does, unless a module has no name there."""
    settings = [own for own in map(_older_settings, model) if own is not None]
    if len(settings) < len(model):
        return
    modules = json.loads((folder / _MODULES).read_text(encoding="utf-8"))
    for entry, module, own in zip(modules, model, settings, strict=True):
        entry["type"] = f"sentence_transformers.models.{type(module).__name__}"
        _write(folder / entry["path"] / ("config.json" if entry["path"] else _TRANSFORMER), own)
    if any(isinstance(module, WordWeights) for module in model):
        _move_pooling(modules, folder)
    _write(folder / _MODULES, modules)


def _move_pooling(modules: list[dict[str, Any]], folder: Path) -> None:
    """Move a pooling that follows token weights to where servers look for it; they then use the plain mean."""
    for entry in modules:
        kind = entry["type"].rpartition(".")[2]
        if kind in _WEIGHTED_PATHS:
            (folder / entry["path"]).rename(folder / _WEIGHTED_PATHS[kind])
            entry["path"] = _WEIGHTED_PATHS[kind]


def _older_settings(module: nn.Module) -> dict[str, Any] | None:
    """Return a module's settings under their names in version 5; None: version 5 has no such module."""
    if isinstance(module, Transformer) and module.get_config_dict() == _TEXT_ENCODER:
        length = _bounded(module.max_seq_length)
        return {"max_seq_length": length, "do_lower_case": False}  # version 6 has this in the tokenizer
    if isinstance(module, Pooling):
        if not isinstance(module.pooling_mode, str):
            return None  # version 5 has its own order for several poolings
        switches = {f"pooling_mode_{name}": mode == module.pooling_mode for mode, name in _POOLINGS.items()}
        width, prompt = module.embedding_dimension, module.include_prompt
        return {"word_embedding_dimension": width, **switches, "include_prompt": prompt}
    if isinstance(module, Normalize):
        return {}
    if isinstance(module, WordWeights):
        return dict(module.get_config_dict())
    if isinstance(module, Dense):
        found = dict(module.get_config_dict())  # type: ignore[no-untyped-call]
        places = {found.pop("module_input_name"), found.pop("module_output_name")}
        return found if places == {"sentence_embedding"} and "use_residual" not in found else None
    return None


def _bounded(length: int | None) -> int | None:
    """Return a length; None for the huge number that tokenizers write if there is no limit."""
    return length if length is not None and 0 < length < _NO_LIMIT else None


def _write(path: Path, content: Mapping[str, Any] | list[Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
