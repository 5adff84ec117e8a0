"""Methods of Tensor that are no ops: sizes, conversions, in-place forms, Python's protocols and printing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.tensor.methods import in_place_names
from tests.needs import needs_torch, torch


def test_sizes() -> None:
    x = pf.zeros(2, 3, 4, dtype=pf.float16)
    assert x.size() == x.shape == (2, 3, 4)
    assert (x.size(0), x.size(-1)) == (2, 4)
    assert x.numel() == x.nelement() == 24
    assert x.dim() == x.ndim == x.ndimension() == 3
    assert (x.element_size(), x.nbytes) == (2, 48)
    assert len(x) == 2
    assert x.is_floating_point()
    with pytest.raises(pf.ShapeError, match="axis"):
        x.size(3)
    with pytest.raises(TypeError, match="0-d"):
        len(pf.tensor(1))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float32", "float64", "bool"])
def test_single_elements(dtype: str) -> None:
    array = np.array([[1, 0, 100], [7, 120, 3]]).astype(dtype)
    x = pf.tensor(array)
    for view, want in ((x, array), (x.T, array.T), (x[:, 1:], array[:, 1:]), (x.flip(1), array[:, ::-1])):
        for i, j in np.ndindex(want.shape):
            assert view[i, j].item() == view[i][j].item() == want[i, j]
            assert type(view[i, j].item()) is type(want[i, j].item())
    assert x[1].expand(2, 3)[1, 2].item() == array[1, 2]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_arithmetic_of_single_elements_wraps(dtype: str) -> None:
    x, array = pf.tensor([100, 77], dtype=dtype), np.array([100, 77]).astype(dtype)
    with np.errstate(over="ignore"):
        for got, want in (
            (x[0] + x[1] + 100, array[0] + array[1] + array[0]),
            (x[0] * x[0] * x[0] * x[0] * x[0] * x[0] * x[0] * x[1], array[0] ** np.array(7, dtype) * array[1]),
            (x[1] - x[0] - 2, array[1] - array[0] - np.array(2, dtype)),
        ):
            assert got.item() == int(want), dtype


def test_element_is_read_after_a_write() -> None:
    x = pf.zeros(3)
    first = x[0]
    assert first.item() == 0
    x[0] = 5
    assert first.item() == x[0].item() == 5
    x += 1
    assert [v.item() for v in x] == [6, 1, 1]


def test_strides() -> None:
    x = pf.arange(12.0).reshape(3, 4) + 0
    assert x.stride() == (4, 1)
    assert x.T.stride() == (1, 4)
    assert x.T.stride(0) == 1
    assert x.is_contiguous()
    assert not x.T.is_contiguous()
    assert x.T.contiguous().is_contiguous()
    assert pf.rand(1, 5).T.is_contiguous()


def test_conversions() -> None:
    x = pf.tensor([1.7, -2.2])
    table = dict(
        float="float32", double="float64", half="float16", bfloat16="bfloat16", int="int32", long="int64", short="int16"
    )
    for name, dtype in table.items():
        assert getattr(x, name)().dtype is getattr(pf, dtype)
    assert x.bool().tolist() == [True, True]
    assert x.int().tolist() == [1, -2]
    assert x.float() is x
    assert x.to(pf.float32) is x
    assert x.to(pf.float32, copy=True) is not x
    assert x.to(np.float64).dtype is pf.float64
    assert x.to(dtype="int8").dtype is pf.int8
    assert x.type() == "torch.FloatTensor"
    assert x.type(pf.int64).dtype is pf.int64
    assert x.type_as(pf.zeros(1, dtype=pf.float64)).dtype is pf.float64
    assert x.long().byte().char().dtype is pf.int8


@needs_torch
def test_dtypes_of_torch() -> None:
    assert pf.zeros(2).to(torch.float16).dtype is pf.float16


def test_python_numbers() -> None:
    assert float(pf.tensor(2.5)) == 2.5
    assert int(pf.tensor([7])) == 7
    assert [10, 20, 30][pf.tensor(1)] == 20
    assert bool(pf.tensor([[True]]))
    assert isinstance(pf.tensor(3).item(), int)
    assert isinstance(pf.tensor(True).item(), bool)
    assert isinstance(pf.tensor(0.5, dtype=pf.bfloat16).item(), float)
    for call in (lambda: bool(pf.ones(2)), lambda: pf.ones(2).item(), lambda: float(pf.zeros(0))):
        with pytest.raises(pf.ShapeError, match="one element"):
            call()
    with pytest.raises(pf.DTypeError, match="integer"):
        [1][pf.tensor(0.0)]


def test_protocols() -> None:
    x = pf.tensor([1.0, -2.0, 3.0])
    assert abs(x).tolist() == [1, 2, 3]
    assert (-x).tolist() == [-1, 2, -3]
    assert (+x).tolist() == x.tolist()
    assert (~pf.tensor([True, False])).tolist() == [False, True]
    assert (~pf.tensor([0, 5])).tolist() == [-1, -6]
    assert round(pf.tensor([1.26, -1.26]), 1).tolist() == pytest.approx([1.3, -1.3])
    assert round(pf.tensor([2.5])).tolist() == [2]
    assert 3.0 in x
    assert 4.0 not in x
    assert [v.item() for v in x] == [1, -2, 3]
    assert [v.item() for v in reversed(x)] == [3, -2, 1]
    assert f"{pf.tensor(2.5):.2f}" == "2.50"
    assert f"{pf.tensor(7):>4d}" == "   7"
    assert f"{x}" == str(x)
    assert len({x, x, pf.ones(1)}) == 2
    assert (x == None) is False  # noqa: E711
    assert pf.zeros(2, 3, 4).mT.shape == (2, 4, 3)
    assert pf.zeros(2, 3, 4).T.shape == (4, 3, 2)


def test_operators_with_numbers_arrays_and_strangers() -> None:
    x = pf.tensor([1.0, 2.0])
    assert (1 - x).tolist() == [0, -1]
    assert (2 / x).tolist() == [2, 1]
    assert (2**x).tolist() == [2, 4]
    assert (7 // pf.tensor([2, 3])).tolist() == [3, 2]
    assert (7 % pf.tensor([2, 4])).tolist() == [1, 3]
    assert (x @ x).item() == 5
    assert (np.array([1.0, 2.0], np.float32) @ x).item() == 5
    assert (pf.tensor([6]) & 3).tolist() == [2]
    assert (1 << pf.tensor([3])).tolist() == [8]
    with pytest.raises(TypeError):
        x + "a"  # type: ignore[operator]
    with pytest.raises(TypeError):
        [1] * x


# --- in place ---------------------------------------------------------------------------------------------------------


def test_in_place_operators_change_the_cell_and_its_views() -> None:
    x = pf.tensor([1.0, 2.0])
    y = x
    view = x.reshape(2, 1)
    lazy = x * 10
    x += 1
    x *= pf.tensor([2.0, 3.0])
    assert y is x
    assert x.tolist() == [4, 9]
    assert view.tolist() == [[4], [9]]
    assert lazy.tolist() == [10, 20]


def test_every_elementwise_op_has_an_in_place_form() -> None:
    names = in_place_names()
    assert {"add", "mul", "relu", "exp", "clamp", "sqrt", "pow"} <= set(names)
    for name in names:
        assert hasattr(pf.Tensor, name + "_"), name
    x = pf.tensor([-1.0, 2.0])
    assert x.relu_().add_(1).mul_(2).tolist() == [2, 6]
    assert x.clamp_(3, 5).tolist() == [3, 5]
    assert pf.tensor([4.0]).sqrt_().tolist() == [2]


def test_in_place_keeps_dtype_and_shape() -> None:
    x = pf.tensor([1, 2])
    x += 1
    assert x.dtype is pf.int64
    for change in (lambda: x.add_(0.5), lambda: x.__itruediv__(2), lambda: pf.tensor([True]).add_(1)):
        with pytest.raises(pf.DTypeError, match="hold"):
            change()
    half = pf.tensor([1.0], dtype=pf.float16)
    half += pf.tensor([2.0], dtype=pf.float64)
    assert half.dtype is pf.float16
    with pytest.raises(pf.ShapeError, match="shape"):
        x.add_(pf.ones(3, 2, dtype=pf.int64))


def test_fills_and_copies() -> None:
    x = pf.zeros(2, 3)
    assert x.fill_(2.5).tolist() == [[2.5] * 3] * 2
    assert x.zero_().tolist() == [[0] * 3] * 2
    assert x.copy_(pf.arange(3)).tolist() == [[0, 1, 2]] * 2
    assert x.dtype is pf.float32
    assert x.copy_([[1], [2]]).tolist() == [[1] * 3, [2] * 3]
    assert x.fill_(pf.tensor(4)).tolist() == [[4] * 3] * 2
    with pytest.raises(pf.ShapeError, match=r"copy_|expand"):
        x.copy_(pf.zeros(4))


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_eval_takes_trees() -> None:
    x, y, z = pf.ones(2) + 1, pf.ones(2) + 2, pf.ones(2) + 3
    pf.eval(x, {"a": [y, (z, 3, None)]})
    assert all(t._node.op.name == "leaf" for t in (x, y, z))
    pf.eval()
    pf.eval([])


def test_deterministic_is_repeatable() -> None:
    x = pf.randn(1000, 37)
    pf.eval(x)
    with pf.deterministic():
        first = (pf.exp(x).sum(), x.sum(axis=0))
        pf.eval(*first)
        again = (pf.exp(x).sum(), x.sum(axis=0))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


# --- printing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: pf.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
        (lambda: pf.tensor(3), "tensor(3)"),
        (lambda: pf.tensor(True), "tensor(True)"),
        (lambda: pf.tensor([1], dtype=pf.int32), "tensor([1], dtype=pyflame.int32)"),
        (lambda: pf.tensor([1.5], dtype=pf.bfloat16), "tensor([1.5000], dtype=pyflame.bfloat16)"),
        (lambda: pf.zeros(0, 3), "tensor([], size=(0, 3))"),
        (lambda: pf.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
        (lambda: pf.tensor([float("nan"), float("inf")]), "tensor([nan, inf])"),
        (lambda: pf.zeros(2, device="null"), "tensor(..., device='null', size=(2,))"),
        (lambda: pf.eye(2), "tensor([[1., 0.],\n        [0., 1.]])"),
    ],
)
def test_repr(make: Any, text: str) -> None:
    assert repr(make()) == text


def test_repr_of_large_tensors_is_short() -> None:
    assert len(repr(pf.zeros(1000, 1000))) < 1000
    assert "..." in repr(pf.arange(5000))
