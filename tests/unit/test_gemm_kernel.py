"""matmul.c and conv.c against NumPy, through a runner of a few lines: every path, dtype and awkward shape.

The kernels are compiled as codegen will compile them (defines, an epilogue, the template) and called on one thread in
chunks, out of order, with a worker number per chunk: what a pool of threads may do to them. Instructions that this CPU
lacks are run by QEMU, if it is installed (Debian's qemu-user): the file runs itself on an emulated CPU.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflame.kernels import conv, matmul
from pyflame.runtime.cpu.compiler import cpu_flags

KERNELS = Path(matmul.__file__).parent
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler")

FLAGS = ["-O1", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-std=gnu11", "-shared", "-fPIC"]
ISAS = {"native": ["-march=native"], "baseline": []}
if {"avx2", "fma"} <= set(cpu_flags()):
    ISAS["avx2"] = ["-mavx2", "-mfma"]
EMULATED = "PYFLAME_TEST_EMULATED_CPU"  # set where QEMU runs this file
ARM = platform.machine() == "aarch64"
NEEDS = {}
if ARM:
    NEEDS = {"neon_dot": ("asimddp",), "neon_mmla": ("i8mm", "bf16")}
    NEEDS |= {"sve256_mmla": ("i8mm", "bf16", "sve256"), "sve512": ("sve512",)}
    ISAS |= {
        "neon_dot": ["-march=armv8.2-a+dotprod"],
        "neon_mmla": ["-march=armv8.2-a+dotprod+i8mm+bf16"],
        "sve256_mmla": ["-march=armv8.2-a+dotprod+i8mm+bf16+sve", "-msve-vector-bits=256"],
        "sve512": ["-march=armv8.2-a+sve", "-msve-vector-bits=512"],
    }
SVE = [flags for flags in NEEDS if flags.startswith("sve")]
# What QEMU calls a CPU that has them.
CPUS = {"sve256_mmla": "max,sve256=on,pauth-impdef=on", "sve512": "a64fx"}
ACC = {
    "float32": "float",
    "bfloat16": "float",
    "float16": "float",
    "float64": "double",
    "int8": "int32_t",
    "uint8": "int32_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
}
NUMPY = {"float": np.float32, "double": np.float64, "int16_t": np.int16, "int32_t": np.int32, "int64_t": np.int64}
WORKERS = 3

EPILOGUE = """
static inline void store(char *const *buf, const int64_t *arg, const pf_word *uni, int64_t batch, int64_t i, int64_t j,
                         int64_t n, const PF_ACC_T *acc) {
  (void)uni;
  PF_ACC_T *out = (PF_ACC_T *)buf[3] + (batch * arg[FIRST] + i) * arg[FIRST + 1] + j;
  for (int64_t x = 0; x < n; x++) out[x] += acc[x];
}
#define PF_EPILOGUE store
"""


@lru_cache
def isa(flags: str) -> matmul.Isa:
    assert CC
    command = [CC, *ISAS[flags], "-dM", "-E", "-x", "c", "/dev/null"]
    macros = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    defined = [line.split(maxsplit=2)[1:] for line in macros.splitlines()]
    return matmul.isa_of({name for name, *_ in defined} | {"=".join(one) for one in defined})


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("gemm")

    @lru_cache
    def compiled(template: str, flags: str, first: int, defines: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
        assert CC
        lacking = set(NEEDS.get(flags, ())) - set(cpu_flags())
        if lacking and EMULATED not in os.environ:
            pytest.skip(f"this CPU has no {', '.join(sorted(lacking))}: see test_on_an_emulated_cpu")
        named = (("PF_NAME", "k"), ("FIRST", str(first)), *defines)
        lines = ['#include "pf_abi.h"', *(f"#define {name} {value}" for name, value in named)]
        source = folder / f"k{len(list(folder.iterdir()))}.c"
        source.write_text("\n".join(lines) + EPILOGUE + f'#include "{template}"\n')
        library = source.with_suffix(".so")
        include = [f"-I{KERNELS}", f"-I{KERNELS / 'include'}"]
        command = [CC, *FLAGS, *ISAS[flags], *include, str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(library))
        loaded.k_permit.restype = ctypes.c_int64
        if loaded.k_permit() != 0:
            pytest.skip("the kernel does not grant AMX tiles")
        return loaded

    return compiled


def launch(
    library: ctypes.CDLL,
    phases: tuple[tuple[str, int], ...],
    scratch_bytes: int,
    args: list[int],
    x: Any,
    y: Any,
    out: Any,
) -> None:
    raw = np.full(scratch_bytes + 64, 255, np.uint8)
    scratch = raw[-raw.ctypes.data % 64 :]
    buffers = (ctypes.c_void_p * 4)(x.ctypes.data, y.ctypes.data, scratch.ctypes.data, out.ctypes.data)
    packed = (ctypes.c_int64 * len(args))(*args)
    out.fill(0)
    for suffix, iterations in phases:
        chunk = max(1, iterations // 5)
        starts = list(range(0, iterations, chunk))
        random.shuffle(starts)
        for worker, start in enumerate(starts):
            bounds = (start, min(start + chunk, iterations), worker % WORKERS)
            getattr(library, f"k_{suffix}")(buffers, packed, None, *map(ctypes.c_int64, bounds))


def sample(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype in ("int8", "uint8"):  # all of their range: sums wrap nowhere before int32 does
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
    if dtype.startswith("int"):
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def check(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], magnitude: np.ndarray[Any, Any]) -> None:
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        tolerance = 1e-13 if got.dtype == np.float64 else 4e-6
        assert np.all(np.abs(got - want) <= tolerance * magnitude)


def elements(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def six(values: tuple[int, ...]) -> list[int]:
    return [*values, *[0] * (6 - len(values))]


def product(
    build: Any,
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    dtypes: tuple[str, str],
    flags: str,
    workers: int = WORKERS,
) -> Any:
    batch_shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n, batch = a.shape[-2:], b.shape[-1], int(np.prod(batch_shape, dtype=int))
    left, right = np.broadcast_to(a, (*batch_shape, m, k)), np.broadcast_to(b, (*batch_shape, k, n))
    sa, sb = elements(left), elements(right)
    acc = ACC[dtypes[0]]
    plan = matmul.gemm_plan(
        m, n, k, batch,
        a_dtype=dtypes[0], b_dtype=dtypes[1], acc_bytes=np.dtype(NUMPY[acc]).itemsize,
        a_shared=not any(sa[:-2]), b_shared=not any(sb[:-2]), a_strides=(sa[-2], sa[-1]), b_strides=(sb[-2], sb[-1]),
        isa=isa(flags), workers=workers,
    )  # fmt: skip
    defines = (("PF_A_T", dtypes[0]), ("PF_B_T", dtypes[1]), ("PF_ACC_T", acc), ("PF_THIN", str(plan.thin)))
    dims = [*six(batch_shape), *six(sa[:-2]), *six(sb[:-2])]
    args = [m, n, k, *sa[-2:], *sb[-2:], batch, len(batch_shape), *dims, *plan.args, 3, np.dtype(NUMPY[acc]).itemsize]
    assert len(args) == matmul.EPILOGUE_ARG
    out = np.empty((*batch_shape, m, n), NUMPY[acc])
    library = build("matmul.c", flags, matmul.EPILOGUE_ARG, defines)
    launch(library, plan.phases, plan.scratch_bytes, [*args, m, n], left, right, out)
    return out


def layouts(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """The same matrix row-major, column-major, with gaps, and backwards."""
    yield np.ascontiguousarray(array)
    yield np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    gaps = np.zeros((*array.shape[:-1], 3 * array.shape[-1] + 1), array.dtype)[..., 1::3]
    gaps[...] = array
    yield gaps
    yield np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]


SHAPES = [
    (1, 1, 1),
    (1, 7, 5),
    (2, 3, 0),
    (1, 4, 0),
    (13, 17, 19),
    (15, 33, 31),
    (64, 64, 64),
    (1, 300, 129),
    (300, 1, 129),
    (3, 200, 65),
    (131, 3, 259),
    (29, 67, 401),
    (13, 9, 4200),
    (70, 130, 900),
    (256, 300, 530),
    (37, 41, 8200),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "dtypes"),
    [("native", (name, name)) for name in ("float32", "float64", "bfloat16", "float16", "int8", "int16", "int64")]
    + [("native", ("uint8", "int8")), ("baseline", ("float32", "float32")), ("baseline", ("bfloat16", "bfloat16"))]
    + [(flags, (name, name)) for flags in NEEDS for name in ("int8", "uint8", "bfloat16")]
    + [(flags, (name, name)) for flags in SVE for name in ("float32", "float16", "float64", "int16")],
)
def test_matmul(build: Any, dtypes: tuple[str, str], flags: str) -> None:
    rng = np.random.default_rng(0)
    for m, n, k in SHAPES if EMULATED not in os.environ else [size for size in SHAPES if np.prod(size) < 1e6]:
        a, b = sample((m, k), dtypes[0], rng), sample((k, n), dtypes[1], rng)
        want, magnitude = wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b))
        pairs = list(itertools.product(layouts(a), layouts(b)))
        every = m * n * k < (1e5 if EMULATED not in os.environ else 1e3)
        for left, right in pairs if every else pairs[:2] + pairs[4:5] + pairs[-1:]:
            check(product(build, left, right, dtypes, flags), want, magnitude)


@pytest.mark.parametrize("batches", [((3,), ()), ((), (4,)), ((2, 3), (2, 3)), ((2, 1, 2), (3, 1)), ((0,), (0,))])
@pytest.mark.parametrize("size", [(5, 6, 7), (40, 33, 20), (1, 50, 40), (50, 2, 33)])
def test_matmul_batches_broadcast(
    build: Any, batches: tuple[tuple[int, ...], tuple[int, ...]], size: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(1)
    m, n, k = size
    a, b = sample((*batches[0], m, k), "float32", rng), sample((*batches[1], k, n), "float32", rng)
    check(product(build, a, b, ("float32", "float32"), "native"), wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b)))


def test_workers_do_not_change_a_bit(build: Any) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in [(70, 130, 900), (37, 41, 8200), (1, 300, 129)]:
        a, b = sample((m, k), "float32", rng), sample((k, n), "float32", rng)
        runs = [product(build, a, b, ("float32", "float32"), "native", workers) for workers in (3, 7, 64)]
        assert all(np.array_equal(runs[0], other) for other in runs[1:])


def convolve(
    build: Any, x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], shape: conv.ConvShape, dtype: str, flags: str
) -> Any:
    shape, x_strides = conv.merge_axes(shape, elements(x))
    acc = ACC[dtype]
    plan = conv.conv_plan(
        shape, x_dtype=dtype, w_dtype=dtype, acc_bytes=np.dtype(NUMPY[acc]).itemsize, isa=isa(flags), workers=WORKERS
    )
    defines = (("PF_X_T", dtype), ("PF_W_T", dtype), ("PF_ACC_T", acc), ("PF_ALGORITHM", str(plan.algorithm)))
    args = [*shape.args, *x_strides, *elements(w), *plan.args]
    assert len(args) == conv.EPILOGUE_ARG
    pixels = int(np.prod(shape.out))
    out = np.empty((shape.n, shape.groups, shape.o, pixels), NUMPY[acc])
    library = build("conv.c", flags, conv.EPILOGUE_ARG, defines)
    launch(library, plan.phases, plan.scratch_bytes, [*args, shape.o, pixels], x, w, out)
    return out, plan.algorithm


def reference(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], shape: conv.ConvShape) -> np.ndarray[Any, Any]:
    """The sum as it is written in conv.c, tap by tap on the zero-dilated input."""
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(shape.size, shape.lhs_dilation, strict=True)]
    spread = np.zeros((*x.shape[:3], *extents), x.dtype)
    step0, step1, step2 = shape.lhs_dilation
    spread[..., ::step0, ::step1, ::step2] = x
    out = np.zeros((shape.n, shape.groups, shape.o, *shape.out), x.dtype)
    for tap in itertools.product(*map(range, shape.taps)):
        patch = spread
        for d in range(3):
            at = np.arange(shape.out[d]) * shape.stride[d] + tap[d] * shape.rhs_dilation[d] - shape.pad_lo[d]
            inside = (at >= 0) & (at < extents[d])
            column = [1] * 6
            column[3 + d] = len(at)
            patch = patch.take(np.where(inside, at, 0), axis=3 + d) * inside.reshape(column)
        out += np.einsum("ngcabe,goc->ngoabe", patch, w[..., tap[0], tap[1], tap[2]])
    return out.reshape(shape.n, shape.groups, shape.o, -1)


def conv_shapes(rng: random.Random) -> Iterator[conv.ConvShape]:
    pick = rng.randint

    def triple(low: int, high: int) -> tuple[int, int, int]:
        return pick(low, high), pick(low, high), pick(low, high)

    for kind in range(40):
        taps: tuple[int, int, int] = (pick(1, 2), pick(1, 3), pick(1, 4))
        size: tuple[int, int, int] = (pick(1, 3), pick(1, 12), pick(1, 40))
        n, groups, c, o = pick(1, 3), pick(1, 2), pick(1, 6), pick(1, 40)
        if kind % 4 == 1:  # as backward-weight: many taps, few pixels
            size = (1, pick(8, 20), pick(8, 40))
            taps = (1, max(1, size[1] - pick(0, 2)), max(1, size[2] - pick(0, 2)))
        elif kind % 4 == 2:  # depthwise
            groups, c, o = pick(1, 5), 1, pick(1, 2)
        elif kind % 4 == 3:  # pointwise and deep
            c, taps = pick(30, 60), (1, 1, 1)
        one = (1, 1, 1)
        plain = kind % 3 == 0
        stride, lhs, rhs, pad = (one, one, one, (0, 0, 0))
        if not plain:
            stride, lhs, rhs, pad = triple(1, 3), triple(1, 2), triple(1, 2), triple(-1, 2)
        span = [(size[d] - 1) * lhs[d] + 1 + 2 * pad[d] - (taps[d] - 1) * rhs[d] - 1 for d in range(3)]
        out = (max(0, span[0]) // stride[0] + 1, max(0, span[1]) // stride[1] + 1, max(0, span[2]) // stride[2] + 1)
        yield conv.ConvShape(n, groups, c, o, size, taps, out, stride, pad, lhs, rhs)


@pytest.mark.slow(16)
@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("native", "float32"), ("native", "bfloat16"), ("native", "int8"), ("baseline", "float32")]
    + [(flags, name) for flags in NEEDS for name in ("int8", "bfloat16")]
    + [(flags, name) for flags in SVE for name in ("float32", "float16")],
)
def test_conv(build: Any, dtype: str, flags: str) -> None:
    rng, algorithms = np.random.default_rng(3), set()
    shapes = itertools.islice(conv_shapes(random.Random(4)), 8 if EMULATED in os.environ else None)
    for number, shape in enumerate(shapes):
        x = sample((shape.n, shape.groups, shape.c, *shape.size), dtype, rng)
        w = sample((shape.groups, shape.o, shape.c, *shape.taps), dtype, rng)
        if number % 2:  # channels last, and a flipped kernel as in backward-data
            x = np.ascontiguousarray(x.transpose(0, 3, 4, 5, 1, 2)).transpose(0, 4, 5, 1, 2, 3)
            w = np.ascontiguousarray(w[..., ::-1, ::-1])[..., ::-1, ::-1]
        got, algorithm = convolve(build, x, w, shape, dtype, flags)
        algorithms.add(algorithm)
        check(got, reference(wide(x), wide(w), shape), reference(np.abs(wide(x)), np.abs(wide(w)), shape))
    assert algorithms == {0, 1, 2, 3}


# As gradients of weights: images and outputs in several blocks, taps in several units, strides, dilations, three axes.
WEIGHT_GRADIENTS = [
    conv.ConvShape(70, 1, 2, 150, (1, 9, 9), (1, 8, 8), (1, 2, 2)),
    conv.ConvShape(2, 1, 3, 20, (1, 3, 600), (1, 1, 600), (1, 3, 3), pad_lo=(0, 0, 1)),
    conv.ConvShape(3, 2, 4, 33, (1, 40, 21), (1, 37, 19), (1, 3, 3)),
    conv.ConvShape(15, 1, 5, 17, (3, 10, 9), (2, 9, 9), (2, 2, 3), pad_lo=(0, 0, 1)),
    conv.ConvShape(1, 1, 9, 5, (1, 33, 34), (1, 16, 16), (1, 3, 3), pad_lo=(0, 1, 1), rhs_dilation=(1, 2, 2)),
    conv.ConvShape(4, 1, 2, 9, (1, 9, 9), (1, 12, 11), (1, 2, 3), (1, 2, 2), (0, 1, 1), (1, 2, 2)),
    conv.ConvShape(16, 2, 3, 8, (1, 16, 16), (1, 8, 8), (1, 3, 3), pad_lo=(0, 1, 1), rhs_dilation=(1, 2, 2)),
    conv.ConvShape(1, 7, 9, 1, (1, 33, 34), (1, 16, 16), (1, 3, 3), pad_lo=(0, 1, 1), rhs_dilation=(1, 2, 2)),
    conv.ConvShape(2, 3, 5, 1, (2, 25, 13), (2, 23, 9), (1, 3, 3), pad_lo=(0, 0, 0)),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("flags", list(ISAS))
@pytest.mark.parametrize("shape", WEIGHT_GRADIENTS)
def test_weight_gradients(build: Any, shape: conv.ConvShape, flags: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = sample((shape.n, shape.groups, shape.c, *shape.size), dtype, rng)
    w = sample((shape.groups, shape.o, shape.c, *shape.taps), dtype, rng)
    turned = np.ascontiguousarray(w.transpose(0, 2, 3, 4, 5, 1)).transpose(0, 5, 1, 2, 3, 4)
    for given in (w, turned):
        got, algorithm = convolve(build, x, given, shape, dtype, flags)
        assert algorithm == 2 if shape.o == 1 else algorithm in (1, 2)
        check(got, reference(wide(x), wide(w), shape), reference(np.abs(wide(x)), np.abs(wide(w)), shape))


@pytest.mark.parametrize(("outputs", "stride", "algorithm"), [(8, 1, 2), (8, 2, 1), (2, 2, 1), (1, 2, 2), (9, 1, 1)])
def test_a_weight_gradient_with_gaps_between_taps_has_vectors_of_outputs(
    outputs: int, stride: int, algorithm: int
) -> None:
    size = (1, 16 * stride, 16 * stride)
    gaps = (1, stride, stride)
    shape = conv.ConvShape(16, 2, 16, outputs, size, (1, 16, 16), (1, 3, 3), pad_lo=(0, 1, 1), rhs_dilation=gaps)
    assert conv.conv_plan(shape, isa="avx512").algorithm == algorithm


@pytest.mark.thorough
@pytest.mark.parametrize("flags", NEEDS)
@pytest.mark.skipif(EMULATED in os.environ, reason="runs there already")
def test_on_an_emulated_cpu(flags: str) -> None:
    if set(NEEDS[flags]) <= set(cpu_flags()):
        pytest.skip("this CPU has all of them")
    from tests.needs import need  # imports torch, which takes minutes on an emulated CPU

    qemu = need(shutil.which("qemu-aarch64"), "qemu-aarch64 (Debian: qemu-user)")
    cpu = CPUS.get(flags, "max,sve=off,pauth-impdef=on")
    # Python starts slowly there: without plugins, without tests/conftest.py and the torch that it imports
    command = [qemu, "-cpu", cpu, sys.executable, "-m", "pytest", "-q", "--noconftest"]
    command += ["-p", "no:cacheprovider", __file__, "-k", f"{flags} and not emulated"]
    environment = {**os.environ, EMULATED: cpu, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
