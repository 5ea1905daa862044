"""Small models: fewer layers, the word pieces of one corpus, another width, or random weights; encoding speeds."""

import itertools
import json
import logging
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordPiece
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from transencoder import progress
from transencoder.configs.encoder import width_of
from transencoder.encoders.files import weights_tokens
from transencoder.encoders.loading import backbone, load_trained, transformer_of
from transencoder.encoders.saving import save
from transencoder.errors import InputError
from transencoder.files import remove_abandoned, whole_folder
from transencoder.runs.files import output_explained

logger = logging.getLogger(__name__)

_UNKNOWN = "[UNK]"
_SPECIAL = ["[PAD]", _UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
"""Special tokens with BERT's names, in BERT's order."""

_HEAD_WIDTH = 64
"""Width of each attention head, as in BERT."""

_TABLE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_OTHER_TABLES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model", "unigram.json")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""Pattern of a piece for one byte of a character that has no piece of its own."""
_CHUNK = 1024


def truncate(folder: Path, layers: Sequence[int], output: Path) -> None:
    """Write a model with some of another's transformer layers, numbered from 0, in ascending order, to a new folder.

    Embeddings, pooling and heads stay as they are, and so does the form: a sentence-transformers model, or a plain one.
    """
    check_is_new(output)
    check_layers(folder, layers)
    model, plain = _load(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder) if model is plain else None
    types = getattr(plain.config, "layer_types", None)
    if types and len(kinds := sorted(set(types))) > 1:
        raise InputError(
            f"{folder} has layers of several kinds ({', '.join(kinds)}), which cannot be taken apart; "
            "give a model whose layers are all alike, such as BERT"
        )
    n_layers = plain.config.num_hidden_layers
    lists = (module for module in backbone(plain).modules() if isinstance(module, nn.ModuleList))
    modules = next((each for each in lists if len(each) == n_layers), None)
    if modules is None:
        raise InputError(f"{folder} has no list of {n_layers} layers to choose from (they may share their weights)")
    for i in reversed(range(len(modules))):
        if i not in layers:
            del modules[i]
    plain.config.num_hidden_layers = len(modules)
    if types:
        plain.config.layer_types = types[: len(modules)]
    with output_explained(output), whole_folder(output) as made:
        _save(model, tokenizer, made)


def check_is_new(output: Path) -> None:
    """Raise an error if a folder exists, after removing what killed processes left beside it."""
    remove_abandoned(output.absolute().parent)
    if output.exists():
        raise InputError(f"{output} is there already; give a new folder, or remove it")


def check_layers(folder: Path, layers: Sequence[int]) -> None:
    """Raise an error for layers that a model lacks, or that are not in ascending order, without loading it."""
    n_layers = AutoConfig.from_pretrained(folder).num_hidden_layers
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= n_layers:
        raise InputError(
            f"layers are {', '.join(map(str, layers)) or 'none'}; {folder} has layers 0 to {n_layers - 1}: give "
            "some of them, each once, in rising order"
        )


def _load(folder: Path) -> tuple[SentenceTransformer | CrossEncoder | PreTrainedModel, PreTrainedModel]:
    """Load a model in the form that it was saved in, and return it and its transformer."""
    if (folder / "modules.json").exists() or (folder / "config_sentence_transformers.json").exists():
        model = load_trained(folder, "cpu")
        return model, transformer_of(model)
    config = AutoConfig.from_pretrained(folder)
    architecture = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
    plain: PreTrainedModel = architecture.from_pretrained(folder, dtype="float32")
    return plain, plain


def _save(model: SentenceTransformer | CrossEncoder | PreTrainedModel, tokenizer: Any, folder: Path) -> None:
    """Save a model in the form that it was loaded in; `tokenizer` is used for a plain model only."""
    if isinstance(model, PreTrainedModel):
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    else:
        save(model, folder)


def check_prunable(folder: Path) -> None:
    """Raise an error if the vocabulary cannot be cut: byte-pair encoding needs intermediate pieces that no text has."""
    if weights_tokens(folder):
        raise InputError(
            f"{folder} weights its tokens, which prune_vocabulary would leave at other places; leave it out, or weight "
            "the tokens of the smaller model afterwards"
        )
    kind = _table(AutoTokenizer.from_pretrained(folder))["model"].get("type")
    if kind not in ("WordPiece", "Unigram"):
        raise InputError(
            f"the tokenizer of {folder} is {kind}; prune_vocabulary cuts WordPiece (BERT) and Unigram (XLM-R) "
            "vocabularies: leave it out"
        )


def prune_vocabulary(folder: Path, texts: Iterable[list[str]], n_texts: int, output: Path) -> None:
    """Write a model that has only the word pieces of some texts, which it tokenises as before.

    It keeps the pieces that occur, special tokens, and single characters, so that other words are still read, in
    smaller pieces. The rest of the model stays as it is.

    Args:
        folder: A sentence-transformers model, or a plain one.
        texts: The corpus, in lists of any length.
        n_texts: Number of texts in all.
        output: The folder to write, which must not exist.
    """
    check_prunable(folder)
    model, plain = _load(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    if isinstance(model, SentenceTransformer):
        tokenizer = model.tokenizer
        texts = itertools.chain([[prompt for prompt in model.prompts.values() if prompt]], texts)
    table = _table(tokenizer)
    kept = _kept(table, texts, n_texts)
    _cut_embeddings(plain, kept)
    new_ids = {int(old): new for new, old in enumerate(kept)}
    with whole_folder(output) as made:
        _save(model, tokenizer, made)
        _rewrite_tokenizer(made, table, new_ids)


def _table(tokenizer: Any) -> dict[str, Any]:
    if not tokenizer.is_fast:
        return {"model": {"type": "slow"}}
    table: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return table


def _kept(table: dict[str, Any], texts: Iterable[list[str]], n_texts: int) -> np.ndarray:
    """Return the ids to keep, in ascending order."""
    vocabulary = table["model"]["vocab"]  # WordPiece maps pieces to ids, Unigram lists them with scores
    pieces = vocabulary if isinstance(vocabulary, dict) else {piece: i for i, (piece, _) in enumerate(vocabulary)}
    n_pieces = max([*pieces.values(), *(added["id"] for added in table["added_tokens"])]) + 1
    is_kept = np.zeros(n_pieces, bool)
    is_kept[[added["id"] for added in table["added_tokens"]]] = True
    for piece, i in pieces.items():
        is_kept[i] |= len(piece.removeprefix("##").removeprefix("▁")) <= 1 or _BYTE.fullmatch(piece) is not None
    unknown = table["model"].get("unk_id", pieces.get(table["model"].get("unk_token", "")))
    if unknown is not None:
        is_kept[unknown] = True
    reader = Tokenizer.from_str(json.dumps(table | {"truncation": None, "padding": None}))
    with progress.task("look for word pieces", n_texts) as advance:
        for chunk in texts:
            for start in range(0, len(chunk), _CHUNK):
                part = chunk[start : start + _CHUNK]
                for encoding in reader.encode_batch(part, add_special_tokens=False):
                    is_kept[encoding.ids] = True
                advance(len(part))
    return np.flatnonzero(is_kept)


def _cut_embeddings(model: PreTrainedModel, kept: np.ndarray) -> None:
    """Keep some rows of the word embeddings and, if the model has a language-modelling head, of the head."""
    rows = torch.from_numpy(kept)
    old = model.get_input_embeddings()
    assert isinstance(old, nn.Embedding), "every model here has a table of word embeddings"
    new_ids = {int(i): new for new, i in enumerate(kept)}
    padding = None if old.padding_idx is None else new_ids.get(old.padding_idx)
    new = nn.Embedding(len(rows), old.embedding_dim, padding_idx=padding)
    new.weight.data = old.weight.data[rows].clone()
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is not None:
        _cut_head(model, head, rows)
    model.set_input_embeddings(new)
    model.config.vocab_size = len(rows)
    model.tie_weights()
    for name, value in model.config.to_dict().items():
        if name.endswith("_token_id") and isinstance(value, int) and value in new_ids:
            setattr(model.config, name, new_ids[value])


def _cut_head(model: PreTrainedModel, head: Any, rows: torch.Tensor) -> None:
    """Keep the weights and biases of some pieces; the head's parent may also hold the bias."""
    old_bias = head.bias
    head.weight = nn.Parameter(head.weight.data[rows].clone())
    head.out_features = len(rows)
    if old_bias is None:
        return
    head.bias = nn.Parameter(old_bias.data[rows].clone())
    for module in model.modules():
        if getattr(module, "bias", None) is old_bias:
            module.bias = head.bias


def _rewrite_tokenizer(folder: Path, table: dict[str, Any], new_ids: dict[int, int]) -> None:
    vocabulary = table["model"]["vocab"]
    if isinstance(vocabulary, dict):
        table["model"]["vocab"] = {piece: new_ids[i] for piece, i in vocabulary.items() if i in new_ids}
    else:
        table["model"]["vocab"] = [entry for i, entry in enumerate(vocabulary) if i in new_ids]
        if table["model"].get("unk_id") is not None:
            table["model"]["unk_id"] = new_ids[table["model"]["unk_id"]]
    for added in table["added_tokens"]:
        added["id"] = new_ids[added["id"]]
    table["padding"] = table["truncation"] = None
    if table.get("post_processor"):
        table["post_processor"] = _renumbered(table["post_processor"], new_ids)
    (folder / _TABLE).write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
    for name in _OTHER_TABLES:
        (folder / name).unlink(missing_ok=True)
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    if decoder := config.get("added_tokens_decoder"):
        config["added_tokens_decoder"] = {str(new_ids[int(i)]): token for i, token in decoder.items()}
        (folder / _CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")


def _renumbered(processor: Any, new_ids: dict[int, int]) -> Any:
    """Renumber the special tokens of a post-processor, which holds them as `["[SEP]", 102]` or `{"ids": [102]}`."""
    if isinstance(processor, dict):
        return {
            name: [new_ids[i] for i in value] if name == "ids" else _renumbered(value, new_ids)
            for name, value in processor.items()
        }
    if isinstance(processor, list):
        if len(processor) == 2 and isinstance(processor[0], str) and isinstance(processor[1], int):
            return [processor[0], new_ids[processor[1]]]
        return [_renumbered(each, new_ids) for each in processor]
    return processor


def add_projection(model: SentenceTransformer, dimension: int, *, tanh: bool = False) -> SentenceTransformer:
    """Add a new linear layer, with or without tanh, to a bi-encoder, and return the bi-encoder.

    The layer comes before the one that normalises embeddings to unit vectors, if there is one.
    """
    activation = nn.Tanh() if tanh else nn.Identity()
    layer = Dense(width_of(model), dimension, activation_function=activation).to(model.device)
    model.insert(len(model) - isinstance(model[-1], Normalize), layer)
    return model


def fresh_tokenizer(
    texts: Callable[[], Iterable[list[str]]], n_vocabulary: int
) -> transformers.PreTrainedTokenizerBase:
    """Train a lower-casing WordPiece tokenizer, like BERT's, on texts; the same texts give the same tokenizer.

    Each call of `texts` gives all chunks of texts anew. The vocabulary, special tokens included, is smaller than
    `n_vocabulary` if the texts have fewer word pieces.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True)
    found = {character for chunk in texts() for text in chunk for character in normalizer.normalize_str(text)}
    characters = sorted(character for character in found if not character.isspace())
    fixed = [*_SPECIAL, *characters, *(f"##{character}" for character in characters)]
    if len(fixed) >= n_vocabulary:
        raise InputError(
            f"vocabulary is {n_vocabulary}, but the text has {len(characters)} different characters, which take "
            f"{len(fixed)}; give at least twice that"
        )
    tokenizer = Tokenizer(WordPiece(unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    # Characters are numbered beforehand: the trainer numbers them in a hash table's order, and breaks ties by number.
    trainer = trainers.WordPieceTrainer(
        vocab_size=n_vocabulary, min_frequency=2, special_tokens=fixed, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    n_found = tokenizer.get_vocab_size()
    if n_found < n_vocabulary:
        logger.info("the text has %d word pieces that occur twice, fewer than the %d asked for", n_found, n_vocabulary)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return transformers.BertTokenizer(vocab=dict(vocabulary), do_lower_case=True)


def fresh_masked(
    n_vocabulary: int, *, n_layers: int, width: int, max_length: int, seed: int
) -> transformers.BertForMaskedLM:
    """Build a BERT with random weights and its language-modelling head; `width` must be a multiple of 64."""
    config = transformers.BertConfig(
        vocab_size=n_vocabulary,
        hidden_size=width,
        num_hidden_layers=n_layers,
        num_attention_heads=width // _HEAD_WIDTH,
        intermediate_size=4 * width,
        max_position_embeddings=max_length,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.BertForMaskedLM(config)


def encoding_speeds(models: Mapping[str, Any], sentences: Sequence[str], repeats: int = 3) -> dict[str, float]:
    """Measure the sentences per second of each model's own `encode`, in turns, so that a busy machine slows them all.

    The sentences are encoded `repeats` + 1 times; the first time is ignored, and the median of the others is used.
    """
    texts = list(sentences)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for i in range(repeats + 1):
        for name, model in models.items():
            started = time.perf_counter()
            model.encode(texts)
            if i:
                seconds[name].append(time.perf_counter() - started)
    return {name: len(texts) / statistics.median(each) for name, each in seconds.items()}
