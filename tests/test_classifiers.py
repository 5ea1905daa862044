"""Cross-encoders of classes: made, trained, saved with the classes' names, and their probabilities."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

from tests.rounding import model_rounding, rounding
from transencoder.configs import FitConfig
from transencoder.encoders import classes_of, load_cross
from transencoder.errors import InputError
from transencoder.fit import Session, TrainingData, fit
from transencoder.losses import ClassCrossEntropyLoss
from transencoder.scorers import class_probabilities

NLI = ("entailment", "neutral", "contradiction")


@pytest.fixture
def classifier(tiny_plm):
    return load_cross(Path(tiny_plm), class_names=NLI, device="cpu", seed=1).eval()


def test_it_is_saved_with_the_names_of_its_classes(classifier, tmp_path, tiny_pairs, tiny_plm):
    classifier.save_pretrained(str(tmp_path / "model"))
    loaded = CrossEncoder(str(tmp_path / "model"), device="cpu")
    assert classes_of(tmp_path / "model") == NLI
    assert classes_of(Path(tiny_plm)) == ()
    pairs = tiny_pairs.select(range(20))
    texts = list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))
    theirs = loaded.predict(texts, apply_softmax=True)
    np.testing.assert_allclose(
        class_probabilities(classifier, pairs, precision="fp32"), theirs, rtol=0, atol=model_rounding(classifier)
    )
    np.testing.assert_allclose(theirs.sum(1), 1.0, rtol=0, atol=rounding(3))


def test_its_loss_is_sentence_transformers(classifier, tiny_pairs):
    texts = [tiny_pairs["sentence1"][:6], tiny_pairs["sentence2"][:6]]
    classes = torch.tensor([0, 1, 2, 2, 1, 0])
    loss = ClassCrossEntropyLoss(classifier)
    expected = CrossEntropyLoss(classifier)(texts, classes)
    torch.testing.assert_close(loss(texts, classes), expected)
    torch.testing.assert_close(loss(texts, torch.eye(3)[classes]), expected)
    features = classifier.preprocess(list(zip(*texts, strict=True)))
    torch.testing.assert_close(loss([features], classes), expected)


def test_it_learns_classes(classifier, tmp_path):
    """Which of three words is the first text."""
    words = ["balo", "dalo", "gelo"]
    classes = np.arange(48) % 3
    rows = {"sentence1": [words[i] for i in classes], "sentence2": [["kama", "felo"][i % 2] for i in range(48)]}
    pairs = Dataset.from_dict(rows)
    lengths = {"batch_size": 16, "epochs": 8, "max_length": 24, "eval_steps": 100, "checkpoint_steps": 100}
    config = FitConfig(learning_rate=3e-3, warmup_ratio=0.1, **lengths)
    before = class_probabilities(classifier, pairs, precision="fp32").argmax(1)
    targets = np.eye(3, dtype=np.float32)[classes]
    session = Session(folder=tmp_path, seed=1, precision="fp32")
    fit(classifier, ClassCrossEntropyLoss, TrainingData(pairs=pairs, targets=targets), None, config, session)
    after = class_probabilities(classifier, pairs, precision="fp32").argmax(1)
    assert (before == classes).mean() < 0.7 < 0.95 < (after == classes).mean()


def test_what_has_another_number_of_classes_is_refused(classifier, tmp_path, tiny_plm):
    classifier.save_pretrained(str(tmp_path / "model"))
    for names, wanted in ((("no", "yes"), 2), ((), 1)):
        with pytest.raises(InputError, match=f"cross-encoder with 3 outputs; a start needs {wanted}"):
            load_cross(tmp_path / "model", class_names=names, device="cpu")
    scorer = load_cross(Path(tiny_plm), device="cpu")
    with pytest.raises(InputError, match="one output, a score"):
        class_probabilities(scorer, None)
    with pytest.raises(ValueError, match="1 output; classes need at least 2"):
        ClassCrossEntropyLoss(scorer)


def test_a_linear_head_of_one_output_is_no_start_for_classes(tiny_plm, tmp_path):
    load_cross(Path(tiny_plm), head="linear", device="cpu").save_pretrained(str(tmp_path / "model"))
    for options in ({"class_names": NLI}, {"new_head": True}):
        with pytest.raises(InputError, match="a linear head on .CLS. and one output"):
            load_cross(tmp_path / "model", device="cpu", **options)


def test_a_new_head_takes_the_encoder_and_leaves_the_classes(classifier, tmp_path):
    """Also where the number of outputs is the same; by the seed alone."""
    classifier.save_pretrained(str(tmp_path / "model"))

    def renewed(seed, **names):
        model = load_cross(tmp_path / "model", device="cpu", seed=seed, new_head=True, **names)
        return {name: value for name, value in model.state_dict().items()}

    scores, again, other = renewed(1), renewed(1), renewed(2)
    same = renewed(1, class_names=NLI)
    before = classifier.state_dict()
    head = [name for name in before if ".classifier." in name]
    assert head
    for name in before:
        if name in head:
            assert scores[name].shape[0] == 1 and same[name].shape[0] == 3
            assert torch.equal(scores[name], again[name])
            if "weight" in name:
                assert not torch.equal(scores[name], other[name]) and not torch.equal(same[name], before[name])
        else:
            assert torch.equal(scores[name], before[name]) and torch.equal(same[name], before[name])
