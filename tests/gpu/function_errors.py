"""How exact the functions are that GPUs compute with instructions of their own, in units of the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import pyflame as pf

Doubles = np.ndarray[Any, np.dtype[np.float64]]


def _sigmoid(x: Doubles) -> Doubles:
    return 1.0 / (1.0 + np.exp(-x))


# The function, its value in float64, where its error is asked for, and the largest one allowed there.
Known = tuple[Callable[[pf.Tensor], pf.Tensor], Callable[[Doubles], Doubles], tuple[float, float], float]
FUNCTIONS: dict[str, Known] = {
    "exp": (pf.exp, np.exp, (-87.0, 88.7), 2.5),
    "sigmoid": (pf.sigmoid, _sigmoid, (-80.0, 30.0), 3.5),
    "silu": (pf.silu, lambda x: x * _sigmoid(x), (-80.0, 100.0), 4.0),
    "tanh": (pf.tanh, np.tanh, (-20.0, 20.0), 4.0),
    "erf": (pf.erf, np.vectorize(math.erf), (-5.0, 5.0), 3.0),
    "exp of a difference": (lambda x: pf.exp(x - pf.zeros_like(x)), np.exp, (-1.0, 1.0), 4.0),
}  # fmt: skip
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38], np.float32)


def check(name: str, device: str, count: int) -> float:
    """The largest error over numbers of the range; what is special must come out as it should."""
    function, exact, (low, high), allowed = FUNCTIONS[name]
    x = np.concatenate([np.linspace(low, high, count, dtype=np.float32), np.geomspace(1e-6, 1.0, 64, dtype=np.float32)])
    got = function(pf.tensor(np.concatenate([x, SPECIAL]), device=device)).numpy()
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
        special = exact(SPECIAL.astype(np.float64)).astype(np.float32)
    error = float((np.abs(got[: len(x)] - want) / np.spacing(np.abs(want).astype(np.float32))).max())
    assert error <= allowed, f"{name} is off by {error:.2f} ulp"
    np.testing.assert_allclose(got[len(x) :], special, rtol=1e-6, atol=1e-38)
    return error


def check_remainders(device: str, dtype: Any, count: int) -> None:
    """fmod to the last bit, and its sign, for numbers of all sizes: quotients up to 2^2000, subnormals, what is
    special."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    smallest = info.minexp - info.nmant

    def numbers(exponents: Any) -> Any:
        return np.ldexp(rng.uniform(1, 2, count), exponents).astype(dtype) * rng.choice([-1, 1], count).astype(dtype)

    exponents = rng.integers(smallest, info.maxexp, count)
    x, y = numbers(exponents), numbers(rng.integers(smallest, info.maxexp, count))
    nearer = numbers(np.maximum(exponents - rng.integers(0, 70, count), smallest))
    of = np.array(
        [0, -0.0, 1, -1, 3, 0.1, np.inf, -np.inf, np.nan, info.tiny, info.smallest_subnormal, info.max], dtype
    )
    a, b = (m.ravel() for m in np.meshgrid(of, of))
    x, y = np.concatenate([x, x, a]), np.concatenate([y, nearer, b])
    got = pf.fmod(pf.tensor(x, device=device), pf.tensor(y, device=device)).numpy()
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))
