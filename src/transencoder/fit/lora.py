"""LoRA (Hu et al., ICLR 2022): small matrices beside frozen weights are trained, then added to them."""

from importlib.util import find_spec

import torch
from sentence_transformers import CrossEncoder
from torch import nn

from transencoder.encoders import backbone
from transencoder.errors import InputError
from transencoder.tokens import Encoder

_POOLER = "pooler"


def check_lora() -> None:
    """Refuse LoRA where the package that it needs is not installed.

    Raises:
        InputError: The package `peft` is not installed.
    """
    if find_spec("peft") is None:
        raise InputError("lora_rank needs the package peft: pip install 'transencoder[lora]', or leave it out")


class LoRA:
    """Adapters on every linear layer of an encoder, whose own weights they freeze; heads are trained as they are.

    W becomes W + alpha/rank B A, with A (rank, in) random and B (out, rank) zero at first, so that training starts from
    the encoder itself (Hu et al., section 4.1).

    Args:
        student: The encoder, changed in place.
        rank: Of the matrices, at least 1.
        alpha: Scale of what they add, above 0.
        seed: Decides A.

    Raises:
        InputError: The package `peft` is not installed.
    """

    def __init__(self, student: Encoder, rank: int, alpha: float, seed: int) -> None:
        check_lora()
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel

        encoder = backbone(student)
        layers = [
            name
            for name, module in encoder.named_modules()
            if isinstance(module, nn.Linear) and _POOLER not in name.split(".")
        ]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=layers)  # type: ignore[arg-type]
            self._tuner = LoraModel(encoder, config, "default")
        if isinstance(student, CrossEncoder):
            for name, parameter in encoder.named_parameters():
                if _POOLER in name.split("."):  # part of the head
                    parameter.requires_grad_(True)

    def merge(self) -> None:
        """Add what was learned to the encoder's weights: it is a plain encoder again, all of it trainable."""
        self._tuner.merge_and_unload().requires_grad_(True)
