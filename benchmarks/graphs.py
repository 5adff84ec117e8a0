"""Building and planning must be linear in the number of nodes."""

from __future__ import annotations

import time

import numpy as np

import pyflame as pf
from benchmarks.timing import Result


def run() -> list[Result]:
    results = []
    with pf.device("null"):
        for nodes in (1_000, 10_000, 100_000):
            x = pf.tensor(np.ones(1000, np.float32))
            started = time.perf_counter()
            y = x
            for _ in range(nodes // 2):
                y = y * 0.5
                y = y + x
            built = time.perf_counter()
            pf.eval(y)
            planned = time.perf_counter()
            per_node = {
                "pyflame build": (built - started) / nodes,
                "pyflame plan": (planned - built) / nodes,
                "pyflame": (planned - started) / nodes,
            }
            results.append(Result(f"{nodes:,} nodes, per node", 0, "us", per_node))
    return results
