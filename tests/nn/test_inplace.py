"""`inplace=True`: the input itself takes the result, as in PyTorch; and dropout of channels of any axes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F
from tests.needs import needs_torch, torch

FUNCTIONS = sorted(
    name
    for name in F.__all__
    if callable(f := getattr(F, name)) and "inplace" in getattr(inspect.signature(f), "parameters", ())
)
VALUES = np.linspace(-3.0, 5.0, 24).reshape(2, 3, 4)


def _settings(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"threshold": 0.5, "value": -1.0} if name == "threshold" else {}
    return settings | ({"training": True} if "dropout" in name else {})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_input_takes_the_result(name: str) -> None:
    x = pf.tensor(VALUES)
    same, row = x.detach(), x[1]
    out = getattr(F, name)(x, inplace=True, **_settings(name))
    assert out is x
    assert not np.array_equal(x.numpy(), VALUES)
    assert np.array_equal(same.numpy(), x.numpy())
    assert np.array_equal(row.numpy(), x.numpy()[1])


@needs_torch
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "dropout" not in name])
def test_gradients_beside_a_held_input(name: str) -> None:
    """The residual connection sees what was written, as does its gradient."""

    def run(lib: Any) -> tuple[Any, Any]:
        w = lib.tensor(VALUES, requires_grad=True)
        x = w * 1.5
        y = getattr(lib.nn.functional, name)(x, inplace=True, **_settings(name))
        out = x + y * w
        out.sum().backward()
        return out.detach().numpy(), w.grad.numpy()

    for ours, theirs in zip(run(pf), run(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_modules_write() -> None:
    for layer in (
        nn.ReLU(True),
        nn.Dropout(0.9, True),
        nn.Hardtanh(inplace=True),
        nn.RReLU(inplace=True),
        nn.SiLU(True),
    ):
        x = pf.tensor(VALUES)
        assert layer(x) is x
        assert not np.array_equal(x.numpy(), VALUES)
    x = pf.tensor(VALUES)
    nn.Dropout(0.9, True).eval()(x)
    nn.AlphaDropout(0.9, True)(x)  # PyTorch's does not either
    assert np.array_equal(x.numpy(), VALUES)


def test_a_leaf_is_refused() -> None:
    with pytest.raises(pf.GradientError, match="in-place"):
        F.relu(pf.ones(2, requires_grad=True), inplace=True)


def test_jitted_functions_write_their_argument() -> None:
    net = pf.jit(nn.Sequential(nn.ReLU(inplace=True), nn.Flatten()))
    for _ in range(3):
        x = pf.tensor(VALUES)
        assert np.array_equal(net(x).numpy(), np.maximum(VALUES, 0).reshape(2, 12))
        assert np.array_equal(x.numpy(), np.maximum(VALUES, 0))


@pytest.mark.parametrize(("name", "axes", "kept"), [
    ("dropout1d", 2, 1), ("dropout1d", 3, 2), ("dropout2d", 2, 2), ("dropout2d", 3, 2), ("dropout2d", 5, 2),
    ("dropout3d", 1, 1), ("dropout3d", 3, 1), ("dropout3d", 5, 2), ("dropout3d", 6, 1), ("feature_alpha_dropout", 2, 2),
])  # fmt: skip
def test_dropout_of_channels_of_any_axes(name: str, axes: int, kept: int) -> None:
    out = getattr(F, name)(pf.ones([4] * axes), 0.5, True).numpy()
    assert (out == out.reshape(out.shape[:kept] + (-1,))[..., 0].reshape(out.shape[:kept] + (1,) * (axes - kept))).all()
    assert len(np.unique(out)) <= 2


@pytest.mark.parametrize(("name", "axes"), [("dropout1d", 1), ("dropout1d", 4), ("dropout2d", 1)])
def test_dropout_of_too_few_axes(name: str, axes: int) -> None:
    with pytest.raises(pf.ShapeError, match=name):
        getattr(F, name)(pf.ones([4] * axes), 0.5, True)
