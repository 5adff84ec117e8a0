"""Products and convolutions on matrix instructions (pf_mma.h, pf_mma_loop.h) as machine code.

Every block, dtype, layout and edge:

MFMA runs on gfx942, WMMA on gfx1100, against NumPy in float64, forward and backward. What is reached is measured as in
test_hand_kernels.py. The other targets have instructions and layouts of their own; of these a few run always, all in
`make test-all`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.kernels.matrix_cores import matrix_kind, matrix_tiles
from tests.gpu import attention_cases, conv_cases, gemm_cases
from tests.gpu.gemm_cases import product
from tests.sim.families import Case, Family, misaligned, numbers
from tests.sim.test_hand_kernels import run_family

HEADERS = {
    "gfx942": "pf_mma_mfma.h", "gfx1100": "pf_mma_wmma.h", "gfx90a": "pf_mma_mfma.h", "gfx950": "pf_mma_mfma.h",
    "gfx1201": "pf_mma_wmma.h",
}  # fmt: skip
OTHERS = ("gfx90a", "gfx950", "gfx1201")
PLAIN, TURNED = "plain", "transposed"


def blocks(target: str) -> dict[str, Case]:
    """Every block of tiles, at shapes with an edge in all three axes; one operand along k, the other across it."""
    kind = matrix_kind(TARGETS[target], pf.bfloat16)
    assert kind is not None
    found = {}
    for number, tile in enumerate(matrix_tiles(TARGETS[target], kind, 4)):
        shape = (tile.rows + 8, tile.depth + 8, tile.cols + 16)
        views = ((PLAIN, TURNED), (TURNED, PLAIN))[number % 2]
        case = product(shape[:2], shape[1:], pf.bfloat16, views)
        found[f"{tile.rows}x{tile.cols}"] = Case(case, patch=f"block {number}")
    return found


def gradients() -> list[pf.Tensor]:
    """Of a layer with bias and activation in bfloat16: three products, of which two are transposed."""
    shapes = ((40, 48), (56, 48), (56,))
    x, w, b = (numbers(*s, seed=n, dtype=pf.bfloat16).requires_grad_() for n, s in enumerate(shapes))
    out = pf.relu(x @ w.T + b)
    (out * numbers(40, 56, seed=3, dtype=pf.bfloat16)).sum().backward()
    return [out, *(t.grad for t in (x, w, b) if t.grad is not None)]


def bytes_to_int32() -> gemm_cases.Case:
    a, b = (gemm_cases.numbers(s, pf.int8, n) for n, s in enumerate(((33, 130), (130, 20))))
    return gemm_cases.Case([pf._int_mm(pf.tensor(a), pf.tensor(b))], [a.astype(np.int32) @ b.astype(np.int32)])


def layouts(target: str) -> dict[str, Any]:
    """Dtypes by layouts: both vectors, single numbers along k and across lines, and strides that are neither."""
    row = [d for d in (pf.float16, pf.bfloat16, pf.int8, pf.float32, pf.float64) if matrix_kind(TARGETS[target], d)]
    found: dict[str, Any] = {}
    for d in row:
        found[f"{d.name} vectors"] = product((32, 96), (96, 48), d, (PLAIN, TURNED))
        found[f"{d.name} turned"] = product((32, 96), (96, 48), d, (TURNED, PLAIN))
        found[f"{d.name} odd"] = product((35, 37), (37, 41), d, (TURNED, TURNED))
        found[f"{d.name} odd rows"] = product((19, 70), (70, 33), d)
        found[f"{d.name} long"] = product((12, 3000), (3000, 12), d)
    for d in (pf.bfloat16, pf.int8):
        found[f"{d.name} strides"] = product((30, 40), (40, 36), d, ("flipped", "spread"))
    return found


def family(target: str) -> Family:
    given = {
        **layouts(target),
        "batch": product((3, 20, 24), (3, 24, 28), pf.bfloat16),
        "batch of three axes": product((2, 1, 3, 9, 8), (1, 4, 3, 8, 11), pf.float16),
        "batch of shared left": product((20, 24), (5, 24, 28), pf.float16),
        "fused": gemm_cases.fused(33, 64, 40, pf.bfloat16),
        "fused long": gemm_cases.fused(20, 4096, 24, pf.bfloat16),
        "misaligned": misaligned(36, 24, 40, pf.bfloat16, True),
        "bytes to int32": bytes_to_int32,
        "gradients": gradients,
        "large": product((150, 40), (40, 140), pf.bfloat16),
    }  # fmt: skip
    cases = {name: Case(build) for name, build in given.items()}
    waves = {128, 256} if TARGETS[target].wave_size == 32 else {256}
    sizes = {"ROWS": {16, 32, 64, 128}, "COLS": {16, 32, 64, 128}, "WAVES_ACROSS": {1, 2, 4}, "CHUNKS": {1, 2}}
    sizes["AS_IS"] = {0, 1} if target == "gfx90a" else {1}  # 0 is TF32's too: tests/null/test_matrix_tiles.py
    return Family(
        ("pf_mma_loop.h", "pf_strips.h", HEADERS[target]),
        {**cases, **blocks(target)},
        {"pf_gemm_mma": {**sizes, "THREADS": waves, "AXES": {0, 1, 3}, "OUT_WIDTH": {1, 4, 8}}},
        templates=("matmul.hip",),
    )


def convolutions(target: str) -> Family:
    """bfloat16 in both memory orders that a plan may have, in every block; the other floats in some."""
    given = conv_cases.tiled(pf.bfloat16)
    for dtype in (d for d in (pf.float16, pf.float32, pf.float64) if matrix_kind(TARGETS[target], d)):
        given |= {n: b for n, b in conv_cases.tiled(dtype).items() if n.endswith((" last", " turned", " odd"))}
    cases = {name: Case(build) for name, build in given.items()}
    cases |= {f"{name} (nchw)": Case(build, patch="nchw") for name, build in conv_cases.tiled(pf.bfloat16).items()}
    cases["wide"] = Case(given["bfloat16 last"], patch="wide")
    cases["gradients"] = Case(
        gemm_cases.trained(pf.conv2d, (2, 16, 8, 9), (24, 16, 3, 3), pf.bfloat16, stride=2, padding=1)
    )
    cases["gradients of one tap"] = Case(
        gemm_cases.trained(pf.conv2d, (2, 16, 9, 8), (24, 16, 1, 1), pf.bfloat16, stride=2)
    )
    return Family(
        (),
        cases,
        {
            "pf_conv_mma": {
                **{name: set() for name in ("ROWS", "COLS", "THREADS", "WAVES_ACROSS", "CHUNKS", "AS_IS")},
                "RANK": {1, 2, 3},
                "OUT_WIDTH": {1, 2, 4, 8},
                "MASK": {0, 1, 2},
                "PHASES": {1, 4},
            },
            "pf_conv_finish": {"THREADS": {256}, "SHARE": {1}},
        },
        templates=("conv.hip",),
    )


def conv_blocks(target: str) -> Family:
    """Every block, with an edge in all three axes."""
    kind = matrix_kind(TARGETS[target], pf.bfloat16)
    assert kind is not None
    cases = {}
    for number, tile in enumerate(matrix_tiles(TARGETS[target], kind, 4, 32)):  # 32: pf_tap twice
        shapes = (1, 1, 24, 1, 1, tile.cols + 18), (1, tile.rows + 8, 24, 1, 1, 3)
        case = gemm_cases.convolution(*shapes, dtype=pf.bfloat16, views=conv_cases.LAST)
        cases[f"{tile.rows}x{tile.cols}"] = Case(case, patch=f"block {number}")
    return Family((), cases)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_convolutions(target: str) -> None:
    run_family(convolutions(target), target)


@pytest.mark.slow(16)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_blocks_of_convolutions(target: str) -> None:
    run_family(conv_blocks(target), target)


@pytest.mark.slow(16)
@pytest.mark.parametrize("target", OTHERS)
def test_a_few_convolutions(target: str) -> None:
    with pf.device(f"sim:{target}"):
        for name, build in (conv_cases.tiled(pf.bfloat16) | conv_cases.tiled(pf.float16)).items():
            if name.endswith((" last", " turned", " odd")):
                case = build()
                gemm_cases.check([t.numpy() for t in case.outputs], case)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param(t, marks=pytest.mark.thorough if t in OTHERS else ()) for t in HEADERS]
)
def test_products(target: str) -> None:
    run_family(family(target), target)


@pytest.mark.slow(16)
@pytest.mark.parametrize("target", OTHERS)
def test_products_and_attention(target: str) -> None:
    """Each dtype's instruction, and attention, which takes the sums of one product for an operand of the next."""
    chosen = [build for name, build in layouts(target).items() if name.endswith((" turned", " odd"))]
    attending = [
        attention_cases.TILED[name] for name in ("bfloat16", "two tiles, grouped", "turned, added", "16 bits, window")
    ]
    with pf.device(f"sim:{target}"):
        for build in (*chosen, *attending):
            case = build()
            gemm_cases.check([t.numpy() for t in case.outputs], case)
