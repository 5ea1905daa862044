"""sentence-transformers' trainers as they are used here: their batches, checkpoints and cards are ours."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import nn

from transencoder.batching import LengthBucketSampler

_STUDENT = "student.safetensors"


class _Ours:
    """What both trainers change: batches and token features are used as they come, and the model card is ours."""

    batches: LengthBucketSampler
    model: Any
    loss: Any

    def get_batch_sampler(self, *_: Any, **__: Any) -> LengthBucketSampler:
        """The bucketed batches."""
        return self.batches

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The weights in a checkpoint, adapters among them; what else a model has does not change."""
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / _STUDENT))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The weights of a checkpoint, into the model that there is: the trainer would make another one."""
        weights = Path(resume_from_checkpoint) / _STUDENT
        if weights.exists():
            load_model(self.model, weights)
        else:  # of an earlier version, which saved whole models
            super()._load_from_checkpoint(resume_from_checkpoint)  # type: ignore[misc]

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card here: `report.model_card` writes it from the run's records."""

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip what the loss trains of its own together with the model."""
        return super()._clip_grad_norm(self.loss)  # type: ignore[misc]

    def collect_features(self, inputs: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
        """The collator's features as both trainers' losses take them."""
        return SentenceTransformerTrainer.collect_features(self, inputs)  # type: ignore[arg-type]


class _BiTrainer(_Ours, SentenceTransformerTrainer): ...


class _CrossTrainer(_Ours, CrossEncoderTrainer): ...


TRAINERS: dict[type, tuple[Any, Any]] = {
    SentenceTransformer: (_BiTrainer, SentenceTransformerTrainingArguments),
    CrossEncoder: (_CrossTrainer, CrossEncoderTrainingArguments),
}
"""Form of the student -> its trainer, and the class of that one's arguments."""
