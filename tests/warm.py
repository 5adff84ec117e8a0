"""Compiles the kernels of the op tests in batches, so that the tests find them in the disk cache.

    python -m tests.warm          those of `make test`
    python -m tests.warm --all    those of `make test-all`

A kernel alone costs about 60 ms, one of many in a file a few: this is what keeps the suite short on a fresh machine.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.errors import PyFlameError
from pyflame.doctor.samples import as_float, map_arrays, outputs_of, run_op
from pyflame.engine.devices import cpu
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import c_source, kernel_texts
from pyflame.tensor import Tensor
from tests.ops.test_catalogue import CHOSEN, SAMPLES
from tests.oracle import transposed_tensor


def texts_of(tensors: list[Tensor], found: dict[str, tuple[str, ...]]) -> None:
    device = cpu()
    nodes = [t._node for t in tensors if t._node.op.kind != "leaf"]
    if not nodes:
        return
    for node in nodes:
        plan = draft_plan(PendingGraph([node], keep_held=False), device.target)
        found.update(kernel_texts([c_source(launch, device.target) for launch in plan.launches]))


def sample_texts(op: Any, sample: Any, found: dict[str, tuple[str, ...]]) -> None:
    for dtype, make in ((pf.float64, pf.tensor), (pf.float32, pf.tensor), (pf.float32, transposed_tensor)):
        args, kwargs = map_arrays([sample.args, sample.kwargs], lambda a, d=dtype, m=make: m(as_float(a, d)))
        texts_of(outputs_of(run_op(op, args, kwargs)), found)
    if not sample.grad:
        return
    leaves: list[Tensor] = []

    def leaf(array: np.ndarray) -> Tensor:
        out = pf.tensor(as_float(array, pf.float64))
        if out.dtype.is_float:
            leaves.append(out.requires_grad_())
        return out

    args, kwargs = map_arrays([sample.args, sample.kwargs], leaf)
    out = [o for o in outputs_of(run_op(op, args, kwargs)) if o.dtype.is_float and o.requires_grad]
    if out and leaves:
        loss = sum(((o * pf.tensor(np.ones(o.shape))).sum() for o in out), pf.tensor(0.0, dtype=pf.float64))
        loss.backward()
        texts_of([t.grad for t in leaves if t.grad is not None], found)


def main(every: bool) -> None:
    warnings.simplefilter("ignore")
    pf.set_device("cpu")
    started = time.perf_counter()
    found: dict[str, tuple[str, ...]] = {}
    for name in SAMPLES if every else CHOSEN:
        try:
            sample_texts(*SAMPLES[name], found)
        except PyFlameError:
            continue  # the test will say what is wrong
    planned = time.perf_counter()
    cpu().functions(list(found.items()))
    stats = pf.compile_stats()
    print(
        f"{len(found)} kernels planned in {planned - started:.1f} s, "
        f"{stats.compiles} compiled in {stats.compile_seconds:.1f} s"
    )


if __name__ == "__main__":
    main("--all" in sys.argv)
