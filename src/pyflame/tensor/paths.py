"""Paths: how a view is read from the value it is a part of, and how a value is written back to where the view reads.

In go Nodes, out come Nodes; no Tensor is known here. A path is a tuple of steps, each an op that only moves elements
(reshape, permute, expand, slice, a read at fixed positions), gives the real or the imaginary parts, or sees the same
bits as another dtype. Writing goes through it backwards with a value and the region that it fills, so that
`a[0][1] = 5` is one assignment of one element to `a`, not of a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyflame.core.device import DeviceId
from pyflame.core.dtype import DType, complex_of
from pyflame.core.errors import ArgumentError
from pyflame.core.shape import (
    Region,
    Shape,
    contiguous_strides,
    is_contiguous,
    region_before_reshape,
    reshaped_strides,
    sliced_again,
)
from pyflame.core.state import state
from pyflame.engine.value import Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import OPS, F, Meta, Node, OpDef, apply, copy_to, signature
from pyflame.ir.opdef import CONST, COPY, GATHER, INLINE, LEAF, MOVEMENT

Strides = tuple[int, ...]


class Step(NamedTuple):
    """One op of a path: it is applied to the value before it, and `others`."""

    op: OpDef
    attrs: tuple[Any, ...]
    others: tuple[Node, ...] = ()


Path = tuple[Step, ...]
_new_step = tuple.__new__  # in a third of the time


def path_between(base: Node, view: Node) -> Path | None:
    """The steps from a Node to one that was just made of it; None where another op lies between."""
    if view.op.kind == MOVEMENT and view.srcs[0] is base:  # as most are
        return (_new_step(Step, (view.op, view.attrs, ())),)
    steps: list[Step] = []
    while view is not base:
        op, srcs = view.op, view.srcs
        if srcs is base.srcs and op is base.op and view.attrs is base.attrs and op.kind not in (LEAF, CONST):
            break  # the base made anew on another device, as `copy_to` does with what is made of numbers alone
        if op.kind == MOVEMENT:
            steps.append(_new_step(Step, (op, view.attrs, ())))
        elif op.kind == GATHER or op.name in ("real", "imag"):
            steps.append(Step(op, view.attrs, srcs[1:]))
        elif op.kind != COPY or not srcs:  # a tensor that belongs nowhere follows the op: it does so again each time
            return None
        view = srcs[0]
    steps.reverse()
    return tuple(steps)


def follow(base: Node, path: Path) -> Node:
    """What a view with this path reads."""
    for op, attrs, others in path:
        if op.kind == COPY:
            base = copy_to(base, attrs[0], commit=True)
        elif op.name == "bitcast":
            base = reinterpreted(base, attrs[0])
        else:
            base = op.fn(base) if op.kind == INLINE else apply(op, (base, *others), attrs)
    return base


def reinterpreted(node: Node, dtype: DType) -> Node:
    """The same bits as elements of another dtype: no work for a plan where they are in memory."""
    value = None if state.tracer is not None or dtype.category == "b" else view_of_memory(node)
    if value is None or node.dtype is dtype or value.address % dtype.itemsize:
        return F.bitcast(node, dtype)
    strides = value.strides or contiguous_strides(node.shape)
    layout = _seen_as(Layout(node.shape, strides, 0, node.dtype), dtype)
    if layout is None:
        return F.bitcast(node, dtype)
    meta = Meta(layout.shape, dtype, node.meta.device, node.meta.committed)
    steps = None if is_contiguous(layout.shape, layout.strides) else layout.strides
    seen = Value(value.storage, value.offset, steps)
    return Node(OPS["leaf"], (), (), meta, signature("leaf", meta, steps), seen)


def committing(device: DeviceId) -> Step:
    """The step of `.to(device)` for a tensor that lies there and is now tied to it."""
    return Step(OPS["copy_to"], (device,))


def seen_as(dtype: DType) -> Step:
    """The step of `.view(dtype)`."""
    return Step(OPS["bitcast"], (dtype,))


def write_back(base: Node, path: Path, value: Node, region: Region | None) -> Node:
    """The base after a write through a view: `value` fills a region of the view, or all of it where that is None."""
    if value.size == 0:
        return F.with_nothing(base, value)
    levels = [base]
    for step in path[:-1]:
        levels.append(follow(levels[-1], (step,)))
    levels = levels[: len(path)]
    for level, step in zip(reversed(levels), reversed(path), strict=True):
        back = _BACK.get(step.op.name, _gathered_back)
        value, region = back(level, step, value, region)
    if region is None:
        return value
    return F.assign(base, value, region)


Write = tuple[Node, "Region | None"]


def _sliced_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    outer: Region = step.attrs[0]
    if region is None:
        return value, outer
    return value, sliced_again(outer, region)


def _permuted_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    back = tuple(int(a) for a in np.argsort(step.attrs[0]))
    return F.permute(value, back), None if region is None else tuple(region[a] for a in back)


def _reshaped_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    if region is not None:
        parts = region_before_reshape(level.shape, step.attrs[0], region)
        if parts is not None:
            return F.reshape(value, tuple(count for _, _, count in parts)), parts
        value = F.assign(_reshaped(level, step.attrs[0]), value, region)
    return F.reshape(value, level.shape), None


def _reshaped(node: Node, shape: Shape) -> Node:
    """A value under another shape, to assign to. Memory that may be overwritten stays so: it is no reshape of it."""
    if state.recorder is not None:
        return F.reshape(node, shape)
    while node.op.name == "reshape":
        node = node.srcs[0]
    if node.shape == shape or node.op.kind != LEAF or state.tracer is not None or node.data.strides is not None:
        return F.reshape(node, shape)
    meta = Meta(shape, node.dtype, node.meta.device, node.meta.committed)
    value = Value(node.data.storage, node.data.offset)
    return Node(node.op, (), (), meta, signature("leaf", meta, None), value)


def _expanded_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    wanted: Shape = step.attrs[0]
    new = len(wanted) - level.ndim
    grown = [axis for axis, n in enumerate(wanted) if n != (1 if axis < new else level.shape[axis - new])]
    parts = [(0, 1, n) for n in wanted] if region is None else list(region)
    if any(parts[axis][2] > 1 for axis in grown) and not _is_uniform(value):
        raise ArgumentError(
            "[in-place] expected a view whose elements lie at different places in memory but got one made by expand "
            f"of {level.shape} to {wanted}; use .clone() first, or write to the tensor that was expanded"
        )
    kept = tuple((0, 1, 1) if axis + new in grown else part for axis, part in enumerate(parts[new:]))
    value = F.slice(value, tuple((0, 1, 1 if axis in grown else count) for axis, (_, _, count) in enumerate(parts)))
    return F.reshape(value, tuple(count for _, _, count in kept)), kept


def _is_uniform(value: Node) -> bool:
    """Whether it is one number under a shape: that may be written where elements share a place in memory."""
    while value.op.kind == MOVEMENT and value.size > 1:
        value = value.srcs[0]
    if value.op.kind == LEAF and value.data is not None and value.data.strides is not None:
        return not any(value.data.strides)
    return value.size == 1


def _gathered_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    """A read at fixed positions: windows. Where they overlap, a whole value has elements twice, and none is right."""
    axes, dims, shape = step.attrs
    if region is None:
        if value.size > level.size and not _is_uniform(value):
            raise ArgumentError(
                "[in-place] expected a view whose elements lie at different places in memory but got windows made by "
                "unfold; use .clone() first, or write to one window after the other"
            )
        return F.scatter_at(level, value, step.others, axes, dims, "assign"), None
    indices = tuple(F.slice(F.expand(index, shape), region) for index in step.others)
    written = tuple((0, 1, n) if a in axes else region[dims[a]] for a, n in enumerate(level.shape))
    return F.scatter_at(level, value, indices, axes, dims, "assign", written), None


def _copied_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    return value, region


def _part_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    """The real or the imaginary parts of complex numbers."""
    parts = {"real": F.real(level), "imag": F.imag(level)}
    parts[step.op.name] = value if region is None else F.assign(parts[step.op.name], value, region)
    return F.complex(parts["real"], parts["imag"]), None


def _bits_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    """The same bits as elements of another dtype."""
    have, seen = level.dtype, step.attrs[0]
    if region is not None and have.itemsize != seen.itemsize:
        grow, shrink = max(seen.itemsize // have.itemsize, 1), max(have.itemsize // seen.itemsize, 1)
        first, jump, count = region[-1]
        if jump != 1 or first % shrink or count % shrink:  # parts of the level's elements
            value, region = F.assign(follow(level, (step,)), value, region), None
        else:
            region = (*region[:-1], (first * grow // shrink, 1, count * grow // shrink))
    return reinterpreted(value, have), region


def _pairs_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    """Complex numbers as pairs of floats along a last axis."""
    if region is not None:
        value = F.assign(F.view_as_real(level), value, region)
    return F.view_as_complex(value), None


def _joined_back(level: Node, step: Step, value: Node, region: Region | None) -> Write:
    """Pairs of floats along a last axis as complex numbers."""
    return F.view_as_real(value), None if region is None else (*region, (0, 1, 2))


_BACK = {
    "bitcast": _bits_back,
    "view_as_real": _pairs_back,
    "view_as_complex": _joined_back,
    "real": _part_back,
    "imag": _part_back,
    "slice": _sliced_back,
    "permute": _permuted_back,
    "reshape": _reshaped_back,
    "expand": _expanded_back,
    "copy_to": _copied_back,
}


# --- layouts: what PyTorch would hold -------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Where elements lie in memory: strides and the first one's place are in elements."""

    shape: Shape
    strides: Strides
    offset: int
    dtype: DType


