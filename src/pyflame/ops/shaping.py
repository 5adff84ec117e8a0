"""Ops that put tensors together, take them apart, repeat and shift them. Pieces go straight into the result."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, promote_types
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import Region, Shape, check_shape, check_sizes, normalize_axes, normalize_axis
from pyflame.ir import OPS, F, Meta, Node, Sample, apply, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import want_tensors, want_whole

_X = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
_CUBE = np.linspace(-1.0, 1.0, 24).reshape(2, 3, 4)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _part(shape: Shape, axis: int, start: int, count: int) -> Region:
    """A range of one axis, all of the others."""
    return tuple([(start, 1, count) if a == axis else (0, 1, n) for a, n in enumerate(shape)])


# --- together -------------------------------------------------------------------------------------------------------


def _cat_infer(*args: Any) -> tuple[Shape, DType]:
    *metas, axis = args
    first = metas[0].shape
    return (*first[:axis], sum(m.shape[axis] for m in metas), *first[axis + 1 :]), metas[0].dtype


def _cat_parts(*args: Any) -> Node:
    *pieces, axis = args
    shape, dtype = _cat_infer(*[p.meta for p in pieces], axis)
    out = F.uninitialized(shape, dtype)
    start = 0
    for piece in pieces:
        out = F.assign(out, piece, _part(shape, axis, start, piece.shape[axis]))
        start += piece.shape[axis]
    return out


def _cat_grad(g: Node, metas: Sequence[Meta], axis: int) -> list[Node]:
    # each piece gets its part
    sizes = [m.shape[axis] for m in metas]
    return [F.slice(g, _part(g.shape, axis, s, n)) for s, n in zip(accumulate(sizes, initial=0), sizes, strict=False)]


def _numpy_cat(*args: Any) -> Any:
    return np.concatenate(args[:-1], args[-1])


@primitive(
    COMPOSITE,
    takes_complex=True,
    infer=_cat_infer,
    attrs=("axis",),
    srcs=("first",),
    reference=_numpy_cat,
    decompose=_cat_parts,
    grad=_cat_grad,
    method=False,
    torch="cat",
    samples=lambda: [
        Sample(([_X, _X * 2, _X[:1]],)),
        Sample(([_X, _X[:, :1], _X[:, :0]], 1)),
        Sample(([_CUBE.T, _CUBE.T[:, :, ::2]], -1)),
        Sample(([np.arange(3.0)],)),
        Sample(([np.arange(3.0), np.arange(2)],), grad=False),
    ],
)
def cat(tensors: Sequence[Node], axis: int = 0) -> Any:
    """Tensors one behind the other along an existing axis.

    >>> pf.cat([pf.tensor([1, 2]), pf.tensor([3])])
    tensor([1, 2, 3])
    """
    return _joined("cat", tensors, axis)


def _joined(op: str, tensors: Sequence[Node], axis: int) -> Any:
    pieces = _several(op, tensors)
    kept = [p for p in pieces if p.shape != (0,)] or pieces[:1]  # as in PyTorch, an empty vector fits anything
    first = kept[0]
    if first.ndim == 0:
        raise ShapeError(f"[{op}] expected tensors with at least one axis but got a 0-d tensor; use stack")
    at = normalize_axis(op, axis, first.ndim)
    if len(kept) > 1 and {p.meta for p in pieces} == {first.meta}:  # as most are
        return tuple(kept), (at,)
    dtype = first.dtype
    for p in pieces:
        dtype = promote_types(dtype, p.meta.dtype)
    for p in kept:
        if p.meta.shape != first.meta.shape and (
            p.ndim != first.ndim or (*p.shape[:at], *p.shape[at + 1 :]) != (*first.shape[:at], *first.shape[at + 1 :])
        ):
            raise ShapeError(f"[{op}] expected equal shapes except along axis {at} but got {first.shape} and {p.shape}")
    kept = [cast(p, dtype) for p in kept]
    return kept[0] if len(kept) == 1 else (tuple(kept), (at,))


def _several(op: str, tensors: Any) -> list[Node]:
    if isinstance(tensors, Node) or not isinstance(tensors, (tuple, list)):
        raise DTypeError(f"[{op}] expected a list of at least one tensor but got {type(tensors).__name__}")
    if not tensors:
        raise ArgumentError(f"[{op}] expected a list of at least one tensor but got an empty one")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Node):
            want_tensors(op, **{f"tensors[{position}]": tensor})
    return list(tensors)


@composite(
    reference=np.stack,
    torch="stack",
    method=False,
    samples=lambda: [
        Sample(([_X, _X * 2],)),
        Sample(([_X.T, _X.T * 3, _X.T], -1)),
        Sample(([np.array(1.0), np.array(2.0)],)),
        Sample(([_X], 1)),
    ],
)
def stack(tensors: Sequence[Node], axis: int = 0) -> Node:
    """Tensors of one shape side by side along a new axis.

    >>> pf.stack([pf.tensor([1, 2]), pf.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    pieces = _several("stack", tensors)
    first = pieces[0].shape
    if any(p.meta.shape != first for p in pieces):
        raise ShapeError(
            f"[stack] expected tensors of one shape but got {[p.shape for p in pieces]}; use cat to join along an axis"
        )
    at = normalize_axis("stack", axis, len(first) + 1)
    shape = (*first[:at], 1, *first[at:])
    return F.cat([apply(OPS["reshape"], (p,), (shape,)) for p in pieces], at)


@composite(
    reference=np.hstack,
    torch="hstack",
    method=False,
    samples=lambda: [
        Sample(([_X, _X[:, :1]],)),
        Sample(([np.arange(3.0), np.arange(2.0)],)),
        Sample(([np.array(1.0), np.array(2.0)],)),
    ],
)
def hstack(tensors: Sequence[Node]) -> Node:
    """Tensors one behind the other along the second axis, vectors along their only one.

    >>> pf.hstack([pf.tensor([1, 2]), pf.tensor([3])])
    tensor([1, 2, 3])
    """
    pieces = [F.reshape(p, (1,)) if p.ndim == 0 else p for p in _several("hstack", tensors)]
    return F.cat(pieces, 0 if pieces[0].ndim == 1 else 1)


@composite(
    reference=np.vstack,
    torch="vstack",
    method=False,
    samples=lambda: [Sample(([_X, _X[:1]],)), Sample(([np.arange(3.0), np.arange(3.0)],)), Sample(([np.array(1.0)],))],
)
def vstack(tensors: Sequence[Node]) -> Node:
    """Tensors below each other: along the first axis, with vectors as rows.

    >>> pf.vstack([pf.tensor([1, 2]), pf.tensor([3, 4])]).shape
    (2, 2)
    """
    pieces = [F.reshape(p, (1, p.size)) if p.ndim < 2 else p for p in _several("vstack", tensors)]
    return F.cat(pieces, 0)


def _numpy_meshgrid(*tensors: Any, indexing: Any = "ij") -> list[Any]:
    return list(np.meshgrid(*tensors, indexing=indexing))


@composite(
    reference=_numpy_meshgrid,
    torch=lambda torch, *tensors, indexing="ij": torch.meshgrid(*tensors, indexing=indexing),
    method=False,
    samples=lambda: [
        Sample((np.arange(3.0), np.arange(2.0))),
        Sample((np.arange(3.0), np.arange(2.0), np.arange(2.0)), {"indexing": "xy"}),
        Sample((np.arange(3.0),)),
    ],
)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Node, ...]:
    """Coordinates of a grid over vectors, one tensor per vector, without copies. "xy" swaps the first two axes.

    >>> [g.shape for g in pf.meshgrid(pf.arange(3), pf.arange(2))]
    [(3, 2), (3, 2)]
    """
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"[meshgrid] expected indexing 'ij' or 'xy' but got {indexing!r}")
    vectors = _several(
        "meshgrid", list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    )
    if any(v.ndim > 1 for v in vectors):
        raise ShapeError(f"[meshgrid] expected vectors but got shapes {[v.shape for v in vectors]}")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = tuple(vectors[n].size for n in order)
    at = {n: place for place, n in enumerate(order)}
    return tuple(
        F.expand(F.reshape(v, tuple(v.size if place == at[n] else 1 for place in range(len(order)))), shape)
        for n, v in enumerate(vectors)
    )


