"""Competing implementations: the best prior wins, and each gives the same result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.build import CpuRunner
from pyflame.engine.devices import cpu
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import c_source
from pyflame.engine.value import to_numpy
from pyflame.libs.cpu.openblas import find_openblas

pytestmark = pytest.mark.skipif(find_openblas() is None, reason="this NumPy brings no OpenBLAS")


def run_on(target_isa: tuple[str, ...] | None, tensor: pf.Tensor) -> tuple[list[str], np.ndarray]:
    device = cpu()
    draft_plan(PendingGraph([tensor._node], keep_held=False), device.target)  # lets the libraries register
    target = device.target if target_isa is None else replace(device.target, isa=target_isa)
    graph = PendingGraph([tensor._node], keep_held=False)
    plan = draft_plan(graph, target)
    finished = plan.finish([c_source(launch, target) for launch in plan.launches])
    (value,) = CpuRunner(finished, device).run([n.data for n in graph.inputs], [n.data for n in graph.constants])
    return [launch.implementation for launch in plan.launches], np.array(to_numpy(value, tensor.shape, tensor.dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shapes", [((128, 96), (96, 80)), ((3, 128, 64), (3, 64, 96)), ((1024, 1), (1, 300))])
def test_blas_where_the_cpu_lacks_avx2(dtype: type, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(dtype) for s in shapes)
    for x, y in ((pf.tensor(a), pf.tensor(b)), (pf.tensor(np.ascontiguousarray(a.swapaxes(-1, -2))).mT, pf.tensor(b))):
        names, got = run_on((), pf.relu(x @ y + 1.0))
        assert "openblas" in names
        np.testing.assert_allclose(got, np.maximum(a @ b + 1, 0), rtol=1e-4, atol=1e-4)


def test_the_own_kernel_wins_where_it_fuses() -> None:
    x = pf.ones(128, 96)
    names, _ = run_on(None, pf.relu(x @ pf.ones(96, 80) + 1.0))
    if {"avx2", "asimd"} & set(cpu().target.isa):
        assert names[-1] == "gemm"


def test_small_products_stay_with_the_own_kernel() -> None:
    product = pf.ones(4, 5) @ pf.ones(5, 6)
    pf.eval(pf.ones(2, 2) @ pf.ones(2, 2))
    plan = draft_plan(PendingGraph([product._node], keep_held=False), replace(cpu().target, isa=()))
    assert plan.launches[-1].implementation == "gemm"
