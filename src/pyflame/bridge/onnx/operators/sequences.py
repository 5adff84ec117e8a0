"""Sequences and optional values: Python's lists and None. Their lengths are known on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.bridge.onnx.table import Array, Call, Value, operator
from pyflame.bridge.onnx.values import to_host, to_tensor
from pyflame.core.errors import ArgumentError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


def _place(call: Call, position: Any, length: int, least: int) -> int:
    """A position that may be counted from behind, below `least + 1`."""
    at = int(to_host(position).reshape(-1)[0])
    if not -length <= at <= least:
        raise ArgumentError(f"[onnx] expected a position in [{-length}, {least}] for {call.op} but got {at}")
    return at % length if at < 0 else at


@operator("SequenceEmpty", raw=True, folds=False)
def empty(call: Call) -> Value:
    return []


@operator("SequenceConstruct", raw=True, folds=False)
def construct(call: Call, *values: Value) -> Value:
    return list(values)


@operator("SequenceLength", raw=True, folds=False)
def length(call: Call, values: list[Any]) -> Value:
    return np.array(len(values))


@operator("SequenceAt", raw=True, folds=False)
def at(call: Call, values: list[Any], position: Value) -> Any:
    return values[_place(call, position, len(values), len(values) - 1)]


@operator("SequenceInsert", raw=True, folds=False)
def insert(call: Call, values: list[Any], value: Value, position: Value = None) -> Value:
    here = len(values) if position is None else _place(call, position, len(values), len(values))
    return [*values[:here], value, *values[here:]]


@operator("SequenceErase", raw=True, folds=False)
def erase(call: Call, values: list[Any], position: Value = None) -> Value:
    here = len(values) - 1 if position is None else _place(call, position, len(values), len(values) - 1)
    return [*values[:here], *values[here + 1 :]]


@operator("ConcatFromSequence", raw=True, folds=False)
def concat(call: Call, values: list[Any]) -> Value:
    join = "stack" if call.get("new_axis", 0) else "cat"
    return F[join]([_tensor(v) for v in values], call.get("axis"))


@operator("SplitToSequence", raw=True, folds=False)
def split(call: Call, x: Tensor | Array, sizes: Value = None) -> Value:
    """Parts of length 1 without their axis, of one length, or of these lengths."""
    axis = call.get("axis", 0)
    if sizes is None:
        parts = F["split"](_tensor(x), 1, axis)
        return list(parts) if call.get("keepdims", 1) else [p.squeeze(axis) for p in parts]
    wanted = to_host(sizes)  # type: ignore[arg-type]
    return list(F["split"](_tensor(x), int(wanted) if wanted.ndim == 0 else wanted.tolist(), axis))


@operator("Optional", raw=True, folds=False)
def optional(call: Call, value: Value = None) -> Value:
    return value


@operator("OptionalHasElement", raw=True, folds=False)
def has_element(call: Call, value: Value = None) -> Value:
    return np.array(value is not None)


@operator("OptionalGetElement", raw=True, folds=False)
def get_element(call: Call, value: Value) -> Value:
    if value is None:
        raise ArgumentError("[onnx] expected a value for OptionalGetElement but got none")
    return value


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else to_tensor(value)
