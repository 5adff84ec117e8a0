"""Every op of the catalogue, forward and gradient, as machine code for gfx942 and gfx1100; some on their relatives.

Compared with the NumPy references in float64. Of each op both targets run the first sample, and each another one: they
share the generator of kernels and differ in wave size and instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine import reference
from pyflame.ir import OPS, OpDef, Sample
from pyflame.ir.graph import topological
from pyflame.runtime.sim.checks import SIMULATED
from tests.oracle import as_float, assert_close, map_arrays, outputs_of, run_op

TARGETS = ("gfx942", "gfx1100")
RELATIVES = tuple(t for t in SIMULATED if t not in TARGETS)
SAMPLED = [op.name for op in OPS.values() if op.samples is not None]
# One of each kind of kernel, for targets whose kernels are much like another's.
SOME = (
    "gelu", "softmax", "sum", "matmul", "conv2d", "max_pool2d", "scaled_dot_product_attention", "layer_norm", "sort",
    "cumsum", "scatter_add", "dropout",
)  # fmt: skip


def build(op: OpDef, number: int, sample: Sample, dtype: Any) -> list[tuple[str, pf.Tensor]]:
    """The outputs of a sample, and the gradients of their weighted sum: not evaluated yet."""
    leaves: list[pf.Tensor] = []

    def leaf(array: np.ndarray[Any, Any]) -> pf.Tensor:
        # Both sides start from the same numbers, those that float32 can hold.
        out = pf.tensor(as_float(as_float(array, pf.float32), dtype))
        if sample.grad and out.dtype.is_float:
            leaves.append(out.requires_grad_())
        return out

    pf.manual_seed(number)
    args, kwargs = map_arrays([sample.args, sample.kwargs], leaf)
    out = outputs_of(run_op(op, args, kwargs))
    made = [(f"sample {number}, output {n}", o.detach()) for n, o in enumerate(out)]
    smooth = [o for o in out if o.dtype.is_float and o.requires_grad]
    if smooth:
        weights = [as_float(np.cos(np.arange(o.numel()).reshape(o.shape)), dtype) for o in smooth]
        sum(((o * pf.tensor(w)).sum() for o, w in zip(smooth, weights, strict=True)), 0.0).backward()
        made += [(f"sample {number}, gradient {n}", t.grad) for n, t in enumerate(leaves) if t.grad is not None]
    return made


def check(name: str, target: str, numbers: tuple[int, ...]) -> None:
    op = OPS[name]
    chosen = [(n, s) for n, s in enumerate(op.samples()) if n in numbers]
    with pf.device("cpu"):
        exact = [t._node for n, s in chosen for _, t in build(op, n, s, pf.float64)]
    with np.errstate(all="ignore"):
        arrays = reference.compute(topological(exact))
    with pf.device(f"sim:{target}"):
        made = [pair for n, s in chosen for pair in build(op, n, s, pf.float32)]
        pf.eval(*[t for _, t in made])  # in one evaluation: the kernels compile together
    for (what, ours), node in zip(made, exact, strict=True):
        assert_close(ours, arrays[node], pf.float32, f"{name}, {what}", 30.0 if "gradient" in what else 5.0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAMPLED)
def test_op(name: str, target: str) -> None:
    count = len(list(OPS[name].samples()))
    check(name, target, (0, 1 + (SAMPLED.index(name) + TARGETS.index(target)) % max(1, count - 1)))


@pytest.mark.parametrize("target", RELATIVES)
@pytest.mark.parametrize(
    "name", [n if n in SOME else pytest.param(n, marks=pytest.mark.thorough) for n in SAMPLED]
)  # fmt: skip
def test_op_on_a_relative(name: str, target: str) -> None:
    check(name, target, (0,))