# --- apart ----------------------------------------------------------------------------------------------------------


def _cut(x: Node, axis: int, sizes: Sequence[int]) -> tuple[Node, ...]:
    starts = np.cumsum([0, *sizes])
    return tuple(F.slice(x, _part(x.shape, axis, int(s), n)) for s, n in zip(starts, sizes, strict=False))


def _sizes(total: int, each: int) -> list[int]:
    """Parts of one size, the last one smaller where it does not divide; at least one part."""
    return [min(each, total - start) for start in range(0, total, max(each, 1))] or [0]


def _numpy_split(x: Any, size: Any, axis: int = 0) -> list[Any]:
    sizes = _sizes(x.shape[axis], size) if isinstance(size, int) else size
    return np.split(x, np.cumsum(sizes)[:-1], axis)


@composite(
    reference=_numpy_split,
    torch="split",
    samples=lambda: [
        Sample((_X, 2)),
        Sample((_X, [1, 3], 1)),
        Sample((_CUBE.T, 3, -2)),
        Sample((_X, 5)),
        Sample((_X, 2**62)),
        Sample((np.arange(90.0), [2] * 45)),
        Sample((np.zeros((0, 2)), 1)),
    ],
)
def split(x: Node, split_size_or_sections: Any, axis: int = 0) -> tuple[Node, ...]:
    """Parts of an axis: of one size (the last may be smaller), or of the sizes in a list. No copies.

    >>> [p.shape for p in pf.zeros(5).split(2)]
    [(2,), (2,), (1,)]
    """
    if x.ndim == 0:
        raise ShapeError("[split] expected a tensor with at least one axis but got a 0-d tensor")
    at = normalize_axis("split", axis, x.ndim)
    if isinstance(split_size_or_sections, (tuple, list)):
        sizes = list(check_sizes("split", split_size_or_sections))
        if sum(sizes) != x.shape[at]:
            raise ShapeError(
                f"[split] expected sizes that add up to {x.shape[at]}, the size of axis {at}, but got {sizes}"
            )
    else:
        (each,) = check_sizes("split", (split_size_or_sections,))
        if each == 0 and x.shape[at]:
            raise ShapeError(f"[split] expected a size of at least 1 but got 0 for shape {x.shape}")
        sizes = _sizes(x.shape[at], each)
    return _cut(x, at, sizes)


