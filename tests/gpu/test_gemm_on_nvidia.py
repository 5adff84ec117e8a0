"""GPU matmul and convolution on a real NVIDIA GPU, against NumPy and the CPU: the text that AMD GPUs get.

`tests/null/test_gpu_kernels_gemm.py` builds and emulates the same cases. What a real GPU adds are threads that truly
run at once and sizes that fill it.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from tests.gpu.conv_cases import LAST, tiled
from tests.gpu.gemm_cases import CASES, Array, Build, convolution, numbers, product, trained
from tests.gpu.nvidia import Clock, Nvidia, Prepared, absent, wrong_of
from tests.gpu.programs import Program
from tests.null import test_conv_async as conv_async

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)


def test_awkward(gpu: Nvidia) -> None:
    assert wrong_of(gpu, CASES) == {}


def test_convolutions_on_matrix_tiles(gpu: Nvidia) -> None:
    builds = {name: build for d in (pf.bfloat16, pf.float16, pf.float64) for name, build in tiled(d).items()}
    assert wrong_of(gpu, builds) == {}


@pytest.mark.parametrize("number", range(len(conv_async.blocks(conv_async.HOPPER))))
def test_every_async_block_of_convolutions(gpu: Nvidia, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every geometry in every block, and images that give many blocks many steps each."""
    tiles = conv_async.blocks(gpu.target)
    if number >= len(tiles):
        pytest.skip("this GPU has fewer blocks")
    conv_async.only(monkeypatch, number)
    taps = (1, tiles[number].cols + 8, 64, 1, 3, 3)
    builds = conv_async.cases(pf.bfloat16) | {
        "large": convolution((8, 1, 64, 1, 30, 28), taps, pad=(0, 1, 1), dtype=pf.bfloat16, views=LAST),
        "last tiles in halves": convolution(
            (1, 1, 64, 1, 1, 17_000), (1, 256, 64, 1, 1, 3), dtype=pf.bfloat16, views=LAST
        ),
        "large gradients": trained(pf.conv2d, (8, 64, 30, 28), (72, 64, 3, 3), pf.bfloat16, padding=1, stride=2),
    }
    assert wrong_of(gpu, builds) == {}


# k in the thousands: an error of one product is the square root of that many roundings.
LARGE: dict[str, Build] = {
    "square": product((2048, 2048), (2048, 2048)),
    "prime": product((1021, 1531), (1531, 2039)),
    "transposed": product((1024, 4096), (4096, 1024), views=("transposed", "transposed")),
    "bfloat16": product((2048, 1024), (1024, 2048), pf.bfloat16),
    "float64": product((1024, 1024), (1024, 1024), pf.float64),
    "int8": product((1024, 1024), (1024, 1024), pf.int8),
    "batch": product((16, 12, 256, 64), (16, 12, 64, 256)),
    "split": product((96, 200000), (200000, 64)),
    "one row": product((1, 8192), (8192, 8192)),
    "one row, transposed": product((1, 8192), (8192, 8192), views=("plain", "transposed")),
    "one column bfloat16": product((8192, 4096), (4096, 1), pf.bfloat16),
    "eight rows": product((8, 4096), (4096, 11008), pf.bfloat16, ("plain", "transposed")),
    "dot": product((1, 1 << 22), (1 << 22, 1)),
    "conv": convolution((16, 1, 64, 1, 56, 56), (1, 64, 64, 1, 3, 3), pad=(0, 1, 1)),
    "conv stem": convolution((8, 1, 3, 1, 224, 224), (1, 64, 3, 1, 7, 7), stride=(1, 2, 2), pad=(0, 3, 3)),
    "conv 1x1": convolution((8, 1, 256, 1, 28, 28), (1, 512, 256, 1, 1, 1)),
    "depthwise": convolution((8, 384, 1, 1, 28, 28), (384, 1, 1, 1, 7, 7), pad=(0, 3, 3)),
    "conv gradients": trained(pf.conv2d, (8, 64, 32, 32), (128, 64, 3, 3), padding=1, stride=2),
    "depthwise gradients": trained(pf.conv2d, (8, 96, 32, 32), (96, 1, 3, 3), padding=1, groups=96),
}


@pytest.mark.parametrize("name", LARGE)
def test_large(gpu: Nvidia, name: str) -> None:
    assert wrong_of(gpu, {name: LARGE[name]}) == {}


def filled(*shape: int, dtype: pf.DType = pf.float32) -> pf.Tensor:
    return pf.tensor(numbers(shape, dtype, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "m", "k", "n", "dtype"),
    [
        ("float32 4096", 4096, 4096, 4096, pf.float32),
        ("float32 1024", 1024, 1024, 1024, pf.float32),
        ("bfloat16 4096", 4096, 4096, 4096, pf.bfloat16),
        ("float64 2048", 2048, 2048, 2048, pf.float64),
        ("row by matrix", 1, 8192, 16384, pf.float32),
        ("long k", 128, 1 << 18, 128, pf.float32),
    ],
)
def test_pace(gpu: Nvidia, name: str, m: int, k: int, n: int, dtype: pf.DType) -> None:
    """Prints the pace (run with -s); a time would be no test."""
    program = Program([filled(m, k, dtype=dtype) @ filled(k, n, dtype=dtype)], gpu.target)
    gpu.build([program])
    clock, times = Clock(), 10
    with Prepared(gpu, program) as prepared:
        prepared.launch()
        with clock:
            for _ in range(times):
                prepared.launch()
        seconds = clock.seconds() / times
        results: list[Array] = program.results(prepared.image())
    assert np.isfinite(results[0].astype(np.float32)).all()
    print(f"\n{name}: {2e-12 * m * n * k / seconds:.2f} TFLOP/s, {1e-9 * program.nbytes / seconds:.0f} GB/s")
