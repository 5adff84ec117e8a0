"""Generated kernel text on a real NVIDIA GPU, against the CPU's results.

The text is the one that AMD GPUs get (`tests/null/test_gpu_text.py` builds and emulates it); what a real GPU adds are
threads that truly run at once, memory that truly faults, and sizes that an emulation cannot reach. Needs NVIDIA's
`cuda-bindings` and nothing else of NVIDIA's; PyFlame's own runtime for it is another matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.ir import F
from pyflame.tensor import Tensor
from tests.gpu.nvidia import Nvidia, absent
from tests.gpu.programs import Build, Program, catalogue, forward, gradient, warm_cpu
from tests.plans import long_positions

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

# As in tests/oracle.py, which needs torch. Absolute errors are measured by the largest value of a result.
TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
FP8 = 0.13  # one unit in the last place of a mantissa of 3 bits
FEW = 25  # failures shown


def computed(program: Program) -> list[Any]:
    """What the CPU says."""
    pf.eval(*program.outputs)
    return [t.numpy() for t in program.outputs]


def compare(results: list[Any], error: list[int], expected: list[Any], least: float = 1.0) -> None:
    """`least`: the size below which differences do not count. Small results of large terms need one, others do not."""
    assert error == [0, 0, 0]
    for result, want in zip(results, expected, strict=True):
        assert result.dtype == want.dtype
        assert result.shape == want.shape
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(result, want)
            continue
        tolerance = TOLERANCE.get(want.dtype.name, FP8)
        wide = np.float64 if want.dtype == np.float64 else np.float32
        left, right = result.astype(wide), want.astype(wide)
        scale = float(np.abs(right[np.isfinite(right)]).max(initial=least))
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance * min(scale, 1e4))


def check_all(gpu: Nvidia, programs: dict[str, Program], least: int) -> None:
    """Run all and say of each what is wrong. A fault of the GPU itself ends the run: nothing works after it."""
    assert len(programs) >= least
    gpu.build(programs.values())
    warm_cpu(programs.values())
    wrong: dict[str, str] = {}
    for name, program in programs.items():
        try:
            results, error = gpu.run(program)
        except pf.CompileError as refused:
            wrong[name] = str(refused)[:600]
            continue
        except RuntimeError as fault:
            pytest.fail(f"{name}: {fault}\n" + "\n".join(s.text for s in program.sources))
        try:
            compare(results, error, computed(program))
        except AssertionError as difference:
            wrong[name] = " ".join(str(difference).split())[:300]
    if wrong:
        lines = [f"{name}: {what}" for name, what in list(wrong.items())[:FEW]]
        pytest.fail(f"{len(wrong)} of {len(programs)} are wrong: {', '.join(wrong)}\n\n" + "\n".join(lines))


# --- the whole catalogue ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64, pf.bfloat16], ids=lambda d: d.name)
def test_catalogue(gpu: Nvidia, dtype: pf.DType) -> None:
    check_all(gpu, catalogue(forward, dtype, gpu.target), least=900)


def test_gradients(gpu: Nvidia) -> None:
    check_all(gpu, catalogue(gradient, pf.float32, gpu.target), least=600)


# --- sizes that fill a GPU --------------------------------------------------------------------------------------------


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers with a mean, so that no sum of many is a small difference of large ones."""
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) + np.float32(0.25)


def ready(*shape: int, dtype: pf.DType = pf.float32) -> pf.Tensor:
    return pf.tensor(normal(*shape).astype(dtype.numpy))


def misaligned(*shape: int) -> pf.Tensor:
    """A tensor whose memory begins one element behind what vectors ask for."""
    out = pf.from_numpy(normal(int(np.prod(shape)) + 1)[1:].reshape(shape))
    assert out._node.data.address % 16 != 0
    return out


def chain(x: pf.Tensor) -> list[pf.Tensor]:
    """Broadcasts, casts and costly functions."""
    row, column = ready(x.shape[-1]), ready(x.shape[0], 1)
    y = (x * 0.5 + row).tanh() * column
    return [(y.exp() - x).relu() + (x > 0.0).cast(pf.float32), (y * x).cast(pf.bfloat16)]


def layer_norm(x: pf.Tensor) -> pf.Tensor:
    n = x.shape[-1]
    return pf.layer_norm(x, (n,), ready(n, dtype=x.dtype), ready(n, dtype=x.dtype))


def rms_norm(x: pf.Tensor) -> pf.Tensor:
    return pf.rms_norm(x, (x.shape[-1],), ready(x.shape[-1], dtype=x.dtype))


