"""Shapes, gathers, reductions, products and what is kept whole, in ONNX."""

from __future__ import annotations

import numpy as np

from pyflame.bridge.onnx.writer import Form, Writer, form
from pyflame.core.dtype import bool_, int32
from pyflame.ir import Node
from pyflame.ir.opdef import CONST


@form("reshape")
def reshape(w: Writer, node: Node, x: str) -> str:
    return w.reshape(x, node.shape)


@form("permute")
def permute(w: Writer, node: Node, x: str) -> str:
    return w.add("Transpose", x, perm=list(node.attrs[0]))


@form("expand")
def expand(w: Writer, node: Node, x: str) -> str:
    return w.add("Expand", x, w.ints(node.shape))


@form("slice")
def slice_(w: Writer, node: Node, x: str) -> str:
    """A region: (start, step, count) for each axis."""
    region, shape = node.attrs[0], node.srcs[0].shape
    cut = [a for a, part in enumerate(region) if tuple(part) != (0, 1, shape[a])]
    if not cut:
        return w.add("Identity", x)
    repeated = [a for a in cut if region[a][1] == 0 and region[a][2] != 1]
    if repeated:  # one element, seen several times
        single = [(part[0], 1, 1) if a in repeated else part for a, part in enumerate(region)]
        return w.add("Expand", _cut(w, x, single, cut), w.ints(node.shape))
    return _cut(w, x, list(region), cut)


def _cut(w: Writer, x: str, region: list[tuple[int, int, int]], axes: list[int]) -> str:
    steps = [region[a][1] or 1 for a in axes]
    starts = [region[a][0] for a in axes]
    ends = [start + step * region[a][2] for a, start, step in zip(axes, starts, steps, strict=True)]
    ends = [end if end >= 0 else -(1 << 31) for end in ends]
    return w.add("Slice", x, w.ints(starts), w.ints(ends), w.ints(axes), w.ints(steps))


@form("cat")
def cat(w: Writer, node: Node, *inputs: str) -> str:
    return w.add("Concat", *inputs, axis=node.attrs[0])


@form("iota")
def iota(w: Writer, node: Node) -> str:
    count = int(np.prod(node.shape, dtype=np.int64))
    line = w.add("Range", w.constant(np.int64(0)), w.constant(np.int64(count)), w.constant(np.int64(1)))
    return w.reshape(line, node.shape)


@form("uninitialized")
def uninitialized(w: Writer, node: Node) -> str:
    """Memory that is written before it is read."""
    return w.add("Expand", w.number(0, node), w.ints(node.shape))


@form("assign")
def assign(w: Writer, node: Node, base: str, value: str) -> str:
    """A region overwritten: padding where the base is one number, else a scatter at known places."""
    region, shape = node.attrs[0], node.shape
    spread = w.add("Expand", value, w.ints([count for _, _, count in region]))
    under = node.srcs[0]
    number = under.srcs[0] if under.op.name == "expand" else under
    if number.op.kind == CONST and all(step == 1 for _, step, _ in region):
        ends = [size - start - count for size, (start, _, count) in zip(shape, region, strict=True)]
        return w.add("Pad", spread, w.ints([*[r[0] for r in region], *ends]), w.number(number.data, node))
    axes = [np.arange(count) * step + start for start, step, count in region]
    places = np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), shape).reshape(-1, 1) if axes else np.zeros((1, 1))
    flat = w.add("ScatterND", w.reshape(base, [-1]), w.constant(places.astype(np.int64)), w.reshape(spread, [-1]))
    return w.reshape(flat, shape)


@form("gather_at")
def gather_at(w: Writer, node: Node, x: str, *indices: str) -> str:
    """out[p] = x at the indices along `axes`, and at p[dims[a]] along every other axis a."""
    axes, dims, shape = node.attrs
    source = node.srcs[0]
    if len(axes) == 1 and (found := _taken(w, node, x, indices[0])) is not None:
        return found
    parts = []
    for a in range(source.ndim):
        if a in axes:
            name, at = indices[axes.index(a)], node.srcs[1 + axes.index(a)]
            name = w.add("Cast", name, to=w.helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)))
            parts.append(w.add("Expand", w.reshape(name, [1] * (len(shape) - at.ndim) + list(at.shape)), w.ints(shape)))
        else:
            line = np.arange(shape[dims[a]]).reshape([-1 if d == dims[a] else 1 for d in range(len(shape))])
            parts.append(w.add("Expand", w.constant(line.astype(np.int64)), w.ints(shape)))
    stacked = w.add("Concat", *[w.reshape(part, [*shape, 1]) for part in parts], axis=-1)
    return w.add("GatherND", x, stacked)


