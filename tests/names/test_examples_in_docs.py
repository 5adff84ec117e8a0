"""The examples in the docstrings of torch's paths run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn

ROOMS = ("backends", "cuda", "distributions", "signal", "utils")
SINGLE = (
    "accelerator", "amp", "compiler", "distributed", "func", "hub", "multiprocessing", "onnx", "profiler", "random",
    "serialization", "special", "testing", "version",
)  # fmt: skip
WITHIN = (
    "collectives.groups", "collectives.mesh", "collectives.point_to_point",
    "nn.functional_call", "tensor.devices", "tensor.factorizations", "tensor.grad_fn", "tensor.old_linalg",
    "tensor.sets", "tensor.solutions", "tensor.sparse_functions",
    "tensor.torch_cuda", "tensor.torch_functions", "tensor.torch_names", "tensor.torch_statistics",
    "transform.autograd", "transform.functional", "transform.gradcheck", "transform.jacobians",
)  # fmt: skip
MODULES = [f"pyflame.{name}" for name in (*SINGLE, *WITHIN)] + [
    m.name for room in ROOMS for m in pkgutil.walk_packages(getattr(pf, room).__path__, f"pyflame.{room}.")
]


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(module, extraglobs={"pf": pf, "nn": nn, "np": np}, optionflags=options)
    assert result.failed == 0
