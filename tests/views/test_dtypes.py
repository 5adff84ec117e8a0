"""Views as another dtype, and complex numbers seen as pairs of floats: what shares memory, and in which bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

pytestmark = needs_torch

DTYPES = [pf.uint8, pf.int8, pf.int16, pf.int32, pf.int64, pf.float16, pf.bfloat16, pf.float32, pf.float64]
DTYPES += [pf.complex64, pf.complex128, pf.float8_e4m3fn, pf.float8_e5m2]
DEVICES = ["cpu", "sim:gfx942", "sim:gfx1100"]


def theirs(dtype: pf.DType) -> Any:
    return getattr(torch, dtype.name)


def bits(seed: int, shape: tuple[int, ...] = (3, 32)) -> Any:
    """Bytes that are numbers in every dtype: no NaN, whose bits may differ, in the highest byte of any."""
    values = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return np.where(values & 0x7C == 0x7C, values & 0x83, values)


def same(ours: pf.Tensor, want: Any) -> None:
    assert ours.dtype is pf.as_dtype(want.dtype) and tuple(ours.shape) == tuple(want.shape)
    flat = want.detach().contiguous().reshape(-1)
    assert np.ascontiguousarray(ours.detach().numpy()).tobytes() == flat.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("seen", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("have", DTYPES, ids=lambda d: d.name)
def test_every_pair(have: pf.DType, seen: pf.DType) -> None:
    """In memory, pending and jitted: the same bits."""
    given = bits(DTYPES.index(have))
    x, want = pf.tensor(given).view(have), torch.tensor(given).view(theirs(have)).view(theirs(seen))
    same(x.view(seen), want)
    same(x.view(dtype=seen), want)
    same(x[1].view(seen), want[1])
    assert x.view(seen).data_ptr() == x.data_ptr()
    if (DTYPES.index(have) + DTYPES.index(seen)) % 4 == 0:  # each is a kernel to compile
        same(pf.jit(lambda x: x.view(seen))(x), want)
        same(pf.cat([x, x])[:3].view(seen), want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("have", "seen"),
    [("float32", "int16"), ("uint8", "float64"), ("complex64", "int64"), ("bfloat16", "int16"), ("int32", "complex64")],
)
def test_devices(device: str, have: str, seen: str) -> None:
    given = bits(5)
    want = torch.tensor(given).view(getattr(torch, have))
    x = pf.tensor(given, device=device).view(getattr(pf, have))
    assert x.device == device
    same(x.view(getattr(pf, seen)), want.view(getattr(torch, seen)))
    same(pf.cat([x, x])[:3].view(getattr(pf, seen)), want.view(getattr(torch, seen)))
    for y in (x, want):
        y.view(getattr(pf if y is x else torch, seen))[0, 1] = 1
    same(x, want)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "element": lambda m, v: v.__setitem__((0, 1), 7),
    "row": lambda m, v: v.__setitem__(1, 3),
    "range": lambda m, v: v.__setitem__((slice(None), slice(1, 3)), 5),
    "every second": lambda m, v: v.__setitem__((slice(None), slice(None, None, 2)), 5),
    "whole": lambda m, v: v.fill_(2),
    "view of it": lambda m, v: v[1:].view(m.int8).zero_(),
    "reshaped": lambda m, v: v.view(-1)[2:4].fill_(9),
    "in place": lambda m, v: v.add_(1),
}
PAIRS = [("int64", "int32"), ("int32", "int64"), ("float32", "int32"), ("int16", "float64"), ("float64", "uint8")]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("have", "seen"), PAIRS)
def test_writes(have: str, seen: str, write: str) -> None:
    """What is written through one is seen by the other, by older views of both, and back."""

    def program(m: Any, x: Any) -> list[Any]:
        older, view = x[1:], x.view(getattr(m, seen))
        WRITES[write](m, view)
        part = view[0].clone()
        x[:, 0] = 1
        return [x + 0, older + 0, view + 0, part]

    given = np.arange(32).reshape(2, 16).astype(have)
    x, y = pf.tensor(given), torch.tensor(given)
    run = (lambda x: program(pf, x)) if write in ("row", "whole") else pf.jit(lambda x: program(pf, x))
    for ours, want in zip(run(x), program(torch, y), strict=True):
        same(ours, want)
    same(x, y)


def test_writes_of_the_base_are_seen() -> None:
    x, y = pf.ones(2, 4), torch.ones(2, 4)
    a, b = x.view(pf.int32), y.view(torch.int32)
    x.mul_(3)
    y.mul_(3)
    same(a, b)


BAD: dict[str, Callable[[Any], Any]] = {
    "0-d": lambda m: m.ones(()).view(m.float64),
    "0-d, narrower": lambda m: m.ones(()).view(m.int16),
    "size": lambda m: m.ones(3).view(m.float64),
    "transposed": lambda m: m.ones(4, 4).T.view(m.float64),
    "transposed, narrower": lambda m: m.ones(4, 4).T.view(m.int16),
    "offset": lambda m: m.ones(4)[1:3].view(m.float64),
    "stride": lambda m: m.ones(4, 3)[:, :2].view(m.float64),
    "expanded": lambda m: m.ones(4, 1).expand(4, 2).view(m.int16),
    "complex": lambda m: m.ones(3).view(m.complex64),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name: str) -> None:
    with pytest.raises(RuntimeError):
        BAD[name](torch)
    with pytest.raises(pf.ShapeError, match=r"\[view\] expected"):
        BAD[name](pf)


GOOD: dict[str, Callable[[Any], Any]] = {
    "0-d": lambda m: m.ones(()).view(m.int32),
    "0-d complex": lambda m: m.ones((), dtype=m.complex64).view(m.int64),
    "transposed, of one size": lambda m: m.arange(6.0).reshape(2, 3).T.view(m.int32),
    "empty": lambda m: m.ones(0, 4).view(m.float64),
    "nothing along the last axis": lambda m: m.ones(3, 0).view(m.int16),
    "strided rows": lambda m: m.arange(8.0).reshape(4, 2)[::2].view(m.float64),
    "a column": lambda m: m.arange(8.0).reshape(4, 2)[:, 1:].view(m.int16),
    "bools": lambda m: m.tensor([2, 0, 1], dtype=m.uint8).view(m.bool).logical_not(),
    "bools and back": lambda m: m.tensor([2, 0, 1], dtype=m.uint8).view(m.bool).view(m.uint8),
    "itself": lambda m: m.ones(3).view(m.float32),
    "expanded rows": lambda m: m.arange(2.0).expand(3, 2).view(m.float64),
}


@pytest.mark.parametrize("name", GOOD)
def test_shapes(name: str) -> None:
    same(GOOD[name](pf), GOOD[name](torch))


def test_no_gradient_flows_through() -> None:
    x, y = (m.ones(4, requires_grad=True) for m in (pf, torch))
    for m, leaf in ((pf, x), (torch, y)):
        made = leaf * 2
        view = made.view(m.int32)
        assert not view.requires_grad and not leaf.view(m.complex64).requires_grad
        view.zero_()
        assert made.requires_grad and float(made.sum()) == 0
        made.sum().backward()
        leaf.view(m.int32)[0] = 0  # a leaf that requires grad: its memory, not its tape
    same(x.grad, y.grad)
    same(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_pairs_of_floats_share_memory(device: str) -> None:
    """view_as_real and view_as_complex are views, with gradients."""
    out = []
    for m, place in ((pf, {"device": device}), (torch, {})):
        z = m.tensor([[1 + 2j, 3 - 1j], [0.5j, -2.0]], **place)
        pairs = m.view_as_real(z)
        pairs[0, :, 1] = 9.0
        pairs[:, 1].mul_(2)
        flat = m.arange(8.0, **place).reshape(4, 2)
        numbers = m.view_as_complex(flat)
        numbers[1:3] = numbers[1:3] * 1j
        again = m.view_as_complex(pairs)
        again[1, 0] = -1j
        w = m.ones(2, 2, **place).requires_grad_()
        seen = m.view_as_complex(w * 3)
        m.view_as_real(seen)[0].mul_(2)
        (seen.abs() ** 2).sum().backward()
        out.append([z, pairs, flat, numbers, again, w.grad])
    for ours, want in zip(*out, strict=True):
        np.testing.assert_allclose(ours.numpy(), want.numpy(), rtol=1e-6)