@composite(
    reference=lambda x, chunks, axis=0: _numpy_split(x, max(1, -(-x.shape[axis] // chunks)), axis),
    torch="chunk",
    samples=lambda: [Sample((_X, 2)), Sample((_X, 3, 1)), Sample((np.arange(5.0), 4)), Sample((_X, 7, -1))],
)
def chunk(x: Node, chunks: int, axis: int = 0) -> tuple[Node, ...]:
    """At most `chunks` parts of equal size along an axis; the last may be smaller. No copies.

    >>> [p.shape for p in pf.zeros(5).chunk(2)]
    [(3,), (2,)]
    """
    if chunks < 1:
        raise ArgumentError(f"[chunk] expected at least 1 chunk but got {chunks}")
    if x.ndim == 0:
        raise ShapeError("[chunk] expected a tensor with at least one axis but got a 0-d tensor")
    at = normalize_axis("chunk", axis, x.ndim)
    size = x.shape[at]
    return _cut(x, at, _sizes(size, -(-size // chunks)) if size else [0] * chunks)


@composite(
    reference=lambda x, axis=0: [np.take(x, i, axis) for i in range(x.shape[axis])],
    torch="unbind",
    samples=lambda: [Sample((_X,)), Sample((_CUBE.T, -1)), Sample((np.arange(2.0),))],
)
def unbind(x: Node, axis: int = 0) -> tuple[Node, ...]:
    """The slices along an axis, without that axis. No copies.

    >>> [p.shape for p in pf.zeros(2, 3).unbind(1)]
    [(2,), (2,), (2,)]
    """
    if x.ndim == 0:
        raise ShapeError("[unbind] expected a tensor with at least one axis but got a 0-d tensor")
    at = normalize_axis("unbind", axis, x.ndim)
    return tuple(F.select(x, at, i) for i in range(x.shape[at]))


# --- repeated -------------------------------------------------------------------------------------------------------


def _repeated(x: Node, times: Shape) -> Node:
    """x beside itself: (2, 3) x (2, 3) -> (1, 2, 1, 3) -> (2, 2, 3, 3) -> (4, 9)."""
    shape = (*[1] * (len(times) - x.ndim), *x.shape)
    pairs = F.reshape(x, tuple(n for size in shape for n in (1, size)))
    wide = F.expand(pairs, tuple(n for t, size in zip(times, shape, strict=True) for n in (t, size)))
    return F.reshape(wide, tuple(t * size for t, size in zip(times, shape, strict=True)))


@composite(
    reference=lambda x, *sizes: np.tile(x, _tuple(sizes[0]) if len(sizes) == 1 else sizes),
    torch=lambda torch, x, *sizes: x.repeat(*sizes),
    samples=lambda: [
        Sample((_X, 2, 3)),
        Sample((_X, (2, 1, 2))),
        Sample((_X.T, 1, 2)),
        Sample((np.array(1.0), (3,))),
        Sample((_X, 0, 1)),
    ],
)
def repeat(x: Node, *sizes: Any) -> Node:
    """x repeated as a whole along its axes; more sizes than axes make new ones in front.

    >>> pf.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = check_shape("repeat", _tuple(sizes[0]) if len(sizes) == 1 else sizes)
    if len(times) < x.ndim:
        raise ShapeError(
            f"[repeat] expected at least {x.ndim} sizes for shape {x.shape} but got {times}; "
            "use tile to repeat the last axes"
        )
    return _repeated(x, times)


@composite(
    reference=lambda x, *reps: np.tile(x, _tuple(reps[0]) if len(reps) == 1 else reps),
    torch=lambda torch, x, *reps: torch.tile(x, _tuple(reps[0]) if len(reps) == 1 else reps),
    samples=lambda: [Sample((_X, 2)), Sample((_X, (2, 1, 2))), Sample((_CUBE.T, (2,)))],
)
def tile(x: Node, *reps: Any) -> Node:
    """As repeat, with the counts meant for the last axes where they are fewer.

    >>> pf.tensor([[1], [2]]).tile(2)
    tensor([[1, 1],
            [2, 2]])
    """
    times = check_shape("tile", _tuple(reps[0]) if len(reps) == 1 else reps)
    return _repeated(x, (*[1] * (x.ndim - len(times)), *times))


@composite(
    reference=lambda x, repeats, axis=None: np.repeat(x, repeats, axis),
    torch=lambda torch, x, repeats, axis=None: torch.repeat_interleave(x, repeats, dim=axis),
    samples=lambda: [Sample((_X, 2)), Sample((_X, 3, 1)), Sample((_CUBE.T, 2, -2)), Sample((_X, 0, 0))],
)
def repeat_interleave(x: Node, repeats: int, axis: int | None = None) -> Node:
    """Each element `repeats` times in place, along an axis or of the flattened tensor.

    >>> pf.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2])
    """
    (times,) = check_shape("repeat_interleave", (repeats,))
    if axis is None:
        x, axis = F.reshape(x, (-1,)), 0
    at = normalize_axis("repeat_interleave", axis, x.ndim)
    if x.ndim == 0:
        x = F.reshape(x, (1,))
    before, size, after = x.shape[:at], x.shape[at], x.shape[at + 1 :]
    wide = F.expand(F.reshape(x, (*before, size, 1, *after)), (*before, size, times, *after))
    return F.reshape(wide, (*before, size * times, *after))


# --- turned and shifted ---------------------------------------------------------------------------------------------


def _roll_parts(x: Node, shifts: tuple[int, ...]) -> Node:
    """Write the two halves of every shifted axis where they go: 2**axes pieces, each element once."""
    halves = []
    for size, shift in zip(x.shape, shifts, strict=True):
        pairs = [((0, 1, size - shift), (shift, 1, size - shift)), ((size - shift, 1, shift), (0, 1, shift))]
        halves.append([pair for pair in pairs if pair[0][2]])
    out = F.uninitialized(x.shape, x.dtype)
    for corner in product(*halves):
        out = F.assign(out, F.slice(x, tuple(source for source, _ in corner)), tuple(target for _, target in corner))
    return out


@primitive(
    COMPOSITE,
    takes_complex=True,
    infer=lambda m, shifts: (m.shape, m.dtype),
    attrs=("shifts",),
    reference=lambda x, shifts: np.roll(x, shifts, tuple(range(x.ndim))),
    decompose=_roll_parts,
    grad=lambda g, shifts: (F.roll(g, tuple(-s for s in shifts), tuple(range(g.ndim))),),
    torch="roll",
    samples=lambda: [
        Sample((_X, 1, 0)),
        Sample((_X, (1, -6), (0, 1))),
        Sample((_CUBE.T, 5)),
        Sample((_X, (2, 1), (0, 0))),
        Sample((np.zeros((0, 3)), 1, 0)),
    ],
)
def roll(x: Node, shifts: Any, axis: Any = None) -> Any:
    """Move elements along axes; those that leave at the end come in at the start. Without an axis x counts as flat.

    >>> pf.tensor([1, 2, 3]).roll(1)
    tensor([3, 1, 2])
    """
    if axis is None or (isinstance(axis, (tuple, list)) and not axis):
        return F.reshape(F.roll(F.reshape(x, (-1,)), shifts, 0), x.shape)
    steps, axes = _tuple(shifts), _tuple(axis)
    if len(steps) != len(axes):
        raise ArgumentError(f"[roll] expected a shift per axis but got shifts {shifts} and axes {axis}")
    if x.ndim == 0:
        raise ShapeError(f"[roll] expected a tensor with axes for axis={axis} but got a 0-d tensor")
    total = [0] * x.ndim
    for step, a in zip(steps, axes, strict=True):
        at = normalize_axis("roll", a, x.ndim)
        total[at] = (total[at] + int(step)) % max(x.shape[at], 1)
    return ((x,), (tuple(total),)) if any(total) else x


@composite(
    reference=lambda x, k=1, axis=(0, 1): np.rot90(x, k, axis),
    torch=lambda torch, x, k=1, axis=(0, 1): torch.rot90(x, k, axis),
    samples=lambda: [Sample((_X,)), Sample((_X, 2)), Sample((_CUBE, 3, (2, 0))), Sample((_X, -1)), Sample((_X, 4))],
)
def rot90(x: Node, k: int = 1, axis: Any = (0, 1)) -> Node:
    """Turn the plane of two axes by k quarters, from the first axis towards the second.

    >>> pf.tensor([[1, 2], [3, 4]]).rot90()
    tensor([[2, 4],
            [1, 3]])
    """
    axes = normalize_axes("rot90", axis, x.ndim)
    if len(axes) != 2:
        raise ShapeError(f"[rot90] expected two different axes but got {axis} for shape {x.shape}")
    a, b = (normalize_axis("rot90", n, x.ndim) for n in axis)
    if k % 4 == 0:
        return x
    if k % 4 == 2:
        return F.flip(x, (a, b))
    return F.flip(F.transpose(x, a, b), a) if k % 4 == 1 else F.transpose(F.flip(x, a), a, b)


# --- triangles and diagonals ----------------------------------------------------------------------------------------


def _triangle(op: str, x: Node, diagonal: int, lower: bool) -> Node:
    if x.ndim < 2:
        raise ShapeError(f"[{op}] expected a tensor with at least two axes but got shape {x.shape}")
    rows, columns = x.shape[-2:]
    # column - row is the number of the diagonal
    number = F.iota_like(x, (columns,)) - F.iota_like(x, (rows, 1))
    # as a bool the zero leaves bools what they are
    return F.where(number <= diagonal if lower else number >= diagonal, x, False)


def _triangle_samples() -> list[Sample]:
    return [
        Sample((_X,)),
        Sample((_X, 1)),
        Sample((_X.T, -1)),
        Sample((_CUBE, -5)),
        Sample((np.full((3, 3), np.nan),), grad=False),
        Sample((np.ones((3, 3), np.bool_), 1)),
    ]


@composite(reference=np.tril, torch="tril", samples=_triangle_samples)
def tril(x: Node, diagonal: int = 0) -> Node:
    """The lower triangle of matrices, up to a diagonal; 0 above.

    >>> pf.tril(pf.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _triangle("tril", x, diagonal, lower=True)


@composite(reference=np.triu, torch="triu", samples=_triangle_samples)
def triu(x: Node, diagonal: int = 0) -> Node:
    """The upper triangle of matrices, from a diagonal on; 0 below.

    >>> pf.triu(pf.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return _triangle("triu", x, diagonal, lower=False)


@composite(
    reference=lambda x, diagonal=0: np.diag(x, diagonal),
    torch="diag",
    samples=lambda: [
        Sample((_X,)),
        Sample((_X, -1)),
        Sample((np.arange(3.0), 1)),
        Sample((np.arange(3.0),)),
        Sample((np.zeros(0),)),
    ],
)
def diag(x: Node, diagonal: int = 0) -> Node:
    """A vector as the diagonal of a matrix of zeros, or the diagonal of a matrix as a vector.

    >>> pf.diag(pf.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    diagonal = want_whole("diag", "diagonal", diagonal)
    if x.ndim == 2:
        return F.diagonal(x, diagonal)
    if x.ndim != 1:
        raise ShapeError(f"[diag] expected a vector or a matrix but got shape {x.shape}")
    return F.diag_embed(x, diagonal)


@composite(
    torch="diag_embed",
    samples=lambda: [
        Sample((_X,)),
        Sample((_X, 1)),
        Sample((_CUBE.T, -2, 0, 2)),
        Sample((_X, 0, -1, 0)),
        Sample((np.zeros((2, 0)), 1)),
    ],
)
def diag_embed(x: Node, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Node:
    """The vectors of the last axis as diagonals of matrices of zeros, which lie along dim1 and dim2.

    >>> pf.diag_embed(pf.ones(5, 3)).shape
    (5, 3, 3)
    """
    offset = want_whole("diag_embed", "offset", offset)
    if x.ndim == 0:
        raise ShapeError("[diag_embed] expected a tensor with at least one axis but got a 0-d tensor")
    a, b = (normalize_axis("diag_embed", d, x.ndim + 1) for d in (dim1, dim2))
    if a == b:
        raise ShapeError(f"[diag_embed] expected two different axes but got {dim1} and {dim2}")
    *rows, size = x.shape
    side = size + builtins.abs(offset)
    start = (offset if offset >= 0 else -offset * side) if size else 0
    region = (*((0, 1, n) for n in rows), (start, side + 1, size))
    flat = F.assign(F.full_const(0, x.dtype, (*rows, side * side)), x, region)
    return F.movedim(F.reshape(flat, (*rows, side, side)), (-2, -1), (a, b))


@composite(
    reference=lambda x: np.trace(x),
    torch="trace",
    samples=lambda: [Sample((_X,)), Sample((_X.T,)), Sample((np.arange(4).reshape(2, 2),))],
)
def trace(x: Node) -> Node:
    """The sum of a matrix's diagonal.

    >>> pf.trace(pf.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    if x.ndim != 2:
        raise ShapeError(f"[trace] expected a matrix but got shape {x.shape}")
    return F.sum(F.diagonal(x))
