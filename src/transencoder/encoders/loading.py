"""Load saved models as bi-encoders, cross-encoders and masked language models; check how many tokens they read."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights
from sentence_transformers.util import disable_logging
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel, set_seed
from transformers.modeling_outputs import BaseModelOutput

from transencoder import configs
from transencoder.encoders.files import has_pooler, is_classifier, is_cross
from transencoder.errors import InputError, plural, reason_of
from transencoder.models import OWN_PROMPTS, Prompts

_SCORE = "transencoder_score"
"""Entry in a transformer's config that says what a cross-encoder's score is: `logit`; absent: the sigmoid."""

_attention: ContextVar[str | None] = ContextVar("attention", default=None)


@contextmanager
def attention(implementation: str | None) -> Iterator[None]:
    """Load models within this context with an attention implementation of transformers; None: their own.

    Raises:
        InputError: On loading a model, if the model or this machine does not have the implementation.
    """
    token = _attention.set(implementation)
    try:
        yield
    finally:
        _attention.reset(token)


def load_bi(
    folder: Path,
    *,
    max_length: int | None = None,
    pooling: configs.Pooling | None = None,
    prompts: Prompts = OWN_PROMPTS,
    device: str | None = None,
) -> SentenceTransformer:
    """Load a bi-encoder from a sentence-transformers model, or from a plain pretrained one, to which pooling is added.

    Args:
        folder: The model.
        max_length: Tokens of a sentence; None: the model's own.
        pooling: Pooling to use; None: the model's own, mean for a plain one.
        prompts: Prompts to save with it, which `encode_query` and `encode_document` use.
        device: Device; None: the best one available.
    """
    with disable_logging(logging.WARNING), torch.random.fork_rng():
        torch.manual_seed(0)  # a plain model may get a random pooler: unused, but always the same one
        model = SentenceTransformer(str(folder), device=device)
    model.float()  # also if it was saved in half precision, in which AdamW loses small steps
    model.truncate_dim = None  # a student learns whole embeddings; whoever encodes may cut them again
    for module in model:
        if isinstance(module, WordWeights):
            module.requires_grad_(False)  # only their initial values are saved
    _set_pooling(model, pooling, folder)
    prompts.give_to(model)
    _set_length(model, max_length, folder)
    _set_attention_of(model)
    return model


def load_trained(
    folder: Path, device: str | None = None, *, max_length: int | None = None, pooling: configs.Pooling | None = None
) -> SentenceTransformer | CrossEncoder:
    """Load a saved model in its own form, in fp32; `max_length` and `pooling` replace its own settings."""
    if not is_cross(folder):
        return load_bi(folder, max_length=max_length, pooling=pooling, device=device)
    model: CrossEncoder = CrossEncoder(str(folder), device=device)
    model.float()
    _set_pooling(model, pooling, folder)
    _set_length(model, max_length, folder)
    _set_attention_of(model)
    return model


def load_cross(
    folder: Path,
    *,
    max_length: int | None = None,
    head: configs.Head = "pooler",
    seed: int = 0,
    device: str | None = None,
    class_names: Sequence[str] = (),
    new_head: bool = False,
) -> CrossEncoder:
    """Load any encoder as a cross-encoder; parts that the checkpoint lacks are initialised from `seed`.

    Args:
        folder: A plain pretrained model, a bi-encoder, or a cross-encoder.
        max_length: Tokens of a pair; None: the model's own.
        head: The model's own classification head (released code), or a new linear layer on [CLS] (paper, section 2.2).
            A cross-encoder keeps the head it was saved with.
        seed: Seed of the new parts.
        device: As in `load_bi`.
        class_names: Names of its outputs, saved with it; they need the model's own head. Empty: one output, a score.
        new_head: Whether to replace the head of a saved cross-encoder, whatever its outputs were.

    Returns:
        The model. Its score is a sigmoid, since it learns pseudo-labels, which are probabilities; classes are logits.

    Raises:
        InputError: The cross-encoder has another number of outputs, or `max_length` exceeds the model's positions.
    """
    model: CrossEncoder
    check_cross_start(folder, class_names, new_head=new_head)
    set_seed(seed)
    if head == "pooler" or is_cross(folder) or class_names:
        options = {"ignore_mismatched_sizes": new_head}
        with disable_logging(logging.WARNING):
            model = CrossEncoder(str(folder), num_labels=len(class_names) or 1, device=device, model_kwargs=options)
        if new_head:
            _renew_head(model, seed)
    else:
        model = _with_linear_head(folder, device)
    model.float()
    config = transformer_of(model).config
    model.activation_fn = nn.Identity() if class_names else nn.Sigmoid()
    if class_names:
        config.id2label = dict(enumerate(class_names))
        config.label2id = {name: number for number, name in enumerate(class_names)}
    vars(config).pop(_SCORE, None)  # a base model may have been trained to give logits
    _set_length(model, max_length, folder)
    _set_attention_of(model)
    return model


def check_cross_start(folder: Path, class_names: Sequence[str], *, new_head: bool = False) -> None:
    """Raise an error for what `load_cross` cannot load: a cross-encoder with another number of outputs."""
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


def _with_linear_head(folder: Path, device: str | None) -> CrossEncoder:
    """Load an encoder, and add a new linear layer on [CLS] (paper, section 2.2)."""
    transformer = Transformer(str(folder))
    width = transformer.get_embedding_dimension()
    linear = Dense(
        width, 1, activation_function=None, module_input_name="sentence_embedding", module_output_name="scores"
    )
    model: CrossEncoder = CrossEncoder(modules=[transformer, Pooling(width, pooling_mode="cls"), linear], device=device)
    return model


def _renew_head(model: CrossEncoder, seed: int) -> None:
    """Initialise all layers of the head with random weights from the seed."""
    transformer = transformer_of(model)
    torch.manual_seed(seed)
    for name, part in transformer.named_children():
        if name != transformer.base_model_prefix:
            for parameter in part.parameters():
                parameter._is_hf_initialized = False  # type: ignore[attr-defined]  # transformers skips loaded weights
            part.apply(transformer._init_weights)


def load_masked(folder: Path, *, seed: int = 0, new_head: bool = False) -> tuple[PreTrainedModel, Any]:
    """Load a masked language model in fp32 and its tokenizer.

    Args:
        folder: A plain pretrained model with its language-modelling head.
        seed: Seed of a new head, and of parts that no output depends on, such as a pooler.
        new_head: Whether to give an encoder without a language-modelling head a new one.

    Raises:
        InputError: The folder holds no masked language model, or its tokenizer has no mask token that the model knows.
    """
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model, report = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except ValueError as error:  # an architecture without masked language models
        raise _refusal(folder, reason_of(error)) from error
    encoder = f"{model.base_model_prefix}."
    if missing := [name for name in report["missing_keys"] if name.startswith(encoder) or not new_head]:
        raise _refusal(folder, f"it lacks {', '.join(sorted(missing)[:3])}")
    if model.config.is_encoder_decoder:
        raise _refusal(folder, "it has a decoder")
    _set_attention(model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.mask_token_id is None or tokenizer.mask_token_id >= model.config.vocab_size:
        raise _refusal(folder, "its tokenizer has no mask token that the model knows")
    return model, tokenizer


def language_model_head(folder: Path, student: SentenceTransformer) -> tuple[PreTrainedModel, Any]:
    """Load the head of a masked language model for a student that started from the same folder, and its tokenizer.

    Called with `inputs_embeds`, the student's token embeddings (batch, tokens, dim), the head returns logits over the
    vocabulary. If its weights are tied to the word embeddings, as in BERT, it uses the student's word embeddings.
    """
    model, tokenizer = load_masked(folder)
    setattr(model, model.base_model_prefix, _AsGiven())
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = transformer_of(student).get_input_embeddings().weight  # type: ignore[no-untyped-call]
    return model, tokenizer


class _AsGiven(nn.Module):
    """Module that replaces an encoder, and returns its input unchanged."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _refusal(folder: Path, reason: str) -> InputError:
    return InputError(f"{folder} is no masked language model ({reason}). Give a plain pretrained model")


