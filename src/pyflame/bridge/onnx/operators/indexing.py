"""Gather and scatter, and operators whose result's size depends on values: these are computed on the host."""

from __future__ import annotations

import numpy as np

from pyflame.bridge.onnx.operators.shapes import ints
from pyflame.bridge.onnx.table import EVERY, Array, Call, operator
from pyflame.core.dtype import int64
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, tensor


def _within(index: Tensor, length: int) -> Tensor:
    """Indices counted from the front; -1 is the last."""
    index = index.to(int64)
    return F["where"](index < 0, index + length, index)


@operator("Gather")
def gather(call: Call, x: Tensor, index: Tensor) -> Tensor:
    axis = call.get("axis", 0) % x.ndim
    taken = F["index_select"](x, axis, _within(index, x.shape[axis]).reshape(-1))
    return taken.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(call: Call, x: Tensor, index: Tensor) -> Tensor:
    axis = call.get("axis", 0) % x.ndim
    return F["gather"](x, axis, _within(index, x.shape[axis]))


def _flat(index: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(..., k) places in the axes of a shape -> (...) places in row-major order."""
    out = None
    for at, length in enumerate(shape):
        part = _within(index[..., at], length)
        out = part if out is None else out * length + part
    assert out is not None
    return out


@operator("GatherND")
def gather_nd(call: Call, x: Tensor, index: Tensor) -> Tensor:
    batch = call.get("batch_dims", 0)
    depth = index.shape[-1]
    groups = int(np.prod(x.shape[:batch], dtype=np.int64))
    inner = x.shape[batch : batch + depth]
    rest = x.shape[batch + depth :]
    at = _flat(index, inner).reshape(groups, -1)
    each = int(np.prod(inner, dtype=np.int64))
    at = at + arange(groups).reshape(groups, 1) * each
    rows = x.reshape(groups * each, -1)
    return F["index_select"](rows, 0, at.reshape(-1)).reshape(*index.shape[:-1], *rest)


_MODES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    axis = call.get("axis", 0) % x.ndim
    at = _within(index, x.shape[axis])
    mode = call.get("reduction", "none")
    if mode == "none":
        return F["scatter"](x, axis, at, updates)
    return F["scatter_reduce"](x, axis, at, updates, _MODES[mode])


@operator("ScatterND")
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    depth = index.shape[-1]
    rows = x.reshape(int(np.prod(x.shape[:depth], dtype=np.int64)), -1)
    at = _flat(index, x.shape[:depth]).reshape(-1)
    values = updates.reshape(at.shape[0], -1)
    mode = call.get("reduction", "none")
    spread = at.unsqueeze(1).expand(values.shape)
    if mode == "none":
        found = F["scatter"](rows, 0, spread, values)
    else:
        found = F["scatter_reduce"](rows, 0, spread, values, _MODES[mode])
    return found.reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(call: Call, past: Tensor, update: Tensor, start: Tensor | None = None) -> Tensor:
    """Write a sequence into a cache at a place of its own for each batch entry."""
    axis = call.get("axis", -2) % past.ndim
    length, new = past.shape[axis], update.shape[axis]
    shape = [1] * past.ndim
    shape[axis] = new
    at = arange(new).reshape(shape)
    if start is not None:
        at = at + start.to(int64).reshape([-1] + [1] * (past.ndim - 1))
    at = at % length if call.get("mode", "linear") == "circular" else at
    return F["scatter"](past, axis, at.expand(update.shape), update)


@operator("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    time, batch = call.get("time_axis", 0), call.get("batch_axis", 1)
    shape = [1] * x.ndim
    shape[time] = x.shape[time]
    step = arange(x.shape[time]).reshape(shape)
    shape = [1] * x.ndim
    shape[batch] = x.shape[batch]
    count = lengths.to(int64).reshape(shape)
    place = F["where"](step < count, count - 1 - step, step)
    return F["gather"](x, time, place.expand(x.shape))


# --- sizes that depend on values --------------------------------------------------------------------------------------


@operator("NonZero", host=[0])
def non_zero(call: Call, x: Array) -> Array:
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@operator("Compress", host=[1])
def compress(call: Call, x: Tensor, condition: Array) -> Tensor:
    axis = call.get("axis")
    x = x.reshape(-1) if axis is None else x
    places = np.flatnonzero(condition)
    return F["index_select"](x, axis or 0, tensor(places))


@operator("Unique", host=[0])
def unique(call: Call, x: Array) -> tuple[Array, ...]:
    axis = call.get("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis or 0)
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        first, inverse, counts = first[order], back[inverse], counts[order]
    return values, *[np.asarray(v, np.int64) for v in (first, inverse, counts)]


@operator("NonMaxSuppression", host=EVERY)
def non_max_suppression(
    call: Call, boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None,
    least: Array | None = None,
) -> Array:  # fmt: skip
    """(batch, class, box) of the boxes that are kept."""
    limit = 0 if most is None else ints(most)[0]
    iou = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    floor = -np.inf if least is None else float(least.reshape(-1)[0])
    if call.get("center_point_box", 0):
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        corners = np.concatenate([centre - half, centre + half], -1)
    else:
        first, second = boxes[..., :2], boxes[..., 2:]
        corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)
    found = [
        (b, c, box)
        for b in range(scores.shape[0])
        for c in range(scores.shape[1])
        for box in _kept(corners[b], scores[b, c], limit, iou, floor)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _kept(boxes: Array, scores: Array, limit: int, iou: float, floor: float) -> list[int]:
    """Boxes of one class, best first, without those that overlap a better one."""
    kept: list[int] = []
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    for box in np.argsort(-scores, kind="stable"):
        if len(kept) >= limit or scores[box] <= floor:
            break
        low, high = np.maximum(boxes[box, :2], boxes[kept, :2]), np.minimum(boxes[box, 2:], boxes[kept, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=-1)
        if not np.any(shared > iou * (area[box] + area[kept] - shared)):
            kept.append(int(box))
    return kept


@operator("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(call: Call, x: Tensor, index: Tensor) -> Tensor:
    return F["index_select"](x, x.ndim - 1, index.to(int64).reshape(-1))


@operator("ai.onnx.ml::Binarizer")
def binarizer(call: Call, x: Tensor) -> Tensor:
    return F["gt"](x, call.get("threshold", 0.0)).to(x.dtype)
