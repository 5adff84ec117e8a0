"""Shapes, strides and axes: pure integer arithmetic. Strides count elements."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, SupportsIndex, TypeGuard, overload

from pyflame.core.errors import ArgumentTypeError, AxisError, ShapeError
from pyflame.core.traced import index, whole

Shape = tuple[int, ...]


class Size(Shape):
    """A shape with PyTorch's methods; in all else a tuple.

    >>> Size((2, 3)).numel(), Size((2, 3)) == (2, 3)
    (6, True)
    """

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements."""
        return prod(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Size: ...

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if type(found) is tuple else found

    def __add__(self, other: Any) -> Size:
        return Size(super().__add__(other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Size:  # a list takes the elements: `sizes += x.shape`
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented


MAX_ELEMENTS = 2**59  # of 8 bytes each: byte offsets stay within int64


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Row-major strides.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = []
    step = 1
    for size in shape[::-1]:
        strides.append(step)
        step *= size or 1
    return tuple(strides[::-1])


def start_of(region: Region, shape: Shape, strides: tuple[int, ...] | None = None) -> int:
    """Where a region of a tensor begins, in elements; without strides it is row-major.

    >>> start_of(((1, 1, 2), (2, 1, 1)), (3, 4))
    6
    """
    at = 0
    if strides is None:
        for (first, _, _), size in zip(region, shape):  # noqa: B905  a keyword takes 0.3 us
            at = at * size + first
    else:
        for (first, _, _), stride in zip(region, strides):  # noqa: B905  as above
            at += first * stride
    return at


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation of axes that undoes one.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def is_contiguous(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether elements lie in row-major order without gaps; strides of axes of size 1 do not matter."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def reshaped_strides(shape: Shape, strides: tuple[int, ...], wanted: Shape) -> tuple[int, ...] | None:
    """Strides under another shape, if it can be had without a copy: each stretch of axes that lie in memory as one
    may be cut up anew.

    >>> reshaped_strides((2, 3, 4), (12, 4, 1), (6, 4)), reshaped_strides((3, 2), (1, 3), (6,))
    ((4, 1), None)
    """
    if prod(shape) == 0:
        return strides if shape == wanted else contiguous_strides(wanted)
    out: list[int] = []
    left = len(wanted) - 1
    for size, step in reversed(_stretches(shape, strides)):
        filled = 1
        while left >= 0 and (filled < size or wanted[left] == 1):
            out.append(step * filled)
            filled *= wanted[left]
            left -= 1
        if filled != size:
            return None
    return tuple(out[::-1]) if left < 0 else None


def _stretches(shape: Shape, strides: Sequence[int]) -> list[tuple[int, int]]:
    """(size, stride) of stretches of axes that lie in memory as one axis would."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found or [(1, 1)]


def check_shape(op: str, shape: Iterable[object]) -> Shape:
    """Turn what a user wrote as a shape into a tuple of ints, or say what is wrong with it."""
    dims = check_sizes(op, shape)
    check_size(op, dims)
    return dims


def check_sizes(op: str, sizes: Iterable[object]) -> Shape:
    """The same of sizes that are not those of one tensor."""
    try:
        dims = tuple(index(d) for d in sizes)
    except TypeError as error:
        raise ArgumentTypeError(f"[{op}] expected a shape of whole numbers but got {sizes!r}") from error
    if any(d < 0 for d in dims):
        raise ShapeError(f"[{op}] expected sizes of at least 0 but got {dims}")
    return dims


def is_plain(shape: tuple[Any, ...]) -> TypeGuard[Shape]:
    """Whether a tuple holds nothing but ints from 0 on, as nearly all shapes and axes do: no more need be checked."""
    for size in shape:  # noqa: SIM110  each op asks this, and a generator takes twice as long
        if type(size) is not int or size < 0:
            return False
    return True


def expands_to(shape: Shape, wanted: Shape) -> bool:
    """Whether a shape broadcasts to another.

    >>> expands_to((3, 1), (2, 3, 4)), expands_to((3,), (4,))
    (True, False)
    """
    skip = len(wanted) - len(shape)
    for have, size in zip(shape, wanted[skip:] if skip > 0 else wanted, strict=False):
        if have not in (1, size):
            return False
    return skip >= 0


def check_size(op: str, shape: Shape) -> int:
    """How many elements there are. Raises for more than addresses can count, also where an axis without any hides
    that."""
    size = prod(shape)
    if size > MAX_ELEMENTS or (size == 0 and prod(d for d in shape if d) > MAX_ELEMENTS):
        raise ShapeError(f"[{op}] expected at most 2**59 elements but got shape {shape}")
    return size


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """NumPy's broadcasting.

    >>> broadcast_shapes("add", (3, 1), (4,))
    (3, 4)
    """
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and out[axis] != size:
                if out[axis] != 1:
                    listed = " and ".join(str(s) for s in shapes)
                    raise ShapeError(
                        f"[{op}] expected shapes that broadcast but got {listed}: sizes {out[axis]} and {size} meet "
                        f"on axis {axis - rank}; reshape or expand one of them"
                    )
                out[axis] = size
    return tuple(out)


def normalize_axis(op: str, axis: object, rank: int) -> int:
    """An axis in [0, rank), counting from the end when negative."""
    try:
        value = operator.index(axis)  # type: ignore[arg-type]
    except TypeError as error:
        raise ArgumentTypeError(f"[{op}] expected a whole number as axis but got {axis!r}") from error
    span = max(rank, 1)
    if not -span <= value < span:
        raise AxisError(f"[{op}] expected an axis in [{-span}, {span - 1}] for a tensor of rank {rank} but got {value}")
    return value % span


def normalize_axes(op: str, axes: object, rank: int) -> tuple[int, ...]:
    """Sorted, unique axes; None means all of them."""
    if axes is None:
        return tuple(range(rank))
    if type(axes) is int and -rank <= axes < rank:
        return (axes % rank,)
    listed: Sequence[object] = list(axes) if isinstance(axes, (tuple, list)) else [axes]
    out = [normalize_axis(op, a, rank) for a in listed]
    if len(set(out)) != len(out):
        raise ShapeError(f"[{op}] expected each axis once but got {axes!r}")
    return tuple(sorted(a for a in out if a < rank))


def reduced_axes(op: str, axes: object, rank: int) -> tuple[int, ...]:
    """`normalize_axes` of PyTorch's reductions, for most of which no axes are all of them."""
    return normalize_axes(op, axes if not isinstance(axes, (tuple, list)) or axes else None, rank)


def drop_axes(shape: Shape, axes: Shape) -> Shape:
    """The shape of a reduction.

    >>> drop_axes((2, 3, 4), (1,))
    (2, 4)
    """
    return tuple([s for a, s in enumerate(shape) if a not in axes])


def keep_axes(shape: Shape, axes: Shape) -> Shape:
    """The shape of a reduction that keeps its axes, as ones.

    >>> keep_axes((2, 3, 4), (1,))
    (2, 1, 4)
    """
    return tuple([1 if a in axes else s for a, s in enumerate(shape)])


def resolve_reshape(op: str, shape: Shape, wanted: Iterable[object]) -> Shape:
    """The target of a reshape, with at most one -1 filled in."""
    raw = tuple(wanted)
    if is_plain(raw) and prod(raw) == prod(shape):
        return raw
    try:
        dims = [index(d) for d in raw]
    except TypeError as error:
        raise ArgumentTypeError(f"[{op}] expected a shape of whole numbers but got {raw!r}") from error
    size = prod(shape)
    holes = [i for i, d in enumerate(dims) if d == -1]
    if len(holes) > 1 or any(d < -1 for d in dims):
        raise ShapeError(f"[{op}] expected sizes of at least 0 and at most one -1 but got {raw}")
    if holes:
        rest = prod(d for d in dims if d != -1)
        if rest == 0 or size % rest:
            raise ShapeError(f"[{op}] expected a shape that holds {size} elements but got {raw} for {shape}")
        dims[holes[0]] = size // rest
    if prod(dims) != size:
        raise ShapeError(f"[{op}] expected a shape that holds {size} elements but got {raw} for {shape}")
    return tuple(dims)


Region = tuple[tuple[int, int, int], ...]  # (start, step, count) per axis


def sliced_again(outer: Region, inner: Region) -> Region:
    """The region that a region of a region is.

    >>> sliced_again(((2, 3, 4),), ((1, 2, 2),))
    ((5, 6, 2),)
    """
    return tuple(
        (start + step * first, step * stride, count)
        for (start, step, _), (first, stride, count) in zip(outer, inner, strict=True)
    )


def equal_runs(shape: Shape, other: Shape) -> list[tuple[range, range]]:
    """Stretches of axes of two shapes with as many elements, as short as can be: what a reshape joins or splits.

    >>> equal_runs((2, 6, 5), (2, 3, 2, 5))
    [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 3)), (range(2, 3), range(3, 4))]
    """
    out = []
    i = j = 0
    while i < len(shape) or j < len(other):
        first, begin = i, j
        left = right = 1
        if i < len(shape):
            left, i = shape[i], i + 1
        if j < len(other):
            right, j = other[j], j + 1
        while left != right:
            if left < right:
                left, i = left * shape[i], i + 1
            else:
                right, j = right * other[j], j + 1
        out.append((range(first, i), range(begin, j)))
    return out


def region_before_reshape(before: Shape, after: Shape, region: Region) -> Region | None:
    """A region under the shape before a reshape; None where more than axes of size 1 came or went.

    >>> region_before_reshape((2, 1, 3), (2, 3), ((1, 1, 1), (0, 2, 2)))
    ((1, 1, 1), (0, 1, 1), (0, 2, 2))
    """
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    if any(count == 0 for n, (_, _, count) in zip(after, region, strict=True) if n == 1):
        return None
    long = iter([part for n, part in zip(after, region, strict=True) if n != 1])
    return tuple((0, 1, 1) if n == 1 else next(long) for n in before)


def apart(one: Region, other: Region) -> bool:
    """Whether two regions of one tensor share no element, seen along one axis.

    >>> apart(((0, 1, 2),), ((2, 1, 2),)), apart(((0, 2, 5),), ((1, 2, 5),)), apart(((0, 1, 3),), ((2, 1, 2),))
    (True, True, False)
    """
    return any(_apart_along(a, b) for a, b in zip(one, other, strict=True))


def _apart_along(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    (start, step, count), (begin, stride, length) = one, other
    low, high = sorted((start, start + step * (count - 1)))
    floor, ceiling = sorted((begin, begin + stride * (length - 1)))
    interleaved = step == stride and (start - begin) % abs(step) != 0
    return high < floor or ceiling < low or interleaved


@whole
def magic(d: int) -> int:
    """Multiplier (low word) and shift (high word) with which pf_divide of pf_gpu.h divides numbers below 2^31 by d."""
    shift = (d - 1).bit_length()
    return shift << 32 | ((1 << 32) * ((1 << shift) - d) // d + 1)


def power(n: int) -> int:
    """The smallest power of two that is at least n.

    >>> power(5)
    8
    """
    return 1 << max(0, n - 1).bit_length()
