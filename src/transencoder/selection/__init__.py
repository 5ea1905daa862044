"""What "best" means where there is no dev set: criteria that need no labels, on pairs that are held out."""

from transencoder.selection.choice import criterion_of, measured_on, regrets_of
from transencoder.selection.held_out import LEAST_PAIRS, HeldOut, hold_out

__all__ = ["LEAST_PAIRS", "HeldOut", "criterion_of", "hold_out", "measured_on", "regrets_of"]