def _taken(w: Writer, node: Node, x: str, index: str) -> str | None:
    """Whole rows by number: Gather."""
    (axis,), dims, shape = node.attrs
    source, at = node.srcs[0], node.srcs[1]
    behind = source.ndim - axis - 1
    axes_of_index = len(shape) - source.ndim + 1
    wanted = (*range(axis), -1, *range(axis + axes_of_index, len(shape)))
    if tuple(dims) != wanted or axes_of_index < 0 or at.shape[at.ndim - behind :] != (1,) * behind:
        return None
    own = at.shape[: at.ndim - behind]
    if own != tuple(shape[axis : axis + axes_of_index]):
        return None
    return w.add("Gather", x, w.reshape(index, own), axis=axis)


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduced(name: str) -> Form:
    def written(w: Writer, node: Node, x: str) -> str:
        axes = list(node.attrs[0])
        keep = int(node.ndim == node.srcs[0].ndim)
        source = node.srcs[0]
        if name == "ReduceSum" or w.opset >= 18:
            y = w.add(name, _counted(w, source, node, x), w.ints(axes), keepdims=keep)
        else:
            y = w.add(name, _counted(w, source, node, x), axes=axes, keepdims=keep)
        return y

    return written


def _counted(w: Writer, source: Node, node: Node, x: str) -> str:
    """Sums of bools and small integers are of a wider dtype."""
    return x if source.dtype is node.dtype else w.cast(x, node.dtype)


for _op, _name in {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
                   "reduce_prod": "ReduceProd"}.items():  # fmt: skip
    form(_op)(_reduced(_name))


def _of_bools(name: str) -> Form:
    def written(w: Writer, node: Node, x: str) -> str:
        truth = x if node.srcs[0].dtype is bool_ else w.cast(x, bool_)
        number, keep, axes = w.cast(truth, int32), int(node.ndim == node.srcs[0].ndim), list(node.attrs[0])
        if w.opset >= 18:
            return w.cast(w.add(name, number, w.ints(axes), keepdims=keep), bool_)
        return w.cast(w.add(name, number, axes=axes, keepdims=keep), bool_)

    return written


form("reduce_any")(_of_bools("ReduceMax"))
form("reduce_all")(_of_bools("ReduceMin"))


@form("first_extreme")
def first_extreme(w: Writer, node: Node, x: str) -> str:
    axis, largest = node.attrs
    keep = int(node.ndim == node.srcs[0].ndim)
    return w.add("ArgMax" if largest else "ArgMin", x, axis=axis, keepdims=keep)


@form("running_sum")
def running_sum(w: Writer, node: Node, x: str) -> str:
    axis, reverse = node.attrs
    return w.add("CumSum", x, w.constant(np.int64(axis)), reverse=int(reverse))


@form("sort_positions")
def sort_positions(w: Writer, node: Node, x: str) -> str:
    take, descending = node.attrs
    name = w.new_name("topk")
    options = {"axis": -1, "largest": int(descending), "sorted": 1}
    w.nodes.append(w.helper.make_node("TopK", [x, w.ints([take])], [f"{name}_values", name], name=name, **options))
    return name


# --- products and what is kept whole ----------------------------------------------------------------------------------


@form("matmul")
def matmul(w: Writer, node: Node, x: str, y: str) -> str:
    product = w.add("MatMul", x, y)
    return product if node.srcs[0].dtype is node.dtype else w.cast(product, node.dtype)


@form("linear")
def linear(w: Writer, node: Node, x: str, weight: str, bias: str | None = None) -> str:
    if node.srcs[0].ndim == 2:
        return w.add("Gemm", x, weight, *([bias] if bias else []), transB=1)
    product = w.add("MatMul", x, w.add("Transpose", weight, perm=[1, 0]))
    return w.add("Add", product, bias) if bias else product


@form("softmax")
def softmax(w: Writer, node: Node, x: str) -> str:
    return w.add("Softmax", x, axis=node.attrs[0])


@form("log_softmax")
def log_softmax(w: Writer, node: Node, x: str) -> str:
    return w.add("LogSoftmax", x, axis=node.attrs[0])


@form("layer_norm")
def layer_norm(w: Writer, node: Node, x: str, weight: str | None = None, bias: str | None = None) -> str:
    axes, eps = node.attrs
    source = node.srcs[0]
    weight = w.constant(np.ones([source.shape[a] for a in axes]), source.dtype.numpy) if weight is None else weight
    affine = [weight] if bias is None else [weight, bias]
    if w.opset >= 17:
        return w.add("LayerNormalization", x, *affine, axis=min(axes), epsilon=eps)
    mean = _mean(w, x, axes)
    centred = w.add("Sub", x, mean)
    spread = w.add("Add", _mean(w, w.add("Mul", centred, centred), axes), w.number(eps, node))
    found = w.add("Mul", w.add("Div", centred, w.add("Sqrt", spread)), weight)
    return found if bias is None else w.add("Add", found, bias)


def _mean(w: Writer, x: str, axes: tuple[int, ...]) -> str:
    return w.add("ReduceMean", x, axes=list(axes), keepdims=1)  # before opset 18, where axes became an input


@form("embedding")
def embedding(w: Writer, node: Node, weight: str, indices: str) -> str:
    return w.add("Gather", weight, indices, axis=0)
