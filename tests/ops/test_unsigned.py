"""uint16, uint32 and uint64, of which PyTorch has few ops: against NumPy, on the CPU and on simulated AMD GPUs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

NAMES = ("uint16", "uint32", "uint64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", *NAMES)
Case = tuple[Callable[[], Any], Any]


def values(name: str, shape: tuple[int, ...] = (5, 37), seed: int = 0) -> Any:
    """Numbers of all sizes, with those at the ends first."""
    limits = np.iinfo(name)
    found = np.random.default_rng(seed).integers(limits.min, limits.max, shape, name, endpoint=True)
    found.flat[:4] = [limits.max, 0, limits.max // 2 + 1, 1][:: -1 if seed else 1]
    return found


def elementwise(name: str, device: str) -> dict[str, Case]:
    kind, most = np.dtype(name).type, np.iinfo(name).max
    a, b = values(name), values(name, seed=1)
    nonzero, bits = np.maximum(b, 1), b % kind(8 * kind(0).itemsize)
    x, y, z, s = (pf.tensor(v, device=device) for v in (a, b, nonzero, bits))
    return {
        "add": (lambda: x + y, a + b),
        "sub": (lambda: x - y, a - b),
        "mul": (lambda: x * y, a * b),
        "floor_div": (lambda: x // z, a // nonzero),
        "trunc": (lambda: pf.div(x, z, rounding_mode="trunc"), a // nonzero),
        "mod": (lambda: x % z, a % nonzero),
        "pow": (lambda: x**3, a * a * a),
        "neg": (lambda: -x, kind(0) - a),
        "abs": (lambda: x.abs(), a),
        "sign": (lambda: x.sign(), np.sign(a)),
        "and": (lambda: x & y, a & b),
        "not": (lambda: ~(x | y) ^ y, ~(a | b) ^ b),
        "shifts": (lambda: (x << s) + (y >> s), (a << bits) + (b >> bits)),
        "shifted out": (lambda: x >> most, a * kind(0)),
        "less": (lambda: (x < y) | (x >= z), (a < b) | (a >= nonzero)),
        "of a number": (lambda: x > most // 2, a > most // 2),
        "large number": (lambda: x * most + (most - 3), a * kind(most) + kind(most - 3)),
        "where": (lambda: pf.where(x == y, x, pf.maximum(x, y)), np.maximum(a, b)),
        "clamp": (lambda: x.clamp(5, most // 2 + 7), a.clip(5, most // 2 + 7)),
        "gcd": (lambda: pf.gcd(x, y), np.gcd(a, b)),
        "with floats": (lambda: (x % 9 + 1.5).exp(), np.exp((a % kind(9)).astype(np.float32) + np.float32(1.5))),
        **{f"to {k}": (lambda k=k: x.to(k), a.astype(k)) for k in (*INTEGERS, "bool", "float32", "float64")},
        **{f"from {k}": (lambda k=k: pf.tensor(values(k), device=device).to(name), values(k).astype(name))
           for k in INTEGERS},
        "from float": (lambda: pf.tensor([0.5, 65535.0], device=device).to(name), np.array([0, 65535], name)),
        "bits": (lambda: x.view(getattr(pf, name[1:])), a.view(name[1:])),
    }  # fmt: skip


def others(name: str, device: str) -> dict[str, Case]:
    a, b = values(name), values(name, seed=1)
    x, y, at = (pf.tensor(v, device=device) for v in (a, b, np.array([[3, 1]] * 5)))
    added, largest = a.copy(), a.copy()
    np.add.at(added, (slice(None), [0, 0, 2]), b[:, :3])
    np.maximum.at(largest, (slice(None), [0, 0, 2]), b[:, :3])
    to = pf.tensor([0, 0, 2], device=device)
    return {
        "amax": (lambda: x.amax(1), a.max(1)),
        "amin": (lambda: x.amin(0), a.min(0)),
        "argmax": (lambda: x.argmax(1), a.argmax(1)),
        "sum": (lambda: x.sum(1), a.astype(np.int64).sum(1)),
        "sum of its own": (lambda: x.sum(0, dtype=name), a.sum(0, dtype=name)),
        "cumsum": (lambda: x.cumsum(1), a.astype(np.int64).cumsum(1)),
        "cummax": (lambda: x.cummax(1).values, np.maximum.accumulate(a, 1)),
        "sort": (lambda: x.sort(1).values, np.sort(a, 1)),
        "argsort": (lambda: x.argsort(0, descending=True, stable=True), np.argsort(~a, 0, kind="stable")),
        "topk": (lambda: x.topk(3).values, np.sort(a, 1)[:, :-4:-1]),
        "gather": (lambda: x.gather(1, at), np.take_along_axis(a, np.array([[3, 1]] * 5), 1)),
        "index": (lambda: x[:, to], a[:, [0, 0, 2]]),
        "cat": (lambda: pf.cat([x, y.flip(1)]), np.concatenate([a, b[:, ::-1]])),
        "index_add": (lambda: x.index_add(1, to, y[:, :3]), added),
        "scatter_reduce": (lambda: x.scatter_reduce(1, to.expand(5, 3), y[:, :3], "amax"), largest),
        "max_pool": (lambda: pf.nn.functional.max_pool1d(x, 2), np.maximum(a[:, :-1:2], a[:, 1::2])),
        "matmul": (lambda: x @ y.T, a @ b.T),
        "full": (lambda: pf.full_like(x, np.iinfo(name).max), np.full_like(a, np.iinfo(name).max)),
    }


@pytest.mark.share(6)
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("name", NAMES)
def test_ops(name: str, device: str) -> None:
    cases = elementwise(name, device) | others(name, device)
    found = {case: fn() for case, (fn, _) in cases.items()}
    pf.eval(*found.values())  # at once: their kernels are compiled together
    for case, (_, want) in cases.items():
        got = found[case].numpy()
        assert got.dtype == want.dtype and got.shape == want.shape, case
        (np.testing.assert_allclose if want.dtype.kind == "f" else np.testing.assert_array_equal)(
            got, want, err_msg=case, **({"rtol": 1e-6} if want.dtype.kind == "f" else {})
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_and_goes(name: str, tmp_path: Path) -> None:
    a = values(name, (2, 3))
    x, dtype, most = pf.from_numpy(a), getattr(pf, name), np.iinfo(name).max
    pf.save({"x": x}, tmp_path / "x.safetensors")
    ways = (
        x, pf.tensor(a), pf.tensor(a.tolist(), dtype=name), pf.from_dlpack(a), pf.from_dlpack(x),
        copy.deepcopy(x), pickle.loads(pickle.dumps(x)), pf.load(tmp_path / "x.safetensors")["x"],
        pf.frombuffer(a.tobytes(), dtype=dtype).reshape(2, 3), pf.jit(lambda v: v + 0)(x),
        pf.zeros(2, 3, dtype=name).copy_(x),
    )  # fmt: skip
    for way in ways:
        assert way.dtype is dtype and way.tolist() == a.tolist()
    assert np.array_equal(np.from_dlpack(x), a)
    assert (
        x[0, 0].item() == pf.iinfo(dtype).max == most and f"{most}, " in repr(x) and f"dtype=pyflame.{name}" in repr(x)
    )
    assert not dtype.is_signed and not x.is_signed()
    drawn = pf.zeros(100, dtype=name).random_()
    assert drawn.dtype is dtype and int(drawn.numpy().max()) > most // 4


def test_numbers_that_do_not_fit() -> None:
    for data, dtype in (([-1], "uint16"), ([1 << 16], "uint16"), ([1 << 64], "uint64"), ([-1.5], "uint64")):
        with pytest.raises(pf.PyFlameError):
            pf.tensor(data, dtype=dtype)
    with pytest.raises(pf.ArgumentError, match="uint64"):
        pf.tensor([1 << 63])


@needs_torch
@pytest.mark.parametrize("name", NAMES)
def test_as_in_torch(name: str, tmp_path: Path) -> None:
    a = values(name, (2, 3))
    theirs = torch.tensor(a)
    torch.save({"x": theirs, "y": theirs.T}, tmp_path / "x.pt")
    loaded = pf.load(tmp_path / "x.pt")
    for way in (pf.from_torch(theirs), pf.from_dlpack(theirs), loaded["x"], loaded["y"].T):
        assert way.dtype is getattr(pf, name) and way.tolist() == a.tolist()
    for back in (torch.from_dlpack(pf.tensor(a)), pf.tensor(a).to_torch()):
        assert back.dtype is theirs.dtype and back.tolist() == a.tolist()

    def asked(lib: Any, fn: Callable[[Any, Any], Any], other: str) -> str:
        try:
            return str(fn(getattr(lib, name), getattr(lib, other))).rpartition(".")[2].rstrip("_")
        except (RuntimeError, TypeError):
            return "raises"

    for other in (*INTEGERS, "bool", "float16", "bfloat16", "float32", "float64", "complex64"):
        for axes in ((2,), ()):

            def result(lib: Any) -> Callable[[Any, Any], Any]:
                return lambda one, two: lib.result_type(lib.ones(2, dtype=one), lib.ones(axes, dtype=two))  # noqa: B023

            assert asked(pf, result(pf), other) == asked(torch, result(torch), other), other
        assert asked(pf, pf.promote_types, other) == asked(torch, torch.promote_types, other), other
        assert asked(pf, pf.can_cast, other) == asked(torch, torch.can_cast, other), other
