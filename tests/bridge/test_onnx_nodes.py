"""The node tests of the `onnx` package: a sample in every run, all of them in the thorough one."""

from __future__ import annotations

import importlib
import pkgutil
import random
import warnings
from typing import Any

import pytest

pytest.importorskip("onnx")

from tests.bridge.onnx_cases import check, is_ours, node_cases

_RANDOM = "random numbers are ours: the expected ones are NumPy's"
# Cases over operators of ours that do not pass, and why.
EXCEPTIONS = {
    **dict.fromkeys(
        ["test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded", "test_bernoulli_expanded",
         "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_training_dropout",
         "test_training_dropout_default", "test_training_dropout_default_mask", "test_training_dropout_mask"],
        _RANDOM,
    ),
    "test_col2im_5d": "refused: fold goes over two axes of space",
    "test_scan_sum": "refused: Scan of opset 8 had other inputs",
}  # fmt: skip
SEED, MODULES, EACH = 16, 25, 3


def _sampled() -> list[Any]:
    """Cases of some operators: only their modules are imported, as the package makes cases when it is imported."""
    import onnx.backend.test.case.node as package

    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))
    draw = random.Random(SEED)
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in draw.sample(names, MODULES):
            before = len(package._NodeTestCases)
            importlib.import_module(f"{package.__name__}.{name}")
            ours = [c for c in package._NodeTestCases[before:] if is_ours(c) and c.name not in EXCEPTIONS]
            found += draw.sample(ours, min(EACH, len(ours)))
    return found


@pytest.mark.slow
def test_a_sample_of_node_cases() -> None:
    cases = _sampled()
    assert len(cases) >= MODULES
    for case in cases:
        check(case)


@pytest.mark.thorough
def test_all_node_cases() -> None:
    """Those that fail are known, with their reasons; nothing else does."""
    ours = {name: case for name, case in node_cases().items() if is_ours(case)}
    failed = {}
    for name, case in ours.items():
        try:
            check(case)
        except (AssertionError, NotImplementedError) as error:
            failed[name] = str(error)
    assert {k: v for k, v in failed.items() if k not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) - set(ours) == set()
    assert 1 - len(failed) / len(ours) >= 0.97
    wrong = [name for name in failed if EXCEPTIONS[name] != _RANDOM and "expected a form of" not in failed[name]]
    assert wrong == []
