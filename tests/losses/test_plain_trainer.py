"""Every loss in sentence-transformers' own trainers: what it should train moves, what is frozen stays."""

import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from transformers import AutoModel, AutoModelForMaskedLM

from transencoder import losses
from transencoder.encoders import language_model_head

WIDTH = 32


def diffcse(model, folder):
    generator, discriminator = AutoModelForMaskedLM.from_pretrained(folder), AutoModel.from_pretrained(folder)
    ids = {"mask_token_id": model.tokenizer.mask_token_id, "special_ids": model.tokenizer.all_special_ids}
    return losses.DiffCSELoss(
        model, generator, discriminator, **ids, weight=1.0, projector=losses.tanh_projector(WIDTH)
    )


def declutr(model, folder):
    head, tokenizer = language_model_head(folder, model)
    ids = {"mask_token_id": tokenizer.mask_token_id, "special_ids": tokenizer.all_special_ids}
    return losses.DeCLUTRLoss(model, n_positives=1, head=head, mask_ratio=0.5, **ids)


LOSSES = {
    "cosine regression": lambda model, _: losses.CosineLoss(model),
    "log cosh": lambda model, _: losses.CosineLoss(model, losses.log_cosh),
    "cosine cross-entropy": lambda model, _: losses.CosineLoss(model, losses.cosine_cross_entropy),
    "clipped cosine cross-entropy": lambda model, _: losses.CosineLoss(model, losses.clipped_cosine_cross_entropy),
    "info_nce": lambda model, _: losses.InfoNCELoss(model, projector=losses.tanh_projector(WIDTH)),
    "nt_xent": lambda model, _: losses.NTXentLoss(model),
    "contrastive tension": lambda model, _: losses.ContrastiveTensionLoss(model),
    "contrastive tension in batch": lambda model, _: losses.InBatchContrastiveTensionLoss(model),
    "declutr": declutr,
    "diffcse": diffcse,
    "sct": lambda model, _: losses.SCTLoss(
        model, losses.ViewComparison(WIDTH, 64, 0.05, 0.04), losses.mlp_projector(WIDTH)
    ),
    "congen": lambda model, _: losses.ConGenLoss(
        model, losses.InstanceQueue(64, 24), 0.07, 0.05, torch.nn.Linear(WIDTH, 24)
    ),
    "ckd": lambda model, _: losses.CKDLoss(model, losses.InstanceQueue(64, 24), torch.nn.Linear(WIDTH, 24)),
    "dual view": lambda model, _: losses.DualViewLoss(model, 2),
    "weighted info_nce": lambda model, folder: losses.WeightedInfoNCELoss(
        model, SentenceTransformer(folder, device="cpu")
    ),
}
"""Loss -> made from a bi-encoder and the folder of the masked language model under it."""

LABELLED = (
    "cosine regression",
    "log cosh",
    "cosine cross-entropy",
    "clipped cosine cross-entropy",
    "contrastive tension",
    "dual view",
)


@pytest.fixture
def options(tmp_path):
    return {
        "output_dir": str(tmp_path),
        "max_steps": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
    }


TAUGHT = ("congen", "ckd")
"""Their labels are a teacher's embeddings, as sentence-transformers' own distillation losses take them."""


def rows(pairs: Dataset, labelled: bool, taught: bool = False) -> Dataset:
    texts = pairs.select(range(12))
    if taught:
        labels = torch.randn(len(texts), 2, 24, generator=torch.Generator().manual_seed(0))
        return texts.remove_columns("score").add_column("label", labels.tolist())
    return texts.map(lambda row: {"label": row["score"] / 5} if labelled else {}, remove_columns="score")


@pytest.mark.parametrize("name", LOSSES)
def test_a_bi_encoder_and_what_the_loss_trains_beside_it_move(name, tiny_bi_encoder, tiny_plm, tiny_pairs, options):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    loss = LOSSES[name](model, tiny_plm)
    before = {each: value.detach().clone() for each, value in loss.named_parameters()}
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**options),
        train_dataset=rows(tiny_pairs, name in LABELLED, name in TAUGHT),
        loss=loss,
    )
    assert trainer.train().global_step == 3
    after = dict(loss.named_parameters())
    has_moved = {each: not torch.equal(value, before[each]) for each, value in after.items()}
    assert not [each for each, value in after.items() if has_moved[each] and not value.requires_grad]
    still = [each for each, value in after.items() if not has_moved[each] and value.requires_grad]
    assert not [each for each in still if "pooler" not in each]


@pytest.mark.parametrize("n_columns", [1, 3])
def test_columns_that_are_no_pair_are_refused(n_columns, bi):
    """Was: of anchor, positive and negative the first half was paired with the second, text by text."""
    columns = [dict(bi.preprocess(["balo", "dama"]))] * n_columns
    for loss in (losses.InfoNCELoss(bi), losses.NTXentLoss(bi), losses.CosineLoss(bi)):
        with pytest.raises(ValueError, match=f"takes two columns of texts, and the data has {n_columns}"):
            loss(columns, torch.zeros(2))


@pytest.mark.parametrize("equation", [losses.soft_cross_entropy, losses.logit_regression])
def test_a_cross_encoder_moves(equation, tiny_bi_encoder, tiny_pairs, options):
    model = CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu")
    before = {name: value.clone() for name, value in model.named_parameters()}
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(**options),
        train_dataset=rows(tiny_pairs, labelled=True),
        loss=losses.LogitLoss(model, equation),
    )
    result = trainer.train()
    assert result.global_step == 3
    assert 0 < result.training_loss < 2
    assert not [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
