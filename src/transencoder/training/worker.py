"""Process of a worker, `python -m transencoder.training.worker FD`, which computes the stages that it is sent."""

import logging
import sys
from multiprocessing.connection import Connection

import torch

from transencoder import distributed, progress
from transencoder.encoders import attention
from transencoder.errors import InputError, TransencoderError
from transencoder.runs import Run
from transencoder.runs.files import system_error
from transencoder.training.executors import REFUSED, LocalExecutor, Part
from transencoder.training.pipeline import default_device


def main() -> int:
    """Compute stages until no more are sent.

    Returns:
        Exit code: 0 or, after an error that was logged on stderr, `REFUSED` for an InputError, else 1.
    """
    connection = Connection(int(sys.argv[1]))
    part: Part = connection.recv()
    distributed.end_with(part.parent)
    logging.basicConfig(
        level=logging.WARNING, format=f"%(asctime)s worker {part.number + 1}: %(message)s", datefmt="%H:%M:%S"
    )
    logging.getLogger(progress.__name__).setLevel(part.log_level)
    try:
        with progress.use(progress.lines):
            _work(part, connection)
    except Exception as error:
        refused = error if isinstance(error, TransencoderError) else system_error(error)
        if refused is None:
            raise
        logging.getLogger(__name__).error("%s", refused)
        return REFUSED if isinstance(refused, InputError) else 1
    return 0


def _work(part: Part, connection: Connection) -> None:
    """Compute each stage that the run's main process sends, and answer whether the stage was done before."""
    device = part.device or default_device()
    details = {"device": device, "threads": torch.get_num_threads()}
    place = f"workers/{part.number + 1}"
    with (
        attention(part.attn_implementation),
        Run.join(part.folder, place, part.method, details=details, stage_caches=part.reuse_from) as run,
    ):
        executor = LocalExecutor(run, device, part.report_to)
        while True:
            try:
                stage = connection.recv()
            except (EOFError, ConnectionResetError):  # reset: the parent ended before it read the last answer
                return
            connection.send(executor.make([stage])[0].reused)


if __name__ == "__main__":
    sys.exit(main())
