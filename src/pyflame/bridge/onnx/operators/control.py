"""If, Loop and Scan. Conditions and trip counts are read on the host: static ones cost nothing, others wait for the
device. Loops are unrolled, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.bridge.onnx.table import Array, Call, Value, operator
from pyflame.bridge.onnx.values import to_host, to_tensor
from pyflame.core.errors import ArgumentError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


def _truth(value: Any) -> bool:
    return bool(to_host(value).reshape(-1)[0])


@operator("If", raw=True, folds=False)
def if_(call: Call, condition: Tensor | Array) -> tuple[Value, ...]:
    return tuple(call.bodies["then_branch" if _truth(condition) else "else_branch"]([]))


@operator("Loop", raw=True, folds=False)
def loop(
    call: Call, count: Tensor | Array | None = None, condition: Tensor | Array | None = None, *state: Value
) -> tuple[Value, ...]:
    body, held, stacked = call.bodies["body"], list(state), _Stacks(call.outputs - len(state))
    limit = None if count is None else int(to_host(count).reshape(-1)[0])
    going: Any = np.array(True) if condition is None else condition
    step = 0
    while (limit is None or step < limit) and _truth(going):
        going, *found = body([np.array(step), going, *held])
        held = found[: len(held)]
        stacked.add(found[len(held) :])
        step += 1
    return (*held, *stacked.joined())


class _Stacks:
    """Values that every step of a loop gives, along a new axis."""

    def __init__(self, count: int) -> None:
        self._steps: list[list[Value]] = [[] for _ in range(count)]

    def add(self, values: list[Value]) -> None:
        for steps, value in zip(self._steps, values, strict=True):
            steps.append(value)

    def joined(self, axes: list[int] | None = None, backwards: list[int] | None = None) -> list[Value]:
        found: list[Value] = []
        for at, steps in enumerate(self._steps):
            ordered = steps[::-1] if backwards and backwards[at] else steps
            found.append(_stack(ordered, axes[at] if axes else 0))
        return found


def _stack(steps: list[Value], axis: int) -> Value:
    if not steps:
        raise ArgumentError("[onnx] expected a loop that runs at least once but got none, so its outputs have no shape")
    if all(isinstance(s, np.ndarray) for s in steps):
        return np.stack([s for s in steps if isinstance(s, np.ndarray)], axis)
    return F["stack"]([s if isinstance(s, Tensor) else to_tensor(np.asarray(s)) for s in steps], axis)


@operator("Scan", raw=True, folds=False)
def scan(call: Call, *inputs: Value) -> tuple[Value, ...]:
    if call.opset < 9:
        raise call.refuse("is of opset 8, which had other inputs")
    body, sequences = call.bodies["body"], call.get("num_scan_inputs")
    held, scanned = list(inputs[: len(inputs) - sequences]), list(inputs[len(inputs) - sequences :])
    outputs = call.outputs - len(held)
    axes = call.get("scan_input_axes", [0] * sequences)
    backwards = call.get("scan_input_directions", [0] * sequences)
    stacked = _Stacks(outputs)
    rows = [_rows(x, axis, back) for x, axis, back in zip(scanned, axes, backwards, strict=True)]
    for parts in zip(*rows, strict=True):
        found = body([*held, *parts])
        held = found[: len(held)]
        stacked.add(found[len(held) :])
    out_axes = call.get("scan_output_axes", [0] * outputs)
    return (*held, *stacked.joined(out_axes, call.get("scan_output_directions", [0] * outputs)))


def _rows(x: Any, axis: int, backwards: int) -> list[Value]:
    if isinstance(x, np.ndarray):
        found: list[Value] = list(np.moveaxis(x, axis, 0))
    else:
        found = list(F["unbind"](x, axis))
    return found[::-1] if backwards else found
