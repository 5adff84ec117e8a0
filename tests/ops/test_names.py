"""PyTorch's and NumPy's names: aliases, in-place forms, arguments as torch takes them, derivatives of higher order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.doctor.samples import map_arrays, outputs_of
from pyflame.ir import OPS
from pyflame.ops.names import ALIASES
from tests.oracle import assert_close, torch_call, torch_tensor

# The functions of torch that this library has beside its foundation.
FUNCTIONS = """
absolute aminmax arccos arccosh arcsin arcsinh arctan arctanh atleast_1d atleast_2d atleast_3d bincount
broadcast_tensors cartesian_prod cdist celu clamp_max clamp_min clip column_stack copysign corrcoef cov cross cummax
cummin deg2rad diag_embed diff digamma divide dsplit dstack equal erfinv finfo fliplr flipud float_power floor_divide
fmax fmin greater greater_equal heaviside histc hsplit hypot iinfo isin isneginf isposinf kron less less_equal lgamma
logaddexp logaddexp2 logcumsumexp logit multiply nanmean nanmedian nanquantile negative not_equal numel polygamma
quantile rad2deg ravel remainder rsub signbit sinc std_mean subtract swapdims t take_along_dim tensor_split trapezoid
tril_indices triu_indices unique unique_consecutive vander var_mean vsplit xlogy
"""
IN_PLACE = """
add addcdiv addcmul clip copysign deg2rad digamma div divide erfinv float_power floor_divide greater hypot lgamma
multiply negative remainder sinc sub subtract xlogy
"""


@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_name_is_there(name: str) -> None:
    assert hasattr(torch, name) and hasattr(pf, name)
    if name != "polygamma":  # there the tensor is the second argument
        assert hasattr(pf.Tensor, name) or not hasattr(torch.Tensor, name)


@pytest.mark.parametrize("name", IN_PLACE.split())
def test_in_place_form_is_there(name: str) -> None:
    assert hasattr(torch.Tensor, name + "_") and hasattr(pf.Tensor, name + "_")


@pytest.mark.parametrize("name", [n for n in ALIASES if hasattr(torch, n)])
def test_aliases_are_what_torch_means(name: str) -> None:
    """An op's first sample, against torch's function of the other name."""
    op = OPS[ALIASES[name]]
    function = getattr(pf, name)
    assert inspect.unwrap(function) is inspect.unwrap(op.fn) and function.__name__ == getattr(torch, name).__name__
    assert op.samples is not None
    sample = op.samples()[0]
    got = getattr(pf, name)(*map_arrays(sample.args, pf.tensor), **map_arrays(sample.kwargs, pf.tensor))
    kwargs = {{"axis": "dim", "keepdims": "keepdim"}.get(k, k): v for k, v in sample.kwargs.items()}
    want = getattr(torch, name)(*map_arrays(sample.args, torch_tensor), **map_arrays(kwargs, torch_tensor))
    for g, w in zip(outputs_of(got), outputs_of(want), strict=True):
        assert_close(g, w, pf.float64, name)


def test_aliases_take_the_arguments_of_both_names() -> None:
    x = pf.arange(6).reshape(2, 3)
    assert pf.swapaxes(x, axis0=0, axis1=1).shape == pf.swapdims(x, dim0=0, dim1=1).shape == (3, 2)
    assert pf.take_along_dim(x, pf.tensor([[0], [1]]), dim=1).tolist() == [[0], [4]]
    assert pf.clip(input=x, max=2).tolist() == [[0, 1, 2], [2, 2, 2]]


@pytest.mark.parametrize(
    ("ours", "want"),
    [
        (lambda x: x.flip(0, 2), lambda x: x.flip(0, 2)),
        (lambda x: pf.flip(x, dims=(1,)), lambda x: torch.flip(x, dims=(1,))),
        (lambda x: x.permute(2, 0, 1), lambda x: x.permute(2, 0, 1)),
        (lambda x: pf.permute(x, dims=(2, 0, 1)), lambda x: torch.permute(x, dims=(2, 0, 1))),
        (lambda x: x.tile(2, 1), lambda x: x.tile(2, 1)),
        (lambda x: pf.tile(x, dims=(2,)), lambda x: torch.tile(x, dims=(2,))),
        (lambda x: pf.reshape(x, shape=(4, 6)), lambda x: torch.reshape(x, shape=(4, 6))),
        (lambda x: pf.broadcast_to(x, size=(5, 2, 3, 4)), lambda x: torch.broadcast_to(x, size=(5, 2, 3, 4))),
        (lambda x: x.quantile(0.3, dim=1), lambda x: x.quantile(0.3, dim=1)),
        (lambda x: x.clone().cumsum_(dim=1), lambda x: x.clone().cumsum_(dim=1)),
        (lambda x: x.clone().add_(x, alpha=-2), lambda x: x.clone().add_(x, alpha=-2)),
        (lambda x: x.sub(other=x, alpha=0.5), lambda x: x.sub(other=x, alpha=0.5)),
        (lambda x: pf.add(2.0, x, alpha=3), lambda x: torch.add(torch.tensor(2.0), x, alpha=3)),
        (lambda x: x.clone().addcdiv_(x, x, value=3), lambda x: x.clone().addcdiv_(x, x, value=3)),
        (lambda x: x.clone().div_(4, rounding_mode="floor"), lambda x: x.clone().div_(4, rounding_mode="floor")),
    ],
)  # fmt: skip
def test_arguments_as_torch_takes_them(ours: Callable[[Any], Any], want: Callable[[Any], Any]) -> None:
    x = np.linspace(0.5, 3.0, 24, dtype=np.float32).reshape(2, 3, 4)
    assert_close(ours(pf.tensor(x)), want(torch.from_numpy(x)), pf.float32, "result")


def test_other_ops_take_no_alpha() -> None:
    with pytest.raises(TypeError, match=r"\[mul\] expected"):
        pf.mul(pf.ones(2), pf.ones(2), alpha=2)


SECOND = {
    "lgamma": lambda m, x, y: m.lgamma(x),
    "digamma": lambda m, x, y: m.digamma(x),
    "erfinv": lambda m, x, y: m.erfinv(x / 4),
    "sinc": lambda m, x, y: m.sinc(x),
    "xlogy": lambda m, x, y: m.xlogy(x, y),
    "hypot": lambda m, x, y: m.hypot(x, y),
    "logaddexp": lambda m, x, y: m.logaddexp(x, y),
    "logaddexp2": lambda m, x, y: m.logaddexp2(x, y),
    "fmax": lambda m, x, y: m.fmax(x, y) ** 2,
    "clamp_min": lambda m, x, y: m.clamp_min(x, 1.0) ** 2,
    "cummax": lambda m, x, y: m.cummax(x, 0).values ** 2,
    "logcumsumexp": lambda m, x, y: m.logcumsumexp(x, 0),
    "quantile": lambda m, x, y: m.quantile(x, 0.3) ** 2,
    "cov": lambda m, x, y: m.cov(x),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    a, b = np.array([0.3, 1.7, 2.4, 0.9]), np.array([1.1, 0.4, 2.2, 3.0])
    found = []
    for m in (pf, torch):
        x, y = (m.tensor(v, requires_grad=True) for v in (a, b))
        out = SECOND[name](m, x, y)
        (first,) = m.autograd.grad((out * m.cos(out)).sum(), [x], create_graph=True)
        found.append(m.autograd.grad((first * m.sin(x)).sum(), [x])[0])
    assert_close(found[0], found[1], pf.float64, f"second derivative of {name}", 100)


def test_derivatives_of_a_histogram_of_data_are_none() -> None:
    x = pf.ones(3).requires_grad_()
    assert not pf.histc(x, 2).requires_grad


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 1000])
def test_scans_of_any_length(n: int) -> None:
    x = np.random.default_rng(n).integers(-5, 5, (2, n)).astype(np.float32)
    for name in ("cummax", "cummin", "logcumsumexp"):
        op = OPS[name]
        got, want = getattr(pf, name)(pf.tensor(x), 1), torch_call(op, [torch.from_numpy(x), 1], {})
        for g, w in zip(outputs_of(got), outputs_of(want), strict=True):
            assert_close(g, w, pf.float32, name)


def test_limits_of_dtypes() -> None:
    for name in ("float16", "bfloat16", "float32", "float64", "float8_e5m2"):
        ours, theirs = pf.finfo(getattr(pf, name)), torch.finfo(getattr(torch, name))
        for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "dtype"):
            assert getattr(ours, field) == getattr(theirs, field), (name, field)
    for name in ("int8", "uint8", "int16", "int32", "int64"):
        ours, theirs = pf.iinfo(getattr(pf, name)), torch.iinfo(getattr(torch, name))
        assert [getattr(ours, f) for f in ("bits", "max", "min")] == [
            getattr(theirs, f) for f in ("bits", "max", "min")
        ]
    assert pf.finfo().eps == torch.finfo().eps
    with pytest.raises(pf.DTypeError, match="use iinfo"):
        pf.finfo(pf.int8)
    with pytest.raises(pf.DTypeError, match="use finfo"):
        pf.iinfo(pf.float32)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: pf.quantile(x, 1.5), r"q in \[0, 1\]"),
        (lambda x: pf.quantile(x, 0.5, interpolation="cubic"), "interpolation"),
        (lambda x: pf.quantile(x.int(), 0.5), "floating-point"),
        (lambda x: pf.hsplit(x, 2), "multiple of 2"),
        (lambda x: pf.cross(x, x, 0), "size 3"),
        (lambda x: pf.cdist(x, x.T), "one size"),
        (lambda x: pf.polygamma(-1, x), r"in \[0, 170\]"),
        (lambda x: pf.celu(x, 0.0), "other than 0"),
        (lambda x: x.reshape(2, 3, 1).t(), "at most two axes"),
        (lambda x: pf.diag_embed(x, 0, 1, 1), "different axes"),
        (lambda x: pf.histc(x, 0), "bins of at least 1"),
        (lambda x: pf.trapezoid(x, x, dx=2.0), "but got both"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(pf.PyFlameError, match=match):
        call(pf.ones(2, 3))
