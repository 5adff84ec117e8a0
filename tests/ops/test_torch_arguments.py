"""Arguments that PyTorch's functions take, in every form, and inputs that they refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch


def same(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), want.detach().numpy(), rtol=1e-6, atol=1e-7)
    assert got.dtype is pf.as_dtype(want.dtype)


MODES = [
    *itertools.product([(7,)], ["nearest", "nearest-exact", "area", "linear"]),
    *itertools.product([(5, 8)], ["nearest", "nearest-exact", "area", "bilinear", "bicubic"]),
    *itertools.product([(3, 4, 5)], ["nearest", "nearest-exact", "area", "trilinear"]),
]


@pytest.mark.share(6)
@needs_torch
@pytest.mark.parametrize(("spatial", "mode"), MODES)
@pytest.mark.parametrize(
    "options",
    [{"size": 3}, {"size": 11}, {"scale_factor": 1.7}, {"scale_factor": 0.6, "recompute_scale_factor": True}],
    ids=str,
)
def test_interpolate(spatial: tuple[int, ...], mode: str, options: dict[str, Any]) -> None:
    for align in (None, True, False) if mode.endswith(("linear", "cubic")) else (None,):
        array = np.random.default_rng(0).normal(size=(2, 3, *spatial))
        ours, theirs = pf.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
        got = pf.nn.functional.interpolate(ours, mode=mode, align_corners=align, **options)
        want = torch.nn.functional.interpolate(theirs, mode=mode, align_corners=align, **options)
        same(got, want)
        (got * got).sum().backward()
        (want * want).sum().backward()
        same(ours.grad, theirs.grad)


@pytest.mark.share(6)
@needs_torch
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(2, 3), (9, 5), (7, 7), (1, 20)])
@pytest.mark.parametrize("align", [False, True])
def test_interpolate_antialias(mode: str, size: tuple[int, int], align: bool) -> None:
    array = np.random.default_rng(0).normal(size=(1, 2, 7, 9))
    options: dict[str, Any] = {"size": size, "mode": mode, "antialias": True, "align_corners": align}
    got = pf.nn.functional.interpolate(pf.tensor(array), **options)
    same(got, torch.nn.functional.interpolate(torch.tensor(array), **options))


ROW = [3.0, 1.0, 2.0]
EQUAL: dict[str, Callable[[Any], Any]] = {
    "repeat_interleave of one number": lambda t: t.repeat_interleave(t.tensor([[1, 2], [3, 4]]), t.tensor([2])),
    "repeat_interleave of many": lambda t: t.repeat_interleave(t.tensor(ROW), t.tensor([0, 3, 1])),
    "repeat_interleave along": lambda t: t.ones(2, 3).cumsum(1).repeat_interleave(t.tensor([2, 0, 1]), dim=1),
    "repeat_interleave of 2-d": lambda t: t.tensor([[1, 2], [3, 4]]).repeat_interleave(t.tensor([1, 2, 0, 3])),
    "repeat_interleave alone": lambda t: t.repeat_interleave(t.tensor([2, 0, 1])),
    "repeat_interleave sized": lambda t: t.repeat_interleave(t.tensor(ROW), t.tensor([1, 1, 1]), output_size=3),
    "one_hot": lambda t: t.nn.functional.one_hot(t.tensor([[0, 2], [1, 0]])),
    "narrow": lambda t: t.narrow(t.tensor(ROW), 0, t.tensor(1), 2),
    "tensor_split at": lambda t: t.tensor_split(t.arange(7), t.tensor([2, 5]))[1],
    "tensor_split into": lambda t: t.tensor_split(t.arange(7), t.tensor(3))[0],
    "searchsorted": lambda t: t.searchsorted(t.tensor([1.0, 2.0]), 1.5),
    "searchsorted side": lambda t: t.searchsorted(t.tensor([1, 2, 2]), t.tensor([2]), side="right", out_int32=True),
    "searchsorted sorter": lambda t: t.searchsorted(t.tensor(ROW), t.tensor([2.5]), sorter=t.tensor([1, 2, 0])),
    "bucketize": lambda t: t.bucketize(1.5, t.tensor([1.0, 2.0]), out_int32=True),
    "where alone": lambda t: t.where(t.tensor([[True, False], [True, True]]))[1],
    "where as a method": lambda t: t.tensor([1.0, 2.0]).where(t.tensor([True, False]), t.zeros(2)),
    "a size by name": lambda t: t.zeros(size=(2, 3)) + t.ones(size=(3,)),
    "no axes": lambda t: t.ones(2, 3).sum(dim=()),
    "softmin": lambda t: t.nn.functional.softmin(t.tensor([1, 2]), 0, dtype=t.float64),
    "scatter_reduce of integers": lambda t: t.scatter_reduce(
        t.tensor([5, -7, 9]), 0, t.tensor([0, 0, 1]), t.tensor([-3, -4, -5]), "mean", include_self=False
    ),
    "amax of integers": lambda t: t.scatter_reduce(
        t.tensor([5, -7, 9]), 0, t.tensor([0, 0, 1]), t.tensor([-3, -4, -5]), "amax", include_self=False
    ),
    "amin of bools": lambda t: t.scatter_reduce(
        t.tensor([True, False]), 0, t.tensor([0, 1]), t.tensor([False, True]), "amin", include_self=False
    ),
    "arange of floats as integers": lambda t: t.arange(0.1, -7.9, -4.0, dtype=t.int64),
    "linspace of integers": lambda t: t.linspace(4.3, -3, 50, dtype=t.int64),
    "logspace of integers": lambda t: t.logspace(4.3, 1.2, 4, 3.0, dtype=t.int64),
    "unfold of a number": lambda t: t.tensor(3.0).unfold(0, 1, 1),
    "attention": lambda t: t.nn.functional.scaled_dot_product_attention(
        t.ones(3, 8), t.ones(2, 1, 6, 8) * 0.5, t.arange(48.0).reshape(1, 6, 8)
    ),
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", EQUAL)
def test_forms(name: str) -> None:
    same(EQUAL[name](pf), EQUAL[name](torch))


@needs_torch
def test_repeated_elements_add_their_gradients() -> None:
    grads = []
    for lib in (pf, torch):
        x = lib.tensor(ROW, requires_grad=True)
        (lib.repeat_interleave(x, lib.tensor([2, 0, 3])) ** 2).sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


REFUSED: dict[str, Callable[[Any], Any]] = {
    "numbers alone": lambda t: t.pow(2, 3),
    "a number first": lambda t: t.eq(2, t.ones(3)),
    "a number second": lambda t: t.maximum(t.ones(3), 2),
    "a source of another dtype": lambda t: t.zeros(3).scatter(0, t.tensor([0]), t.tensor([1])),
    "a mask of floats": lambda t: t.masked_scatter(t.ones(3), t.ones(3), t.ones(3)),
    "a value with axes": lambda t: t.ones(2, 2).masked_fill(t.tensor(True), t.ones(1)),
    "a negative tolerance": lambda t: t.isclose(t.ones(1), t.ones(1), rtol=-0.4),
    "an axis of a 0-d tensor": lambda t: t.roll(t.tensor(1.0), 1, 0),
    "a margin below 0": lambda t: t.nn.functional.triplet_margin_loss(t.ones(1, 2), t.ones(1, 2), t.ones(1, 2), -1.0),
    "a bool as start": lambda t: t.narrow(t.ones(3), 0, t.tensor(True), 1),
    "repeats of another length": lambda t: t.repeat_interleave(t.ones(3), t.tensor([1, 2])),
    "repeats below 0": lambda t: t.repeat_interleave(t.ones(2), t.tensor([1, -2])),
    "a class below 0": lambda t: t.nn.functional.one_hot(t.tensor([-1])),
    "classes of nothing": lambda t: t.nn.functional.one_hot(t.zeros(0, dtype=t.int64)),
    "corners of nearest": lambda t: t.nn.functional.interpolate(t.ones(1, 1, 4), 2, align_corners=True),
    "antialias of nearest": lambda t: t.nn.functional.interpolate(t.ones(1, 1, 4, 4), 2, antialias=True),
    "sides that disagree": lambda t: t.searchsorted(t.ones(2), t.ones(1), right=True, side="left"),
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
        REFUSED[name](torch)
    with pytest.raises(pf.PyFlameError, match=r"\[\w+\] expected"):
        REFUSED[name](pf)


@needs_torch
@pytest.mark.parametrize("lib", [pf, torch], ids=["ours", "theirs"])
def test_out(lib: Any) -> None:
    x, whole, empty = lib.tensor([[1.0, 5.0], [7.0, 2.0]]), lib.zeros(2, 2), lib.empty(0)
    assert lib.mul(x, 2, out=whole) is whole and whole.tolist() == [[2.0, 10.0], [14.0, 4.0]]
    lib.sum(x, 1, out=empty)
    assert empty.tolist() == [6.0, 9.0]
    values, indices = lib.empty(0), lib.empty(0, dtype=lib.int64)
    lib.max(x, 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([5.0, 7.0], [1, 0])
    for wrong in (lib.zeros(2, 2, dtype=lib.int64), 3):
        with pytest.raises((RuntimeError, TypeError)):
            lib.add(x, x, out=wrong)
    with pytest.raises(RuntimeError):
        lib.add(x.requires_grad_(), x, out=whole)


@needs_torch
@pytest.mark.parametrize("lib", [pf, torch], ids=["ours", "theirs"])
def test_older_words(lib: Any) -> None:
    functional = lib.nn.functional
    assert lib.mm(lib.eye(2), mat2=lib.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert lib.addcmul(lib.ones(1), tensor1=lib.ones(1), tensor2=lib.ones(1)).tolist() == [2.0]
    assert functional.mse_loss(lib.ones(3), lib.zeros(3), size_average=False).item() == 3.0
    assert functional.l1_loss(lib.ones(3), lib.zeros(3), reduce=False).tolist() == [1.0, 1.0, 1.0]
    assert functional.l1_loss(lib.ones(3), lib.zeros(3), size_average=True).item() == 1.0
    assert lib.zeros(2).copy_(lib.ones(2), non_blocking=True).tolist() == [1.0, 1.0]


@pytest.mark.share(6)
@needs_torch
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("spatial", [(4, 5), (1, 3), (3, 2, 4)])
def test_grid_sample(spatial: tuple[int, ...], align: bool, mode: str, padding: str) -> None:
    rng = np.random.default_rng(1)
    image = rng.normal(size=(2, 3, *spatial))
    places = rng.uniform(-1.7, 1.7, size=(2, *[n + 1 for n in spatial], len(spatial)))
    found = []
    for lib in (pf, torch):
        x, grid = lib.tensor(image, requires_grad=True), lib.tensor(places, requires_grad=True)
        out = lib.nn.functional.grid_sample(x, grid, mode, padding, align)
        (out * out).sum().backward()
        found.append([out, x.grad, grid.grad if mode == "bilinear" else x.grad])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(got.detach()), want.detach().numpy(), rtol=1e-8, atol=1e-9)


@needs_torch
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 3), (2, 1, 3, 4, 2)])
def test_affine_grid(size: tuple[int, ...], align: bool) -> None:
    d = len(size) - 2
    array = np.random.default_rng(2).normal(size=(2, d, d + 1))
    found = []
    for lib in (pf, torch):
        theta = lib.tensor(array, requires_grad=True)
        out = lib.nn.functional.affine_grid(theta, size, align)
        (out**3).sum().backward()
        found.append([out.detach(), theta.grad])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(got), want.numpy(), rtol=1e-8, atol=1e-9)


NO_AXES = (
    "sum", "mean", "nansum", "nanmean", "amax", "amin", "all", "any", "std", "var",
    "linalg.vector_norm",
)  # fmt: skip


@needs_torch
@pytest.mark.parametrize("axes", [(), []], ids=["tuple", "list"])
@pytest.mark.parametrize("name", NO_AXES)
def test_no_axes(name: str, axes: Any) -> None:
    """Of most reductions they are all axes, of `all` and `any` none."""
    got, want = (attrgetter(name)(t)(t.arange(6.0).reshape(2, 3), dim=axes) for t in (pf, torch))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    keeping = [attrgetter(name)(t)(t.ones(2, 3), dim=axes, keepdim=True).shape for t in (pf, torch)]
    assert tuple(keeping[0]) == tuple(keeping[1])


@needs_torch
@pytest.mark.parametrize("name", ["all", "any"])
def test_all_and_any_of_bytes_are_bytes(name: str) -> None:
    for dtype in ("uint8", "int8", "bool"):
        for arguments in ((), (0,), (1, True)):
            got, want = (getattr(t.ones(2, 3).to(getattr(t, dtype)), name)(*arguments) for t in (pf, torch))
            assert got.dtype is pf.as_dtype(want.dtype) and got.tolist() == want.tolist()