def gathered(x: pf.Tensor, bad: bool = False) -> pf.Tensor:
    """Rows in an order of their own, some from behind."""
    rows, columns = x.shape
    index = np.random.default_rng(1).integers(-rows, rows, 2 * rows)
    index[rows] = rows if bad else 0
    at = F.reshape(pf.tensor(index)._node, (2 * rows, 1))
    return Tensor(F.gather_at(x._node, (at,), (0,), (1, 1), (2 * rows, columns))) * 2.0


def norm_gradient(x: pf.Tensor) -> list[pf.Tensor]:
    leaf, weight = x.requires_grad_(), ready(x.shape[-1]).requires_grad_()
    (pf.softmax(pf.layer_norm(leaf, (x.shape[-1],), weight), axis=-1) * ready(*x.shape)).sum().backward()
    return [g for g in (leaf.grad, weight.grad) if g is not None]


WORK: dict[str, Callable[[pf.Tensor], Any]] = {
    "chain": chain,
    "softmax rows": lambda x: pf.softmax(x, axis=-1),
    "softmax columns": lambda x: pf.softmax(x, axis=0),
    "layer norm": layer_norm,
    "rms norm": rms_norm,
    "sum rows": lambda x: x.sum(axis=1),
    "sum columns": lambda x: x.sum(axis=0),
    "sum all": lambda x: (x * 2.0).sum(),
    "mean and max": lambda x: [x.mean(axis=0), x.amax(axis=1), (x * x).mean()],
    "transposed": lambda x: (x.permute(1, 0) + 1.0).contiguous(),
    "transposed chain": lambda x: chain(x.permute(1, 0)),
    "gather": gathered,
    "norm gradient": norm_gradient,
}
SQUARE, PRIME = (4096, 4096), (1021, 3001)
# Rows for lanes, for blocks, for chunks; columns in chunks. Few of anything, and odd numbers of it.
SHAPES = ((500009, 5), (40009, 33), (9973, 1000), (2003, 5000), (16, 1000003), (2, 1 << 22), (1 << 20, 3), (30011, 40))


def outputs_of(value: Any) -> list[pf.Tensor]:
    return value if isinstance(value, list) else [value]


def check(gpu: Nvidia, build: Build) -> None:
    """A program against the CPU, twice: threads that race rarely give the same twice."""
    program = Program(build(), gpu.target)
    assert program.complete
    gpu.build([program])
    results, error = gpu.run(program)
    again, _ = gpu.run(program)
    compare(results, error, computed(program), least=1e-30)
    assert [r.tobytes() for r in results] == [r.tobytes() for r in again], "two runs differ"


@pytest.mark.parametrize("shape", [SQUARE, PRIME], ids=str)
@pytest.mark.parametrize("name", WORK)
def test_large(gpu: Nvidia, name: str, shape: tuple[int, int]) -> None:
    check(gpu, lambda: outputs_of(WORK[name](ready(*shape))))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["softmax rows", "sum rows", "sum columns", "sum all"])
def test_shapes(gpu: Nvidia, name: str, shape: tuple[int, int]) -> None:
    check(gpu, lambda: outputs_of(WORK[name](ready(*shape))))


@pytest.mark.parametrize("dtype", [pf.bfloat16, pf.float16, pf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "name", ["chain", "softmax rows", "layer norm", "rms norm", "sum rows", "transposed", "gather"]
)
def test_dtypes(gpu: Nvidia, name: str, dtype: pf.DType) -> None:
    for shape in ((2048, 4096), PRIME):
        check(gpu, lambda shape=shape: outputs_of(WORK[name](ready(*shape, dtype=dtype))))


@pytest.mark.parametrize("name", WORK)
def test_unaligned(gpu: Nvidia, name: str) -> None:
    check(gpu, lambda: outputs_of(WORK[name](misaligned(1024, 4096))))


@pytest.mark.parametrize("name", WORK)
def test_wide_positions(gpu: Nvidia, name: str) -> None:
    with long_positions():
        check(gpu, lambda: outputs_of(WORK[name](ready(*PRIME))))


@pytest.mark.slow
def test_more_than_32_bits(gpu: Nvidia) -> None:
    array = np.tile(np.arange(251).astype(np.int8), (1 << 31) // 251 + 4096)
    assert array.size > 1 << 31
    x = pf.from_numpy(array)
    program = Program([x * 3, x.sum()], gpu.target)
    assert program.complete
    gpu.build([program])
    (tripled, total), error = gpu.run(program)
    compare([tripled, total], error, [array * np.int8(3), np.asarray(array.sum(dtype=np.int64))])


def test_bad_index_is_reported(gpu: Nvidia) -> None:
    program = Program([gathered(ready(1021, 64), bad=True)], gpu.target)
    gpu.build([program])
    assert gpu.run(program)[1] == [1, 1021, 1021]
