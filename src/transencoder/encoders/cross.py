"""Any encoder as a cross-encoder."""

from collections.abc import Sequence
from pathlib import Path

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn
from transformers import AutoConfig, PreTrainedModel, set_seed

from transencoder.config import Head
from transencoder.encoders.lengths import set_length
from transencoder.encoders.quiet import without_load_reports
from transencoder.encoders.saved import is_classifier, is_cross
from transencoder.errors import InputError
from transencoder.wording import plural


def load_cross(
    folder: Path,
    *,
    max_length: int | None = None,
    head: Head = "pooler",
    seed: int = 0,
    device: str | None = None,
    class_names: Sequence[str] = (),
    new_head: bool = False,
) -> CrossEncoder:
    """A cross-encoder from any encoder; parts that the checkpoint lacks are new and come from `seed`.

    Args:
        folder: A plain pretrained model, a bi-encoder, or a cross-encoder.
        max_length: Tokens of a pair; None: the model's own.
        head: The model's own classification head (released code), or a new linear layer on [CLS] (paper, section 2.2).
            A cross-encoder keeps the head it was saved with.
        seed: Decides the new parts.
        device: Where it goes; None: the best there is.
        class_names: Of its outputs, saved with it, of the model's own head; none: it has one output, a score.
        new_head: Give a cross-encoder that was saved with a head another one, whatever its outputs were.

    Returns:
        The model. A score is a sigmoid, as the pseudo-labels that it learns are probabilities; classes are raw outputs.

    Raises:
        InputError: A cross-encoder with another number of outputs, or more tokens than the model has positions.
    """
    check_cross_start(folder, class_names, new_head=new_head)
    set_seed(seed)
    if head == "pooler" or is_cross(folder) or class_names:
        model = _with_own_head(folder, len(class_names) or 1, seed, device, new_head)
    else:
        model = _with_linear_head(folder, device)
    model.float()
    config = _transformer(model).config
    model.activation_fn = nn.Identity() if class_names else nn.Sigmoid()
    if class_names:
        config.id2label = dict(enumerate(class_names))
        config.label2id = {name: number for number, name in enumerate(class_names)}
    vars(config).pop(_SCORE, None)  # a start may have been trained to give logits
    set_length(model, max_length, folder)
    return model


def check_cross_start(folder: Path, class_names: Sequence[str], *, new_head: bool = False) -> None:
    """Refuse what `load_cross` would.

    Raises:
        InputError: A cross-encoder with another number of outputs.
    """
    if not is_classifier(folder):
        if is_cross(folder) and (class_names or new_head):
            raise InputError(
                f"{folder} is a cross-encoder with a linear head on [CLS] and one output, which learns no classes and "
                "is not renewed; give one with the model's own head, or a plain pretrained model"
            )
        return
    n_outputs = len(class_names) or 1
    if not new_head and (found := AutoConfig.from_pretrained(folder).num_labels) != n_outputs:
        raise InputError(
            f"{folder} is a cross-encoder with {plural(found, 'output')}; a start needs {n_outputs}. "
            f"Give a cross-encoder that was made with num_labels={n_outputs}, a plain pretrained model, or new_head "
            "where there is such a setting"
        )


def _with_own_head(folder: Path, n_outputs: int, seed: int, device: str | None, new_head: bool) -> CrossEncoder:
    """The head of the model's architecture, the saved one where there is one and no new one is asked for."""
    with without_load_reports():
        model: CrossEncoder = CrossEncoder(
            str(folder), num_labels=n_outputs, device=device, model_kwargs={"ignore_mismatched_sizes": new_head}
        )
        if new_head:
            _renew_head(model, seed)
    return model


def _with_linear_head(folder: Path, device: str | None) -> CrossEncoder:
    """A new linear layer on [CLS] (paper, section 2.2)."""
    transformer = Transformer(str(folder))
    width = transformer.get_embedding_dimension()
    linear = Dense(
        width, 1, activation_function=None, module_input_name="sentence_embedding", module_output_name="scores"
    )
    model: CrossEncoder = CrossEncoder(modules=[transformer, Pooling(width, pooling_mode="cls"), linear], device=device)
    return model


def _renew_head(model: CrossEncoder, seed: int) -> None:
    """Random weights in all layers of the head, the same for the same seed."""
    transformer = _transformer(model)
    torch.manual_seed(seed)
    for name, part in transformer.named_children():
        if name != transformer.base_model_prefix:
            for parameter in part.parameters():
                parameter._is_hf_initialized = False  # type: ignore[attr-defined]  # transformers leaves what it has loaded
            part.apply(transformer._init_weights)


_SCORE = "transencoder_score"
"""Entry of a transformer's config that says what the score of a cross-encoder is."""


def as_logits(model: CrossEncoder) -> None:
    """Make a cross-encoder's score its output itself, here, in plain `predict`, and when it is saved and loaded."""
    model.activation_fn = nn.Identity()
    setattr(_transformer(model).config, _SCORE, "logit")


def gives_logits(model: CrossEncoder) -> bool:
    """Whether a cross-encoder's score is its output itself; of one made elsewhere it is the sigmoid."""
    return getattr(_transformer(model).config, _SCORE, None) == "logit"


def _transformer(model: CrossEncoder) -> PreTrainedModel:
    transformer = model.transformers_model
    assert isinstance(transformer, PreTrainedModel), "every model here has a transformer"
    return transformer
