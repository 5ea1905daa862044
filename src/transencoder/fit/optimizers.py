"""Optimisers from the papers' released code that PyTorch does not have."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class FormerAdamW(Optimizer):
    """AdamW as in transformers before version 5 (`adamw_hf`), and as in BERT before that (`bert_adam`).

    With m and v the running means of the gradients and of their squares, and t the step, counted from 1:

        p <- p - lr * c_t * m / (sqrt(v) + epsilon),  then  p <- p - lr * weight_decay * p

    with c_t = sqrt(1 - beta2^t) / (1 - beta1^t), or 1 without bias correction. PyTorch's AdamW adds epsilon after the
    correction of v, so epsilon affects its first steps less, and applies the decay first.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate, at least 0.
        betas: Decay rates of the two running means, at least 0 and below 1.
        eps: Epsilon, above 0.
        weight_decay: Weight decay, at least 0.
        is_bias_corrected: Whether to correct the bias of the running means; BERT does not.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        is_bias_corrected: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"is_bias_corrected": is_bias_corrected})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one step on the parameters that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def _move(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = 0
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        gradient, correction = parameter.grad, 1.0
        assert gradient is not None
        if group["is_bias_corrected"]:
            correction = (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        state["mean"].lerp_(gradient, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        parameter.addcdiv_(state["mean"], state["square"].sqrt().add_(group["eps"]), value=-group["lr"] * correction)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
