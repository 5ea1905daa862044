"""The share of gold in a loss's targets, from the first step of a training to its last."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from transencoder.losses import Annealing


class GoldAnnealing(TrainerCallback):
    """Moves a loss's `gold_share` in a line from 0 at the first step to 1 at the last (DvBERT, section 2.3).

    The share follows from the step alone: a training that is resumed goes on with it. With one step only it is 1.

    Args:
        loss: Whose share it is.
    """

    def __init__(self, loss: Annealing) -> None:
        self.loss = loss

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Before each step."""
        last = state.max_steps - 1
        self.loss.gold_share = state.global_step / last if last else 1.0
