"""LDL: symmetric matrices as L @ D @ L^T, with D of blocks of one or two, by Bunch and Kaufman's pivots, as LAPACK."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.errors import LinAlgError, NotSupportedError, ShapeError
from pyflame.tensor.creation import place_of, tensor
from pyflame.tensor.custom import custom_gradient
from pyflame.tensor.factorizations import _host, _matrix
from pyflame.tensor.tensor import Tensor

_Array = np.ndarray[Any, Any]
_ALPHA = (1 + np.sqrt(17)) / 8  # the least growth of elements over both sizes of blocks


class LDLFactor(NamedTuple):
    """L below D's blocks in one matrix, and the exchanges: negative twice for a block of two."""

    LD: Tensor
    pivots: Tensor


class LDLFactorEx(NamedTuple):
    """As LDLFactor; info is the number, from 1, of a block of D that is 0, or 0."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


def _pivot(a: _Array, k: int) -> tuple[int, int]:
    """How large the block at k should be, and which row to exchange with its last one."""
    n = len(a)
    below = np.abs(a[k + 1 :, k])
    if not len(below):
        return 1, k
    row = k + 1 + int(below.argmax())
    largest = below.max()
    here = abs(a[k, k])
    if max(here, largest) == 0 or here >= _ALPHA * largest:
        return 1, k
    others = np.concatenate([np.abs(a[row, k:row]), np.abs(a[row + 1 : n, row])]).max()
    if here * others >= _ALPHA * largest * largest:
        return 1, k
    return (1 if abs(a[row, row]) >= _ALPHA * others else 2), row


def _exchange(a: _Array, i: int, j: int) -> None:
    """Rows and columns i < j of the symmetric part from i on, of which the lower triangle is held."""
    a[j + 1 :, [i, j]] = a[j + 1 :, [j, i]]
    middle = a[i + 1 : j, i].copy()
    a[i + 1 : j, i] = a[j, i + 1 : j]
    a[j, i + 1 : j] = middle
    a[i, i], a[j, j] = a[j, j], a[i, i]


def _factored(matrix: _Array) -> tuple[_Array, _Array, int]:
    a = np.tril(matrix).astype(np.float64)
    n, k, info = len(a), 0, 0
    pivots = np.zeros(n, np.int32)
    while k < n:
        size, row = _pivot(a, k)
        last = k + size - 1
        if row != last:
            if size == 2:
                a[last, k], a[row, k] = a[row, k], a[last, k]
            _exchange(a, last, row)
        block = a[k : k + size, k : k + size]
        block = np.tril(block) + np.tril(block, -1).T
        if not np.any(block):
            info = info or k + 1
        else:
            rest = a[k + size :, k : k + size].copy()
            multipliers = rest @ np.linalg.inv(block)
            a[k + size :, k + size :] -= np.tril(multipliers @ rest.T)
            a[k + size :, k : k + size] = multipliers
        pivots[k : k + size] = row + 1 if size == 1 else -(row + 1)
        k += size
    return a, pivots, info


def _solved(packed: _Array, pivots: _Array, b: _Array) -> _Array:
    """Exchange and eliminate block by block, divide by D, and go back."""
    a, x, n = packed.astype(np.float64), b.astype(np.float64).copy(), len(packed)
    blocks, k = [], 0
    while k < n:
        end = k + (1 if pivots[k] > 0 else 2)
        blocks.append((k, end))
        k = end
    for k, end in blocks:
        row = abs(int(pivots[k])) - 1
        x[[end - 1, row]] = x[[row, end - 1]]
        x[end:] -= a[end:, k:end] @ x[k:end]
    for k, end in blocks:
        block = a[k:end, k:end]
        x[k:end] = np.linalg.solve(np.tril(block) + np.tril(block, -1).T, x[k:end])
    for k, end in reversed(blocks):
        x[k:end] -= a[end:, k:end].T @ x[end:]
        row = abs(int(pivots[k])) - 1
        x[[end - 1, row]] = x[[row, end - 1]]
    return x


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorEx:
    """As ldl_factor; a singular D is told by `info`, and raises with `check_errors` only."""
    a = _matrix("ldl_factor_ex", A, square=True, real=True)  # real: hermitian or not is the same
    matrices = a.detach().numpy()
    found = [_factored(m) for m in matrices.reshape(-1, *a.shape[-2:])] if a.numel() else []
    packed = np.array([f[0] for f in found]).reshape(a.shape).astype(a.dtype.numpy)
    pivots = np.array([f[1] for f in found], np.int32).reshape(a.shape[:-1])
    info = np.array([f[2] for f in found], np.int32) if found else np.zeros(a.shape[:-2], np.int32)
    if check_errors and info.any():
        raise LinAlgError("[ldl_factor] expected a regular matrix but got one whose D has a block of 0")
    place = place_of(a, None)
    made = [tensor(array, device=place) for array in (packed, pivots, info.reshape(a.shape[:-2]))]
    return LDLFactorEx(*made)


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactor:
    """L and D of symmetric matrices L @ D @ L^T, of which the lower triangle is read. Evaluates them; no gradient.

    >>> pf.linalg.ldl_factor(pf.tensor([[0.0, 1.0], [1.0, 0.0]])).pivots
    tensor([-2, -2], dtype=pyflame.int32)
    """
    return LDLFactor(*ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2])


@custom_gradient
def _solve(LD: Tensor, pivots: Tensor, B: Tensor) -> Any:
    def all_solved(packed: _Array, exchanges: _Array, b: _Array) -> _Array:
        lead = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
        count, n = math.prod(lead), packed.shape[-1]
        parts = (
            np.broadcast_to(packed, (*lead, n, n)).reshape(count, n, n),
            np.broadcast_to(exchanges, (*lead, n)).reshape(count, n),
            np.broadcast_to(b, (*lead, *b.shape[-2:])).reshape(count, *b.shape[-2:]),
        )
        return np.array([_solved(*part) for part in zip(*parts, strict=True)]).reshape(*lead, *b.shape[-2:])

    out = _host("ldl_solve", all_solved, B, LD, pivots, B)
    # the matrix is symmetric, so its inverse is its own transpose
    return out, lambda g: (None, None, _solve(LD, pivots, g).sum_to_size(B.shape))


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A @ X = B, from what ldl_factor gave. Evaluates all; B alone has a gradient.

    >>> factor = pf.linalg.ldl_factor(pf.tensor([[0.0, 2.0], [2.0, 0.0]]))
    >>> pf.linalg.ldl_solve(*factor, pf.tensor([[2.0], [4.0]]))
    tensor([[2.],
            [1.]])
    """
    packed, b = _matrix("ldl_solve", LD, square=True, real=True), _matrix("ldl_solve", B, real=True)
    if not pivots.dtype.is_int or pivots.shape != packed.shape[:-1] or b.shape[-2] != packed.shape[-1]:
        raise ShapeError(
            f"[ldl_solve] expected pivots {packed.shape[:-1]} and {packed.shape[-1]} rows of B but got {pivots.shape}, "
            f"{b.shape}"
        )
    if packed.requires_grad:
        raise NotSupportedError("[ldl_solve] expected LD without a gradient, which it has not; use linalg.solve")
    return _solve(packed, pivots, b)  # type: ignore[no-any-return]
