"""The process that memory.py runs and measures: reads, labels and batches generated pairs with a tiny random model.

Before each phase it prints the phase's name, then waits for one line of input, so that memory.py knows to which phase
its samples of this process's memory belong.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer, set_seed

from transencoder import BiScorer, CrossScorer, read_pairs
from transencoder.batching import BiCollator, CrossCollator, LengthBucketSampler, training_rows
from transencoder.labels import PseudoLabels, Teacher, label
from transencoder.tokens import SentenceTokens, TokenCache, Tokens

T = TypeVar("T")
CROSS_BATCH, BI_BATCH, WINDOW_BATCHES = 32, 128, 64


def main() -> None:
    """Run the stages of one cycle on `--pairs`, without the training steps."""
    options = _options()
    torch.set_num_threads(options.threads)
    bi, cross = _models(options.folder)
    cache = TokenCache(options.folder / "tokens")

    pairs = _phase("read", lambda: read_pairs(options.pairs, header=False, cache_folder=options.folder / "cache"))
    scorer = BiScorer(bi, cache=cache)
    sentences = _phase("tokenise sentences", lambda: cache.sentences(bi, pairs))
    labels = _phase("label with the bi-encoder", lambda: label([Teacher(name="bi", scorer=scorer)], pairs))
    _phase("write its labels", lambda: labels.write(options.folder / "labels.parquet", pairs))
    tables = _phase("tokenise pairs", lambda: [cache.pairs(cross, pairs, swapped) for swapped in (False, True)])
    _phase("one epoch of cross-encoder batches", lambda: _iterate_cross(tables, labels))
    del labels
    by_cross = Teacher(name="cross", scorer=CrossScorer(cross, cache=cache))
    labels = _phase("label with the cross-encoder", lambda: label([by_cross], pairs))
    _phase("one epoch of bi-encoder batches", lambda: _iterate_bi(sentences, labels))
    _phase("end", lambda: None)


def _phase(name: str, compute: Callable[[], T]) -> T:
    print(name, flush=True)
    sys.stdin.readline()
    return compute()


def _iterate_bi(sentences: SentenceTokens, labels: PseudoLabels) -> None:
    data = training_rows(len(sentences.index), labels.targets)
    collate = BiCollator([sentences])
    for rows in LengthBucketSampler(sentences.lengths, BI_BATCH, WINDOW_BATCHES, seed=0):
        collate(data.__getitems__(rows))


def _iterate_cross(tables: list[Tokens], labels: PseudoLabels) -> None:
    lengths = np.concatenate([table.lengths for table in tables])
    data = training_rows(len(lengths), labels.targets)
    collate = CrossCollator(tables)
    for rows in LengthBucketSampler(lengths, CROSS_BATCH, WINDOW_BATCHES, seed=0):
        collate(data.__getitems__(rows))


def _models(folder: Path) -> tuple[SentenceTransformer, CrossEncoder]:
    """Build both encoders: random weights, 2 layers of width 32, and the words of `folder/words.txt` as word pieces."""
    plain = folder / "model"
    words = (folder / "words.txt").read_text().split()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    set_seed(0)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(plain)
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    BertTokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(plain)
    transformer = Transformer(str(plain), max_seq_length=32)
    bi = SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode="mean")], device="cpu")
    return bi, CrossEncoder(str(plain), num_labels=1, max_length=64, device="cpu")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
