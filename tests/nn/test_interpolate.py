"""interpolate of small dtypes against PyTorch: bytes to the last bit, 16-bit floats no worse than PyTorch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

RNG = np.random.default_rng(0)
OPTIONS: list[dict[str, Any]] = [{}, {"align_corners": True}, {"antialias": True}]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("size", [(5, 13), (9, 23), (20, 11), (3, 3)])
def test_bytes(mode: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    x = RNG.integers(0, 256, (2, 3, 9, 11)).astype(np.uint8)
    ours, theirs = (
        lib.nn.functional.interpolate(lib.tensor(x), size=size, mode=mode, **options).numpy() for lib in (pf, torch)
    )
    assert ours.dtype == np.uint8
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats(mode: str, dtype: str) -> None:
    x = RNG.integers(0, 256, (2, 3, 9, 11))
    exact = torch.nn.functional.interpolate(torch.tensor(x).double(), size=(5, 13), mode=mode).numpy()
    far = [
        np.abs(out.to(lib.float64).numpy() - exact).max()
        for lib in (pf, torch)
        for out in [lib.nn.functional.interpolate(lib.tensor(x).to(getattr(lib, dtype)), size=(5, 13), mode=mode)]
    ]
    assert far[0] <= far[1]


@pytest.mark.parametrize(("dtype", "axes", "mode"), [
    ("int32", 4, "bilinear"), ("int64", 4, "bicubic"), ("uint8", 3, "linear"), ("bool", 4, "bilinear"),
])  # fmt: skip
def test_what_weights_cannot_multiply_is_refused(dtype: str, axes: int, mode: str) -> None:
    x = pf.ones([4] * axes).to(getattr(pf, dtype))
    with pytest.raises(pf.DTypeError, match="interpolate"):
        pf.nn.functional.interpolate(x, scale_factor=2, mode=mode)
