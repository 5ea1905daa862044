"""Masked language models: encoders that still have the head they were pretrained with."""

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from transencoder.errors import InputError


def load_masked(folder: Path, *, seed: int = 0, new_head: bool = False) -> tuple[PreTrainedModel, Any]:
    """A masked language model in fp32 and its tokenizer.

    Args:
        folder: A plain pretrained model with its language-modelling head.
        seed: Decides parts that no output depends on, such as a pooler, and a new head.
        new_head: Give an encoder that has no language-modelling head a new one.

    Raises:
        InputError: The folder holds no masked language model, or its tokenizer has no mask token that the model knows.
    """
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model, report = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except ValueError as error:  # an architecture without masked language models
        raise _refusal(folder, str(error).splitlines()[0]) from error
    encoder = f"{model.base_model_prefix}."
    if missing := [name for name in report["missing_keys"] if name.startswith(encoder) or not new_head]:
        raise _refusal(folder, f"it lacks {', '.join(sorted(missing)[:3])}")
    if model.config.is_encoder_decoder:
        raise _refusal(folder, "it has a decoder")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.mask_token_id is None or tokenizer.mask_token_id >= model.config.vocab_size:
        raise _refusal(folder, "its tokenizer has no mask token that the model knows")
    return model, tokenizer


def language_model_head(folder: Path, student: SentenceTransformer) -> tuple[PreTrainedModel, Any]:
    """The head of a masked language model for a student that started from the same folder, and its tokenizer.

    Called with `inputs_embeds`, the student's token embeddings (batch, tokens, dim), it gives logits over the
    vocabulary. Where the two share the table of word embeddings, as in BERT, it is the student's.

    Args:
        folder: The student's start: a plain pretrained model with its language-modelling head.
        student: A bi-encoder made of it.

    Raises:
        InputError: `folder` is no masked language model.
    """
    model, tokenizer = load_masked(folder)
    setattr(model, model.base_model_prefix, _AsGiven())
    assert student.transformers_model is not None, "every model here has a transformer"
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = student.transformers_model.get_input_embeddings().weight  # type: ignore[no-untyped-call]
    return model, tokenizer


class _AsGiven(nn.Module):
    """In the place of an encoder: its output is what it is given."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _refusal(folder: Path, reason: str) -> InputError:
    return InputError(f"{folder} is no masked language model ({reason}). Give a plain pretrained model")
