"""Texts that a model reads before each text, as sentence-transformers keeps them under names."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transencoder.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.getLogger(__name__)

QUERY_PROMPTS = ("query",)
"""What `SentenceTransformer.encode_query` looks for."""

DOCUMENT_PROMPTS = ("document", "passage", "corpus")
"""What `SentenceTransformer.encode_document` looks for."""


@dataclass(frozen=True)
class Prompts:
    """What a bi-encoder reads before the two texts of a pair."""

    query: str | None = None
    """Before the first; None: the model's default prompt, if it has one."""
    document: str | None = None
    """Before the second; None: the same."""

    @property
    def outcome(self) -> dict[str, Any]:
        """What decides how texts are read, for a stage's key: a field that came later, so older stages keep theirs."""
        return {} if self == OWN_PROMPTS else {"prompts": asdict(self)}

    def sides(self, model: "SentenceTransformer") -> tuple[str | None, str | None]:
        """The prompts of the first and of the second text for a model; None where it reads them as they are."""
        query = default_prompt(model) if self.query is None else self.query
        return query, query if self.document is None else self.document

    def give_to(self, model: "SentenceTransformer") -> None:
        """Make them what `encode_query` and `encode_document` use; the default prompt is one for both, or its own."""
        if self == OWN_PROMPTS:
            return
        query, document = self.sides(model)
        model.prompts |= {"query": query or "", "document": document or ""}
        model.default_prompt_name = "query" if query == document or self.query is None else None


OWN_PROMPTS = Prompts()
"""The model's default prompt before both."""


def default_prompt(model: "SentenceTransformer | CrossEncoder") -> str | None:
    """The prompt the model puts before texts when none is named."""
    return model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None


def named_prompt(model: "SentenceTransformer | CrossEncoder", name: str) -> str:
    """One of the prompts that the model was saved with.

    Raises:
        InputError: It has none of that name.
    """
    if name not in model.prompts:
        raise InputError(
            f"the model has no prompt {name!r}; it has {', '.join(model.prompts) or 'none'}. Give one of these, or "
            "the text itself as prompt"
        )
    return str(model.prompts[name])


def warn_of_unused_prompts(folder: Path, name: str, prompts: Prompts) -> None:
    """Say that a model has prompts for queries and documents that none of its texts will have.

    Args:
        folder: The model.
        name: The model as the user named it.
        prompts: What its texts will have.
    """
    path = folder / "config_sentence_transformers.json"
    saved = json.loads(path.read_text()) if path.exists() else {}
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