def as_logits(model: CrossEncoder) -> None:
    """Make a cross-encoder's score its raw output: here, in plain `predict`, and after it is saved and loaded."""
    model.activation_fn = nn.Identity()
    setattr(transformer_of(model).config, _SCORE, "logit")


def gives_logits(model: CrossEncoder) -> bool:
    """Return whether a cross-encoder's score is its raw output; that of a model made elsewhere is the sigmoid."""
    return getattr(transformer_of(model).config, _SCORE, None) == "logit"


def transplant(source: nn.Module, target: nn.Module) -> None:
    """Copy the encoder's weights of `source` into `target`; heads, and a pooler that only one has, are left out.

    Each is a sentence-transformers model or a plain one. This is the paper's sequential initialisation (section 5.2,
    Table 13).

    Raises:
        InputError: The two encoders differ in a weight's name or shape; `target` is then unchanged.
    """
    weights, own = backbone(source).state_dict(), backbone(target).state_dict()
    shapes, own_shapes = ({name: tuple(value.shape) for name, value in part.items()} for part in (weights, own))
    for name in shapes | own_shapes:
        found, wanted = shapes.get(name), own_shapes.get(name)
        if found != wanted and not ("pooler" in name and None in (found, wanted)):
            raise InputError(
                f"sequential initialisation needs starts of one architecture; {name} is {found or 'missing'} in one "
                f"and {wanted or 'missing'} in the other. Use initialisation refreshing, or give the same model as "
                "start and cross_start"
            )
    backbone(target).load_state_dict(weights, strict=False)


