"""Files of pretrained models: find or download, check and fingerprint them, and read what they say of the model."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import disable_logging
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from transencoder.configs import Form
from transencoder.errors import InputError, reason_of, shorten
from transencoder.files import sha256_of
from transencoder.models import resolve_model
from transencoder.runs.files import system_error

logger = logging.getLogger(__name__)

_LAYER = re.compile(r"\blayers?\.(\d+)\.")
"""Pattern of a layer's number in the names of a transformer's weights."""

_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm"]
_SUMS = "SHA256SUMS"
"""File of a trained model with the hashes of its other files, in the format of the tool sha256sum."""
_CONFIGS = ("config*.json", "sentence_*_config.json", "tokenizer_config.json", "generation_config.json")
_JSON = (*_CONFIGS, "modules.json", "tokenizer.json", "vocab.json", "*.safetensors.index.json")
"""JSON files that the libraries read; a model may have others, such as data_config.json of all-MiniLM-L6-v2."""

_MOST_PARTS = {
    re.compile("(layers?|blocks|groups)$"): 256,
    re.compile("(experts|labels)$"): 10_000,
    re.compile("(positions|position_embeddings)$"): 10_000_000,
}
"""End of config keys for a number of parts -> highest number allowed, still made in seconds and in some 100 MB."""

_MAY_LACK = ("pooler", "decoder", "position")
"""Parts of the names of weights that are not always saved, since nothing uses them or they are computed."""

CARD_NAME = "README.md"
REJECTION = "transencoder_rejection"
"""Entry in the metadata of a model's card that says why the model should not be used."""

_AGAIN = "Download it or save it again, or give another model"


def fetch(
    name: str | os.PathLike[str],
    *,
    form: Form | None = None,
    revision: str | None = None,
    token: str | None = None,
    cache_folder: str | None = None,
) -> Path:
    """Return the local folder of a model, downloaded from the hub if `name` is not a folder.

    Args:
        name: A folder, a run's folder, a hub id with or without `@revision`, or `minilm`.
        form: Which of a run's models to return; None: the only one.
        revision: Hub revision; None: the one in `name`, if any.
        token: Hub token.
        cache_folder: Folder for hub downloads; None: the hub's usual folder.

    Raises:
        InputError: There is no such model, its weights are not safetensors, or its files are damaged.
    """
    if not isinstance(name, str | os.PathLike):
        raise InputError(f"{shorten(name)} is no name; a model in memory is saved first: model.save_pretrained(folder)")
    resolved = resolve_model(name := os.fspath(name))
    folder = Path(resolved)
    if not folder.is_dir():
        hub_id, _, own_revision = resolved.partition("@")
        folder = _download(name, hub_id, revision or own_revision or None, token, cache_folder)
    if (folder / "recipe.toml").exists():
        folder = _model_of_run(name, folder, form)
    _check_sums(name, folder)
    if not (folder / "config.json").exists():
        raise InputError(
            f"{name} has no config.json in {folder}; give the folder of a transformers or sentence-transformers model"
        )
    if not any(folder.rglob("*.safetensors")) or any(_is_loaded(path) for path in folder.rglob("*.bin")):
        raise InputError(
            f"{name} has no .safetensors file of its weights in {folder}; pickled weights are not loaded, since they "
            "can run code. The hub has many such models converted, in a pull request named `Adding safetensors variant "
            f"of this model`: give its revision, such as {name.partition('@')[0]}@refs/pr/1. Or convert it once with "
            "transformers' save_pretrained and give that folder"
        )
    _check_whole(name, folder)
    if rejection := card_of(folder).get(REJECTION):
        logger.warning("%s should not be used, its base model is better: %s", name, rejection)
    return folder


def card_of(folder: Path) -> dict[str, Any]:
    """Return the metadata of a model's card, such as licence and language; empty if it has none that can be read."""
    from huggingface_hub import ModelCard

    try:
        head: dict[str, Any] = ModelCard.load(folder / CARD_NAME).data.to_dict()
    except Exception:  # there is no card, or it is bad YAML or no mapping: others wrote it
        return {}
    return head


