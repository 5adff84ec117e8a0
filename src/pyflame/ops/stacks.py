"""NumPy's ways to put together and to cut: by rows, columns and depth, and shapes made equal first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import broadcast_shapes, normalize_axis
from pyflame.ir import F, Node, Sample, composite
from pyflame.ops.base import want_tensors, want_whole

_X = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
_CUBE = np.linspace(-1.0, 1.0, 48).reshape(2, 4, 6)


def _several(op: str, tensors: tuple[Any, ...]) -> list[Node]:
    """op(a, b) and op([a, b]) are the same."""
    found = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if not found:
        raise DTypeError(f"[{op}] expected at least one tensor but got none")
    want_tensors(op, **{f"tensors[{i}]": t for i, t in enumerate(found)})
    return list(found)


# --- at least so many axes ------------------------------------------------------------------------------------------


def _each(op: str, tensors: tuple[Any, ...], shaped: Callable[[Node], Node]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Node):
        return shaped(tensors[0])
    return tuple(shaped(t) for t in _several(op, tensors))


def _rank_samples() -> list[Sample]:
    several = ([np.array(1.0), np.arange(2.0), _X],)
    return [*[Sample((a,)) for a in (np.array(1.0), np.arange(3.0), _X, _CUBE)], Sample(several)]


@composite(torch="atleast_1d", samples=_rank_samples, method=False)
def atleast_1d(*tensors: Any) -> Any:
    """Numbers as vectors of one element, other tensors as they are; several tensors make a tuple.

    >>> pf.atleast_1d(pf.tensor(2.0))
    tensor([2.])
    """
    return _each("atleast_1d", tensors, lambda x: F.reshape(x, (1,)) if x.ndim == 0 else x)


@composite(torch="atleast_2d", samples=_rank_samples, method=False)
def atleast_2d(*tensors: Any) -> Any:
    """Numbers and vectors as matrices of one row, other tensors as they are; several tensors make a tuple.

    >>> pf.atleast_2d(pf.tensor([1.0, 2.0])).shape
    (1, 2)
    """
    return _each("atleast_2d", tensors, lambda x: F.reshape(x, (1, x.size)) if x.ndim < 2 else x)


def _deep(x: Node) -> Node:
    if x.ndim > 2:
        return x
    return F.reshape(x, (*x.shape, 1) if x.ndim == 2 else (1, x.size, 1))


@composite(torch="atleast_3d", samples=_rank_samples, method=False)
def atleast_3d(*tensors: Any) -> Any:
    """Tensors with three axes: (N,) becomes (1, N, 1), (M, N) becomes (M, N, 1); several tensors make a tuple.

    >>> pf.atleast_3d(pf.ones(2, 3)).shape
    (2, 3, 1)
    """
    return _each("atleast_3d", tensors, _deep)


# --- together -------------------------------------------------------------------------------------------------------


@composite(
    torch="broadcast_tensors",
    samples=lambda: [Sample((_X, np.arange(4.0), np.array([[2.0]]))), Sample((np.array(1.0), np.zeros((0, 2))))],
    method=False,
)
def broadcast_tensors(*tensors: Any) -> tuple[Node, ...]:
    """Tensors under the shape that they broadcast to, without copies.

    >>> [t.shape for t in pf.broadcast_tensors(pf.ones(3, 1), pf.ones(4))]
    [(3, 4), (3, 4)]
    """
    pieces = _several("broadcast_tensors", tensors)
    shape = broadcast_shapes("broadcast_tensors", *[p.shape for p in pieces])
    return tuple(F.expand(p, shape) for p in pieces)


@composite(
    torch="cartesian_prod",
    samples=lambda: [Sample((np.arange(3.0), np.arange(2.0), np.array([7.0]))), Sample((np.arange(3.0),))],
    method=False,
)
def cartesian_prod(*tensors: Any) -> Node:
    """All combinations of the elements of vectors, as rows.

    >>> pf.cartesian_prod(pf.tensor([1, 2]), pf.tensor([3, 4])).shape
    (4, 2)
    """
    vectors = _several("cartesian_prod", tensors)
    if any(v.ndim != 1 for v in vectors):
        raise ShapeError(f"[cartesian_prod] expected vectors but got shapes {[v.shape for v in vectors]}")
    if len(vectors) == 1:
        return vectors[0]
    return F.reshape(F.stack(F.meshgrid(*vectors), -1), (-1, len(vectors)))


@composite(
    reference=np.column_stack,
    torch="column_stack",
    samples=lambda: [Sample(([np.arange(3.0), _X, np.arange(3.0)],)), Sample(([np.array(1.0), np.array(2.0)],))],
    method=False,
)
def column_stack(tensors: Sequence[Node]) -> Node:
    """Tensors side by side along the second axis, vectors as columns.

    >>> pf.column_stack([pf.tensor([1, 2]), pf.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    pieces = _several("column_stack", (tensors,))
    return F.hstack([F.reshape(p, (p.size, 1)) if p.ndim < 2 else p for p in pieces])


@composite(
    reference=np.dstack,
    torch="dstack",
    samples=lambda: [Sample(([np.arange(3.0), np.arange(3.0)],)), Sample(([_X, _X * 2],)), Sample(([_CUBE, _CUBE],))],
    method=False,
)
def dstack(tensors: Sequence[Node]) -> Node:
    """Tensors behind each other, along the third axis.

    >>> pf.dstack([pf.ones(2, 3), pf.zeros(2, 3)]).shape
    (2, 3, 2)
    """
    return F.cat([_deep(p) for p in _several("dstack", (tensors,))], 2)


# --- apart ----------------------------------------------------------------------------------------------------------


_MOST_PARTS = 1 << 20


def _cuts(op: str, given: Any, size: int) -> list[int]:
    """Where an axis is cut: at a list of positions, or into so many parts, of which the first may be larger by 1."""
    if isinstance(given, (tuple, list)):
        return [slice(want_whole(op, "an index", i)).indices(size)[1] for i in given]
    parts = want_whole(op, "sections", given)
    if not 1 <= parts <= _MOST_PARTS:
        raise ArgumentError(f"[{op}] expected 1 to {_MOST_PARTS} sections but got {parts}")
    each, rest = divmod(size, parts)
    return [n * each + min(n, rest) for n in range(1, parts)]


@composite(
    torch=lambda torch, x, indices_or_sections, axis=0: torch.tensor_split(x, indices_or_sections, dim=axis),
    reference=lambda x, indices_or_sections, axis=0: np.array_split(x, indices_or_sections, axis),
    samples=lambda: [
        Sample((np.arange(8.0), 3)),
        Sample((_X, (1, 3), 1)),
        Sample((_CUBE, (2, 1, -1, 9), -1)),
        Sample((_X, 5)),
    ],
)
def tensor_split(x: Node, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Node, ...]:
    """An axis cut into so many parts of nearly equal size, or at these positions. No copies.

    >>> [p.shape for p in pf.arange(7).tensor_split(3)]
    [(3,), (2,), (2,)]
    """
    if x.ndim == 0:
        raise ShapeError("[tensor_split] expected a tensor with at least one axis but got a 0-d tensor")
    at = normalize_axis("tensor_split", axis, x.ndim)
    size = x.shape[at]
    cuts = [0, *_cuts("tensor_split", indices_or_sections, size), size]
    return tuple(F.narrow(x, at, start, max(0, end - start)) for start, end in pairwise(cuts))


def _split_evenly(op: str, x: Node, given: Any, axis: int, rank: int) -> tuple[Node, ...]:
    if x.ndim < rank:
        raise ShapeError(f"[{op}] expected a tensor with at least {rank} axes but got shape {x.shape}")
    if not isinstance(given, (tuple, list)) and x.shape[axis] % (want_whole(op, "sections", given) or 1):
        raise ShapeError(
            f"[{op}] expected {x.shape[axis]} to be a multiple of {given}; use tensor_split for uneven parts"
        )
    return F.tensor_split(x, given, axis)  # type: ignore[return-value]


def _split_samples() -> list[Sample]:
    return [Sample((_CUBE, 2)), Sample((_CUBE, [1]))]


@composite(torch="hsplit", samples=lambda: [*_split_samples(), Sample((np.arange(4.0), 2))])
def hsplit(x: Node, indices_or_sections: int | Sequence[int]) -> tuple[Node, ...]:
    """Equal parts, or parts cut at positions, along the second axis; of a vector along its only one.

    >>> [p.shape for p in pf.zeros(2, 4).hsplit(2)]
    [(2, 2), (2, 2)]
    """
    return _split_evenly("hsplit", x, indices_or_sections, 1 if x.ndim > 1 else 0, 1)


@composite(torch="vsplit", samples=_split_samples)
def vsplit(x: Node, indices_or_sections: int | Sequence[int]) -> tuple[Node, ...]:
    """Equal parts, or parts cut at positions, along the first axis.

    >>> [p.shape for p in pf.zeros(4, 2).vsplit(2)]
    [(2, 2), (2, 2)]
    """
    return _split_evenly("vsplit", x, indices_or_sections, 0, 2)


@composite(torch="dsplit", samples=_split_samples)
def dsplit(x: Node, indices_or_sections: int | Sequence[int]) -> tuple[Node, ...]:
    """Equal parts, or parts cut at positions, along the third axis.

    >>> [p.shape for p in pf.zeros(2, 3, 4).dsplit(2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return _split_evenly("dsplit", x, indices_or_sections, 2, 3)
