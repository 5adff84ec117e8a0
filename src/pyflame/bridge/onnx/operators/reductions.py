"""Sums, extremes and their places."""

from __future__ import annotations

from collections.abc import Callable

from pyflame.bridge.onnx.operators.shapes import axes_of, constant_pad
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.core.dtype import bool_, float32, int64, uint8
from pyflame.core.limits import iinfo
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import full

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return F["sum"](x, axes, keep).to(x.dtype)


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = F["prod"](x, axis, True).to(x.dtype)
    return x if keep else x.squeeze(axes)


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    wide = x if x.dtype.is_float else x.to(float32)
    return F["logsumexp"](wide, axes, keep)


def _extreme(op: str) -> Reduction:
    def reduced(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if 0 in [x.shape[a] for a in axes]:  # of nothing: the least value there is
            return _of_nothing(x, axes, keep, largest=op == "amax")
        return F[op](x, axes, keep)

    return reduced


def _of_nothing(x: Tensor, axes: tuple[int, ...], keep: bool, largest: bool) -> Tensor:
    shape = [1 if a in axes else n for a, n in enumerate(x.shape) if keep or a not in axes]
    if x.dtype.is_float:
        value: float = float("-inf") if largest else float("inf")
    else:
        value = iinfo(x.dtype).min if largest else iinfo(x.dtype).max
    return full(tuple(shape), value, dtype=x.dtype)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceMean": lambda x, axes, keep: F["mean"](x, axes, keep),
    "ReduceProd": _product,
    "ReduceMax": _extreme("amax"),
    "ReduceMin": _extreme("amin"),
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: F["sqrt"](_sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: F["log"](_sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _reduction(fn: Reduction) -> Callable[..., Tensor]:
    def reduced(call: Call, x: Tensor, axes: Array | None = None) -> Tensor:
        wanted = axes_of(call, axes)
        if not wanted and call.get("noop_with_empty_axes", 0):
            return fn(x.unsqueeze(-1), (x.ndim,), False)  # what is done to each element stays
        along = tuple(a % x.ndim for a in wanted) if wanted else tuple(range(x.ndim))
        found = fn(x.to(uint8) if x.dtype is bool_ else x, along, bool(call.get("keepdims", 1)))
        return found.to(x.dtype)

    return reduced


for _name, _fn in _REDUCTIONS.items():
    operator(_name, host=[1])(_reduction(_fn))


def _places(op: str) -> Callable[..., Tensor]:
    """The places of extremes; `select_last_index` takes the last of equal ones."""

    def found(call: Call, x: Tensor) -> Tensor:
        axis, keep = call.get("axis", 0) % max(x.ndim, 1), bool(call.get("keepdims", 1))
        if not call.get("select_last_index", 0):
            return F[op](x, axis, keep).to(int64)
        return F["rsub"](F[op](x.flip(axis), axis, keep).to(int64), x.shape[axis] - 1)

    return found


operator("ArgMax")(_places("argmax"))
operator("ArgMin")(_places("argmin"))


@operator("CumSum", host=[1])
def cumulative_sum(call: Call, x: Tensor, axis: Array) -> Tensor:
    return _running(call, x, int(axis), "cumsum", 0)


@operator("CumProd", host=[1])
def cumulative_product(call: Call, x: Tensor, axis: Array) -> Tensor:
    return _running(call, x, int(axis), "cumprod", 1)


def _running(call: Call, x: Tensor, axis: int, op: str, start: int) -> Tensor:
    axis %= x.ndim
    x = x.flip(axis) if call.get("reverse", 0) else x
    if call.get("exclusive", 0):
        x = constant_pad(x.narrow(axis, 0, x.shape[axis] - 1), {axis: (1, 0)}, start)
    found = F[op](x, axis).to(x.dtype)
    return found.flip(axis) if call.get("reverse", 0) else found


@operator("TopK", host=[1])
def top_k(call: Call, x: Tensor, k: Array | None = None) -> tuple[Tensor, Tensor]:
    count = int(call.get("k") if k is None else k.reshape(-1)[0])
    values, places = F["topk"](x, count, call.get("axis", -1), bool(call.get("largest", 1)), True)
    return values, places.to(int64)
