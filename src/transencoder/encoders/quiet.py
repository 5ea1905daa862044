"""Less noise from the libraries that load models."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_load_reports() -> Iterator[None]:
    """Loading a model in another form makes parts new, as is meant; both libraries warn of it at length."""
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
