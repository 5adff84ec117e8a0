"""cuBLASLt and cuDNN on a real NVIDIA GPU, against NumPy in float64: dtypes, layouts, epilogues, directions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflame.libs.binding import LibraryError
from pyflame.libs.conv import DIRECTIONS, ConvSpec
from pyflame.libs.cuda.cublaslt import CublasLt
from pyflame.libs.cuda.cudnn import Cudnn
from pyflame.libs.gemm import GemmSpec
from tests.gpu.memory import Area, OnGpu
from tests.gpu.nvidia import Nvidia, absent, done, driver

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int32": np.int32,
}
# Of the largest result: about two units in the last place of what is stored, or of what is multiplied.
TOLERANCE = {"float32": 1e-5, "tf32": 2e-3, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2, "int32": 0.0}
WORKSPACE = 32 << 20


@pytest.fixture(scope="module")
def gpu() -> Nvidia:
    return Nvidia()  # makes its context current


@pytest.fixture(scope="module")
def area(gpu: Nvidia) -> Iterator[Area]:
    made = Area(256 << 20)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lt(gpu: Nvidia) -> Iterator[CublasLt]:
    made = CublasLt()
    print(f"cuBLASLt {made.version} from {made.path} on {gpu.name}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def dnn(gpu: Nvidia) -> Iterator[Cudnn]:
    made = Cudnn()
    print(f"cuDNN {made.version} from {made.path} on {gpu.name}")
    yield made
    made.close()


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(sum(shape))
    if dtype == "int8":
        return rng.integers(-9, 10, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def laid_out(batch: int, rows: int, cols: int, columns: bool, dtype: str, gap: int = 0) -> tuple[Any, Any, Any]:
    """A batch of matrices as they lie in memory, the view (batch, rows, cols) of them, and its strides."""
    outer, inner = (cols, rows) if columns else (rows, cols)
    memory = numbers((batch, outer, inner + gap), dtype)
    view = memory[:, :, :inner]
    lead = inner + gap
    if columns:
        return memory, view.swapaxes(1, 2), (1, lead, outer * lead)
    return memory, view, (lead, 1, outer * lead)


def gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def check_gemm(
    lt: CublasLt,
    area: Area,
    m: int,
    n: int,
    k: int,
    dtype: str,
    out: str = "",
    batch: int = 1,
    columns: tuple[bool, bool, bool] = (False, False, False),
    gaps: tuple[int, int, int] = (0, 0, 0),
    before: int = 0,
    tolerance: float | None = None,
    **options: Any,
) -> None:
    out = out or ("int32" if dtype == "int8" else dtype)
    a_memory, a, a_strides = laid_out(batch, m, k, columns[0], dtype, gaps[0])
    b_memory, b, b_strides = laid_out(batch, k, n, columns[1], dtype, gaps[1])
    c_memory, c, c_strides = laid_out(batch, m, n, columns[2], "float32", gaps[2])
    c_memory = c_memory.astype(DTYPES[out])
    c = c.astype(DTYPES[out]).astype(np.float64)
    bias = numbers((n,), "float32").astype(DTYPES[out])
    spec = GemmSpec(m, n, k, dtype, out, batch, a_strides, b_strides, c_strides, **options)
    want = spec.alpha * (a.astype(np.float64) @ b.astype(np.float64)) + spec.beta * c
    want = want + bias.astype(np.float64) if spec.bias else want
    want = {"": want, "relu": np.maximum(want, 0), "gelu": gelu(want)}[spec.activation]
    with OnGpu(a_memory, before) as x, OnGpu(b_memory, before) as y, OnGpu(c_memory, before) as z, OnGpu(bias) as v:
        lt.matmul(spec, x.address, y.address, z.address, v.address, 0, area.address, WORKSPACE)
        got = z.numpy()
    inner = m if columns[2] else n
    np.testing.assert_array_equal(got[:, :, inner:], c_memory[:, :, inner:])  # what lies between was not touched
    got = got[:, :, :inner].astype(np.float64)
    got = got.swapaxes(1, 2) if columns[2] else got
    if tolerance is None:  # products of 16-bit numbers are exact in float32, so what is stored decides
        tolerance = TOLERANCE["tf32" if spec.tf32 else out]
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(np.abs(want).max(), 1.0), err_msg=spec.text)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("columns", list(itertools.product([False, True], repeat=3)), ids=str)
def test_layouts(lt: CublasLt, area: Area, dtype: str, columns: tuple[bool, bool, bool]) -> None:
    check_gemm(lt, area, 257, 129, 65, dtype, columns=columns)
    check_gemm(lt, area, 64, 128, 32, dtype, columns=columns, gaps=(8, 16, 24), batch=3)
    check_gemm(lt, area, 64, 72, 80, dtype, columns=columns, batch=5)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 1000, 513), (1000, 1, 513), (7, 5, 3), (512, 512, 4096)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_shapes(lt: CublasLt, area: Area, dtype: str, m: int, n: int, k: int) -> None:
    check_gemm(lt, area, m, n, k, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
def test_epilogues(lt: CublasLt, area: Area, dtype: str, activation: str, bias: bool) -> None:
    for columns in ((False, False, False), (False, True, False)):
        check_gemm(lt, area, 200, 136, 64, dtype, columns=columns, bias=bias, activation=activation)
    check_gemm(lt, area, 128, 64, 64, dtype, batch=2, bias=bias, activation=activation)


def test_scalars(lt: CublasLt, area: Area) -> None:
    for dtype in ("float32", "float64", "bfloat16"):
        check_gemm(lt, area, 96, 80, 64, dtype, alpha=0.5, beta=-2.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_wide_results(lt: CublasLt, area: Area, dtype: str) -> None:
    check_gemm(lt, area, 96, 80, 512, dtype, out="float32")
    check_gemm(lt, area, 96, 80, 512, dtype, out="float32", beta=1.0)


def test_tf32(lt: CublasLt, area: Area) -> None:
    check_gemm(lt, area, 256, 256, 512, "float32", tf32=True)
    # It is another arithmetic, and `test_layouts` shows that without it there is none of it.
    with pytest.raises(AssertionError, match="tf32"):
        check_gemm(lt, area, 256, 256, 512, "float32", tf32=True, tolerance=TOLERANCE["float32"])


def test_int8(lt: CublasLt, area: Area) -> None:
    """Integer matrix cores want A by rows and B by columns, in sizes of 4; other layouts may be refused."""
    check_gemm(lt, area, 128, 64, 96, "int8", columns=(False, True, False))
    tried = 0
    for columns in itertools.product([False, True], [False, True]):
        try:
            check_gemm(lt, area, 64, 64, 64, "int8", columns=(*columns, False))
            tried += 1
        except LibraryError as refused:
            print("int8", columns, refused)
    assert tried


@pytest.mark.parametrize("before", [2, 4, 8, 16, 64])
def test_unaligned(lt: CublasLt, area: Area, before: int) -> None:
    for dtype in ("bfloat16", "float32"):
        if before % np.dtype(DTYPES[dtype]).itemsize == 0:
            check_gemm(lt, area, 128, 96, 64, dtype, before=before, bias=True)


def test_repeated_operand(lt: CublasLt, area: Area) -> None:
    a, b = numbers((6, 33, 64), "float32"), numbers((64, 40), "float32")
    with OnGpu(a) as x, OnGpu(b) as y, OnGpu(np.zeros((6, 33, 40), np.float32)) as z:
        spec = GemmSpec(33, 40, 64, batch=6, b=(40, 1, 0))
        lt.matmul(spec, x.address, y.address, z.address, 0, 0, area.address, WORKSPACE)
        np.testing.assert_allclose(z.numpy(), a.astype(np.float64) @ b, rtol=0, atol=1e-4)


def test_every_algorithm(lt: CublasLt, area: Area) -> None:
    """All that the library proposes, and none of them without the workspace it was promised."""
    spec = GemmSpec(512, 384, 1024, "bfloat16")
    count = lt.count(spec, WORKSPACE, wanted=16)
    assert count >= 2
    a, b = numbers((512, 1024), "bfloat16"), numbers((1024, 384), "bfloat16")
    want = a.astype(np.float64) @ b.astype(np.float64)
    with OnGpu(a) as x, OnGpu(b) as y:
        for rank in range(count):
            with OnGpu(np.zeros((512, 384), ml_dtypes.bfloat16)) as z:
                lt.matmul(spec, x.address, y.address, z.address, 0, 0, area.address, WORKSPACE, rank)
                np.testing.assert_allclose(z.numpy().astype(np.float64), want, rtol=0, atol=1.6e-2 * np.abs(want).max())
        with OnGpu(np.zeros((512, 384), ml_dtypes.bfloat16)) as z:
            lt.matmul(spec, x.address, y.address, z.address)  # with no workspace at all
            np.testing.assert_allclose(z.numpy().astype(np.float64), want, rtol=0, atol=1.6e-2 * np.abs(want).max())


def test_stream_and_capture(lt: CublasLt, area: Area) -> None:
    """Work goes to the stream it is given, and can be captured and replayed."""
    stream = done(driver.cuStreamCreate(1))  # which does not wait for the default one
    a, b = numbers((128, 64), "float32"), numbers((64, 96), "float32")
    spec = GemmSpec(128, 96, 64)
    with OnGpu(a) as x, OnGpu(b) as y, OnGpu(np.zeros((128, 96), np.float32)) as z:
        where = (x.address, y.address, z.address, 0, int(stream), area.address, WORKSPACE)
        lt.matmul(spec, *where)
        done(driver.cuStreamSynchronize(stream))
        want = z.numpy()
        np.testing.assert_allclose(want, a.astype(np.float64) @ b, rtol=0, atol=1e-4)
        done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        lt.matmul(spec, *where)
        graph = done(driver.cuStreamEndCapture(stream))
        replay = done(driver.cuGraphInstantiate(graph, 0))
        done(driver.cuMemsetD8(z.address, 0, want.nbytes))
        done(driver.cuCtxSynchronize())
        assert not z.numpy().any()
        done(driver.cuGraphLaunch(replay, stream))
        done(driver.cuStreamSynchronize(stream))
        np.testing.assert_array_equal(z.numpy(), want)
        done(driver.cuGraphExecDestroy(replay))
        done(driver.cuGraphDestroy(graph))
    done(driver.cuStreamDestroy(stream))


# --- convolutions -----------------------------------------------------------------------------------------------------


def convolution(spec: ConvSpec, x: Any, w: Any, y: Any, direction: str) -> np.ndarray[Any, Any]:
    """By definition, a tap of the kernel at a time, in float64."""
    s = spec.flat if len(spec.size) == 1 else spec
    x, w, y = (v.reshape(s.shape(n)).astype(np.float64) for v, n in ((x, "x"), (w, "w"), (y, "y")))
    groups, axes = s.groups, len(s.size)
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in s.padding)])
    x_groups = padded.reshape(s.batch, groups, -1, *padded.shape[2:])
    w_groups = w.reshape(groups, -1, *w.shape[1:])
    y_groups = y.reshape(s.batch, groups, -1, *y.shape[2:])
    out = {"forward": y_groups * 0, "backward_data": x_groups * 0, "backward_filter": w_groups * 0}[direction]
    for tap in itertools.product(*map(range, s.kernel)):
        index = tuple(
            slice(t * d, t * d + (n - 1) * st + 1, st)
            for t, d, st, n in zip(tap, s.dilation, s.stride, y.shape[2:], strict=True)
        )
        window = (slice(None),) * 3 + index
        weight = w_groups[(slice(None),) * 3 + tap]  # (group, filters, channels)
        if direction == "forward":
            out += np.einsum("ngc...,gkc->ngk...", x_groups[window], weight)
        elif direction == "backward_data":
            out[window] += np.einsum("ngk...,gkc->ngc...", y_groups, weight)
        else:
            letters = "xyz"[:axes]
            out[(slice(None),) * 3 + tap] = np.einsum(f"ngk{letters},ngc{letters}->gkc", y_groups, x_groups[window])
    if direction == "backward_data":
        inner = tuple(slice(p, p + n) for p, n in zip(s.padding, s.size, strict=True))
        return out.reshape(padded.shape)[(slice(None),) * 2 + inner]
    return out.reshape(s.shape({"forward": "y", "backward_filter": "w"}[direction]))


CONVOLUTIONS = {
    "3x3": ConvSpec(4, 16, (20, 24), 32, (3, 3), padding=(1, 1)),
    "stride and dilation": ConvSpec(2, 8, (31, 29), 16, (3, 5), (2, 3), (2, 1), (2, 1)),
    "groups": ConvSpec(2, 12, (14, 14), 24, (3, 3), padding=(1, 1), groups=4),
    "1x1": ConvSpec(3, 64, (9, 9), 32, (1, 1)),
    "one axis": ConvSpec(2, 8, (100,), 16, (7,), (2,), (3,)),
    "three axes": ConvSpec(2, 4, (8, 9, 10), 8, (3, 3, 2), padding=(1, 1, 0)),
}
WRITTEN = {"forward": "y", "backward_data": "x", "backward_filter": "w"}


def laid(array: np.ndarray[Any, Any], last: bool) -> np.ndarray[Any, Any]:
    """The numbers of an array in the order in which they lie in memory."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if last else array


