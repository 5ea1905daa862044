"""The process of a worker, `python -m transencoder.methods.worker`: told its part on stdin, it ends with its parent."""

import logging
import os
import pickle
import sys
import threading
import time

from transencoder import progress
from transencoder.errors import InputError, TransencoderError
from transencoder.methods.training import assist
from transencoder.methods.workers import REFUSED, Part

_WATCH_SECONDS = 0.5

_READING = ("transencoder.pairs", "transencoder.prompts", "transencoder.tasks", "transencoder.methods.data")
"""Loggers whose warnings about data and starts the process that has the run gives too."""


def main() -> int:
    """Compute the stages of the worker's members.

    Returns:
        Exit code: 0, or, where it said on stderr what went wrong, `REFUSED` or 1.
    """
    part: Part = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from the process that started this one
    threading.Thread(target=_end_with, args=(part.parent,), daemon=True).start()
    logging.basicConfig(
        level=logging.WARNING, format=f"%(asctime)s worker {part.number + 1}: %(message)s", datefmt="%H:%M:%S"
    )
    logging.getLogger(progress.__name__).setLevel(part.log_level)
    for name in _READING:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with progress.use(progress.Lines()):
            assist(part)
    except TransencoderError as error:
        logging.getLogger(__name__).error("%s", error)
        return REFUSED if isinstance(error, InputError) else 1
    return 0


def _end_with(parent: int) -> None:
    """End at once when the parent is gone: whoever runs the command again must find nobody in its stages."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
