"""Fetch models, and build the parts that a method declares: rows from text, helper models, the loss, class names."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoTokenizer

from transencoder import views
from transencoder.configs import Form
from transencoder.configs.encoder import EncoderConfig
from transencoder.configs.run import Given, Helper, RandomNegatives, RunConfig, SecondView, SpanRows
from transencoder.encoders import add_projection, fetch, language_model_head, load_bi, load_masked
from transencoder.errors import InputError
from transencoder.fit import has_dropout


def fetched(config: RunConfig, name: str, form: Form | None = None, revision: str | None = None) -> Path:
    """Return the local folder of a model, downloaded with the config's token and cache folder; see `encoders.fetch`."""
    return fetch(name, form=form, revision=revision, token=config.token, cache_folder=config.cache_dir)


def pair_maker(config: EncoderConfig, folder: Path) -> views.PairMaker | None:
    """Return the function that makes a method's rows from its texts; None: each text is a row.

    Raises:
        InputError: A model or a file that the views need cannot be loaded.
    """
    made = config.rows.made
    if isinstance(made, SecondView):
        return views.TwoViews(first=views.as_is, second=_second_view(config, made, folder))
    if isinstance(made, RandomNegatives):
        return views.Contrasts(n_negatives=made.n_negatives)
    if isinstance(made, SpanRows):
        spans = views.Spans(**asdict(made), folder=folder)
        _ = spans.tokenizer  # raises an error for a slow one before the text is read
        return spans
    return None


def _second_view(config: EncoderConfig, view: SecondView, folder: Path) -> views.View:
    if view.kind == "span-mask":
        token = view.mask_token or AutoTokenizer.from_pretrained(folder).mask_token
        if token is None:
            raise InputError(f"the tokenizer of {config.start} has no mask token; {view.otherwise}")
        return views.SpanMask(mask_token=token, n_characters=view.n_characters)
    if view.kind == "synonyms":
        assert view.synonyms is not None, "checked when the config was made"
        return views.Synonyms(table=views.read_synonyms(view.synonyms))
    if view.kind == "mlm":
        folder = fetched(config, view.model) if view.model else fetched(config, config.start, revision=config.revision)
        return views.MaskedWords(folder=folder, device=config.device)
    return views.WordDeletion() if view.kind == "word-deletion" else views.as_is


def make_loss(config: EncoderConfig, student: SentenceTransformer, given: Given) -> nn.Module:
    """Build a method's loss, with the helper models that it needs.

    Raises:
        InputError: Only dropout makes the two views differ, but the student has no dropout.
    """
    helpers = {helper.field: _loaded(config, helper, student) for helper in config.helpers}
    if config.rows.need_dropout and not has_dropout(student):
        raise InputError(
            f"{config.start} has no dropout, and then both views of a sentence are the same: give fit.dropout 0.1"
        )
    return config.loss(student, replace(given, helpers=helpers))


def fetch_helper(config: EncoderConfig, helper: Helper) -> Path:
    """Return the local folder of a helper model."""
    revision = config.revision if helper.form == "head" else None
    return fetched(config, getattr(config, helper.field), "bi", revision)


def _loaded(config: EncoderConfig, helper: Helper, student: SentenceTransformer) -> Any:
    folder = fetch_helper(config, helper)
    if helper.form == "head":
        return language_model_head(folder, student)
    if helper.form == "masked":
        return load_masked(folder)
    return load_bi(folder, max_length=config.fit.max_length, pooling=helper.pooling, device=str(student.device))


def projected(config: EncoderConfig, student: SentenceTransformer, dimension: int) -> SentenceTransformer:
    """Return the student, with a projection that stays part of it after training if the method asks for one."""
    teacher, width = config.distillation, student.get_embedding_dimension() or 0
    if teacher is None or not teacher.has("kept", width, dimension):
        return student
    return add_projection(student, dimension, tanh=teacher.has_tanh)


def check_helpers(config: EncoderConfig, folder: Path) -> None:
    """Raise an error for helper models that do not fit the base model.

    Raises:
        InputError: A helper has another vocabulary, or the base model lacks the head that the loss needs.
    """
    for helper in config.helpers:
        if helper.form == "head":
            try:
                load_masked(folder)
            except InputError as error:
                raise InputError(f"{error} as start, or {helper.otherwise}") from error
        elif _vocabulary(fetch_helper(config, helper)) != _vocabulary(folder):
            raise InputError(
                f"{helper.field} {getattr(config, helper.field)} has another vocabulary than the base model "
                f"{config.start}; give one that was made from the same pretrained model"
            )


def _vocabulary(folder: Path) -> dict[str, int]:
    vocabulary: dict[str, int] = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).get_vocab()
    return vocabulary
