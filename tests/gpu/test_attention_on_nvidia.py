"""Our own attention on a real NVIDIA GPU, at small and large shapes: the texts that AMD GPUs get, and that for wgmma.

`tests/null/test_gpu_kernels_attention.py` and `test_attention_async.py` emulate the same cases. Here blocks truly run
at once, and so do the warpgroups of attention_async.hip.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.evaluate import clear_plans
from pyflame.kernels import attention_decode_gpu
from tests.gpu.attention_cases import CASES, DECODED, DECODED_TILES, added, attention, tiles_for_few_bytes
from tests.gpu.gemm_cases import Build
from tests.gpu.nvidia import Clock, Nvidia, Prepared, absent, wrong_of
from tests.gpu.programs import Program
from tests.ops.test_attention_paged import CASES as PAGED
from tests.ops.test_attention_paged import TOLERANCE, expected, numbers
from tests.runtime.test_emulated import agree

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

LARGE: dict[str, Build] = {
    "many heads": attention((4, 12, 300, 64), (12, 300), 64, causal=True),
    "grouped": attention((2, 8, 257, 128), (2, 511), 128, pf.bfloat16),
    "long": attention((1, 1, 1500, 40), (1, 1400), 256, mask=added(1500, 1400)),
    "rows": attention((2, 4, 513, 96), (4, 513), 96, pf.float16, view="rows", causal=True),
    "turns": attention((2, 4, 1000, 64), (4, 1000), 64, pf.bfloat16, causal=True),
    "turns, grouped": attention((1, 4, 777, 128), (2, 1000), 128, pf.float16),
    "turns, hidden": attention((1, 2, 600, 128), (2, 500), 64, pf.bfloat16, mask=added(600, 500) > 0),
    "turns, added": attention((1, 2, 500, 64), (2, 600), 128, pf.bfloat16, mask=added(500, 600)),
    "tiles": attention((6, 12, 500, 64), (4, 390), 64, pf.bfloat16),
    "tiles, causal": attention((11, 12, 500, 64), (12, 500), 64, pf.bfloat16, causal=True),
    "tiles, one place": attention((7, 10, 260, 128), (10, 300), 128, pf.float16),
    "tiles, long": attention((1, 70, 200, 64), (70, 1100), 64, pf.bfloat16),
    "tiles, added": attention((6, 12, 197, 64), (12, 197), 64, pf.bfloat16, mask=added(197, 197)),
    "turns, wide": attention((1, 2, 500, 256), (2, 700), 256, pf.bfloat16, causal=True, gradient=False),
}


def test_awkward(gpu: Nvidia) -> None:
    assert wrong_of(gpu, CASES) == {}


def test_decoding(gpu: Nvidia) -> None:
    long = attention((4, 32, 1, 128), (8, 20000), 128, pf.bfloat16, gradient=False, causal=True, query_offset=18000)
    assert wrong_of(gpu, {**DECODED, "long": long}) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_decode_gpu, "_CLUSTER_KEYS", 0)
        assert wrong_of(gpu, DECODED) == {}
    with tiles_for_few_bytes():
        assert wrong_of(gpu, DECODED_TILES) == {}


@pytest.mark.parametrize("name", LARGE)
def test_large(gpu: Nvidia, name: str) -> None:
    assert wrong_of(gpu, {name: LARGE[name]}) == {}


def test_same_bits_in_every_run(gpu: Nvidia) -> None:
    """Nothing is added by two blocks."""
    program = Program(LARGE["turns, grouped"]().outputs, gpu.target)
    gpu.build([program])
    with Prepared(gpu, program) as prepared:
        prepared.launch()
        once = prepared.image()
        for _ in range(5):
            prepared.launch()
            assert (prepared.image() == once).all()


def learned(heads: int, shared: int, rows: int, size: int) -> Callable[[], list[pf.Tensor]]:
    def program() -> list[pf.Tensor]:
        q, k, v = (pf.randn(2, n, rows, size).requires_grad_() for n in (heads, shared, shared))
        out = pf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        (out * out).sum().backward()
        return [out, *(t.grad for t in (q, k, v) if t.grad is not None)]

    return program


def test_without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through tensors, with libraries switched off, as on the CPU."""
    monkeypatch.setenv("PYFLAME_LIBRARIES", "none")
    clear_plans()
    with pf.device("cuda:0"):
        report = pf.explain(learned(4, 2, 200, 64)()[0], run=False)
        assert {launch.implementation for launch in report.launches} >= {"flash_gpu"}
    for sizes in ((4, 2, 200, 64), (3, 3, 77, 20), (2, 1, 129, 130)):
        agree("cuda:0", learned(*sizes), rtol=1e-3, atol=1e-4)
    clear_plans()


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "with gradients"])
@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16], ids=lambda d: d.name)
def test_pace(gpu: Nvidia, dtype: pf.DType, gradient: bool) -> None:
    """Prints the pace (run with -s); a time would be no test."""
    q, k, v = (pf.tensor(np.ones((8, 12, 1024, 64), dtype.numpy)).requires_grad_() for _ in range(3))
    out = pf.scaled_dot_product_attention(q, k, v, is_causal=True)
    if gradient:
        (out * out).sum().backward()
    program = Program([out, *(t.grad for t in (q, k, v) if t.grad is not None)], gpu.target)
    gpu.build([program])
    clock, times = Clock(), 5
    with Prepared(gpu, program) as prepared:
        prepared.launch()
        with clock:
            for _ in range(times):
                prepared.launch()
        seconds = clock.seconds() / times
    flops = sum(launch.flops for launch in program.plan.launches)
    assert seconds > 0
    print(f"\n{dtype.name}: {1e3 * seconds:.2f} ms, {1e-12 * flops / seconds:.2f} TFLOP/s")


@pytest.mark.parametrize("way", ["tiles", "dots", "dots, joined"])
@pytest.mark.parametrize("name", PAGED)
def test_pages(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_decode_gpu, "_MANY_BYTES", 0 if way == "tiles" else 1 << 60)
    if way == "dots, joined":  # as without clusters
        monkeypatch.setattr(attention_decode_gpu, "_CLUSTER_KEYS", 0)
    clear_plans()
    tensors, named = numbers(PAGED[name])
    there = [t.to("cuda") for t in tensors]
    out = pf.paged_attention(*there, **{k: v.to("cuda") if isinstance(v, pf.Tensor) else v for k, v in named.items()})
    tolerance = TOLERANCE[PAGED[name].dtype]
    np.testing.assert_allclose(out.to(pf.float64).numpy(), expected(tensors, named), rtol=tolerance, atol=tolerance)
