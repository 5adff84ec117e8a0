"""Layers that public programs use beside the usual ones, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn, optim

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("LocalResponseNorm", (2,), {}, (2, 5, 3, 4)),
    ("LocalResponseNorm", (3,), dict(alpha=0.1, beta=0.5, k=2.0), (2, 4, 7)),
    ("LPPool1d", (2, 3), dict(stride=2), (2, 3, 9)),
    ("LPPool2d", (1.5, 2), {}, (2, 3, 6, 5)),
    ("LPPool2d", (2, (3, 2)), dict(stride=(1, 2), ceil_mode=True), (1, 2, 7, 7)),
    ("LPPool3d", (3, 2), {}, (1, 2, 4, 4, 4)),
    ("ChannelShuffle", (3,), {}, (2, 6, 4, 3)),
    ("UpsamplingNearest2d", (), dict(scale_factor=2), (1, 2, 3, 4)),
    ("UpsamplingBilinear2d", (), dict(size=(5, 7)), (1, 2, 3, 4)),
    ("Hardshrink", (0.4,), {}, (3, 4)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES)
def test_against_torch(name: str, args: Any, kwargs: Any, shape: tuple[int, ...]) -> None:
    values = np.abs(np.random.default_rng(0).standard_normal(shape)).astype(np.float32) + 0.1
    x, y = pf.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    got, want = getattr(nn, name)(*args, **kwargs)(x), getattr(torch.nn, name)(*args, **kwargs)(y)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=2e-5, atol=1e-5, strict=True)
    got.square().sum().backward(), want.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 20])
def test_cross_map_lrn(size: int) -> None:
    """Its gradient in torch is not that of its forward, so it is compared with differences."""
    values = np.random.default_rng(0).standard_normal((2, 8, 2, 3))
    got, want = (lib.nn.CrossMapLRN2d(size, alpha=0.5, k=2)(lib.tensor(values)) for lib in (pf, torch))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    assert pf.autograd.gradcheck(nn.CrossMapLRN2d(size, alpha=0.5), pf.tensor(values, requires_grad=True))
    with pytest.raises(pf.ShapeError, match="expected"):
        nn.CrossMapLRN2d(size)(pf.ones(3, 4, 5))


def test_bilinear() -> None:
    rng = np.random.default_rng(0)
    a, b, w, c = (rng.standard_normal(s).astype(np.float32) for s in [(2, 5, 3), (2, 5, 4), (6, 3, 4), (6,)])
    got = nn.functional.bilinear(*map(pf.tensor, (a, b, w, c)))
    want = torch.nn.functional.bilinear(*map(torch.tensor, (a, b, w, c)))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_functions_in_place() -> None:
    x = pf.tensor([-1.0, 2.0])
    assert nn.functional.relu_(x) is x and x.tolist() == [0.0, 2.0]
    with pytest.raises(AttributeError, match="no attribute 'rel'"):
        nn.functional.rel


LAZY: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (5,), dict(bias=False), (2, 3, 7)),
    ("Conv1d", (4, 3), dict(padding=1), (2, 3, 9)),
    ("Conv2d", (4, 3), dict(stride=2), (2, 3, 9, 9)),
    ("ConvTranspose2d", (4, 3), {}, (2, 3, 5, 5)),
    ("BatchNorm1d", (), {}, (4, 6)),
    ("BatchNorm2d", (), dict(eps=1e-3), (4, 6, 3, 3)),
    ("InstanceNorm2d", (), dict(affine=True), (4, 6, 3, 3)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAZY)
def test_lazy_layers(name: str, args: Any, kwargs: Any, shape: tuple[int, ...]) -> None:
    layer = getattr(nn, f"Lazy{name}")(*args, **kwargs)
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    other = getattr(torch.nn, f"Lazy{name}")(*args, **kwargs).eval()
    cells = list(layer.parameters())
    assert [repr(p) for p in cells] == [repr(p) for p in other.parameters()] and layer.has_uninitialized_params()
    assert repr(layer) == repr(other) and isinstance(layer, getattr(nn, name))
    layer.eval()
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = other(torch.tensor(x))
    assert layer(pf.tensor(x)).shape == tuple(want.shape)
    assert type(layer) is getattr(nn, name) and not layer.training and seen == [tuple(want.shape)]
    assert all(a is b for a, b in zip(layer.parameters(), cells, strict=True)) and repr(layer) == repr(other)
    assert list(layer.state_dict()) == list(other.state_dict())
    layer.load_state_dict(other.state_dict())
    np.testing.assert_allclose(layer(pf.tensor(x)).detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_lazy_model_trains() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x = pf.randn(8, 1, 6, 6)
    model(x)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and len(list(model.parameters())) == 6


def test_sync_batch_norm() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm1d(4)))
    weight = model[1].weight
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model and type(model[1]) is nn.SyncBatchNorm and type(model[2][0]) is nn.SyncBatchNorm
    assert model[1].weight is weight and model[1](pf.randn(2, 3, 4, 4)).shape == (2, 3, 4, 4)
