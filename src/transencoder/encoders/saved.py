"""What a saved model says of itself, before it is loaded."""

import json
from pathlib import Path

from transformers import AutoConfig


def is_cross(folder: Path) -> bool:
    """Whether a saved model is a cross-encoder, by what its files say."""
    path = folder / "config_sentence_transformers.json"
    if path.exists():  # a bi-encoder where it says nothing
        return bool(json.loads(path.read_text()).get("model_type") == "CrossEncoder")
    return is_classifier(folder)


def classes_of(folder: Path) -> tuple[str, ...]:
    """The names of the classes that a saved cross-encoder tells apart; none where it gives one score, or is none.

    Args:
        folder: The model.
    """
    if not is_classifier(folder):
        return ()
    names = AutoConfig.from_pretrained(folder, trust_remote_code=False).id2label
    return tuple(names[number] for number in sorted(names)) if len(names) > 1 else ()


def is_classifier(folder: Path) -> bool:
    """Whether a saved model has a classification head of its own architecture."""
    architectures = json.loads((folder / "config.json").read_text()).get("architectures") or [""]
    return str(architectures[0]).endswith("ForSequenceClassification")
