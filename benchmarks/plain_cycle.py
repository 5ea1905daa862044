"""One cycle of Trans-Encoder as a user of sentence-transformers writes it today, with its trainers and defaults.

Run by vs_sentence_transformers.py. Only the settings that the method states are set: learning rates, batch sizes,
epochs, lengths, warm-up, weight decay, an evaluation every 200 steps with the best weights kept. All others are the
library's defaults.
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset, concatenate_datasets
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder.evaluation import CrossEncoderCorrelationEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from sentence_transformers.util import pairwise_cos_sim
from transformers import set_seed
from usage import Usage

from transencoder.models import resolve_model


def main() -> None:
    """Label with the base model, train the cross-encoder, label with it, train the bi-encoder."""
    options = _options()
    usage = Usage()
    start = resolve_model(options.start)
    pairs = Dataset.from_list(_rows(options.pairs))
    dev = Dataset.from_list(_rows(options.dev))
    with usage.stage("labels for the cross-encoder"):
        labels = label_with_bi(SentenceTransformer(start), pairs)
    with usage.stage("cross-encoder"):
        cross, cross_dev = train_cross(start, pairs.add_column("label", labels), dev, options)
    with usage.stage("labels for the bi-encoder"):
        labels = cross.predict(list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))).tolist()
    with usage.stage("bi-encoder"):
        bi, bi_dev = train_bi(start, pairs.add_column("label", labels), dev, options)
    with usage.stage("saving"):
        cross.save_pretrained(str(options.output / "cross-encoder"))
        bi.save_pretrained(str(options.output / "bi-encoder"))
    usage.write(options.output / "usage.json", dev={"cross": cross_dev, "bi": bi_dev})


def label_with_bi(model: SentenceTransformer, pairs: Dataset) -> list[float]:
    """Return the cosine of each pair, clipped to [0, 1]."""
    model.max_seq_length = 32
    first = model.encode(pairs["sentence1"], convert_to_tensor=True)
    second = model.encode(pairs["sentence2"], convert_to_tensor=True)
    return pairwise_cos_sim(first, second).clamp(0, 1).tolist()


def train_cross(start: str, pairs: Dataset, dev: Dataset, options: argparse.Namespace) -> tuple[CrossEncoder, float]:
    """Train a cross-encoder on both orders of each pair; return its best checkpoint on dev, and its metric."""
    set_seed(options.seed)
    model = CrossEncoder(start, num_labels=1, max_length=64)
    swapped = pairs.rename_columns({"sentence1": "sentence2", "sentence2": "sentence1"})
    both = concatenate_datasets([pairs, swapped.select_columns(["sentence1", "sentence2", "label"])])
    dev_pairs = list(zip(dev["sentence1"], dev["sentence2"], strict=True))
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(
            output_dir=str(options.output / "cross-training"),
            num_train_epochs=1,
            per_device_train_batch_size=32,
            learning_rate=2e-5,
            warmup_steps=0.1,
            metric_for_best_model="eval_dev_spearman",
            **_arguments(options),
        ),
        train_dataset=both,
        loss=BinaryCrossEntropyLoss(model),
        evaluator=CrossEncoderCorrelationEvaluator(dev_pairs, dev["score"], name="dev"),
    )
    trainer.train()
    return model, 100 * trainer.state.best_metric


def train_bi(
    start: str, pairs: Dataset, dev: Dataset, options: argparse.Namespace
) -> tuple[SentenceTransformer, float]:
    """Train a bi-encoder; return its best checkpoint on dev, and its metric."""
    model = SentenceTransformer(start)
    model.max_seq_length = 32
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(options.output / "bi-training"),
            num_train_epochs=options.bi_epochs,
            per_device_train_batch_size=128,
            learning_rate=5e-5,
            metric_for_best_model="eval_dev_spearman_cosine",
            **_arguments(options),
        ),
        train_dataset=pairs.select_columns(["sentence1", "sentence2", "label"]),
        loss=CosineSimilarityLoss(model),
        evaluator=EmbeddingSimilarityEvaluator(dev["sentence1"], dev["sentence2"], dev["score"], name="dev"),
    )
    trainer.train()
    return model, 100 * trainer.state.best_metric


def _arguments(options: argparse.Namespace) -> dict[str, object]:
    return {
        "weight_decay": 0.01,
        "eval_strategy": "steps",
        "eval_steps": 200,
        "save_strategy": "steps",
        "save_steps": 200,
        "load_best_model_at_end": True,
        "bf16": options.bf16,
        "use_cpu": options.bf16 and not torch.cuda.is_available(),  # without it the trainer refuses bf16 on a CPU
        "seed": options.seed,
        "report_to": "none",
    }


def _rows(path: Path) -> list[dict[str, object]]:
    with path.open() as file:
        return [json.loads(line) for line in file]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--start", default="minilm")
    parser.add_argument("--bi-epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--bf16", action="store_true", help="train under bf16 autocast, as the trainers offer")
    return parser.parse_args()


if __name__ == "__main__":
    main()
