"""The table of operators: ONNX's names -> functions over Tensors. One file per family in `operators/` fills it.

    @operator("Reshape", host=[1])
    def reshape(call: Call, x: Tensor, shape: Array) -> Tensor: ...

A function gets the node's attributes and opset (`call`) and its inputs, None for those that are left out. Inputs in the
positions `host` come as NumPy arrays, because shapes depend on them; all others as Tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pyflame.core.errors import NotSupportedError
from pyflame.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = "Tensor | Array | list[Any] | None"
Body: TypeAlias = "Callable[[list[Value]], list[Value]]"
Fn = TypeVar("Fn", bound=Callable[..., Any])

FIRST_OPSET, LAST_OPSET = 7, 28
EVERY = range(1000)  # all inputs of an operator


@dataclass(frozen=True)
class Operator:
    """How an operator is computed."""

    name: str
    fn: Callable[..., Any]
    host: Collection[int]  # inputs whose values must be known
    raw: bool  # takes inputs as they are, on the host or not
    folds: bool  # may be computed on the host where all inputs are there


@dataclass
class Call:
    """A node as its function sees it. `bodies`: the graphs among its attributes, which see the names around them."""

    op: str
    node: str
    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    bodies: Mapping[str, Body]

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def refuse(self, what: str) -> NotSupportedError:
        """The error for a form of the operator that is not supported."""
        return NotSupportedError(f"[onnx] expected a form of {self.op} that PyFlame has but node {self.node!r} {what}")


OPERATORS: dict[str, Operator] = {}


def operator(*names: str, host: Collection[int] = (), raw: bool = False, folds: bool = True) -> Callable[[Fn], Fn]:
    """Put a function into the table. Names of other domains than ONNX's own are written `domain::name`."""

    def put(fn: Fn) -> Fn:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"operator {name!r} is declared twice")
            OPERATORS[name] = Operator(name, fn, host, raw, folds)
        return fn

    return put


def full_name(domain: str, op_type: str) -> str:
    """'Conv', or 'com.microsoft::Gelu'."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
