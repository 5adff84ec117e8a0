"""Complex numbers against torch: values, dtypes, gradients, in every mode; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

RNG = np.random.default_rng(3)
Z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
W = RNG.normal(size=(4,)) + 1j * RNG.normal(size=(4,))
X = RNG.normal(size=(3, 4))

FORMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "add": lambda t, z, w, x: z + w,
    "add of a real": lambda t, z, w, x: z + x,
    "add with alpha": lambda t, z, w, x: t.add(z, w, alpha=2),
    "subtraction": lambda t, z, w, x: 1 - z - w,
    "product": lambda t, z, w, x: z * w,
    "product with a real": lambda t, z, w, x: x * z,
    "product with a number": lambda t, z, w, x: (2 - 1j) * z * 3,
    "real times a number": lambda t, z, w, x: x * 2j,
    "quotient": lambda t, z, w, x: z / w,
    "quotient by a real": lambda t, z, w, x: z / (x * x + 1),
    "reciprocal": lambda t, z, w, x: 1 / z,
    "negative": lambda t, z, w, x: -z,
    "square": lambda t, z, w, x: z**2,
    "power": lambda t, z, w, x: z**1.5,
    "complex power": lambda t, z, w, x: z**w,
    "exp": lambda t, z, w, x: t.exp(z),
    "log": lambda t, z, w, x: t.log(z),
    "sqrt": lambda t, z, w, x: t.sqrt(z),
    "sin": lambda t, z, w, x: t.sin(z) + t.cos(w),
    "sinh": lambda t, z, w, x: t.sinh(z) + t.cosh(w),
    "tan": lambda t, z, w, x: t.tan(z) + t.tanh(w),
    "abs": lambda t, z, w, x: z.abs(),
    "angle": lambda t, z, w, x: z.angle(),
    "conj": lambda t, z, w, x: z.conj() * w,
    "parts": lambda t, z, w, x: z.real * w.imag,
    "sgn": lambda t, z, w, x: t.sgn(z),
    "sum": lambda t, z, w, x: z.sum(),
    "sum over": lambda t, z, w, x: z.sum(0, keepdim=True),
    "mean": lambda t, z, w, x: z.mean(1),
    "prod": lambda t, z, w, x: z.prod(0),
    "cumsum": lambda t, z, w, x: z.cumsum(1),
    "matmul": lambda t, z, w, x: z @ z.mT,
    "matmul of a vector": lambda t, z, w, x: z @ w,
    "einsum": lambda t, z, w, x: t.einsum("ij,j->i", z, w),
    "movement": lambda t, z, w, x: z.reshape(2, 6).T[1:, ::2].flip(0).contiguous(),
    "indexing": lambda t, z, w, x: z[:, t.tensor([0, 2, 0])] * w[1],
    "index_select": lambda t, z, w, x: z.index_select(0, t.tensor([2, 0, 2])),
    "joined": lambda t, z, w, x: t.cat([z, w[None]], 0),
    "stacked": lambda t, z, w, x: t.stack([w, w * 2]),
    "where": lambda t, z, w, x: t.where(x > 0, z, w),
    "masked_fill": lambda t, z, w, x: z.masked_fill(x > 0, 0),
    "roll": lambda t, z, w, x: z.roll(1, 1),
    "view_as_real": lambda t, z, w, x: t.view_as_real(z),
    "view_as_complex": lambda t, z, w, x: t.view_as_complex(x.reshape(3, 2, 2)),
    "complex": lambda t, z, w, x: t.complex(x, x * 2),
    "polar": lambda t, z, w, x: t.polar(x.abs(), x),
    "cast": lambda t, z, w, x: x.to(t.complex128) * z,
    "expand": lambda t, z, w, x: w.expand(3, 4) + z,
    "acos": lambda t, z, w, x: t.acos(z) + t.asin(w),
    "acosh": lambda t, z, w, x: t.acosh(z) + t.asinh(w),
    "atan": lambda t, z, w, x: t.atan(z) + t.atanh(w),
    "sqrt on the axes": lambda t, z, w, x: t.sqrt(t.complex(x, x * 0)) + t.sqrt(t.complex(x * 0, x)),
    "cumprod": lambda t, z, w, x: t.cumprod(z, 1),
    "cumprod with zeros": lambda t, z, w, x: t.cumprod(z * (x > 0), 0),
    "logsumexp": lambda t, z, w, x: t.logsumexp(z, 1),
    "logaddexp": lambda t, z, w, x: t.logaddexp(z, w),
    "logcumsumexp": lambda t, z, w, x: t.logcumsumexp(z, 0).exp(),
    "lerp": lambda t, z, w, x: t.lerp(z, w, 0.3) + t.lerp(z, w.expand(3, 4), z),
    "float_power": lambda t, z, w, x: t.float_power(z, 1.5),
    "cov": lambda t, z, w, x: t.cov(z),
    "corrcoef": lambda t, z, w, x: t.corrcoef(z),
    "conv1d": lambda t, z, w, x: t.nn.functional.conv1d(z.reshape(1, 2, 6), w.reshape(1, 2, 2), padding=1),
    "conv_transpose1d": lambda t, z, w, x: t.nn.functional.conv_transpose1d(z.reshape(1, 2, 6), w.reshape(2, 1, 2)),
}


def leaves(t: Any) -> list[Any]:
    return [t.tensor(a, requires_grad=True) for a in (Z, W, X)]


def loss(t: Any, out: Any) -> Any:
    weight = t.tensor(np.cos(np.arange(out.numel())).reshape(out.shape))
    total = (out * weight).sum()
    return total.real + 2 * total.imag if out.is_complex() else total


def close(got: Any, want: Any) -> None:
    if got is None or want is None:
        assert got is None and (want is None or not want.abs().any())
        return
    assert got.dtype is pf.as_dtype(want.dtype)
    want = want.detach().resolve_conj()
    np.testing.assert_allclose(np.asarray(got.detach()), want.numpy(), rtol=1e-9, atol=1e-9)


@needs_torch
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("how", ["lazy", "jit"])
def test_values_and_gradients(name: str, how: str) -> None:
    ours, theirs = leaves(pf), leaves(torch)
    form = FORMS[name]

    def step(*given: Any) -> Any:
        out = form(pf, *given)
        return out, pf.grad(lambda *again: loss(pf, form(pf, *again)), argnums=(0, 1, 2))(*given)

    got, grads = (pf.jit(step) if how == "jit" else step)(*[t.detach() for t in ours])
    want = form(torch, *theirs)
    close(got, want)
    loss(torch, want).backward()
    for g, b in zip(grads, theirs, strict=True):
        close(g, b.grad if b.grad is not None else torch.zeros_like(b))
    loss(pf, form(pf, *ours)).backward()
    for a, b in zip(ours, theirs, strict=True):
        close(a.grad, b.grad)


@needs_torch
@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atan", "atanh", "sqrt", "nn.functional.silu"])
def test_values_on_cuts_and_axes(name: str) -> None:
    """A signed zero says on which side of a cut a number is."""
    parts = (0.0, -0.0, 0.5, -0.5, 2.0, -2.0, 1e-9, 1e8)
    values = np.array([complex(a, b) for a in parts for b in parts])
    got, want = (attrgetter(name)(t)(t.tensor(values)).numpy() for t in (pf, torch))
    np.testing.assert_allclose(got.real, want.real, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got.imag, want.imag, rtol=1e-9, atol=1e-12)


def rotary(t: Any, x: Any, freqs: Any) -> Any:
    """As LLaMA's reference code writes it: x is (B, T, H, D)."""
    pairs = t.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return t.view_as_real(pairs * freqs.view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


def frequencies(t: Any, dim: int, end: int) -> Any:
    freqs = 1.0 / (10000.0 ** (t.arange(0, dim, 2)[: dim // 2].float() / dim))
    angles = t.outer(t.arange(end, device=freqs.device), freqs).float()
    return t.polar(t.ones_like(angles), angles)


@needs_torch
@pytest.mark.parametrize("how", ["lazy", "jit"])
def test_rotary_embedding(how: str) -> None:
    array = RNG.normal(size=(2, 5, 3, 8)).astype(np.float32)
    ours, theirs = pf.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    table = frequencies(pf, 8, 5)
    assert table.dtype is pf.complex64

    def program(x: Any) -> Any:
        return rotary(pf, x, table), pf.grad(lambda x: (rotary(pf, x, table) ** 3).sum())(x)

    got, grad = (pf.jit(program) if how == "jit" else program)(ours.detach())
    want = rotary(torch, theirs, frequencies(torch, 8, 5))
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    (want**3).sum().backward()
    np.testing.assert_allclose(grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


@needs_torch
def test_gradients_at_zero() -> None:
    for form in (lambda t, z: z.abs(), lambda t, z: z.angle(), lambda t, z: t.view_as_real(z**2)):
        grads = []
        for t in (pf, torch):
            z = t.tensor([0j, 1 + 1j], dtype=t.complex128, requires_grad=True)
            form(t, z).sum().backward()
            grads.append(np.asarray(z.grad.tolist()))
        np.testing.assert_allclose(*grads)


@needs_torch
def test_promotion() -> None:
    names = ("bool", "int64", "float32", "float64", "complex64", "complex128")
    for a in names:
        for b in names:
            if "complex" not in a + b:
                continue
            for left, right in (((2,), (2,)), ((2,), ()), ((), (2,))):
                got = pf.ones(left, dtype=getattr(pf, a)) * pf.ones(right, dtype=getattr(pf, b))
                want = torch.ones(left, dtype=getattr(torch, a)) * torch.ones(right, dtype=getattr(torch, b))
                assert got.dtype is pf.as_dtype(want.dtype), (a, b, left, right)
    assert (pf.ones(2, dtype=pf.float64) * 1j).dtype is pf.complex128
    assert (pf.ones(2, dtype=pf.int64) * 1j).dtype is pf.complex64


def test_made_and_taken_out(tmp_path: Path) -> None:
    z = pf.tensor([1 + 2j, 3.5])
    assert z.dtype is pf.complex64 and z.is_complex() and not z.is_floating_point()
    assert z.tolist() == [1 + 2j, 3.5 + 0j] and z[0].item() == 1 + 2j and complex(z[0]) == 1 + 2j
    assert repr(z) == "tensor([1.0000+2.j, 3.5000+0.j])"
    np.testing.assert_array_equal(pf.from_numpy(Z).numpy(), Z)
    np.testing.assert_array_equal(pf.tensor(Z.T[::2]).numpy(), Z.T[::2])
    assert pf.zeros(2, dtype=pf.cfloat).tolist() == [0j, 0j] and pf.full((1,), 2j).dtype is pf.complex64
    assert pf.eye(2, dtype=pf.complex128).dtype is pf.complex128
    assert pf.ones_like(z).tolist() == [1 + 0j, 1 + 0j] and pf.empty(3, dtype=pf.complex64).shape == (3,)
    assert (z == z.clone()).all() and (z != pf.tensor([1 + 2j, 0j])).tolist() == [False, True]
    z[0] = 5j
    z += 1
    assert z.tolist() == [1 + 5j, 4.5 + 0j]
    pf.io.save_file({"z": z}, tmp_path / "z.safetensors")
    assert pf.io.load_file(tmp_path / "z.safetensors")["z"].tolist() == z.tolist()
    if torch is not None:
        np.testing.assert_array_equal(torch.from_dlpack(z).numpy(), z.numpy())
        np.testing.assert_array_equal(pf.tensor(torch.tensor(Z)).numpy(), Z)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: pf.sort(z), lambda z: z.max(), lambda z: z < z, lambda z: pf.floor(z), lambda z: pf.erf(z),
        lambda z: pf.maximum(z, z), lambda z: z.argmax(), lambda z: pf.nn.functional.relu(z),
        lambda z: pf.ones(2).add_(z), lambda z: pf.tensor([1.0]).imag, lambda z: z.requires_grad_().sum().backward(),
        lambda z: pf.complex(pf.ones(2), pf.ones(2, dtype=pf.int64)), lambda z: pf.view_as_complex(pf.ones(3)),
    ],
)  # fmt: skip
def test_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(pf.PyFlameError, match=r"\[\w+\] expected"):
        call(pf.tensor([1 + 2j, 3 - 1j]))
