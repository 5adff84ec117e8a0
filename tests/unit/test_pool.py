"""The thread pool of the CPU device, with more threads than cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
import threading
import numpy as np
import pyflame as pf

def count(rounds, size):
    x = pf.tensor(np.zeros(size, np.float32))
    step = pf.jit(lambda x: x + 1.0)
    for _ in range(rounds):
        x = step(x)
    assert (x.numpy() == rounds).all()

count(3000, 100_000)
threads = [threading.Thread(target=count, args=(300, 100_000 + 1000 * n)) for n in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
child = os.fork()  # a child has no workers, and makes its own
count(200, 100_000)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@pytest.mark.slow
def test_many_small_phases_on_crowded_cores() -> None:
    environment = {**os.environ, "PYFLAME_THREADS": "7"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr[-2000:]
