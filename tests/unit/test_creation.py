"""Functions that make tensors, against torch where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

DTYPES = ("bool_", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def same(got: pf.Tensor, want: torch.Tensor, ulp: int = 0) -> None:
    assert got.shape == tuple(want.shape)
    assert got.dtype is pf.as_dtype(want.dtype)
    left, right = np.asarray(got.tolist(), np.float64), np.asarray(want.tolist(), np.float64)
    np.testing.assert_allclose(left, right, rtol=ulp * 2.0**-23, atol=0)


# --- tensor -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [3, 2.5, True, [], [1, 2], [[1.5, 2.0]], [True, False], [[]], [1, 2.5], [True, 2], (3, 4)]
)
def test_tensor_chooses_torchs_dtype(data: Any) -> None:
    same(pf.tensor(data), torch.tensor(data))


@pytest.mark.parametrize("name", DTYPES)
def test_tensor_of_each_dtype(name: str) -> None:
    dtype = getattr(pf, name)
    x = pf.tensor([[0, 1], [1, 0]], dtype=dtype)
    assert x.dtype is dtype
    assert x.tolist() == torch.tensor([[0, 1], [1, 0]], dtype=getattr(torch, name.rstrip("_"))).tolist()


def test_tensor_copies() -> None:
    array = np.arange(3.0)
    x = pf.tensor(array)
    array[0] = 7
    assert x.tolist() == [0, 1, 2]
    assert x.dtype is pf.float64


def test_tensor_of_arrays_of_any_layout() -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (base.T, base[:, ::-1, ::2], np.broadcast_to(base[:1], (5, 3, 4)), base.astype(">f4"), base[0, 0, 0]):
        np.testing.assert_array_equal(pf.tensor(view).numpy(), view.astype("<f4"))


def test_tensor_of_tensor_list_and_scalar() -> None:
    x = pf.tensor([1.0, 2.0])
    assert pf.tensor(x, dtype=pf.int32).tolist() == [1, 2]
    assert pf.tensor([x, x]).shape == (2, 2)
    assert pf.tensor(np.float64(2.5)).dtype is pf.float64
    assert pf.tensor(0.1, dtype=pf.float64).item() == 0.1
    assert pf.tensor(torch.ones(2, dtype=torch.bfloat16)).dtype is pf.bfloat16


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([[1, 2], [3]], pf.ShapeError),
        ([1, "a"], pf.DTypeError),
        ("text", pf.DTypeError),
        ([None], pf.DTypeError),
        ({1: 2}, pf.DTypeError),
        (object(), pf.DTypeError),
        (np.array([1, None], dtype=object), pf.DTypeError),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), pf.DTypeError),
        (np.zeros(2, np.longdouble), pf.DTypeError),
        ([2**70], (pf.DTypeError, pf.ArgumentError)),
    ],
)
def test_bad_data(data: Any, error: Any) -> None:
    with pytest.raises(error, match=r"\[(tensor|dtype)\] expected"):
        pf.tensor(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 300, -1, [1.0, float("-inf")]])
def test_numbers_that_an_integer_cannot_hold(value: Any) -> None:
    with pytest.raises(pf.ArgumentError, match="expected"):
        pf.tensor(value, dtype=pf.uint8)
    if not isinstance(value, list):
        with pytest.raises(pf.ArgumentError, match="expected"):
            pf.full((2,), value, dtype=pf.uint8)


def test_unknown_dtype_suggests() -> None:
    with pytest.raises(pf.DTypeError, match="did you mean 'float32'"):
        pf.zeros(2, dtype="flaot32")


def test_from_numpy_shares_and_never_writes() -> None:
    array = np.arange(4, dtype=np.float32)
    x = pf.from_numpy(array)
    array[1] = 50  # the memory is shared
    assert x.tolist() == [0, 50, 2, 3]
    x += 1
    x[0] = -1
    pf.eval(x)
    assert array.tolist() == [0, 50, 2, 3]
    assert x.tolist() == [-1, 51, 3, 4]
    for view in (array[::-1], array.reshape(2, 2).T, np.broadcast_to(array, (3, 4))):
        np.testing.assert_array_equal(pf.from_numpy(view).numpy(), view)
    odd = np.frombuffer(b"\0" + np.arange(3, dtype=np.int32).tobytes(), np.uint8)[1:].view(np.int32)  # not aligned
    assert (pf.from_numpy(odd) + 0).tolist() == [0, 1, 2]
    with pytest.raises(pf.DTypeError, match=r"use pf\.tensor"):
        pf.from_numpy([1, 2])  # type: ignore[arg-type]


def test_as_tensor_copies_only_if_it_must() -> None:
    x = pf.ones(2)
    assert pf.as_tensor(x) is x
    assert pf.as_tensor(x, dtype=pf.int32).dtype is pf.int32
    array = np.zeros(2, np.float32)
    shared = pf.as_tensor(array)
    array[0] = 3
    assert shared.tolist() == [3, 0]
    assert pf.as_tensor([1, 2]).dtype is pf.int64


# --- filled -----------------------------------------------------------------------------------------------------------


def test_shapes_may_be_written_in_many_ways() -> None:
    for x in (
        pf.zeros(2, 3),
        pf.zeros((2, 3)),
        pf.zeros([2, 3]),
        pf.zeros(np.int64(2), np.int32(3)),
        pf.zeros(pf.tensor(2), 3),
    ):
        assert x.shape == (2, 3)
    assert pf.zeros().shape == ()
    assert pf.ones(0, 3).tolist() == []
    assert pf.empty(2, 0).shape == (2, 0)


@pytest.mark.parametrize(
    ("args", "kwargs"), [(((2, 3), 7), {}), (((2,), 7.5), {}), (((), True), {}), ((3, 2), dict(dtype="float16"))]
)
def test_full(args: Any, kwargs: Any) -> None:
    size, value = args
    wanted = {k: getattr(torch, v) for k, v in kwargs.items()}
    same(pf.full(size, value, **kwargs), torch.full(size if isinstance(size, tuple) else (size,), value, **wanted))


@pytest.mark.parametrize("name", DTYPES)
def test_zeros_ones_and_likes(name: str) -> None:
    dtype, oracle = getattr(pf, name), getattr(torch, name.rstrip("_"))
    same(pf.zeros(2, dtype=dtype), torch.zeros(2, dtype=oracle))
    same(pf.ones(2, 1, dtype=dtype), torch.ones(2, 1, dtype=oracle))
    x = pf.ones(3, dtype=dtype)
    same(pf.zeros_like(x), torch.zeros(3, dtype=oracle))
    same(pf.ones_like(x, dtype=pf.int16), torch.ones(3, dtype=torch.int16))
    same(pf.full_like(x, 1), torch.ones(3, dtype=oracle))
    assert pf.empty_like(x).dtype is dtype
    same(x.new_zeros(2, 2), torch.zeros(2, 2, dtype=oracle))
    same(x.new_full((1,), 1), torch.ones(1, dtype=oracle))


def test_device_and_grad_are_taken_over() -> None:
    x = pf.zeros(3, device="cpu", requires_grad=True)
    assert x.requires_grad
    assert x._node.meta.committed
    assert pf.ones_like(x)._node.meta.committed
    assert not pf.ones(3)._node.meta.committed
    with pytest.raises(pf.GradientError, match="floating-point"):
        pf.zeros(3, dtype=pf.int64, requires_grad=True)
    with pytest.raises(pf.DeviceError, match="rocm"):
        pf.zeros(3, device="rocm")


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (2.5,), ("2",), (2**40, 2**40), (2**60,), (None,)])
def test_bad_shapes(shape: Any) -> None:
    for make in (pf.zeros, pf.ones, pf.empty, pf.rand, pf.randn):
        with pytest.raises((pf.ShapeError, pf.ArgumentTypeError), match=f"\\[{make.__name__}\\] expected"):
            make(*shape)
    with pytest.raises((pf.ShapeError, pf.ArgumentTypeError), match="expected"):
        pf.full(shape, 1.0)


def test_bad_fill_values() -> None:
    for value in ("a", None, [1]):
        with pytest.raises(pf.DTypeError, match="expected a real number"):
            pf.full((2,), value)


# --- by rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        (5,), (0,), (2, 7), (7, 2, -2), (0, 10, 3), (-5, 5), (2.5,), (0.0, 1.0, 0.1), (1, 0, -0.25), (0, 5, 1.5),
        (5, 5), (10, 0, -3), (-(2**62), -(2**62) + 3), (1e6, 1e6 + 2, 0.5), (True, 5),
    ],
)  # fmt: skip
def test_arange(args: Any) -> None:
    same(pf.arange(*args), torch.arange(*args), ulp=1)


def test_arange_dtypes() -> None:
    for name in DTYPES[1:]:
        same(pf.arange(4, dtype=getattr(pf, name)), torch.arange(4, dtype=getattr(torch, name)))
    same(pf.arange(0, 3, 0.5, dtype=pf.int32), torch.arange(0, 3, 0.5, dtype=torch.int32))
    assert pf.arange(pf.tensor(3)).tolist() == [0, 1, 2]
    assert pf.arange(3, requires_grad=False, device="cpu").device == "cpu"
    # rounding does not add up: the last of a million steps is as good as the first
    assert abs(pf.arange(0, 1e5, 0.1, dtype=pf.float64)[-1].item() - (1e5 - 0.1)) < 1e-9


@pytest.mark.parametrize("args", [(0, 5, 0), (0, 5, -1), (5, 0), (float("nan"),), (float("inf"),), (0, 2**80)])
def test_bad_arange(args: Any) -> None:
    with pytest.raises((pf.ArgumentError, pf.ShapeError), match=r"\[arange\] expected"):
        pf.arange(*args)
    with pytest.raises(pf.DTypeError, match="real numbers"):
        pf.arange("3")


@pytest.mark.parametrize("args", [(0, 1, 5), (3, -3, 7), (0, 1, 1), (2, 5, 0), (0.1, 0.7, 4), (-1e6, 1e6, 1001)])
def test_linspace(args: Any) -> None:
    got = pf.linspace(*args)
    same(got, torch.linspace(*args, dtype=torch.float64).float(), ulp=1)
    if args[2] > 1:
        assert got[-1].item() == np.float32(args[1])
    same(pf.linspace(*args, dtype=pf.float64), torch.linspace(*args, dtype=torch.float64), ulp=1)


def test_logspace_and_eye() -> None:
    same(pf.logspace(-1, 2, 4), torch.logspace(-1, 2, 4), ulp=4)
    same(pf.logspace(0, 3, 4, base=2.0), torch.logspace(0, 3, 4, base=2.0), ulp=4)
    for shape in ((3,), (2, 4), (4, 2), (0, 3), (1, 1)):
        same(pf.eye(*shape), torch.eye(*shape))
    same(pf.eye(2, dtype=pf.bool_), torch.eye(2, dtype=torch.bool))
    with pytest.raises(pf.ShapeError, match="at least 0"):
        pf.eye(-1)


def test_another_start_or_size_needs_no_new_kernel() -> None:
    pf.eval(pf.arange(1.0, 11.0) + 1, pf.linspace(0, 1, 10), pf.full((10,), 2.0) * 3)
    before = pf.compile_stats()
    pf.eval(pf.arange(5.0, 15.0) + 2, pf.linspace(-3, 3, 10), pf.full((10,), 5.0) * 4)
    after = pf.compile_stats()
    assert after.compiles == before.compiles
    assert after.plan_misses == before.plan_misses
