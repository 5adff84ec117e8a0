"""Tensors print to the letter as PyTorch's do, but for the name in front of a dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf

_DRAW = np.random.RandomState(5)
_MIXED = np.array([[0.0, -1.5, 2e3], [np.nan, 4.25, -0.0]])
ARRAYS = {
    "number": np.array(2.5),
    "whole": np.array([[1.0, 20.0], [-3.0, 0.0]]),
    "whole and infinite": np.array([1.0, np.inf, np.nan]),
    "nothing but zeros": np.zeros(3),
    "fractions": _DRAW.standard_normal((3, 4)),
    "several lines": _DRAW.standard_normal((2, 31)) * 100,
    "wide range": np.array([1e-7, 1.0, 3e5, 0.0]),
    "large": np.array([3e9, 1.0]),
    "mixed": _MIXED,
    "three axes": _DRAW.standard_normal((2, 2, 3)),
    "summarized": _DRAW.standard_normal((9, 8, 20)),
    "integers": _DRAW.randint(-500, 500, (4, 5)),
    "many integers": np.arange(2000),
    "bools": _DRAW.randint(0, 2, (2, 3)).astype(bool),
    "complex": _DRAW.standard_normal((2, 3)) + 1j * _MIXED,
    "empty": np.zeros((0, 3)),
    "empty of one axis": np.zeros(0, np.int64),
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool", "complex64", "complex128")
OPTIONS: dict[str, dict[str, Any]] = {
    "precision": dict(precision=2),
    "few": dict(threshold=5, edgeitems=2),
    "narrow": dict(linewidth=40),
    "powers": dict(sci_mode=True),
    "no powers": dict(sci_mode=False),
    "short": dict(profile="short"),
    "full": dict(profile="full"),
    "no ends": dict(threshold=5, edgeitems=0),
}


def _same(theirs: Any, ours: Any) -> None:
    """Notes may stand on a line of their own for one and not for the other: our name is two letters longer."""
    a, b = (re.sub(r",\s+(dtype|layout|requires_grad)=", r", \1=", repr(x)) for x in (theirs, ours))
    assert b.replace("pyflame.", "torch.") == a


def _pairs(array: np.ndarray[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for dtype in DTYPES:
        if np.iscomplexobj(array) == dtype.startswith("complex") and (
            np.isfinite(array).all() or "float" in dtype or "complex" in dtype
        ):
            theirs = torch.tensor(array).to(getattr(torch, dtype))
            # 16-bit floats are PyTorch's own: it rounds float64 twice on the way there
            yield theirs, pf.tensor(theirs) if "16" in dtype else pf.tensor(array).to(getattr(pf, dtype))


@pytest.mark.parametrize("name", ARRAYS)
def test_values(name: str) -> None:
    for theirs, ours in _pairs(ARRAYS[name]):
        _same(theirs, ours)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str) -> None:
    try:
        torch.set_printoptions(**OPTIONS[name])
        pf.set_printoptions(**OPTIONS[name])
        for key in ("fractions", "several lines", "summarized", "integers", "complex"):
            _same(torch.tensor(ARRAYS[key]), pf.tensor(ARRAYS[key]))
    finally:
        torch.set_printoptions(profile="default")
        pf.set_printoptions(profile="default")


def test_what_is_said_of_them() -> None:
    for m in (torch, pf):
        x = m.ones(2, requires_grad=True)
        assert repr(x) == "tensor([1., 1.], requires_grad=True)"
        assert repr(x * 2.5) == "tensor([2.5000, 2.5000], grad_fn=<MulBackward0>)"
        assert repr(m.nn.Parameter(m.ones(1))) == "Parameter containing:\ntensor([1.], requires_grad=True)"
        assert repr(m.ones(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
        assert repr(type("Named", (m.Tensor,), {})(m.ones(2))) == "Named([1., 1.])"
        assert (str(m.bool), str(m.strided), repr(m.channels_last)) == tuple(
            f"{m.__name__}.{name}" for name in ("bool", "strided", "channels_last")
        )


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors() -> None:
    made = [
        lambda m: m.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.5], (2, 2)),
        lambda m: m.eye(3).double().to_sparse(),
        lambda m: m.zeros(2, 2).to_sparse(),
        lambda m: m.eye(12).to_sparse_csr(),
    ]
    for make in made:
        _same(make(torch), make(pf))


MODULES = (
    lambda nn: nn.MultiheadAttention(8, 2),
    lambda nn: nn.Transformer(8, 2, 1, 1, 16),
    lambda nn: nn.MaxUnpool2d(2, stride=(2, 3)),
    lambda nn: nn.ParameterList([nn.Parameter(nn.init.ones_(nn.Linear(2, 3).weight))]),
    lambda nn: nn.ParameterList([nn.Linear(2, 3).weight, 3, "text"]),
    lambda nn: nn.ParameterDict({"z": nn.Linear(2, 3).weight, "a": nn.Linear(2, 1).bias, "n": None}),
    lambda nn: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), *[nn.ReLU() for _ in range(3)]),
    lambda nn: nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True, dropout=0.1),
)


@pytest.mark.parametrize("number", range(len(MODULES)))
def test_modules(number: int) -> None:
    _same(MODULES[number](torch.nn), MODULES[number](pf.nn))


OPTIMIZERS = (
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "LBFGS",
    "Adafactor", "Muon",
)  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    """With all the options that PyTorch keeps in a group: copies of its optimisers read them."""
    theirs = getattr(torch.optim, name)([torch.ones(2, 2, requires_grad=True)])
    ours = getattr(pf.optim, name)([pf.ones(2, 2, requires_grad=True)])
    assert ours.defaults == theirs.defaults
    assert repr(ours) == repr(theirs)
    assert ours.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]
