"""The node tests of the `onnx` package, and how one is judged here."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pyflame.bridge.onnx import OnnxModule
from pyflame.bridge.onnx.module import operator_counts
from pyflame.bridge.onnx.table import OPERATORS


def node_cases() -> dict[str, Any]:
    """All node tests by name; the package makes them when they are asked for (half a minute)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, where the package computes infinities
        return {case.name: case for case in load_model_tests(kind="node")}


def is_ours(case: Any) -> bool:
    """Whether all operators of a case are in the table."""
    return all(name in OPERATORS or name == "Constant" for name in operator_counts(case.model))


def check(case: Any) -> None:
    """Run a case and compare all outputs with what it expects, dtypes included."""
    model = OnnxModule(case.model)
    for inputs, expected in case.data_sets:
        names = [i.name for i in case.model.graph.input]
        found = model.run(dict(zip(names, inputs, strict=False)))
        for (name, got), want in zip(found.items(), expected, strict=True):
            _equal(name, got, np.asarray(want), case)


def _equal(name: str, got: Any, want: Any, case: Any) -> None:
    assert got.dtype == want.dtype, f"{name}: {got.dtype} instead of {want.dtype}"
    assert got.shape == want.shape, f"{name}: {got.shape} instead of {want.shape}"
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=name)
    else:
        wide = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (got, want)]
        atol = case.atol
        np.testing.assert_allclose(*wide, rtol=case.rtol, atol=atol, err_msg=name)
