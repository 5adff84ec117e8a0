"""The op catalogue's own samples as programs: every OpDef has arguments to try it with and a NumPy reference.

What selftest and the tests of the catalogue share: from a sample to tensors that are not evaluated yet, and to the
reference's answer in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, complex_of, float32, float64
from pyflame.core.generator import default_generator
from pyflame.engine import reference
from pyflame.ir import OPS, Node, OpDef, Sample
from pyflame.ir.graph import topological
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.dispatch import call

Array = np.ndarray[Any, Any]


def cases() -> Iterator[tuple[OpDef, int, Sample]]:
    """Every sample of every op."""
    for op in OPS.values():
        if op.samples is not None:
            for number, sample in enumerate(op.samples()):
                yield op, number, sample


def map_arrays(value: Any, fn: Callable[[Array], Any]) -> Any:
    """Apply a function to every array inside lists, tuples and dicts."""
    if isinstance(value, np.ndarray):
        return fn(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_arrays(v, fn) for v in value)
    if isinstance(value, dict):
        return {k: map_arrays(v, fn) for k, v in value.items()}
    return value


def arrays_of(value: Any) -> list[Array]:
    """Every array inside lists, tuples and dicts."""
    found: list[Array] = []
    map_arrays(value, found.append)
    return found


def as_float(array: Array, dtype: DType) -> Array:
    """Floats become this dtype, complex numbers that of the same width; integers and bools stay."""
    if array.dtype.kind == "c":
        return array.astype(complex_of(dtype).numpy)
    return array.astype(dtype.numpy) if array.dtype.kind == "f" else array


def outputs_of(value: Any) -> list[Any]:
    """What an op gives, as a flat list."""
    return [o for v in value for o in outputs_of(v)] if isinstance(value, (list, tuple)) else [value]


def run_op(op: OpDef, args: Any, kwargs: Any) -> Any:
    """Call an op with tensors."""
    return call(op.fn, tuple(args), dict(kwargs))


def build(op: OpDef, number: int, sample: Sample, dtype: DType, values: DType = float32) -> list[tuple[str, Tensor]]:
    """The outputs of a sample, and the gradients of their weighted sum: not evaluated yet.

    `values`: the arguments are rounded to it first, so that both sides start from the same numbers.
    """
    leaves: list[Tensor] = []

    def leaf(array: Array) -> Tensor:
        out = tensor(as_float(as_float(array, values), dtype))
        if sample.grad and out.dtype.is_float:
            leaves.append(out.requires_grad_())
        return out

    default_generator.manual_seed(number)
    args, kwargs = map_arrays([sample.args, sample.kwargs], leaf)
    out = outputs_of(run_op(op, args, kwargs))
    made = [(f"sample {number}, output {n}", o.detach()) for n, o in enumerate(out)]
    smooth = [o for o in out if o.dtype.is_float and o.requires_grad]
    if smooth:
        weights = [as_float(np.cos(np.arange(o.numel()).reshape(o.shape)), dtype) for o in smooth]
        total = sum(((o * tensor(w)).sum() for o, w in zip(smooth, weights, strict=True)), tensor(0.0, dtype=dtype))
        total.backward()
        made += [(f"sample {number}, gradient {n}", t.grad) for n, t in enumerate(leaves) if t.grad is not None]
    return made


def exact(op: OpDef, number: int, sample: Sample, values: DType = float32) -> tuple[list[Array], int]:
    """What `build` should give: by the NumPy references in float64. Call it with the CPU as the current device.

    Gives the arrays, and how many terms the longest sum has.
    """
    nodes: list[Node] = [t._node for _, t in build(op, number, sample, float64, values)]
    order = topological(nodes)
    with np.errstate(all="ignore"):
        arrays = reference.compute(order)
    return [arrays[n] for n in nodes], max((max(n.shape, default=1) for n in order), default=1)