def backbone(model: nn.Module) -> nn.Module:
    """Return the encoder of a sentence-transformers model or a plain one, without head and pooling."""
    if isinstance(model, SentenceTransformer | CrossEncoder):
        model = transformer_of(model)
    assert isinstance(model, PreTrainedModel)
    return model.base_model


def transformer_of(model: SentenceTransformer | CrossEncoder) -> PreTrainedModel:
    """Return the transformer in a sentence-transformers model."""
    transformer = model.transformers_model
    assert isinstance(transformer, PreTrainedModel), "every model here has a transformer"
    return transformer


def check_pooler(folder: Path, typed: str) -> None:
    """Raise an error for a model without a trained pooler: a linear layer on [CLS], then tanh, as in BERT."""
    if not has_pooler(folder):
        raise InputError(
            f"{typed} has no weights of a pooler, as BERT has; pooling pooler and on_pooler need them: leave them out"
        )


def check_is_fast(tokenizer: Any, folder: Path) -> None:
    """Raise an error for a tokenizer that does not return where its tokens stand in a text."""
    if not tokenizer.is_fast:
        raise InputError(
            f"the tokenizer of {folder} does not say where its tokens stand in a text. Give a model with a "
            "tokenizer.json"
        )


def check_length(folder: Path, length: int | None, setting: str, typed: str) -> None:
    """Raise an error, before training, if a length exceeds a model's positions; None is the model's own length.

    The message names the setting with the length, and the model as the user typed it.
    """
    if length is not None and length > (limit := n_positions(folder, typed)):
        raise InputError(f"{setting} is {length}, but {typed} reads at most {limit} tokens; give at most that")


def n_positions(folder: Path, typed: str) -> float:
    """Return the number of positions of a saved model, which the user named `typed`, without loading its weights."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        raise InputError(f"{typed} is no model that transformers can make by itself ({error}); give another") from error
    with torch.device("meta"):
        model: nn.Module = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    return _n_positions(model)


def _n_positions(model: nn.Module) -> float:
    """Return the number of a model's positions; infinity if they are relative or there is no transformer."""
    tables = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    table = next((table for table in tables if isinstance(table, nn.Embedding)), None)
    if table is None:
        return math.inf
    # RoBERTa's positions begin after the padding index.
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def _set_pooling(model: SentenceTransformer | CrossEncoder, pooling: configs.Pooling | None, folder: Path) -> None:
    if pooling is None:
        return
    modules = list(model) if isinstance(model, SentenceTransformer) else []
    own = next((i for i, module in enumerate(modules) if isinstance(module, Pooling)), None)
    if own is None:
        raise InputError(f"pooling is {pooling}, but {folder} has no pooling layer; leave pooling out")
    if pooling != "mean" and any(isinstance(module, WordWeights) for module in modules):
        raise InputError(f"pooling is {pooling}, but {folder} weights its tokens, which only a mean takes; give mean")
    width: Any = model[own].embedding_dimension
    model[own] = Pooling(width, pooling_mode="cls" if pooling == "pooler" else pooling)
    if pooling == "pooler":
        check_pooler(folder, str(folder))
        if isinstance(model[own + 1] if own + 1 < len(model) else None, Dense):
            raise InputError(f"pooling is pooler, and {folder} has a dense layer behind its pooling; leave pooling out")
        layer = Dense(width, width, activation_function=nn.Tanh()).to(model.device)
        layer.linear.load_state_dict(transformer_of(model).pooler.dense.state_dict())  # type: ignore[union-attr]
        model.insert(own + 1, layer)


def _set_attention_of(model: SentenceTransformer | CrossEncoder) -> None:
    _set_attention(transformer_of(model))
    if isinstance(first := model[0], Transformer):
        first.unpad_inputs = first.unpad_inputs  # set again: whether it needs padding depends on the attention


def _set_attention(model: PreTrainedModel) -> None:
    name = _attention.get()
    if name is None:
        return
    try:
        model.set_attn_implementation(name)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"attn_implementation is {name!r}, which cannot be used here ({reason_of(error)}). Give sdpa or eager, "
            "flash_attention_2 where its package and a GPU for it are, or leave it out"
        ) from error


def _set_length(model: SentenceTransformer | CrossEncoder, max_length: int | None, folder: Path) -> None:
    if max_length is None:
        return
    if max_length > (limit := _n_positions(model)):
        raise InputError(f"max_length is {max_length}, but {folder} reads at most {limit} tokens; give at most that")
    model.max_seq_length = max_length
