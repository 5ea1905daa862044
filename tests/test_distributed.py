"""One process is its own group; two gloo processes agree on values and join their parts in order."""

import os
import socket
import subprocess
import sys

import numpy as np

from transencoder import distributed

RANK = """
import numpy as np
from transencoder import distributed
distributed.start()
rank = distributed.rank()
assert distributed.world_size() == 2
assert distributed.broadcast({"from": rank}) == {"from": 0}
distributed.barrier()
joined = distributed.concatenate(np.arange(3 - rank, dtype=np.float32) + 10 * rank)
assert joined.dtype == np.float32
print(rank, joined.tolist())
distributed.start()
"""


def test_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    distributed.start()
    distributed.barrier()
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    value, part = object(), np.arange(3)
    assert distributed.broadcast(value) is value
    assert distributed.concatenate(part) is part


def test_two_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK], env=group | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    output = [process.communicate(timeout=120)[0].strip() for process in ranks]
    assert output == [f"{rank} [0.0, 1.0, 2.0, 10.0, 11.0]" for rank in range(2)]
    assert [process.returncode for process in ranks] == [0, 0]
