"""`pf.compile_kernel` on a GPU that is emulated on the host: launches, arguments, who sees what was written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.backend.rocm import ROCmCompiler
from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentTypeError, CompileError, DeviceError, GradientError, TraceError
from pyflame.core.state import mode
from pyflame.engine import devices
from pyflame.runtime.rocm.clang import find_clang
from pyflame.transform.checkpoint import Rebinds
from tests.emulated import emulated_device
from tests.needs import need

GPU = "rocm:44"
SOURCE = """
#include <hip/hip_runtime.h>
#ifndef STEP
#define STEP 0
#endif
extern "C" __global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * by + STEP;
}
__global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
// the sum of a block, through shared memory that the launch brings, and of waves
extern "C" __global__ void __launch_bounds__(128) total(const float* x, float* sums, unsigned* count) {
  extern __shared__ float room[];
  room[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  float sum = room[blockDim.x - 1 - threadIdx.x];
  for (int by = warpSize / 2; by > 0; by /= 2) sum += __shfl_xor(sum, by);
  if (threadIdx.x % warpSize == 0) atomicAdd(&sums[blockIdx.x], sum);
  if (threadIdx.x == 0) atomicAdd(count, 1);
}
extern "C" __global__ void place(int* out) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  out[y * gridDim.x * blockDim.x + x] = 1000 * y + x;
}
extern "C" __global__ void kinds(double* out, bool flag, unsigned char small, long long large, double d, uint64_t u,
                                 short s, float f, const void* nothing, char c) {
  out[0] = flag; out[1] = small; out[2] = large; out[3] = d; out[4] = (double)u; out[5] = s; out[6] = f;
  out[7] = nothing == 0; out[8] = c;
}
extern "C" __global__ void halves(const uint16_t* x, uint16_t* y) {
  y[threadIdx.x] = pf_f32_to_f16(2 * pf_f16_to_f32(x[threadIdx.x]));
}
"""


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[Any]:
    """One device, and one build of all kernels: each call for another of them reads it from memory or disk."""
    device = devices._open[DeviceId("rocm", 44)] = emulated_device(44, "gfx1100")
    yield device
    del devices._open[DeviceId("rocm", 44)]


def kernel(name: str, **options: Any) -> Any:
    return pf.compile_kernel(SOURCE, name, device=GPU, **options)


def on_gpu(array: Any, dtype: Any = np.float32) -> pf.Tensor:
    return pf.tensor(np.asarray(array, dtype), device=GPU)


def address(x: pf.Tensor) -> int:
    pf.eval(x)
    return x._node.data.address


def test_a_kernel_writes_to_its_tensor() -> None:
    x = on_gpu(range(1000))
    before = address(x)
    kernel("scale")(x, 2.0, 1000, grid=4, block=256)
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(1000, dtype=np.float32))
    assert address(x) == before, "nobody else saw the memory"
    kernel("scale")[4, 256](x, 0.5, np.int32(999))
    assert x[998:].tolist() == [998.0, 1998.0]


def test_a_name_of_cpp_is_found() -> None:
    a, b, out = on_gpu([1, 2, 3]), on_gpu([10, 20, 30]), pf.empty(3, device=GPU)
    kernel("add")(a, b, out, 3, grid=1, block=64)
    assert out.tolist() == [11.0, 22.0, 33.0]
    kernel("add")(a, a, a, 3, grid=1, block=64)
    assert a.tolist() == [2.0, 4.0, 6.0], "a tensor that is read and written is one buffer"


@pytest.mark.parametrize("holder", ["a lazy op", "a lazy view of an equal tensor", "its node"])
def test_what_others_hold_stays(holder: str) -> None:
    x = on_gpu([1, 2, 3, 4])
    pf.eval(x)
    held: Any = {
        "a lazy op": lambda: x + 0.0, "a lazy view of an equal tensor": lambda: x._snapshot()[:],
        "its node": lambda: x._node,
    }[holder]()  # fmt: skip
    kernel("scale")(x, 10.0, 4, grid=1, block=32)
    assert x.tolist() == [10.0, 20.0, 30.0, 40.0]
    old = pf.Tensor(held) if holder == "its node" else held
    assert old.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_views_follow_what_a_kernel_writes() -> None:
    x = on_gpu([1, 2, 3, 4])
    row, shared = x[1:3], x.detach()
    kernel("scale")(x, 10.0, 4, grid=1, block=32)
    assert row.tolist() == [20.0, 30.0] and shared.tolist() == [10.0, 20.0, 30.0, 40.0]
    kernel("scale")(row, 0.1, 2, grid=1, block=32)
    np.testing.assert_allclose(x.numpy(), [10, 2, 3, 40], rtol=1e-6)


def test_a_checkpoint_gets_back_what_it_rebinds() -> None:
    x = on_gpu([1, 2])
    pf.eval(x)
    rebinds = Rebinds()
    with rebinds, mode(rebinds=rebinds):
        kernel("scale")(x, 3.0, 2, grid=1, block=32)
        assert x.tolist() == [3.0, 6.0]
    assert x.tolist() == [1.0, 2.0]


def test_inputs_are_computed_made_dense_and_brought_here() -> None:
    matrix = on_gpu(np.arange(6).reshape(2, 3))
    elsewhere = pf.tensor([1.0] * 6)  # uncommitted: on the CPU now
    out = pf.empty(6, device=GPU)
    kernel("add")(matrix.T + 0.5, elsewhere, out, 6, grid=1, block=64)
    assert out.tolist() == [1.5, 4.5, 2.5, 5.5, 3.5, 6.5]
    turned = matrix.T
    kernel("scale")(turned, 2.0, 6, grid=1, block=64)
    assert turned.tolist() == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]] and matrix.tolist() == [[0, 2, 4], [6, 8, 10]]
    kernel("scale")(elsewhere, 2.0, 6, grid=1, block=64)
    assert elsewhere.tolist() == [2.0] * 6 and elsewhere.device == GPU


def test_shared_memory_and_waves() -> None:
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    sums, count = pf.zeros(3, device=GPU), pf.zeros(1, dtype=pf.int32, device=GPU)
    kernel("total")(on_gpu(x), sums, count, grid=3, block=64, shared=256)
    np.testing.assert_allclose(sums.numpy(), x.sum(axis=1), rtol=1e-4, atol=1e-5)
    assert count.item() == 3


def test_three_dimensions() -> None:
    out = pf.empty((6, 20), dtype=pf.int32, device=GPU)
    kernel("place")(out, grid=(5, 3), block=(4, 2))
    np.testing.assert_array_equal(out.numpy(), 1000 * np.arange(6)[:, None] + np.arange(20))


def test_numbers_of_all_kinds() -> None:
    out = pf.zeros(9, dtype=pf.float64, device=GPU)
    kernel("kinds")(out, True, 200, -(2**40), 0.1, 2**63 + 2048, -3, 1, None, -4, grid=1, block=1)
    assert out.tolist() == [1.0, 200.0, -(2.0**40), 0.1, 2.0**63 + 2048, -3.0, 1.0, 1.0, -4.0]
    y = pf.empty(4, dtype=pf.float16, device=GPU)
    kernel("halves")(on_gpu([1, 2, 3, 4], np.float16), y, grid=1, block=4)
    assert y.tolist() == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("scale", (1, 2), r"\[scale\] expected 3 arguments \(float\* x, float by, int n\) but got 2"),
        ("scale", (None, "2", 3), r"\[scale\] expected argument 1 to be float32 \(float by\) but got str '2'"),
        ("scale", (None, 2.0, 3.0), r"\[scale\] expected argument 2 to be int32 \(int n\) but got float 3.0"),
        ("scale", (None, 2.0, 2**31), r"expected argument 2 to be int32 \(int n\) but got 2147483648, which it cannot"),
        ("scale", (None, np.float64(2), 3), r"float32 \(float by\) but got a NumPy float64; give a Python number"),
        ("scale", (np.ones(3), 2.0, 3), r"float32\* \(float\* x\) but got a NumPy array; make it a tensor"),
        ("scale", (3, 2.0, 3), r"argument 0 to be float32\* \(float\* x\) but got int 3"),
        ("scale", ("int32", 2.0, 3), r"float32\* \(float\* x\) but got a tensor of int32 with shape \(2,\); cast it"),
        ("scale", (None, "int32", 3), r"float32 \(float by\) but got a tensor of int32 .*; give its number"),
        ("kinds", (None, 1, 1, 1, 1, 1, 1, 1, None, 1), r"argument 1 to be bool \(bool flag\) but got int 1"),
        ("kinds", (None, True, -1, 1, 1, 1, 1, 1, None, 1), r"argument 2 to be uint8 .* but got -1, which it cannot"),
    ],
)  # fmt: skip
def test_wrong_arguments(name: str, args: tuple[Any, ...], message: str) -> None:
    given = [pf.zeros(2, dtype=a, device=GPU) if isinstance(a, str) and a == "int32" else a for a in args]
    with pytest.raises(ArgumentTypeError, match=message):
        kernel(name)(*given, grid=1, block=1)


def test_wrong_launches(gpu: Any) -> None:
    x = on_gpu([1.0])
    launches = gpu.driver.launches
    for wrong, message in (
        ({"grid": 0, "block": 1}, r"\[scale\] expected grid to be one to three numbers"),
        ({"grid": 1, "block": (1, 2, 3, 4)}, r"\[scale\] expected block to be one to three numbers"),
        ({"grid": 1, "block": 2048}, r"expected at most 1024 threads per block but got 2048"),
        ({"grid": 1, "block": 1, "shared": 1 << 20}, r"expected at most 65536 bytes of shared memory per block"),
        ({"grid": 1, "block": 1, "shared": -1}, r"expected shared to be a number of bytes"),
    ):
        with pytest.raises(pf.ArgumentError, match=message):
            kernel("scale")(x, 2.0, 1, **wrong)
    with pytest.raises(ArgumentTypeError, match=r"expected a pf.Stream of rocm:44 as stream but got 3"):
        kernel("scale")(x, 2.0, 1, grid=1, block=1, stream=3)
    with pytest.raises(pf.ArgumentError, match=r"expected kernel\[grid, block\]"):
        kernel("scale")[3]
    assert gpu.driver.launches == launches and x.tolist() == [1.0]


def test_where_it_cannot_be_called() -> None:
    x = on_gpu([1.0])
    scale = kernel("scale")
    with pytest.raises(GradientError, match=r"\[scale\] expected tensors that need no gradient but argument 0 does"):
        scale(on_gpu([1.0]).requires_grad_(), 2.0, 1, grid=1, block=1)
    with pytest.raises(DeviceError, match=r"\[scale\] expected argument 0 on rocm:44 but it is committed to cpu"):
        scale(pf.ones(1, device="cpu"), 2.0, 1, grid=1, block=1)
    with pytest.raises(TraceError, match="the launch of scale asks for a value"):
        pf.jit(lambda x: scale(x, 2.0, 1, grid=1, block=1))(x)


def test_a_gradient_around_a_kernel() -> None:
    @pf.custom_gradient
    def doubled(x: pf.Tensor) -> Any:
        out = pf.empty(x.shape, device=GPU)
        kernel("add")(x, x, out, x.numel(), grid=1, block=32)
        return out, lambda g: 2.0 * g

    x = on_gpu([1.0, 2.0]).requires_grad_()
    (doubled(x) * pf.tensor([3.0, 5.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0, 10.0]


def test_streams() -> None:
    x, stream = on_gpu(np.ones(4)), pf.Stream(GPU)
    kernel("scale")(x, 2.0, 4, grid=1, block=32, stream=stream)
    with stream:
        kernel("scale")(x, 2.0, 4, grid=1, block=32)
    assert x.tolist() == [4.0] * 4


def test_the_cache_and_what_it_depends_on(tmp_path: Path) -> None:
    source = '#include "amount.h"\nextern "C" __global__ void put(int* x) { x[0] = AMOUNT + MORE; }\n'
    header = tmp_path / "amount.h"

    def built(amount: int, more: int) -> tuple[int, bool]:
        if not header.exists() or str(amount) not in header.read_text():
            header.write_text(f"#define AMOUNT {amount}\n")
        put = pf.compile_kernel(source, "put", device=GPU, include_dirs=[tmp_path], defines={"MORE": more})
        x = pf.empty(1, dtype=pf.int32, device=GPU)
        put(x, grid=1, block=1)
        return x.item(), put.cached

    before = pf.compile_stats()
    assert built(10, 1) == (11, False)
    assert built(10, 1) == (11, True)
    assert built(10, 2) == (12, False)
    assert built(200, 2) == (202, False)
    after = pf.compile_stats()
    assert after.compiles - before.compiles == after.misses - before.misses == 3
    assert after.memory_hits - before.memory_hits == 1
    with pytest.raises(pf.ArgumentError, match="expected include_dirs to name folders"):
        pf.compile_kernel(source, "put", device=GPU, include_dirs=[tmp_path / "gone"])
    with pytest.raises(ArgumentTypeError, match="expected options to be a list"):
        pf.compile_kernel(source, "put", device=GPU, options="-O3")


def test_threads_share_a_build() -> None:
    results: list[list[float]] = []

    def run() -> None:
        x = on_gpu([1, 2])
        kernel("scale", defines={"STEP": 7})(x, 1.0, 2, grid=1, block=32)
        results.append(x.tolist())

    before = pf.compile_stats().compiles
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[8.0, 9.0]] * 4 and pf.compile_stats().compiles - before <= 1


def test_wrong_sources() -> None:
    with pytest.raises(pf.ArgumentError, match=r"source has scale, add, total, .*; did you mean 'scale'\?"):
        kernel("scales")
    with pytest.raises(CompileError, match=r"(?s)refused a kernel.*>    3 \|   x\[0\] = oops;\n     4 \| \}"):
        pf.compile_kernel(
            'extern "C" __global__\nvoid bad(int* x) {\n  x[0] = oops;\n}'.replace("__\nvoid", "__ void\n"),
            "bad",
            device=GPU,
        )
    with pytest.raises(CompileError, match="expected a kernel that is no template"):
        pf.compile_kernel("template <class T> __global__ void t(T* x) {}", "t", device=GPU)
    with pytest.raises(CompileError, match="expected one kernel of this name but the source has several"):
        pf.compile_kernel("__global__ void t(int* x) {} __global__ void t(float* x) {}", "t", device=GPU)
    with pytest.raises(ArgumentTypeError, match="expected a source and the name of a kernel"):
        pf.compile_kernel(SOURCE, "not a name", device=GPU)


@pytest.mark.parametrize("device", ["cpu", "null:gfx942"])
def test_devices_without_kernels(device: str) -> None:
    with pytest.raises(DeviceError, match=rf"expected a GPU but got {device}, .* target='gfx942'"):
        pf.compile_kernel(SOURCE, "scale", device=device)


def test_the_compiler_of_the_backend() -> None:
    compiler = ROCmCompiler(GPU)
    for _ in range(2):
        scale = compiler.compile_kernel(SOURCE, "scale", defines={"STEP": 11})
    assert (scale.name, scale.architecture, scale.device) == ("scale", "gfx1100", GPU)
    assert scale.attributes["max_threads"] == 1024 and repr(scale).endswith("for gfx1100>")
    stats = compiler.get_compilation_stats()
    assert stats["kernels"] == 2 and stats["cache_hit_rate_percent"] >= 50.0


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
def test_machine_code_on_a_simulated_gpu(device: str) -> None:
    """What clang makes of pf_hip.h: positions, numbers of all sizes, dynamic LDS, shuffles and atomics."""
    need(find_clang(), "a clang with the AMDGPU target")

    def run(name: str, *args: Any, **launch: Any) -> None:
        pf.compile_kernel(SOURCE, name, device=device)(*args, **launch)

    x = pf.tensor(np.arange(300, dtype=np.float32), device=device)
    run("scale", x, 2.0, 299, grid=3, block=128)
    assert x[:299].tolist() == [2.0 * i for i in range(299)] and x[299].item() == 299.0
    out = pf.empty((6, 20), dtype=pf.int32, device=device)
    run("place", out, grid=(5, 3), block=(4, 2))
    np.testing.assert_array_equal(out.numpy(), 1000 * np.arange(6)[:, None] + np.arange(20))
    numbers = pf.zeros(9, dtype=pf.float64, device=device)
    run("kinds", numbers, True, 200, -(2**40), 0.1, 2**63 + 2048, -3, 1, None, -4, grid=1, block=1)
    assert numbers.tolist() == [1.0, 200.0, -(2.0**40), 0.1, 2.0**63 + 2048, -3.0, 1.0, 1.0, -4.0]
    rows = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    sums, count = pf.zeros(3, device=device), pf.zeros(1, dtype=pf.int32, device=device)
    run("total", pf.tensor(rows, device=device), sums, count, grid=3, block=64, shared=256)
    np.testing.assert_allclose(sums.numpy(), rows.sum(axis=1), rtol=1e-4, atol=1e-5)
    assert count.item() == 3