def layout_after(layout: Layout, path: Path) -> Layout | None:
    """The layout of a view; None where PyTorch could not make it without a copy."""
    for at, step in enumerate(path):
        found = _layout_after(layout, step)
        if found is None and step.op.name == "reshape" and len(path) > at + 1:
            return _on_diagonal(layout, path[at + 1])
        if found is None:
            return None
        layout = found
    return layout


def _layout_after(layout: Layout, step: Step) -> Layout | None:
    shape, strides, offset, dtype = layout
    op, attrs, _ = step
    if op.kind == COPY:
        return layout
    if op.name == "slice":
        offset += sum(s * first for s, (first, _, _) in zip(strides, attrs[0], strict=True))
        strides = tuple(s * jump for s, (_, jump, _) in zip(strides, attrs[0], strict=True))
        return Layout(tuple(count for _, _, count in attrs[0]), strides, offset, dtype)
    if op.name == "permute":
        return Layout(tuple(shape[a] for a in attrs[0]), tuple(strides[a] for a in attrs[0]), offset, dtype)
    if op.name == "expand":
        wanted, new = attrs[0], len(attrs[0]) - len(shape)
        kept = [0 if n != m else s for n, m, s in zip(shape, wanted[new:], strides, strict=True)]
        return Layout(wanted, (*[0] * new, *kept), offset, dtype)
    if op.name in ("real", "imag", "view_as_real"):
        whole, parts = op.name == "view_as_real", tuple(2 * s for s in strides)
        place = 2 * offset + (op.name == "imag")
        return Layout((*shape, 2) if whole else shape, (*parts, 1) if whole else parts, place, dtype.real)
    if op.name == "view_as_complex":
        fits = strides[-1] == 1 and not any(s % 2 for s in (offset, *strides[:-1]))
        halves = tuple(s // 2 for s in strides[:-1])
        return Layout(shape[:-1], halves, offset // 2, complex_of(dtype)) if fits else None
    if op.name == "bitcast":
        return _seen_as(layout, attrs[0])
    if op.kind == GATHER:  # windows: they begin `jump` apart
        (axis,), _, wanted = attrs
        jump = (shape[axis] - wanted[-1]) // max(wanted[axis] - 1, 1)
        steps = (*[s * jump if a == axis else s for a, s in enumerate(strides)], strides[axis])
        return Layout(wanted, steps, offset, dtype)
    fitting = reshaped_strides(shape, strides, attrs[0])
    return None if fitting is None else Layout(attrs[0], fitting, offset, dtype)


def _on_diagonal(layout: Layout, step: Step) -> Layout:
    """x.diagonal(): of rows * columns every (columns + 1)th."""
    (shape, strides, offset, dtype), taken = layout, step.attrs[0]
    row, column = divmod(taken[-1][0], shape[-1])
    place = offset + row * strides[-2] + column * strides[-1]
    return Layout((*shape[:-2], taken[-1][2]), (*strides[:-2], strides[-2] + strides[-1]), place, dtype)


def _seen_as(layout: Layout, dtype: DType) -> Layout | None:
    """The same memory as elements of another dtype, whose last axis grows or shrinks."""
    shape, strides, offset, have = layout
    if have.itemsize == dtype.itemsize:
        return Layout(shape, strides, offset, dtype)
    grow, shrink = max(have.itemsize // dtype.itemsize, 1), max(dtype.itemsize // have.itemsize, 1)
    if not shape or strides[-1] != 1 or any(n % shrink for n in (shape[-1], offset, *strides[:-1])):
        return None
    steps = tuple(s * grow // shrink for s in strides[:-1])
    return Layout((*shape[:-1], shape[-1] * grow // shrink), (*steps, 1), offset * grow // shrink, dtype)
