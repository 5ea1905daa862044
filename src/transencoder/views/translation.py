"""Back-translation: texts translated into another language and back, by models or read from a file."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder.configs.ranges import Config, Contradictions, at_least
from transencoder.errors import InputError, reason_of, shorten
from transencoder.pairs import fingerprint, read_pairs, row_hashes, text_hashes
from transencoder.views.texts import Randoms, name_of

logger = logging.getLogger(__name__)

_REFUSAL = "{folder} is no translation model ({reason}). Give a sequence-to-sequence one, such as Marian's"

Translate = Callable[[list[str]], list[str]]


@dataclass(frozen=True, kw_only=True)
class BackTranslation(Config):
    """View that translates texts into another language and back (SCT's default: two such views, two languages)."""

    steps: tuple[Translate, ...]
    """Callables applied one after the other: translation there and back, or one callable that does both."""

    def contradictions(self) -> Contradictions:
        """Yield an error if there are no steps."""
        if not self.steps:
            yield "steps is empty; give a callable that translates and back, or two"

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Return the texts after the last step; the generators are not used."""
        for step in self.steps:
            texts = step(texts)
        return texts

    def __repr__(self) -> str:
        """Return a text that names the steps."""
        return f"BackTranslation({', '.join(map(name_of, self.steps))})"


@dataclass(frozen=True, kw_only=True)
class Translator(Config):
    """A sequence-to-sequence model that translates, such as Marian's; it can be a step of `BackTranslation`.

    A translation is one line of text. If the model generates nothing, the text stays unchanged. The texts of a call are
    translated together, in batches of similar length.
    """

    folder: Path
    """Model with its tokenizer; loaded when first needed."""
    n_beams: int = at_least(1, 1)
    """Number of beams in beam search; 1: greedy search, which is the fastest."""
    max_length: int = at_least(1, 256)
    """Largest number of tokens of a text and of its translation; the rest is cut off, with a warning."""
    batch_size: int = at_least(1, 32)
    """Number of texts that are translated at once."""
    device: str | None = None
    """Device of the model, such as `cpu` or `cuda:0`; None: the best available."""

    def __call__(self, texts: list[str]) -> list[str]:
        """Translate texts and return the translations in the same order."""
        made = list(texts)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, translation in zip(rows, self._translate([texts[row] for row in rows]), strict=True):
                made[row] = " ".join(translation.split()) or texts[row]
        return made

    def __repr__(self) -> str:
        """Return a text with a hash of the model and the settings."""
        from transencoder.encoders import weights_fingerprint

        return f"Translator({weights_fingerprint(self.folder)[:16]}, {self.n_beams}, {self.max_length})"

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        return _load(self.folder, self.device)

    def _translate(self, texts: list[str]) -> list[str]:
        import torch

        model, tokenizer = self._loaded
        length = min(self.max_length, tokenizer.model_max_length)
        features = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
        features = {name: features[name].to(model.device) for name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            written = model.generate(
                **features, num_beams=self.n_beams, do_sample=False, max_length=None, max_new_tokens=self.max_length
            )
        n_read = int((features["attention_mask"].sum(1) >= length).sum())
        n_written = int((written != tokenizer.eos_token_id).all(1).sum())
        if n_read or n_written:
            logger.warning(
                "%s: %d texts reach %d tokens and %d translations %d; what comes after is lost",
                *(self.folder, n_read, length, n_written, self.max_length),
            )
        translations: list[str] = tokenizer.batch_decode(written, skip_special_tokens=True)
        return translations


def _load(folder: Path, device: str | None) -> tuple[Any, Any]:
    """Load a translation model in fp32 and its tokenizer.

    Raises:
        InputError: The folder holds no translation model, or the tokenizer needs a package that is not installed.
    """
    import torch
    from sentence_transformers.util import get_device_name
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from transencoder.devices import checked_device

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, use_safetensors=True
        )
    except ImportError as error:  # Marian's tokenizer needs sentencepiece
        raise InputError(
            f"the tokenizer of {folder} cannot be loaded ({str(error).strip().partition('.')[0]}). Install what "
            "it needs: pip install sentencepiece"
        ) from error
    except ValueError as error:  # an architecture that does not translate
        raise InputError(_REFUSAL.format(folder=folder, reason=reason_of(error))) from error
    if missing := report["missing_keys"]:
        raise InputError(_REFUSAL.format(folder=folder, reason=f"it lacks {', '.join(sorted(missing)[:3])}"))
    return model.to(checked_device(device or get_device_name())), tokenizer


class GivenTranslations:
    """View that looks up back-translations from a file; if a text has several, one is drawn.

    The rows stay on disk; memory grows by 16 bytes per row.

    Args:
        pairs: Data set with texts in `sentence1` and their back-translations in `sentence2`.
        name: Name of the file, for messages.
    """

    def __init__(self, pairs: Dataset, name: str) -> None:
        hashes = row_hashes(pairs, ("sentence1",))
        self._rows = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._rows]
        self._pairs = pairs
        self._name = name

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """Look up a back-translation of each text.

        Raises:
            InputError: The file has no back-translation of a text.
        """
        hashes = text_hashes(texts)
        first = np.searchsorted(self._hashes, hashes, "left").tolist()
        after = np.searchsorted(self._hashes, hashes, "right").tolist()
        for text, start, stop in zip(texts, first, after, strict=True):
            if start == stop:
                raise InputError(
                    f"{self._name} has no back-translation of {shorten(text)}. It must have one of every text: "
                    "a row with the text as it stands, and its back-translation"
                )
        chosen = [random.randrange(*span) for random, *span in zip(randoms, first, after, strict=True)]
        made: list[str] = self._pairs[self._rows[chosen].tolist()]["sentence2"]
        return made

    def __repr__(self) -> str:
        """Return a text with a hash of the file's content."""
        return f"GivenTranslations({fingerprint(self._pairs)})"


def read_translations(
    path: str | os.PathLike[str], *, cache_folder: str | os.PathLike[str] | None = None
) -> GivenTranslations:
    """Read back-translations: two columns, the text and its back-translation.

    Args:
        path: A TSV, CSV, JSONL or Parquet file, as `read_pairs` takes it.
        cache_folder: Folder for Arrow files, as in `read_pairs`.

    Raises:
        InputError: The file or a row cannot be used; the message gives `path:line`, what was read, what is allowed and
            what to do.
    """
    return GivenTranslations(read_pairs(path, cache_folder=cache_folder), os.fspath(path))
