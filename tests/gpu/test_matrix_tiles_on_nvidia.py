"""Matrix tiles (pf_mma.h) on a real NVIDIA GPU: mma.sync in every block, dtype and layout, against NumPy in float64.

The same text runs as MFMA and WMMA in tests/sim/test_matrix_tiles.py and without matrix instructions in tests/null.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.engine.evaluate import clear_plans
from pyflame.kernels.matrix_cores import matrix_kind, matrix_tiles
from tests.gpu.gemm_cases import Build, fused, numbers, product
from tests.gpu.nvidia import Nvidia, absent, wrong_of
from tests.gpu.programs import Program
from tests.null.test_matrix_async import RESULTS, blocks, only
from tests.null.test_matrix_async import around as around_async
from tests.null.test_matrix_tiles import VIEWS, around, forced

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

DTYPES = (pf.bfloat16, pf.float16, pf.int8, pf.float64)
KIND = matrix_kind(TARGETS["sm_90"], pf.bfloat16)
assert KIND is not None
BLOCKS = range(len(matrix_tiles(TARGETS["sm_90"], KIND, 4)))


@pytest.mark.parametrize("number", BLOCKS)
def test_every_block(gpu: Nvidia, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, number)
    builds: dict[str, Build] = {}
    for dtype in DTYPES:
        builds |= around(gpu.target, dtype, number)
    assert wrong_of(gpu, builds) == {}


@pytest.mark.parametrize("number", range(len(blocks(TARGETS["sm_90"]))))
def test_every_async_block(gpu: Nvidia, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """wgmma, ldmatrix and clusters, where this GPU has them."""
    tiles = blocks(gpu.target)
    if number >= len(tiles):
        pytest.skip("this GPU has fewer blocks")
    only(monkeypatch, number)
    tile, builds = tiles[number], around_async(tiles[number], VIEWS)
    for view in VIEWS:  # many blocks, and as many steps as take every place of LDS several times
        m, n, k = 5 * tile.rows - 8, 3 * tile.cols + 8, 11 * tile.depth + 8
        builds[f"large {' '.join(view)}"] = product((m, k), (k, n), pf.bfloat16, view)
    assert wrong_of(gpu, builds) == {}


def test_results_of_async_blocks(gpu: Nvidia) -> None:
    assert wrong_of(gpu, RESULTS) == {}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_every_layout(gpu: Nvidia, dtype: pf.DType) -> None:
    """Four transposes, strides that are neither, misaligned memory, batches, few outputs of a long k."""
    builds = {" ".join(v): product((144, 200), (200, 136), dtype, v) for v in VIEWS}
    builds |= {f"odd {' '.join(v)}": product((131, 77), (77, 93), dtype, v) for v in VIEWS}
    builds["strides"] = product((130, 140), (140, 136), dtype, ("flipped", "spread"))
    builds["misaligned"] = product((64, 48), (48, 64), dtype, ("misaligned", "misaligned"))
    builds["batch"] = product((2, 3, 70, 48), (3, 48, 72), dtype)
    builds["long"] = product((40, 30000), (30000, 36), dtype)
    if dtype in (pf.bfloat16, pf.float16):
        builds["fused"] = fused(200, 144, 136, dtype)
    assert wrong_of(gpu, builds) == {}


def test_tf32_only_where_allowed(gpu: Nvidia) -> None:
    a, b = numbers((256, 512), pf.float32, 1), numbers((512, 384), pf.float32, 2)
    exact = a.astype(np.float64) @ b

    def error() -> tuple[float, str]:
        program = Program([pf.tensor(a) @ pf.tensor(b)], gpu.target)
        gpu.build([program])
        (result,), _ = gpu.run(program)
        return float(np.abs(result - exact).max() / np.abs(exact).max()), "".join(program.texts)

    full, text = error()
    assert full < 1e-6 and "pf_mma_tf32" not in text
    pf.set_float32_matmul_precision("high")
    try:
        rounded, text = error()
    finally:
        pf.set_float32_matmul_precision("highest")
    assert 1e-6 < rounded < 2e-3 and "pf_mma_tf32" in text


@pytest.mark.parametrize("m", [16, 64, 2048])
def test_own_kernel_in_a_plan(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libraries: blocks are timed, one is taken, and forward and gradients are NumPy's."""
    monkeypatch.setenv("PYFLAME_LIBRARIES", "none")
    clear_plans()
    x, w = numbers((m, 2048), pf.bfloat16, 1), numbers((1536, 2048), pf.bfloat16, 2)
    a, b = (pf.tensor(v, device="cuda:0").requires_grad_() for v in (x, w))
    out = a @ b.T
    assert "measured" in pf.explain(out, run=False).launches[-1].why
    out.sum().backward()
    want = x.astype(np.float64) @ w.T.astype(np.float64)
    np.testing.assert_allclose(out.numpy().astype(np.float64), want, rtol=1e-2, atol=1e-2 * np.abs(want).max())
    for grad, other in ((a.grad, w.astype(np.float64).sum(0)), (b.grad, x.astype(np.float64).sum(0))):
        assert grad is not None
        scale = np.abs(other).max()
        np.testing.assert_allclose(grad.numpy()[0].astype(np.float64), other, rtol=1e-2, atol=1e-2 * scale)
    clear_plans()
