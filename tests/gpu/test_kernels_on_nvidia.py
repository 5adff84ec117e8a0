"""Hand-written kernels for pooling, scatters, sorting and running sums on a real NVIDIA GPU.

`tests/null/test_gpu_kernels.py` emulates the same text; a real GPU adds atomics that truly meet, blocks that truly run
at once, and sizes that fill it. Everything runs twice: the results must have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.window import Window, Windows, adaptive_window, three
from pyflame.ir import F
from pyflame.tensor import Tensor
from tests.gpu.nvidia import Clock, Nvidia, Prepared, absent
from tests.gpu.programs import Program

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

rng = np.random.default_rng(0)


def numbers(*shape: int, dtype: pf.DType = pf.float32) -> pf.Tensor:
    """Floats with ties, or whole numbers."""
    return pf.tensor(np.round(rng.standard_normal(shape, np.float32), 2), dtype=dtype)


def op(name: str, *args: Any) -> Tensor:
    return Tensor(getattr(F, name)(*[a._node if isinstance(a, Tensor) else a for a in args]))


def check(gpu: Nvidia, outputs: list[pf.Tensor], tolerance: float = 3e-6) -> None:
    program = Program(outputs, gpu.target)
    gpu.build([program])
    results, error = gpu.run(program)
    again, _ = gpu.run(program)
    assert error == [0, 0, 0]
    pf.eval(*program.outputs)
    for result, tensor in zip(results, program.outputs, strict=True):
        want = tensor.numpy()
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(result, want)
        else:
            scale = float(np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=1.0))
            np.testing.assert_allclose(
                result.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance * scale
            )
    assert [r.tobytes() for r in results] == [r.tobytes() for r in again], "two runs differ"


# --- pooling ----------------------------------------------------------------------------------------------------------

WINDOWS: dict[str, tuple[Window, ...]] = {
    "2x2": (Window(56, 28, 2, 2), Window(56, 28, 2, 2)),
    "3x3": (Window(112, 56, 3, 2, 1), Window(112, 56, 3, 2, 1)),
    "3x3 dense": (Window(31, 31, 3, 1, 1), Window(37, 37, 3, 1, 1)),
    "dilated": (Window(31, 0, 3, 1, 1, 2).counted(False), Window(37, 0, 2, 2, 1, 3).counted(False)),
    "adaptive": (adaptive_window(31, 7), adaptive_window(37, 7)),
    "wide": (Window(4096, 15, 512, 256),),
    "3d": (Window(9, 0, 3, 2, 1).counted(True), Window(17, 0, 3, 2, 1).counted(True), Window(18, 9, 2, 2)),
}


@pytest.mark.parametrize("dtype", [pf.float32, pf.float16, pf.int8], ids=lambda d: d.name)
@pytest.mark.parametrize("name", WINDOWS)
def test_pools(gpu: Nvidia, name: str, dtype: pf.DType) -> None:
    windows: Windows = three(WINDOWS[name])
    x = numbers(4, 16, *(w.size for w in windows), dtype=dtype)
    g = numbers(4, 16, *(w.out for w in windows), dtype=dtype)
    out = [op("max_pool", x, windows), op("max_pool_indices", x, windows), op("max_pool_backward", g, x, windows)]
    if dtype.is_float and name != "dilated":
        out += [op("avg_pool", x, windows, False, 0), op("avg_pool_backward", g, windows, True, 0)]
    check(gpu, out, 2e-3 if dtype is pf.float16 else 3e-6)


# --- running sums -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16, pf.int64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((10007, 31), 1), ((1009, 1000), 1), ((64, 50257), 1), ((1 << 22,), 0), ((3, 1000003), 1), ((4096, 1021), 0),
     ((100003, 3), 0), ((7, 4001, 33), 1)],
    ids=str,
)  # fmt: skip
def test_runs(gpu: Nvidia, shape: tuple[int, ...], axis: int, dtype: pf.DType) -> None:
    x = numbers(*shape, dtype=dtype)
    factors = pf.tensor(1 + 1e-4 * x.numpy().astype(np.float32), dtype=dtype)
    out = [op("running_sum", x, axis, reverse) for reverse in (False, True)]
    check(gpu, [*out, op("running_product", factors, axis, False)], 1e-2 if dtype is pf.bfloat16 else 3e-6)


# --- sorting ----------------------------------------------------------------------------------------------------------

DTYPES = [pf.float32, pf.float64, pf.bfloat16, pf.int8, pf.int64, pf.bool_]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("shape", "take"),
    [((10007, 5), 5), ((1009, 100), 100), ((513, 1000), 1000), ((64, 4096), 4096), ((33, 5003), 5003),
     ((2, 1 << 20), 1 << 20), ((64, 50257), 50), ((1, 1 << 22), 1000), ((3, 400009), 400009)],
    ids=str,
)  # fmt: skip
def test_sorts(gpu: Nvidia, shape: tuple[int, int], take: int, dtype: pf.DType) -> None:
    array = rng.integers(-(1 << 20), 1 << 20, shape)
    if dtype.is_float:
        array = array.astype(np.float32) / 8
    x = pf.tensor(array.astype(np.int8) if dtype is pf.int8 else array % 2 if dtype is pf.bool_ else array, dtype=dtype)
    if dtype.is_float:
        special = x.numpy().copy()
        special.reshape(-1)[::97] = np.nan
        x = pf.tensor(special)
    check(gpu, [op("sort_positions", x, take, descending) for descending in (False, True)])


# --- scatters ---------------------------------------------------------------------------------------------------------


def embedded(tokens: int, table: int, width: int, mode: str, dtype: pf.DType, distinct: int = 0) -> list[pf.Tensor]:
    """As the gradient of an embedding; `distinct`: how many rows are hit."""
    index = pf.tensor(rng.integers(0, distinct or table, (tokens, 1)))
    base, values = numbers(table, width, dtype=dtype), numbers(tokens, width, dtype=dtype)
    if mode == "mul" and dtype.is_float:
        values = pf.tensor(1 + 1e-3 * values.numpy(), dtype=dtype)
    name = "scatter_at" if mode in ("assign", "add") else "scatter_reduce_at"
    return [op(name, base, values, (index._node,), (0,), (-1, 1), mode)]


@pytest.mark.parametrize("dtype", [pf.float32, pf.int32, pf.int8, pf.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("mode", ["assign", "add", "mul", "max", "min"])
def test_scatters(gpu: Nvidia, mode: str, dtype: pf.DType) -> None:
    for tokens, table, width, distinct in (
        (7, 100, 768, 0),
        (3000, 511, 96, 0),
        (16384, 5003, 64, 0),
        (20000, 9, 33, 2),
    ):
        check(gpu, embedded(tokens, table, width, mode, dtype, distinct), 1e-4)


@pytest.mark.parametrize("mode", ["assign", "add", "max"])
def test_scatters_along(gpu: Nvidia, mode: str) -> None:
    """Single elements: indices of both axes, and an index for every element."""
    x, src = numbers(500, 400), numbers(500, 900)
    index = pf.tensor(rng.integers(-400, 400, (500, 900)))
    name = "scatter_at" if mode in ("assign", "add") else "scatter_reduce_at"
    both = tuple(pf.tensor(rng.integers(-n, n, 300000))._node for n in x.shape)
    out = [
        op(name, x, src, (index._node,), (1,), (0, -1), mode),
        op(name, x, numbers(300000), both, (0, 1), (-1, -1), mode),
    ]
    check(gpu, out, 1e-4)


def test_bad_index_writes_nothing(gpu: Nvidia) -> None:
    for mode in ("assign", "add", "max"):
        base = numbers(1000, 64).numpy()  # nobody but the graph holds the tensor, so its memory may be written to
        index = rng.integers(0, 1000, (5000, 1))
        index[4000] = 1000
        name = "scatter_at" if mode != "max" else "scatter_reduce_at"
        out = op(name, pf.tensor(base), numbers(5000, 64), (pf.tensor(index)._node,), (0,), (-1, 1), mode)
        program = Program([out], gpu.target)
        assert any(launch.overwrites_input for launch in program.plan.launches)
        gpu.build([program])
        (result,), error = gpu.run(program)
        assert error == [1, 1000, 1000]
        np.testing.assert_array_equal(result, base)


# --- speed ------------------------------------------------------------------------------------------------------------

WORK: dict[str, Callable[[], list[pf.Tensor]]] = {
    "max_pool 3x3": lambda: [op("max_pool", numbers(32, 64, 1, 112, 112), three(WINDOWS["3x3"]))],
    "max_pool backward": lambda: [
        op("max_pool_backward", numbers(32, 64, 1, 56, 56), numbers(32, 64, 1, 112, 112), three(WINDOWS["3x3"]))
    ],
    "cumsum rows": lambda: [op("running_sum", numbers(8192, 4096), 1, False)],
    "cumsum one row": lambda: [op("running_sum", numbers(1 << 25), 0, False)],
    "cumsum columns": lambda: [op("running_sum", numbers(4096, 8192), 0, False)],
    "sort rows of 1000": lambda: [op("sort_positions", numbers(16384, 1000), 1000, False)],
    "sort 16M": lambda: [op("sort_positions", numbers(1 << 24), 1 << 24, False)],
    "top 50 of 50257": lambda: [op("sort_positions", numbers(64, 50257), 50, True)],
    "embedding gradient": lambda: embedded(16384, 50257, 768, "add", pf.float32),
    "one hot row": lambda: embedded(16384, 50257, 768, "add", pf.float32, distinct=1),
    "transposed": lambda: [numbers(8192, 8192).permute(1, 0).contiguous()],
    "transposed bf16": lambda: [numbers(8192, 8192, dtype=pf.bfloat16).permute(1, 0).contiguous()],
    "copy": lambda: [numbers(8192, 8192) + 1.0],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_speed(gpu: Nvidia, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the time and how many bytes of inputs and outputs it moved in it: read with -s."""
    program = Program(WORK[name](), gpu.target)
    gpu.build([program])
    with Prepared(gpu, program) as prepared:
        prepared.launch()
        best = 1e9
        for _ in range(5):
            with Clock() as clock:
                prepared.launch()
            best = min(best, clock.seconds())
    with capsys.disabled():
        print(f"\n{name:24} {best * 1e6:9.1f} us {program.nbytes / best / 1e9:8.1f} GB/s")
    assert best > 0
