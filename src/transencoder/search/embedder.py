"""A bi-encoder that embeds queries and documents for search."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import truncate_embeddings

from transencoder import progress
from transencoder.configs import Pooling, Precision
from transencoder.cutting import cut
from transencoder.devices import autocast, checked_device
from transencoder.encoders import fetch, is_cross, load_trained, weights_fingerprint
from transencoder.errors import InputError
from transencoder.models import DOCUMENT_PROMPTS, QUERY_PROMPTS, chosen_prompt, default_prompt
from transencoder.scorers import BiScorer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A bi-encoder and how it reads queries and documents."""

    name: str
    """Name that `load_embedder` takes: a hub id, `minilm`, or the full path of a folder."""
    fingerprint: str
    """Fingerprint of its weights, configs and tokenizer."""
    model: SentenceTransformer
    query_prompt: str
    """Text put before every query."""
    document_prompt: str
    """Text put before every document."""
    dimensions: int
    """Number of leading dimensions of an embedding that are kept."""
    pooling: Pooling | None = None
    """Pooling method; None: the model's own."""
    precision: Precision = "auto"
    """Precision of the computation; `auto`: bf16 autocast where the hardware supports it."""

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed a few queries and return unit embeddings, float32 (n, dimensions)."""
        with autocast(self.model.device, self.precision):
            embeddings = self.model.encode(list(texts), prompt=self.query_prompt, show_progress_bar=False)
        return self._unit(np.asarray(embeddings, np.float32), texts)

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """Embed many documents and return unit embeddings, (n, dimensions).

        Each distinct text is embedded once, and batches hold texts of similar length.
        """
        scorer = BiScorer(self.model, precision=self.precision, prompt=self.document_prompt)
        (embeddings,) = scorer.embed_sides(Dataset.from_dict({"sentence1": list(texts)}))
        return self._unit(embeddings, texts)

    def share_cut(self, texts: Sequence[str]) -> float:
        """Return the share of texts, 0 to 1, that are longer than the model's maximum length."""
        limit = self.model.max_seq_length
        if limit is None:
            return 0.0
        given = cut([self.document_prompt + text for text in texts], self.model.tokenizer, limit + 1)
        tokens = self.model.tokenizer(given, truncation=False, verbose=False)["input_ids"]
        return float(np.mean([len(each) > limit for each in tokens]))

    def _unit(self, embeddings: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        if len(bad):
            raise InputError(
                f"{len(bad)} of {len(texts)} embeddings are not finite numbers, the first of {texts[int(bad[0])]!r}. "
                "The model is damaged or overflows; give another"
            )
        kept = truncate_embeddings(embeddings, self.dimensions)
        unit: np.ndarray = kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), np.float32(1e-12))
        return unit


@progress.shown()
def load_embedder(
    name: str,
    *,
    query_prompt: str | None = None,
    query_prompt_name: str | None = None,
    document_prompt: str | None = None,
    document_prompt_name: str | None = None,
    dimensions: int | None = None,
    max_length: int | None = None,
    pooling: Pooling | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    revision: str | None = None,
    token: str | None = None,
    cache_folder: str | None = None,
) -> Embedder:
    """Load a bi-encoder for search.

    Args:
        name: A folder, a run's folder, a hub id, or `minilm`.
        query_prompt: Text put before every query. Default: the prompt that `SentenceTransformer.encode_query` uses.
        query_prompt_name: Name of the query prompt among the model's saved prompts, instead of its text.
        document_prompt: Text put before every document. Default: the prompt that `SentenceTransformer.encode_document`
            uses.
        document_prompt_name: Name of the document prompt among the model's saved prompts, instead of its text.
        dimensions: Number of leading dimensions to keep of each embedding, for models trained with Matryoshka; None:
            all.
        max_length: Maximum number of tokens of a text; None: the model's own.
        pooling: Pooling method; None: the model's own, mean for a plain checkpoint.
        device: Device to compute on; None: the best one available.
        precision: Precision of the computation; `auto`: bf16 autocast where the hardware supports it.
        revision: Hub revision.
        token: Hub token.
        cache_folder: Folder for hub downloads; None: the default one.

    Raises:
        InputError: The model, prompt or device does not exist, or the model is a cross-encoder or has fewer dimensions.
    """
    checked = checked_device(device) if device else None
    folder = fetch(name, form="bi", revision=revision, token=token, cache_folder=cache_folder)
    if is_cross(folder):
        raise InputError(
            f"{name} is a cross-encoder, which gives no embeddings; give a bi-encoder, or use it to re-rank"
        )
    model = load_trained(folder, checked, max_length=max_length, pooling=pooling)
    assert isinstance(model, SentenceTransformer)
    if model.similarity_fn_name not in (None, "cosine"):
        logger.warning("%s compares by %s; here its embeddings are compared by cosine", name, model.similarity_fn_name)
    width = int(model.get_embedding_dimension() or 0)
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InputError(f"dimensions is {dimensions}, but the embeddings of {name} have {width}; give 1 to {width}")
    return Embedder(
        name=str(folder) if Path(name).is_dir() else f"{name}@{revision}" if revision else name,
        fingerprint=weights_fingerprint(folder),
        model=model,
        query_prompt=_prompt(model, query_prompt, query_prompt_name, QUERY_PROMPTS),
        document_prompt=_prompt(model, document_prompt, document_prompt_name, DOCUMENT_PROMPTS),
        dimensions=dimensions or width,
        pooling=pooling,
        precision=precision,
    )


def _prompt(model: SentenceTransformer, text: str | None, name: str | None, own: Sequence[str]) -> str:
    if (given := chosen_prompt(model, text, name)) is not None:
        return given
    found = next((each for each in own if each in model.prompts), None)
    return (default_prompt(model) or "") if found is None else str(model.prompts[found])
