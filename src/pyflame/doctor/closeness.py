"""How far two results are apart, and how far they may be: what selftest and verify measure by.

An element's error is |got - want| / (|want| + rms(want)): relative where an element is of the usual size, and not
blown up where terms cancel. What is allowed grows with the square root of the terms that are added, as rounding does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from pyflame.core.dtype import DType
from pyflame.core.limits import finfo

Array = np.ndarray[Any, Any]

STORED = 4.0  # roundings of a result to its dtype that may differ
COMPUTED = 64.0  # of what it is computed in: functions such as pow differ by some 16 ulp between vendors


@dataclass(frozen=True)
class Gap:
    """How two results differ: the worst element's error, the same in ulp, and words where no number can say it."""

    error: float = 0.0
    ulp: float = 0.0
    words: str = ""


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number; 0 for what is exact.

    >>> epsilon(pf.float32) == 2.0**-23
    True
    """
    dtype = dtype.real
    return float(finfo(dtype).eps) if dtype.is_float else 0.0


def allowed(dtype: DType, terms: int = 1, eps: float = 0.0) -> float:
    """The error that two right implementations may differ by. `terms`: that one element is a sum of. `eps`: of what
    its sources are rounded to, where that is coarser than their dtype; a sum's size grows as such errors of it do.

    >>> allowed(pf.int32), 60 * 2.0**-23 < allowed(pf.float32) < 70 * 2.0**-23
    (0.0, True)
    """
    if not dtype.has_gradient:
        return 0.0
    return STORED * epsilon(dtype) + COMPUTED * (epsilon(dtype.real.compute) * sqrt(max(1, terms)) + eps)


def gap(got: Array, want: Array, dtype: DType, floor: float = 0.0) -> Gap:
    """The difference of two arrays that stand for numbers of a dtype, `want` perhaps more exactly than it can hold.

    `floor`: of the size that errors are relative to, for results that cancel to almost nothing.

    >>> gap(np.float32([1, 2]), np.float32([1, 2]), pf.float32)
    Gap(error=0.0, ulp=0.0, words='')
    """
    if got.shape != want.shape:
        return Gap(inf, inf, f"shape {got.shape} instead of {want.shape}")
    if not dtype.has_gradient:
        wrong = int((got != want).sum())
        return Gap(wrong / got.size, inf, f"{wrong} of {got.size} differ") if wrong else Gap()
    x, y = _numbers(got, dtype), _numbers(want, dtype)
    with np.errstate(all="ignore"):
        words = _not_finite(x, _numbers(want.astype(dtype.numpy), dtype))
        if words:
            return Gap(inf, inf, words)
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = x[finite], y[finite]
        difference = np.abs(x - y)
        scale = np.abs(y) + max(floor, rms(y))
        error = float(np.max(np.where(difference == 0, 0.0, difference / scale), initial=0.0))
    return Gap(error, error / epsilon(dtype))


def rms(x: Array) -> float:
    """The usual size of an array's finite numbers."""
    x = x[np.isfinite(x)].astype(np.float64)
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0


def _numbers(array: Array, dtype: DType) -> Array:
    """As real numbers in float64; complex ones as pairs."""
    return np.atleast_1d(array).astype(np.complex128 if dtype.is_complex else np.float64).view(np.float64)


def _not_finite(x: Array, y: Array) -> str:
    """NaN or infinity on one side only."""
    for name, of in (("NaN", np.isnan), ("infinity", np.isinf)):
        mine, other = of(x), of(y)
        if name == "infinity":  # its sign matters too
            mine, other = np.where(mine, np.sign(x), 0), np.where(other, np.sign(y), 0)
        if not np.array_equal(mine, other):
            here, there = int((mine != 0).sum()), int((other != 0).sum())
            return f"{here} {name} where the reference has {there}" if here != there else f"{name} in other places"
    return ""
