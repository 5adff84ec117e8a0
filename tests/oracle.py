"""Runs an op's samples: PyFlame against the NumPy references and against torch, forward and gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.dtype import DType, as_dtype
from pyflame.doctor.samples import arrays_of, as_float, map_arrays, outputs_of, run_op
from pyflame.engine import reference
from pyflame.ir import Node, OpDef, Sample
from pyflame.ir.graph import topological
from pyflame.ir.opdef import INLINE
from pyflame.tensor import Tensor
from tests.needs import torch

# Relative and absolute tolerance per dtype; sums of n terms get sqrt(n) more.
TOLERANCE = {
    "float64": (1e-9, 1e-11),
    "float32": (3e-5, 3e-5),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
}


def transposed_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor with this array's values whose memory runs the other way round."""
    order = tuple(reversed(range(array.ndim)))
    return (
        pf.tensor(np.ascontiguousarray(array.transpose(order))).permute(order) if array.ndim > 1 else pf.tensor(array)
    )


def torch_tensor(array: np.ndarray[Any, Any], grad: bool = False) -> torch.Tensor:
    dtype = as_dtype(array.dtype)
    if dtype.name == "bfloat16":
        out = torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    else:
        out = torch.from_numpy(np.array(array, order="C"))
    return out.requires_grad_(grad and (out.is_floating_point() or out.is_complex()))


def torch_call(op: OpDef, args: Any, kwargs: Any) -> Any:
    assert op.torch is not None
    if callable(op.torch):
        return op.torch(torch, *args, **kwargs)
    fn: Any = torch
    for part in op.torch.split("."):
        fn = getattr(fn, part)
    return fn(*args, **kwargs)


def to_array(value: Any) -> np.ndarray[Any, Any]:
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        return value.float().numpy() if value.dtype == torch.bfloat16 else value.resolve_conj().resolve_neg().numpy()
    array = np.asarray(value.numpy() if isinstance(value, Tensor) else value)
    return array.astype(np.float32) if array.dtype.kind == "V" or array.dtype.name == "bfloat16" else array


def assert_close(got: Any, want: Any, dtype: DType, what: str, scale: float = 1.0) -> None:
    left, right = to_array(got), to_array(want)
    assert left.shape == right.shape, f"{what}: shape {left.shape}, expected {right.shape}"
    if "c" in (left.dtype.kind, right.dtype.kind):  # as pairs of real numbers
        left, right = (np.asarray(a, np.complex128).reshape(-1).view(np.float64) for a in (left, right))
    if right.dtype.kind != "f" and left.dtype.kind != "f":
        np.testing.assert_array_equal(left, right, err_msg=what)
        return
    rtol, atol = TOLERANCE[dtype.name]
    np.testing.assert_allclose(
        left.astype(np.float64),
        right.astype(np.float64),
        rtol=rtol * scale,
        atol=atol * scale,
        err_msg=what,
        equal_nan=True,
    )


def reference_outputs(op: OpDef, sample: Sample) -> list[Any] | None:
    """The NumPy twin's answer in float64."""
    args = map_arrays(sample.args, lambda a: as_float(a, pf.float64))
    kwargs = map_arrays(sample.kwargs, lambda a: as_float(a, pf.float64))
    if op.kind == INLINE:
        if op.reference is None:
            return None
        with np.errstate(all="ignore"):
            return outputs_of(op.reference(*args, **kwargs))
    node = op.fn(*map_arrays(args, lambda a: pf.tensor(a)._node), **map_arrays(kwargs, lambda a: pf.tensor(a)._node))
    nodes: list[Node] = outputs_of(node)
    arrays = reference.compute(topological(nodes))
    return [arrays[n] for n in nodes]


