"""One process is its own group; of two see end_to_end/test_torchrun.py."""

import numpy as np

from transencoder import distributed


def test_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    distributed.start()
    distributed.barrier()
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    value, part = object(), np.arange(3)
    assert distributed.broadcast(value) is value
    assert distributed.concatenate(part) is part
