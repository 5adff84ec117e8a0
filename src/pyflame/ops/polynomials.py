"""Orthogonal polynomials whose degree is a tensor, as well: Chebyshev's, Hermite's, Laguerre's and Legendre's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import default
from pyflame.ir import F, Node, Sample, as_node, common_dtype, composite, elementwise

# The value of degree 1, and that of degree k + 1 from those of k (q) and k - 1 (p); C has the same in pf_polynomial.h.
Next = Callable[[float, float, float, float], float]
_NEXT: dict[str, tuple[Callable[[float], float], Next, str]] = {
    "hermite_polynomial_h": (lambda x: 2 * x, lambda x, k, q, p: 2 * (x * q - k * p), "Hermite's polynomial"),
    "hermite_polynomial_he": (lambda x: x, lambda x, k, q, p: x * q - k * p, "Hermite's polynomial of probability"),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda x, k, q, p: ((2 * k + 1 - x) * q - k * p) / (k + 1),
        "Laguerre's polynomial",
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda x, k, q, p: ((2 * k + 1) * x * q - k * p) / (k + 1),
        "Legendre's polynomial",
    ),
}
_FIRST: dict[str, tuple[Callable[[float], float], str]] = {
    "t": (lambda x: x, "first"),
    "u": (lambda x: 2 * x, "second"),
    "v": (lambda x: 2 * x - 1, "third"),
    "w": (lambda x: 2 * x + 1, "fourth"),
}
for _kind, (_start, _which) in _FIRST.items():
    _NEXT[f"chebyshev_polynomial_{_kind}"] = (
        _start,
        lambda x, k, q, p: 2 * x * q - p,
        f"Chebyshev's polynomial of the {_which} kind",
    )


def _by_recurrence(first: Callable[[float], float], after: Next) -> Callable[[float, float], float]:
    def value(x: float, n: float) -> float:
        if not 1 <= n < math.inf:
            return 1.0 if -1 < n < 1 else 0.0
        if n >= 2**20 + 1:
            return math.nan
        p, q = 1.0, first(x)
        for k in range(1, int(n)):
            p, q = q, after(x, k, q, p)
            if q != q:
                break
        return q

    return value


def _samples() -> list[Sample]:
    x = np.linspace(-1.4, 1.4, 15).reshape(3, 5)
    n = np.arange(15.0).reshape(3, 5)
    ends = np.array([1.0, -1.0, 0.0, 0.5])  # torch has whatever is in memory at NaN
    made = [
        (x, n),
        (x.T[::2], np.array([0.0, 9.7, -2.0])),
        (x, 3),
        (0.4, n),
        (x[0, 0, ...], n[1, 2, ...]),
        (x[:0], n[:0]),
    ]
    made += [(ends, np.array([[7.0], [8.0], [2.0]]))]
    return [Sample(pair, grad=False) for pair in made]


def _declare(name: str, first: Callable[[float], float], after: Next, doc: str) -> None:
    def fn(x: Node, n: Node) -> Node:
        """See above: they differ in name, recurrence and text."""

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = (
        f"{doc} and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."
    )
    elementwise(
        f"pf_{name}({{x}}, {{n}})",
        reference=np.vectorize(_by_recurrence(first, after), otypes=[np.float64]),
        dtype="float",
        differentiable=False,
        cost=200,
        torch=f"special.{name}",
        samples=_samples,
        method=False,
    )(fn)


for _name, _row in _NEXT.items():
    _declare(_name, *_row)


def _declare_shifted(kind: str, which: str) -> None:
    def fn(x: Any, n: Any) -> Node:
        dtype = common_dtype(name, (x, n))
        wide = as_node(x, dtype if dtype.is_float else default.float)
        return getattr(F, f"chebyshev_polynomial_{kind}")(wide + wide - 1.0, n)  # type: ignore[no-any-return]

    name = f"shifted_chebyshev_polynomial_{kind}"
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"Chebyshev's polynomial of the {which} kind and degree n, at 2x - 1. It has no gradient."
    composite(torch=f"special.{name}", samples=_samples, differentiable=False, method=False, takes_numbers=True)(fn)


for _kind, (_, _which) in _FIRST.items():
    _declare_shifted(_kind, _which)
