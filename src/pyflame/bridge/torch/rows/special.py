"""Elementwise functions that our catalogue lacks, and that gradients of its functions or optimisers need."""

from __future__ import annotations

import math
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import row

_FAR = 20.0  # from here three terms of the series for large arguments have all digits of float32


@row("special_erfcx")
def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x), by float64: for large x the factors are beyond float32, and 1 / (x sqrt(pi)) is the product."""
    if x.dtype is not pf.float32:
        raise pf.NotSupportedError(f"[erfcx] expected float32 but got {x.dtype.name}")
    wide = x.to(pf.float64)
    near, far = pf.clamp(wide, max=_FAR), pf.clamp(wide, min=_FAR)
    square = 1.0 / (far * far)
    series = (1.0 - square * (0.5 - 0.75 * square)) / (far * math.sqrt(math.pi))
    return pf.where(wide < _FAR, pf.exp(near * near) * pf.erfc(near), series).to(pf.float32)


@row("fma")
def fma(x: Any, y: Any, z: Any) -> Any:
    return x * y + z
