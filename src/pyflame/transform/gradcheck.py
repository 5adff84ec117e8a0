"""torch.autograd.gradcheck: gradients of a function against differences of its values.

A complex number is two real ones: gradients are compared for each part of inputs and results. Each element costs two
calls of the function, so this is for small tensors, and for float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import complex128, float64
from pyflame.core.errors import ArgumentError, ArgumentTypeError, GradientError, NotSupportedError, suggest
from pyflame.core.state import mode
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor, zeros_like
from pyflame.tensor.gradients import grad_of
from pyflame.tensor.random import rand

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

_NOT_THERE = ("check_batched_grad", "check_batched_forward_grad", "check_forward_ad", "check_fwd_over_rev")
# Of PyTorch's other options: a gradient that is not defined is zeros here, dtypes are always checked, and fast_mode
# compares in one direction what is compared in all here.
_TAKEN = (
    "check_undefined_grad", "check_grad_dtypes", "check_backward_ad", "check_rev_over_rev", "fast_mode", "masked",
    "gen_non_contig_grad_outputs",
)  # fmt: skip
Array = np.ndarray[Any, Any]


class GradcheckError(GradientError):
    """What gradcheck raises where gradients are wrong."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    **options: Any,
) -> bool:
    """True where the gradients of func's results by all inputs that require grad are those of central differences.

    A second backward pass must give the same within `nondet_tol`. Otherwise it raises, or gives False without
    `raise_exception`.

    >>> pf.autograd.gradcheck(pf.sin, pf.tensor([0.3, 1.0], dtype=pf.float64, requires_grad=True))
    True
    """
    _check_options("gradcheck", options)
    try:
        _compare(func, _listed(inputs), eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    **options: Any,
) -> bool:
    """As gradcheck, for the gradients of func's gradients: by the inputs, and by what they are weighted with.

    >>> pf.autograd.gradgradcheck(pf.sin, pf.tensor([0.3, 1.0], dtype=pf.float64, requires_grad=True))
    True
    """
    given = _listed(inputs)
    if grad_outputs is None:
        seeds = [_random_like(out) for out in _results(func(*given))]
    else:
        seeds = _listed(grad_outputs)

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        inner, weights = args[: len(given)], args[len(given) :]
        wanted = [t for t in inner if isinstance(t, Tensor) and t.requires_grad]
        found = grad_of(_results(func(*inner)), wanted, weights, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(gradients, [*given, *seeds], **options)


def _check_options(op: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in _NOT_THERE and name not in _TAKEN:
            raise ArgumentTypeError(f"[{op}] expected PyTorch's options but got {name!r}{suggest(name, _TAKEN)}")
        if name in _NOT_THERE and value:
            raise NotSupportedError(
                f"[{op}] expected {name}=False but got True; there is no forward mode of its own here"
            )


def _listed(inputs: Any) -> list[Any]:
    return [inputs] if isinstance(inputs, Tensor) else list(inputs)


def _results(value: Any) -> list[Tensor]:
    """The results that gradients flow to."""
    given = value if isinstance(value, (tuple, list)) else (value,)
    return [t for t in given if isinstance(t, Tensor) and t.requires_grad]


def _random_like(t: Tensor) -> Tensor:
    made = rand(*t.shape, dtype=t.dtype.real if t.dtype.is_complex else t.dtype)
    return (made.to(t.dtype) * (1 + 0.5j) if t.dtype.is_complex else made).detach().requires_grad_()


def _compare(
    func: Callable[..., Any], given: list[Any], eps: float, atol: float, rtol: float, nondet_tol: float
) -> None:
    positions = [i for i, t in enumerate(given) if isinstance(t, Tensor) and t.requires_grad and t.numel()]
    if not positions:
        raise ArgumentError(
            "[gradcheck] expected at least one input with elements that requires grad; call requires_grad_()"
        )
    for i in positions:
        if given[i].dtype not in (float64, complex128):
            warnings.warn(
                f"[gradcheck] input {i} is {given[i].dtype.name}, in which differences are too coarse; use float64",
                stacklevel=3,
            )
    with mode(grad_enabled=True):
        outputs = _results(func(*given))
        inputs = [given[i] for i in positions]
        computed = _by_backward(outputs, inputs)
        again = _by_backward(outputs, inputs)
    for o, row in enumerate(computed):
        for i, found in enumerate(row):
            if not np.allclose(found, again[o][i], rtol=0.0, atol=nondet_tol, equal_nan=True):
                raise GradcheckError(f"[gradcheck] expected two backward passes to agree but those of input {i} do not")
    for i, position in enumerate(positions):
        measured = _by_differences(func, given, position, len(outputs), eps)
        for o, rows in enumerate(measured):
            if not np.allclose(computed[o][i], rows, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"[gradcheck] expected the gradients of result {o} by input {position} to be those of differences "
                    f"but got\n{computed[o][i]}\nby backward and\n{rows}\nby differences (a row for each element of "
                    "the result, a column for each of the input)"
                )


def _reals(value: Array) -> Array:
    """The real numbers of an array, in one line: both parts of complex ones."""
    flat = np.ascontiguousarray(value).reshape(-1)
    return flat.view(flat.real.dtype) if np.iscomplexobj(flat) else flat


def _by_backward(outputs: list[Tensor], inputs: list[Tensor]) -> list[list[Array]]:
    """[result][input]: a row for each real number of the result, a column for each of the input."""
    table = []
    for out in outputs:
        blank = np.zeros_like(out.detach().numpy())
        rows = []
        for k in range(_reals(blank).size):
            seed = blank.copy().reshape(-1)
            _reals(seed)[k] = 1.0
            weight = tensor(seed.reshape(out.shape), dtype=out.dtype)
            found = grad_of([out], inputs, [weight], retain_graph=True, allow_unused=True)
            rows.append(
                [_reals((zeros_like(t) if g is None else g).numpy()) for g, t in zip(found, inputs, strict=True)]
            )
        width = [t.numel() * (2 if t.dtype.is_complex else 1) for t in inputs]
        table.append([np.array([row[i] for row in rows]).reshape(len(rows), w) for i, w in enumerate(width)])
    return table


def _by_differences(func: Callable[..., Any], given: list[Any], position: int, count: int, eps: float) -> list[Array]:
    """For each result the same as _by_backward, from values on both sides of each real number of one input."""
    start = np.array(given[position].detach().numpy())
    columns: list[list[Array]] = [[] for _ in range(count)]
    for k in range(_reals(start).size):
        sides = []
        for sign in (1.0, -1.0):
            moved = start.copy().reshape(-1)
            _reals(moved)[k] += sign * eps
            args = list(given)
            args[position] = tensor(moved.reshape(start.shape), dtype=given[position].dtype, requires_grad=True)
            with mode(grad_enabled=True):
                sides.append([np.array(out.detach().numpy()) for out in _results(func(*args))])
        for o in range(count):
            columns[o].append((_reals(sides[0][o]) - _reals(sides[1][o])) / (2.0 * eps))
    return [np.stack(c, axis=1) for c in columns]
