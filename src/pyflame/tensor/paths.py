"""Paths: how a view is read from the value it is a part of, and how a value is written back to where the view reads.

In go Nodes, out come Nodes; no Tensor is known here. A path is a tuple of steps, each an op that only moves elements
(reshape, permute, expand, slice, a read at fixed positions) or gives the real or the imaginary parts. Writing goes
through it backwards with a value and the region that it fills, so that `a[0][1] = 5` is one assignment of one element
to `a`, not of a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError
from pyflame.core.shape import Region, Shape, region_before_reshape, reshaped_strides, sliced_again
from pyflame.core.state import state
from pyflame.engine.value import Value
from pyflame.ir import OPS, F, Meta, Node, OpDef, apply, copy_to, signature
from pyflame.ir.opdef import CONST, COPY, GATHER, LEAF, MOVEMENT

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
        base = copy_to(base, attrs[0], commit=True) if op.kind == COPY else apply(op, (base, *others), attrs)
    return base


def committing(device: DeviceId) -> Step:
    """The step of `.to(device)` for a tensor that lies there and is now tied to it."""
    return Step(OPS["copy_to"], (device,))


def write_back(base: Node, path: Path, value: Node, region: Region | None) -> Node:
    """The base after a write through a view: `value` fills a region of the view, or all of it where that is None."""
    if value.size == 0:
        return base
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


_BACK = {
    "real": _part_back,
    "imag": _part_back,
    "slice": _sliced_back,
    "permute": _permuted_back,
    "reshape": _reshaped_back,
    "expand": _expanded_back,
    "copy_to": _copied_back,
}


# --- strides: what PyTorch would hold -------------------------------------------------------------------------------


def strides_after(shape: Shape, strides: Strides, path: Path) -> Strides | None:
    """The strides of a view; None where PyTorch could not make it without a copy."""
    for at, (op, attrs, _) in enumerate(path):
        found: Strides | None
        if op.kind == COPY:
            continue
        if op.name == "slice":
            found = tuple(s * step for s, (_, step, _) in zip(strides, attrs[0], strict=True))
            wanted: Shape = tuple(count for _, _, count in attrs[0])
        elif op.name == "permute":
            wanted, found = tuple(shape[a] for a in attrs[0]), tuple(strides[a] for a in attrs[0])
        elif op.name == "expand":
            wanted, new = attrs[0], len(attrs[0]) - len(shape)
            found = (*[0] * new, *[0 if n != m else s for n, m, s in zip(shape, wanted[new:], strides, strict=True)])
        elif op.name in ("real", "imag"):
            wanted, found = shape, tuple(2 * s for s in strides)
        elif op.kind == GATHER:  # windows: they begin `jump` apart
            (axis,), _, wanted = attrs
            jump = (shape[axis] - wanted[-1]) // max(wanted[axis] - 1, 1)
            found = (*[s * jump if a == axis else s for a, s in enumerate(strides)], strides[axis])
        else:
            wanted = attrs[0]
            found = reshaped_strides(shape, strides, wanted)
            if found is None and len(path) > at + 1:  # x.diagonal(): every (columns + 1)th of rows * columns
                return (*strides[:-2], strides[-2] + strides[-1])
        if found is None:
            return None
        shape, strides = wanted, found
    return strides