def check_forward(op: OpDef, sample: Sample, dtype: DType, transposed: bool = False) -> None:
    """Compiled against reference and torch."""
    make = transposed_tensor if transposed else pf.tensor
    args = map_arrays(sample.args, lambda a: make(as_float(a, dtype)))
    kwargs = map_arrays(sample.kwargs, lambda a: make(as_float(a, dtype)))
    got = outputs_of(run_op(op, args, kwargs))
    if dtype is pf.float64:
        want = reference_outputs(op, sample)
        if want is None and torch is None:
            pytest.skip("it has no NumPy reference, and torch is not installed")
        if want is not None:
            for g, w in zip(got, want, strict=True):
                assert_close(g, w, dtype, f"{op.name} against its NumPy reference")
    if op.torch is not None and torch is not None:
        oracle = torch_call(
            op,
            map_arrays(sample.args, lambda a: torch_tensor(as_float(a, dtype))),
            map_arrays(sample.kwargs, lambda a: torch_tensor(as_float(a, dtype))),
        )
        for g, w in zip(got, outputs_of(oracle), strict=True):
            assert_close(g, w, dtype, f"{op.name} against torch")
            assert g.dtype is as_dtype(w.dtype), f"{op.name}: dtype {g.dtype}, torch gives {w.dtype}"


def _weighted(out: Any, seed: Any) -> Any:
    """A number that depends on every element; of complex ones on both parts."""
    total = (out * seed).sum()
    return total.real - 0.3 * total.imag if out.is_complex() else total


def check_gradient(op: OpDef, sample: Sample) -> None:
    """Gradients in float64, against torch, or against finite differences where torch has no such op."""
    leaves: list[Tensor] = []

    def leaf(a: np.ndarray[Any, Any]) -> Tensor:
        out = pf.tensor(as_float(a, pf.float64))
        if out.dtype.has_gradient:
            leaves.append(out.requires_grad_())
        return out

    out = outputs_of(run_op(op, map_arrays(sample.args, leaf), map_arrays(sample.kwargs, leaf)))
    out = [o for o in out if o.dtype.has_gradient and o.requires_grad]
    if not out or not leaves:
        return
    rng = np.random.default_rng(0)
    seeds = [rng.standard_normal(o.shape) for o in out]
    start = pf.tensor(0.0, dtype=pf.float64)
    loss = sum((_weighted(o, pf.tensor(s)) for o, s in zip(out, seeds, strict=True)), start)
    loss.backward()
    got = [t.grad for t in leaves]
    want = torch_gradients(op, sample, seeds) if op.torch is not None else difference_gradients(op, sample, seeds)
    for number, (g, w) in enumerate(zip(got, want, strict=True)):
        w = np.zeros(leaves[number].shape) if w is None else w
        g = np.zeros(leaves[number].shape) if g is None else g
        loose = 1.0 if op.torch is not None else 1e4
        assert_close(g, w, pf.float64, f"gradient of {op.name} for argument {number}", loose)


def torch_gradients(op: OpDef, sample: Sample, seeds: list[Any]) -> list[Any]:
    leaves: list[torch.Tensor] = []

    def leaf(a: np.ndarray[Any, Any]) -> torch.Tensor:
        out = torch_tensor(as_float(a, pf.float64), grad=True)
        if out.requires_grad:
            leaves.append(out)
        return out

    out = outputs_of(torch_call(op, map_arrays(sample.args, leaf), map_arrays(sample.kwargs, leaf)))
    out = [o for o in out if o.requires_grad]
    loss = sum(_weighted(o, torch.from_numpy(np.asarray(s))) for o, s in zip(out, seeds, strict=True))
    loss.backward()  # type: ignore[union-attr]
    return [t.grad for t in leaves]


def difference_gradients(op: OpDef, sample: Sample, seeds: list[Any], step: float = 1e-5) -> list[Any]:
    """Central differences of sum(out * seed), one element after the other."""
    arrays = [as_float(a, pf.float64).copy() for a in arrays_of([sample.args, sample.kwargs])]

    def value() -> float:
        it = iter(arrays)
        args, kwargs = map_arrays([sample.args, sample.kwargs], lambda a: pf.tensor(next(it)))
        with pf.no_grad():
            out = [o for o in outputs_of(run_op(op, args, kwargs)) if o.dtype.is_float]
            return sum(float((o.numpy() * s).sum()) for o, s in zip(out, seeds, strict=True))

    found = []
    for array in arrays:
        if array.dtype.kind != "f":
            continue
        grad = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            keep = array[at]
            array[at] = keep + step
            high = value()
            array[at] = keep - step
            low = value()
            array[at] = keep
            grad[at] = (high - low) / (2 * step)
        found.append(grad)
    return found