def weights_fingerprint(folder: Path) -> str:
    """Return a SHA-256 of a model's weights, configs and tokenizer, which does not depend on where its folder is."""
    digest = hashlib.sha256()
    for path in _model_files(folder):
        digest.update(f"{path.relative_to(folder)}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def write_checksums(folder: Path) -> None:
    """Write `SHA256SUMS` with the hashes of a model's files, for `fetch` and for `sha256sum --check`."""
    lines = [f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in _model_files(folder)]
    (folder / _SUMS).write_text("".join(lines), encoding="utf-8")


def count_parameters(folder: Path, layers: Sequence[int] = ()) -> int:
    """Count a model's parameters from its safetensors headers; `layers`, from 0, are those to count (empty: all)."""
    total = 0
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no dict
                of_layer = _LAYER.search(name)
                if layers and of_layer is not None and int(of_layer[1]) not in layers:
                    continue
                total += torch.Size(file.get_slice(name).get_shape()).numel()
    return total


def has_pooler(folder: Path) -> bool:
    """Return whether a saved model has the weights of a pooler: a linear layer on [CLS], then tanh, as in BERT."""
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            if any(name.endswith("pooler.dense.weight") for name in file.keys()):  # noqa: SIM118
                return True
    return False


def is_cross(folder: Path) -> bool:
    """Return whether a saved model is a cross-encoder, according to its files."""
    path = folder / "config_sentence_transformers.json"
    if path.exists():  # without a model_type it is a bi-encoder
        return bool(json.loads(path.read_text()).get("model_type") == "CrossEncoder")
    return is_classifier(folder)


def weights_tokens(folder: Path) -> bool:
    """Return whether a saved bi-encoder weights its tokens (`weight_tokens`)."""
    path = folder / "modules.json"
    modules = json.loads(path.read_text()) if path.exists() else []
    return any(str(each["type"]).endswith(".WordWeights") for each in modules)


def is_classifier(folder: Path) -> bool:
    """Return whether a saved model has a classification head of its own architecture."""
    architectures = json.loads((folder / "config.json").read_text()).get("architectures") or [""]
    return str(architectures[0]).endswith("ForSequenceClassification")


def classes_of(folder: Path) -> tuple[str, ...]:
    """Return the classes of a saved cross-encoder; empty if it gives one score, or is not a cross-encoder."""
    if not is_classifier(folder):
        return ()
    names = AutoConfig.from_pretrained(folder, trust_remote_code=False).id2label
    return tuple(names[number] for number in sorted(names)) if len(names) > 1 else ()


def _model_of_run(name: str, folder: Path, form: Form | None) -> Path:
    models = [model for model in ("bi-encoder", "cross-encoder", "masked-lm") if (folder / model).is_dir()]
    if not models:
        raise InputError(f"{name} is a run that is not finished; run its command again, then give it as a model")
    wanted = models if form is None else [model for model in models if model in (f"{form}-encoder", "masked-lm")]
    if len(wanted) != 1:
        teachers = sorted(path.relative_to(folder).as_posix() for path in folder.glob("teachers/*"))
        shown = " and ".join(f"{name}/{model}" for model in models + teachers)
        what = "has several models" if len(models) > 1 and form is None else f"has no {form}-encoder"
        raise InputError(f"{name} is a run that {what}; it has {shown}: give one of these")
    return folder / wanted[0]


def _download(name: str, hub_id: str, revision: str | None, token: str | None, cache_folder: str | None) -> Path:
    from huggingface_hub import snapshot_download

    advice = (
        "Give a folder that holds config.json and model.safetensors, minilm (all-MiniLM-L6-v2 as a package), or check "
        "the id, the revision, the token and the network"
    )
    if hub_id.startswith((".", "/")) or hub_id.count("/") > 1:
        raise InputError(f"the model {name!r} is no local folder, and no hub id. {advice}")
    logger.info("%s is no local folder; %s is taken from the hub, or from the hub's cache", name, hub_id)
    try:
        wanted = [*_FILES, _SUMS, CARD_NAME]
        found = snapshot_download(hub_id, revision=revision, token=token, cache_dir=cache_folder, allow_patterns=wanted)
    except Exception as error:  # the hub's client raises errors of many kinds
        raise InputError(
            f"the model {name!r} is no local folder, and the hub did not give {hub_id} ({reason_of(error)}). {advice}"
        ) from error
    return Path(found)


def _model_files(folder: Path) -> list[Path]:
    return sorted(path for pattern in _FILES for path in folder.rglob(pattern))


def _is_loaded(weights: Path) -> bool:
    """Return whether the libraries would load these pickled weights, by their name and without safetensors beside."""
    stem = {"pytorch_model": "model", "adapter_model": "adapter_model"}.get(weights.stem.partition("-")[0])
    return stem is not None and not any(weights.parent.glob(f"{stem}.safetensors*"))


def _check_sums(name: str, folder: Path) -> None:
    """Raise an error if a model has a `SHA256SUMS` file and its files differ from it."""
    if not (folder / _SUMS).is_file():
        return
    for line in (folder / _SUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, path = line.partition("  ")
        if not (folder / path).is_file() or sha256_of(folder / path) != digest:
            raise InputError(
                f"{name} is damaged: {folder / path} is not what {_SUMS} in {folder} says. {_AGAIN}; "
                f"if you changed it yourself, delete {_SUMS}"
            )


def _check_whole(name: str, folder: Path) -> None:
    """Raise an error if files of a model are damaged or do not fit together; of weights, only headers are read."""
    pipes = (path for path in folder.rglob("*") if path.exists() and not (path.is_file() or path.is_dir()))
    for path in (*pipes, *(path for path in _model_files(folder) if not path.is_file())):
        raise InputError(f"{name} is damaged: {path} is no regular file. {_AGAIN}")
    for path in sorted(folder.rglob("*.safetensors")):
        with _refused(f"{name} is damaged: {path} is no safetensors file, or is cut short"), safe_open(path, "pt"):
            pass
    for path in sorted(path for pattern in _JSON for path in folder.rglob(pattern)):
        with _refused(f"{name} is damaged: {path} is not JSON that can be used"):
            _check_config(json.loads(path.read_text(encoding="utf-8")), is_config="config" in path.name)
    with _refused(f"{name} is damaged: {folder / 'modules.json'} is no list of modules"):
        is_transformer = _is_transformer(folder)
    if is_transformer:
        _check_tokenizer(name, folder)
        _check_weights(name, folder)
    if (folder / "modules.json").exists():
        library = CrossEncoder if is_cross(folder) else SentenceTransformer
        with _refused(f"{name} cannot be loaded from {folder}"), disable_logging(logging.WARNING):
            library(str(folder), device="meta", model_kwargs={"device_map": "meta"})


def _check_config(content: Any, *, is_config: bool) -> None:
    """Raise an error if a config is not an object, or asks for so many layers that making them would take hours."""
    if is_config and not isinstance(content, dict):
        raise ValueError(f"an object is expected, found {shorten(content)}")
    if is_config and not isinstance(content.get("architectures") or [], list):
        raise ValueError("architectures is no list")
    for key, value in content.items() if is_config else ():
        for parts, most in _MOST_PARTS.items():
            if isinstance(value, int) and value > most and parts.search(key):
                raise ValueError(f"{key} is {shorten(value)}, and at most {most:,} are made")
        if isinstance(value, dict):
            _check_config(value, is_config=True)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Turn any error of the libraries, which raise many kinds, into an InputError; of the system, into a RunError."""
    try:
        yield
    except Exception as error:
        if (explained := system_error(error)) is not None:
            raise explained from error
        remedy = "Install what it needs" if isinstance(error, ImportError) else _AGAIN
        raise InputError(f"{what} ({reason_of(error)}). {remedy}") from error


def _is_transformer(folder: Path) -> bool:
    """Return whether the folder itself is a transformer; sentence-transformers also has other kinds of modules."""
    path = folder / "modules.json"
    if not path.exists():
        return True
    modules = json.loads(path.read_text(encoding="utf-8"))
    return any(module["path"] == "" and module["type"].endswith(".Transformer") for module in modules)


def _check_tokenizer(name: str, folder: Path) -> None:
    """Raise an error if there is no tokenizer: transformers would make one of special tokens, which knows no word."""
    with _refused(f"{name} has no tokenizer that can be loaded from {folder}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if len(tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)) <= 1:  # T5's has an empty word
        raise InputError(
            f"{name} has no tokenizer in {folder}: without one every word would be unknown. Put its tokenizer.json and "
            "tokenizer_config.json there, as the tokenizer's save_pretrained does"
        )


def _check_weights(name: str, folder: Path) -> None:
    """Raise an error if the weights do not fit the config, or are missing: transformers would use random ones."""
    kind = AutoModelForSequenceClassification if is_classifier(folder) else AutoModel
    with (
        _refused(f"{name} is no model that transformers can make by itself from {folder}"),
        disable_logging(logging.WARNING),
    ):
        _, report = kind.from_pretrained(
            folder,
            device_map="meta",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            trust_remote_code=False,
            use_safetensors=True,
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
