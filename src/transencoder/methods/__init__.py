"""One paper a file; a method is a frozen config with `run`. No heavy imports."""

from transencoder.methods.trans_encoder import TransEncoder

METHODS: dict[str, type[TransEncoder]] = {"trans-encoder": TransEncoder}

__all__ = ["METHODS", "TransEncoder"]
