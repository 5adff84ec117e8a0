"""torch.testing by its path: `assert_close`, and `make_tensor` for inputs of tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pyflame.core import dtype as dt
from pyflame.core.errors import ArgumentError
from pyflame.core.limits import finfo, iinfo
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.random import rand, randint

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

# rtol, atol by the coarser of both dtypes, as in PyTorch
_TOLERANCES = {
    dt.float16: (1e-3, 1e-5), dt.bfloat16: (1.6e-2, 1e-5), dt.float32: (1.3e-6, 1e-5), dt.float64: (1e-7, 1e-7),
    dt.complex64: (1.3e-6, 1e-5), dt.complex128: (1e-7, 1e-7),
}  # fmt: skip


def make_tensor(
    *shape: Any,
    dtype: dt.DType,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Random values from low up to high: by default from -9 to 9, from 0 where there is nothing below.

    >>> x = pf.testing.make_tensor((2, 3), dtype=pf.int64, device="cpu", low=1, high=3)
    >>> bool(((x >= 1) & (x < 3)).all())
    True
    """
    listed = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    sizes: tuple[int, ...] = tuple(listed)
    whole = not (dtype.is_float or dtype.is_complex)
    if requires_grad and whole:
        raise ArgumentError(f"[make_tensor] expected a dtype with gradients for requires_grad but got {dtype.name}")
    start, stop = _bounds(dtype, whole, low, high)
    apart = noncontiguous and int(np.prod(sizes)) > 1
    if apart:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    if whole:
        made = randint(int(np.ceil(start)), int(np.ceil(stop)), sizes, device=device).to(dtype)
    elif dtype.is_complex:
        parts = rand(*sizes, 2, dtype=dtype.real, device=device) * (stop - start) + start
        made = FUNCTIONS["view_as_complex"](parts)
    else:
        made = (rand(*sizes, dtype=dtype.compute, device=device) * (stop - start) + start).to(dtype)
    made = made[..., 1::2] if apart else made
    if exclude_zero:
        least = 1 if whole else finfo(dtype.real if dtype.is_complex else dtype).tiny
        made = FUNCTIONS["where"](made == 0, tensor(least, dtype=dtype), made)
    return made.detach().requires_grad_() if requires_grad else made.detach()


def _bounds(dtype: dt.DType, whole: bool, low: float | None, high: float | None) -> tuple[float, float]:
    """The interval of make_tensor: as asked for, within what a dtype has."""
    if dtype is dt.bool_:
        least, most, usual = 0.0, 2.0, (0.0, 2.0)
    elif whole:
        least, most, usual = iinfo(dtype).min, iinfo(dtype).max + (dtype is not dt.int64), (-9.0, 10.0)
    else:
        limits = finfo(dtype.real if dtype.is_complex else dtype)
        least, most, usual = limits.min, limits.max, (-9.0, 9.0)
    start, stop = usual[0] if low is None else low, usual[1] if high is None else high
    if not start < stop or stop < least or start >= most:
        raise ArgumentError(
            f"[make_tensor] expected low below high within [{least}, {most}) of {dtype.name} but got {start} and {stop}"
        )
    return max(start, least), min(stop, most)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise an AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere, with equal shapes,
    dtypes and devices. Takes tensors, arrays, numbers, and sequences and mappings of them.

    >>> pf.testing.assert_close(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 2.0000001]))
    """
    checks = (check_device, check_dtype)
    found = _difference(actual, expected, rtol, atol, equal_nan, checks)
    if found is not None:
        raise AssertionError(msg(found) if callable(msg) else msg or found)


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True
) -> None:
    """`assert_close` that looks at numbers only.

    >>> pf.testing.assert_allclose(pf.tensor([1]), [1.0])
    """
    assert_close(
        actual if isinstance(actual, Tensor) else tensor(actual),
        expected if isinstance(expected, Tensor) else tensor(expected),
        rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
    )  # fmt: skip


def _difference(
    actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool, checks: tuple[bool, bool]
) -> str | None:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if set(actual) != set(expected):
            return f"expected the keys {sorted(map(str, expected))} but got {sorted(map(str, actual))}"
        pairs = [(f"[{k!r}]", actual[k], expected[k]) for k in expected]
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"expected {len(expected)} values but got {len(actual)}"
        pairs = [(f"[{i}]", a, e) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    elif actual is None and expected is None:
        return None
    else:
        return _apart(actual, expected, rtol, atol, equal_nan, checks)
    for place, a, e in pairs:
        found = _difference(a, e, rtol, atol, equal_nan, checks)
        if found is not None:
            return f"{place}: {found}"
    return None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _apart(
    actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool, checks: tuple[bool, bool]
) -> str | None:
    """How two tensors differ."""
    if isinstance(actual, Tensor) != isinstance(expected, Tensor):
        return f"expected {type(expected).__name__} but got {type(actual).__name__}"
    a, e = (v if isinstance(v, Tensor) else tensor(v) for v in (actual, expected))
    if a.shape != e.shape:
        return f"expected shape {tuple(e.shape)} but got {tuple(a.shape)}"
    check_device, check_dtype = checks
    if check_device and a.device != e.device:
        return f"expected device {e.device} but got {a.device}"
    if check_dtype and isinstance(actual, Tensor) and a.dtype is not e.dtype:
        return f"expected {e.dtype.name} but got {a.dtype.name}"
    if (rtol is None) != (atol is None):
        raise ValueError("[assert_close] expected both rtol and atol, or neither of them")
    usual = max((_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, e)), default=(0.0, 0.0))
    relative, absolute = usual if rtol is None or atol is None else (rtol, atol)
    return _numbers_apart(a, e, relative, absolute, equal_nan)


def _numbers_apart(a: Tensor, e: Tensor, rtol: float, atol: float, equal_nan: bool) -> str | None:
    exact = np.complex128 if a.dtype.is_complex or e.dtype.is_complex else np.float64
    if not (a.dtype.is_float or e.dtype.is_float) and exact is np.float64:
        exact = np.int64  # type: ignore[assignment]
    x, y = (t.detach().cpu().numpy().astype(exact) for t in (a, e))
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if close.all():
        return None
    gap = np.abs(x - y)
    worst = np.unravel_index(int(np.argmax(np.where(close, -1, np.nan_to_num(gap, nan=np.inf)))), gap.shape)
    place = f" at {tuple(int(i) for i in worst)}" if gap.ndim else ""
    return (
        f"expected values within {rtol:g} of each other's size and {atol:g} but {int((~close).sum())} of {close.size} "
        f"are further apart; the furthest{place}: expected {y[worst]!r} but got {x[worst]!r}"
    )
