"""What no method's config may say, refused in the words that the user typed."""

from dataclasses import replace
from functools import partial

import pytest
from datasets import Dataset

from transencoder import (
    CKD,
    DCLR,
    MLM,
    SCT,
    ConGen,
    DeCLUTR,
    DiffCSE,
    DvBERT,
    EmbeddingMSE,
    FitConfig,
    Member,
    MirrorBERT,
    PretrainingConfig,
    SimCSE,
    TransEncoder,
)
from transencoder.errors import InputError

TWO = (Member(start="x"), Member(start="y"))
LAST = FitConfig(selection="last")
STS = (0.0, 5.0)
TEXTS = Dataset.from_dict({"text": ["a", "b"]})

FIELDS = {"start": "x", "output": "run"}
OF_SENTENCES = FIELDS | {"sentences": "s.txt"}
MEMBERS = {"members": (Member(start="x"),), "output": "run"}
CONFIGS = {
    "trans-encoder": partial(TransEncoder, pairs="a.tsv", **MEMBERS),
    "trans-encoder, mined": partial(TransEncoder, sentences="a.txt", **MEMBERS),
    "simcse": partial(SimCSE, **OF_SENTENCES),
    "mirror-bert": partial(MirrorBERT, **OF_SENTENCES),
    "diffcse": partial(DiffCSE, generator="g", **OF_SENTENCES),
    "dclr": partial(DCLR, complement="c", **OF_SENTENCES),
    "declutr": partial(DeCLUTR, documents="d.txt", **FIELDS),
    "sct": partial(SCT, **FIELDS),
    "congen": partial(ConGen, teacher="t", **FIELDS),
    "ckd": partial(CKD, teacher="t", **OF_SENTENCES),
    "embedding-mse": partial(EmbeddingMSE, teacher="t", **OF_SENTENCES),
    "dvbert": partial(DvBERT, labelled="a.tsv", **FIELDS),
    "mlm": partial(MLM, **OF_SENTENCES),
}
REFUSED = {
    "trans-encoder": [
        ({"alternate_members": True}, "alternate_members needs at least two members"),
        (
            {"members": TWO, "alternate_members": True, "initialisation": "sequential"},
            "changes the model from cycle to cycle; take initialisation refreshing",
        ),
        (
            {"bi_loss": "bce_clipped", "label_policy": "raw"},
            "bce_clipped.*and a label policy is raw.*take label_policy",
        ),
        (
            {"same_form": True, "pretraining": PretrainingConfig(epochs=2)},
            r"is 2, and same_form makes no cross-encoder",
        ),
        ({"members": TWO, "alternate_members": True, "share_labels": False}, "learn each from the one before"),
        ({"n_pairs": 0}, "n_pairs is 0; it must be at least 1"),
        ({"start_weight": 1.0}, r"start_weight is 1\.0; it is a share of the teachers, 0 to below 1"),
        ({"start_weight": -0.1}, r"start_weight is -0\.1"),
        ({"start_weight": float("nan")}, "start_weight is nan"),
        ({"cycles": 0}, "cycles is 0; it must be at least 1"),
        ({"patience_cycles": 0, "dev": "stsb"}, "patience_cycles is 0"),
        ({"patience_cycles": 1, "bi": LAST, "cross": LAST}, "patience_cycles needs a way to choose checkpoints"),
        ({"test_every_eval": True}, "test_every_eval needs tests, score_tests true, and dev"),
        ({"test_every_eval": True, "dev": "stsb"}, "test_every_eval needs tests"),
        (
            {"test_every_eval": True, "tests": ("stsb",), "bi": LAST, "cross": LAST},
            "test_every_eval needs tests, score_tests true, and dev or what stands in for it",
        ),
        ({"n_labelled": 5}, "n_labelled needs labelled to draw from"),
        ({"labelled": "a.tsv", "n_labelled": 0}, "n_labelled is 0; it must be at least 1"),
        ({"labelled": "a.tsv", "score_range": (5.0, 0.0)}, "give the lowest and the highest score"),
        ({"labelled": "a.tsv", "score_range": (1.0,)}, "give the lowest and the highest score"),
        ({"score_range": STS}, "score_range is of a labelled file; leave it out"),
    ],
    "trans-encoder, mined": [
        ({"sentences": None}, "pairs and sentences are both missing; give sentences to mine pairs from"),
        ({"pairs": "a.tsv"}, "pairs and sentences are both given; give sentences to mine pairs from"),
        ({"sentences": None, "pairs": "a.tsv", "n_sentences": 9}, "n_sentences needs sentences to draw from"),
        ({"n_sentences": 0}, "n_sentences is 0; it must be at least 1"),
        ({"columns": ("a", "b")}, "columns names 2 columns; sentences have one"),
        ({"sentences": None, "pairs": "a.tsv", "documents": "b.txt"}, "documents needs sentences to pair them with"),
        ({"documents": "a.txt", "is_symmetric": False}, "sentences and documents are the same; leave documents out"),
        ({"sentences": TEXTS, "documents": TEXTS}, "sentences and documents are the same; leave documents out"),
        ({"document_column": "body"}, "document_column is of documents; give both, or leave it out"),
        ({"documents": "b.txt"}, "mean something else in the other order, but is_symmetric is true; set it false"),
    ],
    "simcse": [
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"fit": replace(SimCSE.fit, dropout=0.0)}, "both views of a sentence are the same"),
        ({"test_every_eval": True, "dev": None}, "test_every_eval needs tests, score_tests true, and dev"),
    ],
    "mirror-bert": [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"span_characters": -1}, "span_characters is -1"),
        ({"span_characters": 0, "fit": replace(MirrorBERT.fit, dropout=0.0)}, "both views are the same"),
        ({"drophead": 1.0}, "drophead is 1.0; it is a share of the heads, 0 to below 1"),
        ({"drophead": -0.1}, "drophead is -0.1"),
        ({"columns": ("a", "b"), "mask_token": "[MASK]"}, "mask_token is given, but two columns are"),
    ],
    "diffcse": [
        ({"detection_weight": float("nan")}, "detection_weight is nan; it must be at least 0 and finite"),
    ],
    "dclr": [
        ({"noise_ratio": float("inf")}, "noise_ratio is inf; it must be at least 0 and finite"),
        ({"noise_step_size": -1e-3}, "noise_step_size is -0.001"),
        ({"threshold": float("nan")}, "threshold is nan; it is a cosine, from -1 to 1"),
    ],
    "declutr": [
        ({"columns": ("a", "b")}, "columns names 2 columns; documents have one"),
        ({"mask_ratio": 1.0}, "mask_ratio is 1.0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"document_words": 4}, "document_words is 4"),
        ({"exclude_test_sentences": True}, "exclude_test_sentences is for sentences"),
    ],
    "sct": [
        ({}, r"give either sentences, of which views are made \(--sentences\), or views"),
        ({"sentences": "s.txt", "views": "v.tsv"}, "give either sentences"),
        ({"views": "v.tsv", "columns": ("a",)}, "columns is a, but views have two"),
        ({"views": "v.tsv", "view_kind": "mlm"}, "view_kind is mlm, but the views are given"),
        ({"sentences": "s.txt", "view_kind": "synonyms"}, "view_kind is synonyms; give synonyms"),
        ({"sentences": "s.txt", "synonyms": "w.tsv"}, "synonyms is for view_kind synonyms, which is as-is"),
        ({"sentences": "s.txt", "mlm": "m"}, "mlm is for view_kind mlm"),
        ({"sentences": "s.txt", "fit": replace(SCT.fit, dropout=0.0)}, "both views of a sentence are the same"),
        ({"views": "v.tsv", "temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"views": "v.tsv", "reference_temperature": float("nan")}, "reference_temperature is nan"),
        ({"views": "v.tsv", "temperature": float("inf")}, "temperature is inf; it must be above 0 and finite"),
        ({"views": "v.tsv", "queue_size": -1}, "queue_size is -1"),
        ({"views": "v.tsv", "queue_size": 0, "one_queue": True}, "queue_size is 0, and one_queue"),
        ({"views": "v.tsv", "queue_size": 0, "renew_queues": False}, "queue_size is 0, and one_queue"),
        ({"views": "v.tsv", "expansion": 0}, "expansion is 0; it must be at least 1"),
        (
            {"views": "v.tsv", "own_loss": False},
            "teacher_pooling, own_loss, teacher_loss and two_step are for a teacher",
        ),
        (
            {"views": "v.tsv", "teacher_pooling": "cls"},
            "teacher_pooling, own_loss, teacher_loss and two_step are for a teacher",
        ),
        (
            {"views": "v.tsv", "two_step": True},
            "teacher_pooling, own_loss, teacher_loss and two_step are for a teacher",
        ),
        ({"views": "v.tsv", "teacher_loss": "embedding-mse"}, "teacher_loss and two_step are for a teacher"),
        (
            {"views": "v.tsv", "teacher": "t", "teacher_loss": "embedding-mse", "own_loss": False},
            "teacher_loss is embedding-mse, .* take the method embedding-mse",
        ),
        (
            {"views": "v.tsv", "teacher": "t", "teacher_loss": "ckd", "objective": "contrastive"},
            "objective contrastive is of views alone",
        ),
        ({"views": "v.tsv", "teacher": "t", "teacher_loss": "congen", "queue_size": 0}, "leave queue_size 0 out"),
        ({"views": "v.tsv", "teacher": "t", "two_step": True, "momentum": 0.9}, "momentum is of the views' own"),
        ({"views": "v.tsv", "teacher": "t", "own_loss": False, "momentum": 0.9}, "momentum is of the views' own"),
        ({"views": "v.tsv", "projector": False, "expansion": 4}, "expansion is of the projector"),
        ({"views": "v.tsv", "teacher": "t", "two_step": True, "expansion": 4}, "expansion is of the projector"),
        (
            {"views": "v.tsv", "objective": "contrastive", "reference_temperature": 0.03},
            "reference_temperature is of the references' distribution",
        ),
        ({"views": "v.tsv", "momentum": 1.0}, "momentum is 1.0; it is a share"),
        ({"views": "v.tsv", "objective": "contrastive", "renew_queues": False}, "leave renew_queues true"),
    ],
    "congen": [
        ({"sentences": "s.txt", "temperature": 0.0}, "temperature is 0.0; it must be above 0 and finite"),
        ({"sentences": "s.txt", "teacher_temperature": float("inf")}, "teacher_temperature is inf"),
        ({}, r"give either sentences, of which views are made \(--sentences\), or views"),
    ],
    "ckd": [
        ({"sentences": "s.txt", "temperature": -1.0}, "temperature is -1.0; it must be above 0 and finite"),
    ],
    "embedding-mse": [
        ({"sentences": "s.txt", "n_sentences": 0}, "n_sentences is 0"),
    ],
    "dvbert": [
        ({"soft_share": 0.5}, "soft_share is the weight of teachers"),
        ({"soft_share": 1.5, "teacher": ("t",)}, "soft_share is 1.5; it is a weight, 0 to 1"),
        ({"label_kind": "scores", "class_names": ("a", "b")}, "class_names are of classes"),
        ({"score_range": (0.0, 5.0)}, "score_range is of scores"),
        ({"label_kind": "scores", "score_range": (5.0,)}, "give the lowest and the highest score"),
        ({"new_head": True}, "new_head is of teachers"),
        ({"n_labelled": 0}, "n_labelled is 0"),
        ({"columns": ("a",)}, "labelled pairs have two of text"),
        ({"prune_vocabulary": True}, "prune_vocabulary is for unlabelled text"),
    ],
    "mlm": [
        ({"from_scratch": True, "start": "x"}, "give either start.* or from_scratch"),
        ({"start": None}, "give either start.* or from_scratch"),
        ({"columns": ("a", "b")}, "columns names 2 columns"),
        ({"dev": "stsb"}, "dev would choose nothing"),
        ({"mask_ratio": 0.0}, "mask_ratio is 0.0"),
        ({"held_out": 1.0}, "held_out is 1.0"),
        ({"from_scratch": True, "start": None, "layers": 0}, "layers is 0; it must be at least 1"),
        ({"from_scratch": True, "start": None, "width": 100}, "width is 100; it must be a multiple of 64"),
        ({"from_scratch": True, "start": None, "new_head": True}, "new_head is for a start"),
        ({"layers": 2}, "layers is for from_scratch; a start has its own"),
        ({"fit": replace(MLM.fit, max_length=2)}, "fit.max_length is 2; it must be at least 8"),
    ],
}


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [(method, changes, message) for method, cases in REFUSED.items() for changes, message in cases],
)
def test_contradictions_are_refused(method, changes, message):
    with pytest.raises(InputError, match=message):
        CONFIGS[method](**changes)
