"""Hostile and damaged models, each made by changing a copy of a valid model."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fuzz_cases import fault

from transencoder import encoders

Damage = Callable[[Path], object]

_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_LIBRARY, _MODULES = "config_sentence_transformers.json", "modules.json"


def _cut(name: str, share: float, folder: Path) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(share * len(content))])


def _write(name: str, content: bytes | str, folder: Path) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _set(name: str, folder: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    _write(name, json.dumps(json.loads((folder / name).read_text()) | values), folder)


def _header(folder: Path, **entries: Any) -> None:
    """Add entries to the header of the weights file, and keep the bytes of the weights."""
    content = (folder / _WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.dumps(json.loads(content[8 : 8 + length]) | entries).encode()
    _write(_WEIGHTS, struct.pack("<Q", len(header)) + header + content[8 + length :], folder)


def _remove(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _pipe(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)


def _loop(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(name)


def _folder(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()


class _Code:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (_RAN,)


_RAN = "code-of-a-pickle-has-run"


def _decoy(index: str, folder: Path) -> None:
    """Replace the weights by pickles, and keep the safetensors file under a name that no loader reads."""
    (folder / _WEIGHTS).rename(folder / "decoy.safetensors")
    _write(index or "index.txt", json.dumps({"weight_map": {"embeddings.word_embeddings.weight": "evil.dat"}}), folder)
    for name in ("evil.dat", "pytorch_model.bin") if index else ("pytorch_model.bin",):
        _write(name, pickle.dumps(_Code()), folder)


_MODULE = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
_DEEP = "[" * 100_000

MODELS: dict[str, Damage] = {
    "weights cut in half": partial(_cut, _WEIGHTS, 0.5),
    "weights without their last byte": partial(_cut, _WEIGHTS, 0.99999),
    "weights emptied": partial(_cut, _WEIGHTS, 0),
    "weights of eight bytes": partial(_write, _WEIGHTS, b"\xff" * 8),
    "a header of 2**62 bytes": partial(_write, _WEIGHTS, struct.pack("<Q", 2**62) + b"{}"),
    "a header of 90 MB": partial(_write, _WEIGHTS, struct.pack("<Q", 90_000_000) + b" " * 90_000_000),
    "a header that is no JSON": partial(_write, _WEIGHTS, struct.pack("<Q", 2) + b"{["),
    "a header of deep JSON": partial(_write, _WEIGHTS, struct.pack("<Q", 100_000) + _DEEP.encode()),
    "a header of no weights": partial(_write, _WEIGHTS, struct.pack("<Q", 2) + b"{}"),
    "a weight beyond the file": partial(_header, x={"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}),
    "a weight of another type": partial(_header, x={"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}),
    "a header whose data is null": partial(_header, __metadata__=None),
    "weights are a pipe": partial(_pipe, _WEIGHTS),
    "weights are a folder": partial(_folder, _WEIGHTS),
    "weights are a loop of links": partial(_loop, _WEIGHTS),
    "weights are an endless device": lambda folder: (
        _remove(_WEIGHTS, folder),
        (folder / _WEIGHTS).symlink_to("/dev/zero"),
    ),
    "no weights": partial(_remove, _WEIGHTS),
    "a pickle and a decoy": partial(_decoy, ""),
    "an index of pickles and a decoy": partial(_decoy, "pytorch_model.bin.index.json"),
    "an index of safetensors that are not there": lambda folder: (
        (folder / _WEIGHTS).rename(folder / "other.safetensors"),
        _write(f"{_WEIGHTS}.index.json", '{"weight_map": {"a": "../../nothing.safetensors"}}', folder),
    ),
    "an index beside, which is null": partial(_write, f"{_WEIGHTS}.index.json", "null"),
    "config null": partial(_write, _CONFIG, "null"),
    "config a list": partial(_write, _CONFIG, "[1, 2]"),
    "config a number": partial(_write, _CONFIG, "5"),
    "config deep": partial(_write, _CONFIG, '{"a":' * 50_000),
    "config not UTF-8": partial(_write, _CONFIG, b'{"model_type": "b\xffrt"}'),
    "config emptied": partial(_write, _CONFIG, ""),
    "config a pipe": partial(_pipe, _CONFIG),
    "config a loop of links": partial(_loop, _CONFIG),
    "no model type": partial(_write, _CONFIG, "{}"),
    "an unknown model type": partial(_set, _CONFIG, model_type="x" * 5000),
    "a model type that is a list": partial(_set, _CONFIG, model_type=["bert"]),
    "code of its own": partial(_set, _CONFIG, auto_map={"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}),
    "100,000 layers": partial(_set, _CONFIG, num_hidden_layers=100_000),
    "layers that are a text": partial(_set, _CONFIG, num_hidden_layers="many"),
    "-1 layers": partial(_set, _CONFIG, num_hidden_layers=-1),
    "no heads": partial(_set, _CONFIG, num_attention_heads=0),
    "10**9 heads": partial(_set, _CONFIG, num_attention_heads=10**9),
    "a vocabulary of 10**12": partial(_set, _CONFIG, vocab_size=10**12),
    "10**10 positions": partial(_set, _CONFIG, max_position_embeddings=10**10),
    "no positions": partial(_set, _CONFIG, max_position_embeddings=0),
    "architectures 5": partial(_set, _CONFIG, architectures=5),
    "architectures a table": partial(_set, _CONFIG, architectures={"a": 1}),
    "10**6 classes": partial(_set, _CONFIG, num_labels=10**6, architectures=["BertForSequenceClassification"]),
    "classes with names of any kind": partial(_set, _CONFIG, id2label={"x": None}, architectures=["BertForMaskedLM"]),
    "library config null": partial(_write, _LIBRARY, "null"),
    "library config a list": partial(_write, _LIBRARY, "[]"),
    "library config a pipe": partial(_pipe, "any_config.json"),
    "prompts a list": partial(_write, _LIBRARY, '{"prompts": [1], "default_prompt_name": "x"}'),
    "a default prompt of no name": partial(_write, _LIBRARY, '{"prompts": {}, "default_prompt_name": "x"}'),
    "a similarity of no name": partial(_write, _LIBRARY, '{"similarity_fn_name": "x"}'),
    "modules null": partial(_write, _MODULES, "null"),
    "modules numbers": partial(_write, _MODULES, "[1, 2]"),
    "modules outside": partial(_write, _MODULES, json.dumps([_MODULE | {"path": "../../../etc"}])),
    "a module of code": partial(_write, _MODULES, json.dumps([_MODULE, _MODULE | {"type": "os.system"}])),
    "a module of no type": partial(_write, _MODULES, json.dumps([_MODULE, _MODULE | {"type": "x"}])),
    "a pooling of another width": partial(_write, "1_Pooling/config.json", '{"word_embedding_dimension": 7}'),
    "a pooling null": partial(_write, "1_Pooling/config.json", "null"),
    "no tokenizer": partial(_remove, "tokenizer.json"),
    "tokenizer emptied": partial(_write, "tokenizer.json", "{}"),
    "tokenizer deep": partial(_write, "tokenizer.json", _DEEP),
    "tokenizer cut": partial(_cut, "tokenizer.json", 0.5),
    "tokenizer a pipe": partial(_pipe, "vocab.txt"),
    "a template that is a pipe": partial(_pipe, "chat_template.jinja"),
    "a tokenizer class of no name": partial(_set, "tokenizer_config.json", tokenizer_class="Evil"),
    "a length that is a text": partial(_set, "tokenizer_config.json", model_max_length="long"),
    "added tokens of any kind": partial(_set, "tokenizer_config.json", added_tokens_decoder={"x": 5}),
    "a text file that is a loop of links": partial(_loop, "notes.txt"),
    "checksums a pipe": partial(_pipe, "SHA256SUMS"),
    "checksums of a device": partial(_write, "SHA256SUMS", "0  /dev/zero\n"),
    "a folder in itself": lambda folder: (folder / "inside").symlink_to(folder, target_is_directory=True),
    "nothing but a config": lambda folder: [
        path.unlink() for path in folder.iterdir() if path.is_file() and path.name != _CONFIG
    ],
}
"""Function that makes each hostile model from a copy of a valid one, by description."""


def load(folder: Path) -> tuple[str, str]:
    """Handle a model as commands do: fetch it, fingerprint it, count its parameters, load it in each form."""

    def run() -> None:
        found = encoders.fetch(str(folder))
        encoders.weights_fingerprint(found)
        encoders.count_parameters(found)
        encoders.load_trained(found, "cpu")
        encoders.load_cross(found, device="cpu", new_head=True)

    how, wrong = fault(run, folder.name)
    if Path(_RAN).exists():
        return "failed", "code of a pickle has run"
    return how, wrong
