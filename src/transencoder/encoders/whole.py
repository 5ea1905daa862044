"""Whether a model's files are whole and fit together, told without its weights."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from transencoder.encoders.quiet import without_load_reports
from transencoder.encoders.saved import is_classifier, is_cross
from transencoder.errors import InputError

_JSON = ("*config*.json", "modules.json", "tokenizer.json", "vocab.json", "*.safetensors.index.json")
"""Files that the libraries read; there may be others beside them."""

_MAY_LACK = ("pooler", "decoder", "position")
"""In the names of weights that are not always saved: nothing uses them, or they are computed."""

_AGAIN = "Download it or save it again, or give another model"


def check_whole(name: str, folder: Path) -> None:
    """Refuse a model folder whose files are damaged or do not fit together; of the weights only headers are read.

    Args:
        name: The model as the user named it.
        folder: Its folder, with a config.json.

    Raises:
        InputError: Of what file, and what is wrong with it.
    """
    for path in sorted(folder.rglob("*.safetensors")):
        with _refused(f"{name} is damaged: {path} is no safetensors file, or is cut short"), safe_open(path, "pt"):
            pass
    for path in sorted(path for pattern in _JSON for path in folder.rglob(pattern)):
        with _refused(f"{name} is damaged: {path} is not JSON"):
            json.loads(path.read_text(encoding="utf-8"))
    with _refused(f"{name} is damaged: {folder / 'modules.json'} is no list of modules"):
        is_transformer = _is_transformer(folder)
    if is_transformer:
        _check_tokenizer(name, folder)
        _check_weights(name, folder)
    if (folder / "modules.json").exists():
        library = CrossEncoder if is_cross(folder) else SentenceTransformer
        with _refused(f"{name} cannot be loaded from {folder}"), without_load_reports():
            library(str(folder), device="meta", model_kwargs={"device_map": "meta"})


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Any error of the libraries, which raise many kinds, as the user's."""
    try:
        yield
    except Exception as error:
        remedy = "Install what it needs" if isinstance(error, ImportError) else _AGAIN
        raise InputError(f"{what} ({short_reason(error)}). {remedy}") from error


def short_reason(error: Exception) -> str:
    """What a library's error says first."""
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(". ") if lines else type(error).__name__


def _is_transformer(folder: Path) -> bool:
    """Whether transformers loads the folder itself; sentence-transformers has other kinds of modules too."""
    path = folder / "modules.json"
    if not path.exists():
        return True
    modules = json.loads(path.read_text(encoding="utf-8"))
    return any(module["path"] == "" and module["type"].endswith(".Transformer") for module in modules)


def _check_tokenizer(name: str, folder: Path) -> None:
    """Without its files transformers makes a tokenizer of a few special tokens, to which every word is unknown."""
    with _refused(f"{name} has no tokenizer that can be loaded from {folder}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if len(tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)) <= 1:  # T5's has an empty word
        raise InputError(
            f"{name} has no tokenizer in {folder}: without one every word would be unknown. Put its tokenizer.json and "
            "tokenizer_config.json there, as the tokenizer's save_pretrained does"
        )


def _check_weights(name: str, folder: Path) -> None:
    """A config of other weights gives random ones, or none."""
    kind = AutoModelForSequenceClassification if is_classifier(folder) else AutoModel
    with _refused(f"{name} is no model that transformers can make by itself from {folder}"), without_load_reports():
        _, report = kind.from_pretrained(
            folder, device_map="meta", ignore_mismatched_sizes=True, output_loading_info=True, trust_remote_code=False
        )
    misfits = [
        f"{weight} is {tuple(found)} in the weights and {tuple(wanted)} by the config"
        for weight, found, wanted in report["mismatched_keys"]
    ] + [
        f"{weight} is not in the weights"
        for weight in report["missing_keys"]
        if not any(part in weight for part in _MAY_LACK)
    ]
    if misfits:
        raise InputError(
            f"{name} is damaged: config.json and the weights in {folder} do not fit ({min(misfits)}). {_AGAIN}"
        )
