"""Convolutions and both of their gradients on every simulated kind of GPU, at geometries that people use.

torch says what they should be. Both memory orders that a plan may have; channels and pixels that fill no tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.evaluate import clear_plans
from tests.gpu.gemm_cases import TOLERANCE, numbers, wide
from tests.needs import needs_torch

TARGETS = ("gfx942", "gfx1100", "gfx90a", "gfx950", "gfx1201")
# gfx942 and gfx1100 run more in test_matrix_tiles.py: of all these one runs always
RUNS = [
    pytest.param(t, layout, marks=() if (t, layout) == ("gfx1201", "nhwc") else pytest.mark.thorough)
    for t in TARGETS
    for layout in ("nchw", "nhwc")
]
DTYPES = (pf.float32, pf.float16, pf.bfloat16)
# op, image, weight, options
GEOMETRIES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1d": ("conv1d", (2, 16, 37), (24, 16, 3), {"padding": 1}),
    "1d of three channels": ("conv1d", (2, 3, 41), (10, 3, 5), {"stride": 2, "padding": 2}),
    "2d": ("conv2d", (2, 16, 9, 8), (24, 16, 3, 3), {"padding": 1}),
    "2d, one tap": ("conv2d", (2, 24, 7, 7), (40, 24, 1, 1), {}),
    "2d, one tap, stride": ("conv2d", (2, 16, 9, 9), (24, 16, 1, 1), {"stride": 2}),
    "2d, stride": ("conv2d", (2, 16, 10, 9), (24, 16, 3, 3), {"stride": 2, "padding": 1}),
    "2d, dilation": ("conv2d", (1, 8, 11, 10), (16, 8, 3, 3), {"dilation": 2, "padding": 2}),
    "2d, stem": ("conv2d", (1, 3, 19, 18), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    "2d, odd channels": ("conv2d", (2, 13, 7, 6), (19, 13, 3, 3), {"padding": 1}),
    "2d, groups": ("conv2d", (2, 32, 7, 6), (48, 16, 3, 3), {"padding": 1, "groups": 2}),
    "2d, depthwise": ("conv2d", (2, 12, 8, 7), (12, 1, 3, 3), {"padding": 1, "groups": 12}),
    "3d": ("conv3d", (1, 8, 5, 6, 4), (16, 8, 3, 2, 2), {"padding": 1, "stride": (1, 2, 1)}),
    "1d, transposed": ("conv_transpose1d", (2, 16, 12), (16, 12, 4), {"stride": 2, "padding": 1}),
    "2d, transposed": ("conv_transpose2d", (1, 16, 6, 5), (16, 24, 3, 3), {"stride": 2, "padding": 1}),
    "2d, transposed, groups": ("conv_transpose2d", (1, 16, 6, 5), (16, 12, 3, 3), {"stride": 2, "groups": 2}),
}


@pytest.mark.slow(16)
@needs_torch
@pytest.mark.parametrize(("target", "layout"), RUNS)
def test_results_and_gradients(target: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", layout)
    clear_plans()  # which know nothing of that variable
    wrong = {}
    with pf.device(f"sim:{target}"):
        for dtype in DTYPES:
            for name, case in GEOMETRIES.items():
                far = distances(dtype, *case)
                if not all(d <= TOLERANCE[dtype.name] for d in far):
                    wrong[f"{name}, {dtype.name}"] = far
    assert wrong == {}


def distances(dtype: pf.DType, op: str, x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> list[float]:
    """How far result, input gradient and weight gradient are from torch's, relative to its largest number."""
    import torch

    def run(lib: Any, made: Any, g: Any) -> list[Any]:
        u, v = (made(numbers(s, dtype, n)).requires_grad_() for n, s in ((1, x), (2, w)))
        out = getattr(lib, op)(u, v, **options)
        out.backward(g(out.shape))
        return [out.detach(), u.grad, v.grad]

    theirs = run(
        torch,
        lambda a: torch.from_numpy(wide(a)),
        lambda shape: torch.from_numpy(wide(numbers(tuple(shape), dtype, 3))),
    )
    ours = run(pf, pf.tensor, lambda shape: pf.tensor(numbers(shape, dtype, 3)))
    pairs = [(wide(a.numpy()), b.numpy()) for a, b in zip(ours, theirs, strict=True)]
    assert [a.shape for a, _ in pairs] == [b.shape for _, b in pairs]
    return [float(np.abs(a - b).max() / max(np.abs(b).max(), 1.0)) for a, b in pairs]