def seen(array: np.ndarray[Any, Any], shape: tuple[int, ...], last: bool) -> np.ndarray[Any, Any]:
    """And back."""
    if not last:
        return array.reshape(shape)
    return np.moveaxis(array.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_convolution(dnn: Cudnn, area: Area, dtype: str, name: str, direction: str, last: bool) -> None:
    spec = replace(CONVOLUTIONS[name], dtype=dtype, channels_last=last)
    arrays = {n: numbers(spec.shape(n), dtype) for n in "xwy"}
    want = convolution(spec, *arrays.values(), direction)
    with ExitStack() as stack:
        held = {n: stack.enter_context(OnGpu(laid(a, last))) for n, a in arrays.items()}
        written = held[WRITTEN[direction]]
        proposed = [p for p in dnn.propose(direction, spec) if p.workspace <= area.nbytes]
        assert proposed
        for plan in proposed:
            done(driver.cuMemsetD8(written.address, 0xFF, written.like.nbytes))
            dnn.convolve(plan, *(h.address for h in held.values()), 0, area.address, area.nbytes)
            got = seen(written.numpy().astype(np.float64), want.shape, last)
            # Winograd and FFT lose a few bits that a direct sum does not.
            tolerance = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}[dtype] * np.abs(want).max()
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=str(plan))


def test_convolution_tf32(dnn: Cudnn, area: Area) -> None:
    spec = ConvSpec(4, 64, (32, 32), 64, (3, 3), padding=(1, 1), tf32=True)
    x, w = numbers(spec.x, "float32"), numbers(spec.w, "float32")
    want = convolution(spec, x, w, np.zeros(spec.y, np.float32), "forward")
    with OnGpu(x) as a, OnGpu(w) as b, OnGpu(np.zeros(spec.y, np.float32)) as c:
        best = next(p for p in dnn.propose("forward", spec) if p.workspace <= area.nbytes)
        dnn.convolve(best, a.address, b.address, c.address, 0, area.address, area.nbytes)
        np.testing.assert_allclose(c.numpy(), want, rtol=0, atol=3e-3 * np.abs(want).max())
