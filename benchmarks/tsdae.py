"""TSDAE (Wang et al., Findings of EMNLP 2021) with sentence-transformers' trainer and loss. Used by domains.py."""

import random
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

DELETED = 0.6
"""Share of a sentence's words that are deleted (paper)."""


def train_tsdae(sentences: Sequence[str], start: str, folder: Path, seed: int) -> SentenceTransformer:
    """Train an encoder so that a decoder, tied to it, can restore whole sentences from its embeddings.

    Learning rate and schedule are the paper's; the batch size is 16 instead of 8, and pooling is the base model's.
    """
    model = SentenceTransformer(start)
    model.max_seq_length = 64
    draw = random.Random(seed)
    rows = Dataset.from_dict({"noisy": [_noisy(text, draw) for text in sentences], "text": list(sentences)})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=16,
        learning_rate=3e-5,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        seed=seed,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    loss = DenoisingAutoEncoderLoss(model, tie_encoder_decoder=True)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    return model


def _noisy(text: str, draw: random.Random) -> str:
    words = text.split()
    kept = [word for word in words if draw.random() >= DELETED]
    return " ".join(kept or [draw.choice(words)])
