"""What "best" means where there is no dev set: criteria that need no labels, on pairs that are held out."""

from transencoder.selection.held_out import HeldOut, hold_out

__all__ = ["HeldOut", "hold_out"]
