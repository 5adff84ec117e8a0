"""The node tests of the `onnx` package, and how one is judged here."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper

from pyflame.bridge.onnx import OnnxModule
from pyflame.bridge.onnx.module import operator_counts
from pyflame.bridge.onnx.spelling import spelled_out
from pyflame.bridge.onnx.table import OPERATORS


def node_cases() -> dict[str, Any]:
    """All node tests by name; the package makes them when they are asked for (half a minute)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, where the package computes infinities
        return {case.name: case for case in load_model_tests(kind="node")}


def is_ours(case: Any) -> bool:
    """Whether all operators of a case are in the table, or made of such."""
    return all(name in OPERATORS or name == "Constant" for name in operator_counts(spelled_out(case.model)))


def check(case: Any) -> None:
    """Run a case and compare all outputs with what it expects, dtypes included."""
    model = OnnxModule(case.model)
    for inputs, expected in case.data_sets:
        names = [i.name for i in case.model.graph.input]
        found = model.run(dict(zip(names, map(_array, inputs), strict=False)))
        for (name, got), want in zip(found.items(), expected, strict=True):
            if isinstance(want, list):
                for one, other in zip(got, want, strict=True):
                    _equal(name, one, _array(other), case)
            else:
                _equal(name, got, _array(want), case)


def _array(value: Any) -> Any:
    """Small floats and integers come as TensorProto."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _equal(name: str, got: Any, want: Any, case: Any) -> None:
    want = np.asarray(want)
    assert got.dtype == want.dtype, f"{name}: {got.dtype} instead of {want.dtype}"
    assert got.shape == want.shape, f"{name}: {got.shape} instead of {want.shape}"
    if want.dtype.kind in "biuc" or not is_float(want.dtype):
        np.testing.assert_allclose(got, want, rtol=0 if want.dtype.kind != "c" else case.rtol, err_msg=name)
        return
    # a tolerance below what the dtype rounds to is meant for wider floats
    step = float(ml_dtypes.finfo(want.dtype).eps)
    wide = [a.astype(np.float64) for a in (got, want)]
    rtol, atol = max(case.rtol, 2 * step), max(case.atol, min(4 * step, 1e-3))
    np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, err_msg=name)


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("float", "bfloat"))
