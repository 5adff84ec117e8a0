"""Every sample of every op: compiled code against the NumPy reference and torch, forward and gradient."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import PyFlameError
from pyflame.doctor.samples import arrays_of, cases, run_op
from pyflame.ir import OPS, OpDef, Sample
from pyflame.ir.opdef import ELEMENTWISE
from tests.needs import needs_torch
from tests.oracle import check_forward, check_gradient, torch_call, torch_tensor
from tests.seed import share

# `make test` runs a twelfth of them, others for each state of the code; tests/warm.py compiles their kernels first.
SAMPLES = {f"{op.name}-{number}": (op, sample) for op, number, sample in cases()}
CHOSEN = share(SAMPLES, 12)
CASES = [pytest.param(*s, id=i, marks=() if i in CHOSEN else pytest.mark.thorough) for i, s in SAMPLES.items()]
all_chosen = pytest.mark.share(1)  # no smaller share of these, and the same ones in each test


@all_chosen
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_forward_float64(op: OpDef, sample: Sample) -> None:
    check_forward(op, sample, pf.float64)


@all_chosen
@needs_torch
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_forward_float32_and_transposed(op: OpDef, sample: Sample) -> None:
    check_forward(op, sample, pf.float32)
    check_forward(op, sample, pf.float32, transposed=True)


@all_chosen
@needs_torch
@pytest.mark.parametrize(("op", "sample"), [c for c in CASES if c.values[1].grad])
def test_gradient(op: OpDef, sample: Sample) -> None:
    check_gradient(op, sample)


DTYPES = (pf.bool_, pf.uint8, pf.int8, pf.int16, pf.int32, pf.int64, pf.float16, pf.bfloat16)


@pytest.mark.share(10)
@needs_torch
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "op",
    [op for op in OPS.values() if op.kind == ELEMENTWISE and op.torch and op.public and not op.attrs],
    ids=lambda op: op.name,
)
def test_elementwise_dtypes(op: OpDef, dtype: pf.DType) -> None:
    """Where torch takes a dtype we give the same values and the same dtype."""
    rng = np.random.default_rng(7)
    values = [rng.integers(-3, 4, (3, 5)) for _ in op.srcs]
    arrays = [
        np.abs(v).astype(dtype.numpy) if dtype.name in ("uint8", "bool_") else v.astype(dtype.numpy) for v in values
    ]
    try:
        want = torch_call(op, [torch_tensor(a) for a in arrays], {})
    except (RuntimeError, TypeError, NotImplementedError):
        # No oracle: a result or a typed error, and no crash.
        with contextlib.suppress(PyFlameError):
            run_op(op, [pf.tensor(a) for a in arrays], {}).numpy()
        return
    if op.name == "complex" and dtype is pf.float16:
        return  # complex numbers of two halves are not among our dtypes: a typed error, checked in test_complex.py
    got = run_op(op, [pf.tensor(a) for a in arrays], {})
    assert got.dtype is pf.as_dtype(want.dtype)
    left, right = np.asarray(got.numpy(), np.float64), np.asarray(want.float(), np.float64)
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(dtype.name, 1e-5)
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def test_catalogue_is_complete() -> None:
    """Every public op has a reference, samples, a docstring, and an oracle or finite differences."""
    public = [op for op in OPS.values() if op.public]
    assert [op.name for op in public if not op.doc.strip()] == []
    assert [op.name for op in public if op.samples is None] == []
    assert [op.name for op in public if op.reference is None and op.torch is None] == []
    assert all(arrays_of(s.args) or arrays_of(s.kwargs) or s.args for op in public if op.samples for s in op.samples())
