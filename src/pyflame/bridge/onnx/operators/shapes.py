"""Operators that move elements: reshape, transpose, slices, padding, joining and splitting."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.bridge.onnx.values import numpy_dtype, our_dtype, to_tensor, widened
from pyflame.core.dtype import DType, int64
from pyflame.core.errors import ShapeError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, full, tensor


def ints(values: Any) -> list[int]:
    """A list of Python numbers."""
    return [int(v) for v in np.atleast_1d(values)]


def axes_of(call: Call, axes: Array | None) -> list[int] | None:
    """Axes: an input in new opsets, an attribute in old ones."""
    found = call.get("axes") if axes is None else axes
    return None if found is None else ints(found)


@operator("Shape", raw=True, folds=False)
def shape(call: Call, x: Tensor | Array) -> Array:
    return np.array(x.shape[call.get("start", 0) : call.get("end")], np.int64)


@operator("Size", raw=True, folds=False)
def size(call: Call, x: Tensor | Array) -> Array:
    return np.array(np.prod(x.shape, dtype=np.int64))


@operator("Identity", raw=True, folds=False)
def identity(call: Call, x: Any) -> Any:
    return x


@operator("Reshape", host=[1])
def reshape(call: Call, x: Tensor, shape: Array | None = None) -> Tensor:
    wanted = ints(call.get("shape") if shape is None else shape) if shape is None or shape.size else []
    if not call.get("allowzero", 0):
        wanted = [x.shape[at] if size == 0 else size for at, size in enumerate(wanted)]
    return x.reshape(*wanted) if wanted else x.reshape(())


@operator("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = call.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(rows, int(np.prod(x.shape[axis:], dtype=np.int64)))


@operator("Squeeze", host=[1])
def squeeze(call: Call, x: Tensor, axes: Array | None = None) -> Tensor:
    wanted = axes_of(call, axes)
    if wanted is None:
        return x.squeeze()
    gone = {a % x.ndim for a in wanted}
    if any(x.shape[a] != 1 for a in gone):
        raise ShapeError(f"[onnx] expected axes of length 1 but Squeeze has axes {wanted} of shape {x.shape}")
    return x.reshape(tuple(n for a, n in enumerate(x.shape) if a not in gone))


@operator("Unsqueeze", host=[1])
def unsqueeze(call: Call, x: Tensor, axes: Array | None = None) -> Tensor:
    wanted = axes_of(call, axes) or []
    rank = x.ndim + len(wanted)
    new = {a % rank for a in wanted}
    old = iter(x.shape)
    return x.reshape(tuple(1 if a in new else next(old) for a in range(rank)))


@operator("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(*call.get("perm", range(x.ndim)[::-1])) if x.ndim else x


@operator("Expand", host=[1])
def expand(call: Call, x: Tensor, shape: Array) -> Tensor:
    return x.expand(np.broadcast_shapes(x.shape, tuple(ints(shape))))


@operator("Tile", host=[1])
def tile(call: Call, x: Tensor, repeats: Array) -> Tensor:
    return F["tile"](x, tuple(ints(repeats)))


@operator("Concat")
def concat(call: Call, *inputs: Tensor) -> Tensor:
    return F["cat"](list(inputs), call.get("axis"))


@operator("Split", host=[1])
def split(call: Call, x: Tensor, sizes: Array | None = None) -> tuple[Tensor, ...]:
    axis = call.get("axis", 0)
    given = call.get("split") if sizes is None else sizes
    if given is None:
        parts = call.get("num_outputs", call.outputs)
        each = -(-x.shape[axis] // parts)
        given = [min(each, x.shape[axis] - each * n) for n in range(parts)]
    return tuple(F["split"](x, ints(given), axis))


@operator("Slice", host=[1, 2, 3, 4])
def slice_(
    call: Call, x: Tensor, starts: Array | None = None, ends: Array | None = None, axes: Array | None = None,
    steps: Array | None = None,
) -> Tensor:  # fmt: skip
    first, last = (call.get("starts") if starts is None else starts), (call.get("ends") if ends is None else ends)
    along = axes_of(call, axes) or list(range(len(ints(first))))
    strides = [1] * len(along) if steps is None else ints(steps)
    for axis, start, end, step in zip(along, ints(first), ints(last), strides, strict=True):
        x = _strided(x, axis % x.ndim, range(x.shape[axis])[start:end:step])
    return x


def _strided(x: Tensor, axis: int, taken: range) -> Tensor:
    """Elements of one axis, forwards or backwards."""
    step = abs(taken.step)
    low, high = (taken.start, taken.stop) if taken.step > 0 else (taken[-1] if taken else 0, taken.start + 1)
    key = (slice(None),) * axis + (slice(low, max(low, high) if taken else low, step),)
    found = x[key]
    return found.flip(axis) if taken.step < 0 else found


@operator("Pad", host=[1, 2, 3])
def pad(
    call: Call, x: Tensor, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Tensor:
    given = ints(call.get("pads") if pads is None else pads)
    along = [a % x.ndim for a in (range(x.ndim) if axes is None else ints(axes))]
    half = len(given) // 2
    amounts = {a: (given[n], given[half + n]) for n, a in enumerate(along)}
    mode = call.get("mode", "constant")
    fill = call.get("value", 0.0) if value is None else np.asarray(value).reshape(-1)[0].item()
    for axis, (low, high) in amounts.items():
        x = _padded(x, axis, low, high, mode, fill)
    return x


def _padded(x: Tensor, axis: int, low: int, high: int, mode: str, fill: Any) -> Tensor:
    """One axis made longer; negative amounts cut it."""
    x = x.narrow(axis, max(-low, 0), x.shape[axis] - max(-low, 0) - max(-high, 0))
    low, high, length = max(low, 0), max(high, 0), x.shape[axis]
    if not low and not high:
        return x
    if mode == "constant":
        return constant_pad(x, {axis: (low, high)}, fill)
    places = np.arange(-low, length + high)
    if mode == "edge":
        places = places.clip(0, length - 1)
    elif mode == "wrap":
        places %= length
    else:  # reflect
        period = max(2 * (length - 1), 1)
        places = (length - 1) - abs((places % period) - (length - 1))
    return F["index_select"](x, axis, tensor(places))


def constant_pad(x: Tensor, amounts: dict[int, tuple[int, int]], fill: Any = 0) -> Tensor:
    """Axes made longer with a value."""
    first = min(amounts)
    pairs = [n for axis in range(x.ndim - 1, first - 1, -1) for n in amounts.get(axis, (0, 0))]
    return F["pad"](x, pairs, value=fill) if any(pairs) else x


@operator("CenterCropPad", host=[1])
def center_crop_pad(call: Call, x: Tensor, shape: Array) -> Tensor:
    axes = call.get("axes", range(x.ndim))
    for axis, wanted in zip([a % x.ndim for a in axes], ints(shape), strict=True):
        have = x.shape[axis]
        before = abs(wanted - have) // 2
        if wanted < have:
            x = x.narrow(axis, before, wanted)
        else:
            x = constant_pad(x, {axis: (before, wanted - have - before)})
    return x


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = call.get("blocksize")
    if call.get("mode", "DCR") == "DCR":
        x = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // b**2, h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = call.get("blocksize")
    x = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.permute(*order).reshape(n, c * b * b, h // b, w // b)


@operator("Trilu", host=[1])
def trilu(call: Call, x: Tensor, k: Array | None = None) -> Tensor:
    return F["triu" if call.get("upper", 1) else "tril"](x, 0 if k is None else ints(k)[0])


# --- made from numbers ------------------------------------------------------------------------------------------------


@operator("ConstantOfShape", host=[0], folds=False)
def constant_of_shape(call: Call, shape: Array) -> Tensor | Array:
    value = call.get("value", np.zeros(1, np.float32)).reshape(-1)[0]
    sizes = tuple(ints(shape)) if shape.size else ()
    if np.prod(sizes) <= 1024:  # likely to be part of a shape
        return np.full(sizes, value)
    held = widened(np.asarray(value))
    return full(sizes, held.item(), dtype=our_dtype(held.dtype))


@operator("Range", host=[0, 1, 2])
def range_(call: Call, start: Array, limit: Array, delta: Array) -> Tensor:
    first, end, step = (np.asarray(v).reshape(-1)[0] for v in (start, limit, delta))
    count = max(int(np.ceil((end - first) / step)), 0)
    return arange(count).to(_of(start)) * to_tensor(np.asarray(step)) + to_tensor(np.asarray(first))


def _of(array: Array) -> DType:
    found = our_dtype(widened(array).dtype)
    assert found is not None
    return found


@operator("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    rows, columns = x.shape
    code = call.get("dtype")
    wanted = x.dtype if code is None else _of(np.zeros(0, numpy_dtype(code)))
    place = F["sub"](arange(columns).reshape(1, columns), arange(rows).reshape(rows, 1))
    return F["eq"](place, call.get("k", 0)).to(wanted)


@operator("OneHot", host=[1])
def one_hot(call: Call, indices: Tensor, depth: Array, values: Tensor) -> Tensor:
    count = ints(depth)[0]
    axis = call.get("axis", -1)
    axis += indices.ndim + 1 if axis < 0 else 0
    at = indices.to(int64)
    at = F["where"](at < 0, at + count, at).unsqueeze(axis)
    shape = [1] * at.ndim
    shape[axis] = count
    return F["where"](at == arange(count).reshape(shape), values[1], values[0])
