"""Number formats and sums of matrix instructions, written down in Python for the tests: exact, and slow.

The sums follow what was measured on MI200 and MI300 (arXiv 2511.10909) and on gfx1100 (ROCm/rocm-systems, issue 12056),
with fractions in place of the interpreter's cut-off integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "xf32": np.float32, "f64": np.float64,
    "fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz, "i8": np.int8,
}  # fmt: skip
LOWEST = {"f16": -14, "bf16": -126, "xf32": -126, "fp8": -7, "bf8": -15, "f32": -126}


def encode(values: Any, kind: str) -> Any:
    """The bits of some numbers, as unsigned integers of the format's width."""
    array = np.asarray(values).astype(DTYPES[kind])
    return array.view(f"u{array.dtype.itemsize}")


def decode(bits: Any, kind: str) -> Any:
    """Numbers from bits."""
    return np.asarray(bits).astype(f"u{np.dtype(DTYPES[kind]).itemsize}").view(DTYPES[kind])


def exponent(x: Fraction, lowest: int) -> int:
    """Of the leading bit, but at least that of the format's smallest normal number."""
    found = math.frexp(float(x))[1] - 1 if x else lowest  # every x here fits a double
    return max(found, lowest)


def to_f32(x: Fraction) -> float:
    """Round to the nearest float32, ties to even."""
    if x == 0:
        return 0.0
    e = exponent(x, -126)
    unit = Fraction(2) ** (e - 23)
    rounded = round(x / unit) * unit  # Python rounds halves to even
    return math.copysign(math.inf, rounded) if abs(rounded) >= Fraction(2) ** 128 else float(rounded)


def cut(x: Fraction, unit: Fraction, towards_zero: bool) -> Fraction:
    """A multiple of `unit`, towards zero or towards minus infinity."""
    steps = x / unit
    return unit * (math.trunc(steps) if towards_zero else math.floor(steps))


def group_sum(a: list[float], b: list[float], c: float, kinds: tuple[str, str]) -> float:
    """c plus a group of products, as MI300 adds them."""
    total = sum((np.float64(x) * np.float64(y) for x, y in zip(a, b, strict=True)), np.float64(c))
    if not math.isfinite(total):
        return float(total)
    above = any(float(x) * float(y) >= 2.0**128 for x, y in zip(a, b, strict=True))
    below = any(float(x) * float(y) <= -(2.0**128) for x, y in zip(a, b, strict=True))
    if above or below:
        return math.nan if above and below else math.inf if above else -math.inf
    products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)]
    tops = [
        exponent(Fraction(float(x)), LOWEST[kinds[0]]) + exponent(Fraction(float(y)), LOWEST[kinds[1]])
        for x, y in zip(a, b, strict=True)
    ]
    parts: list[tuple[Fraction, int]] = []
    bytes_wide = kinds[0].endswith("8")
    for start, step in ((0, 2), (1, 2)) if bytes_wide else ((0, 1),):
        chosen = [(p, t) for p, t in zip(products[start::step], tops[start::step], strict=True) if p]
        if chosen:
            top = max(t for _, t in chosen)
            parts.append((sum((cut(p, Fraction(2) ** (top - 24), True) for p, _ in chosen), Fraction(0)), top))
    exact_c, c_top = Fraction(float(c)), exponent(Fraction(float(c)), -126)
    if not parts:
        return to_f32(exact_c)
    top = max(t for _, t in parts)
    together = sum((cut(p, Fraction(2) ** (top - 24), False) for p, _ in parts), Fraction(0))
    most = max(top, c_top)
    from_c = cut(exact_c, Fraction(2) ** (most - 24), False)
    if bytes_wide and most - c_top > 25:
        from_c = Fraction(0)
    return to_f32(cut(together, Fraction(2) ** (most - 31), False) + from_c)


def pair_sum(a: Any, b: Any, c: Any, kind: str, size: int) -> Any:
    """c plus groups of products of float32, as MI200 adds them: in pairs, with denormals as zeros."""
    smallest = np.float32(2.0**-126)

    def flushed(x: Any) -> Any:
        return x * np.float32(0) if abs(x) < smallest else x

    a, b = (np.where(np.abs(x) < 2.0 ** LOWEST[kind], np.float32(0), x) for x in (a, b))
    total = np.float32(0) if abs(c) < smallest else np.float32(c)
    with np.errstate(all="ignore"):
        for k in range(0, len(a), size):
            parts = [flushed(x * y) for x, y in zip(a[k : k + size], b[k : k + size], strict=True)]
            while len(parts) > 1:
                parts = [flushed(x + y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            total = flushed(total + parts[0])
    return total


def dot_step(a: list[float], b: list[float], c: float, kind: str, to: str) -> float:
    """c plus two products, as gfx1100 adds them: the step of WMMA."""

    def flushed(x: float, smallest: float) -> float:
        return math.copysign(0.0, x) if abs(x) < smallest else x

    if kind == "bf16":
        a, b = [flushed(x, 2.0**-126) for x in a], [flushed(x, 2.0**-126) for x in b]
    if to != "f16":
        c = flushed(c, 2.0**-126)
    if not all(math.isfinite(x) for x in (*a, *b, c)):
        return sum((x * y for x, y in zip(a, b, strict=True)), c)
    negative = math.copysign(1, c) < 0
    terms = [(abs(Fraction(c)), negative)]
    tops = []
    for x, y in zip(a, b, strict=True):
        product = abs(Fraction(x) * Fraction(y))
        terms.append((product, (math.copysign(1, x) < 0) != (math.copysign(1, y) < 0)))
        if product:
            tops.append(exponent(Fraction(x), LOWEST[kind]) + exponent(Fraction(y), LOWEST[kind]) - 24)
    leads = [exponent(t, -5000) - 26 for t, _ in terms if t]
    if not leads:
        return 0.0
    if to == "f16":
        leads.append(-14 - 26)
    unit = Fraction(2) ** max([*tops, *leads])
    units = 0
    for magnitude, sign in terms:
        m = math.floor(magnitude / unit)
        units += -m - 1 if sign != negative else m
    value = units * unit * (-1 if negative else 1)
    if value == 0:
        return 0.0
    bits, lowest, largest = {"f16": (10, -14, 15), "f32": (23, -5000, 127), "bf16": (23, -5000, 127)}[to]
    quantum = Fraction(2) ** (exponent(value, lowest) - bits)
    rounded = round(value / quantum) * quantum
    if rounded and exponent(rounded, -5000) > largest:
        return math.copysign(math.inf, value)
    if to != "f16" and rounded and exponent(rounded, -5000) < -126:
        return 0.0
    if to == "bf16" and rounded:
        rounded = cut(rounded, Fraction(2) ** (exponent(rounded, -126) - 7), True)
    return float(rounded)
