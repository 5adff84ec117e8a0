"""Devices, default dtypes and gradient modes as programs written for torch use them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest

import pyflame as pf
from tests.needs import needs_torch, torch


@pytest.fixture
def default_dtype() -> Iterator[None]:
    yield
    pf.set_default_dtype(pf.float32)


def test_a_device_is_a_value_and_a_name() -> None:
    x = pf.ones(2, device="cpu")
    assert x.device == pf.device("cpu") and x.device == "cpu" and isinstance(x.device, pf.device)
    assert (x.device.type, x.device.index, str(x.device), f"{x.device}") == ("cpu", None, "cpu", "cpu")
    assert repr(x.device) == "device(type='cpu')"
    assert {pf.device("cpu"): 1}[x.device] == 1
    for same in (copy.deepcopy(x.device), pickle.loads(pickle.dumps(x.device))):
        assert same == x.device and isinstance(same, pf.device)
    assert pf.zeros(2, device=x.device).to(x.device).device == x.device
    with pf.device("null:gfx942") as there:
        assert pf.ones(2).device == there and there.type == "null" and repr(there) == "device('null:gfx942')"
    with x.device:
        assert pf.get_device() == "cpu"


def test_a_device_by_type_and_index() -> None:
    assert pf.device("sim:gfx942", 0) == "sim:gfx942"
    assert pf.device("cpu", 0) == "cpu"
    with pytest.raises(pf.DeviceNameError, match="the CPU is one device"):
        pf.device("cpu", 1)


@needs_torch
@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16"])
def test_default_dtype(name: str, default_dtype: None) -> None:
    pf.set_default_dtype(getattr(pf, name))
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        for make in (
            lambda lib: lib.tensor([1.5]),
            lambda lib: lib.zeros(2),
            lambda lib: lib.rand(2),
            lambda lib: lib.arange(0, 1, 0.5),
            lambda lib: lib.full((2,), 1.0),
            lambda lib: lib.arange(3) / 2,
            lambda lib: lib.arange(3) * 1.5,
            lambda lib: lib.tensor([1, 2]).sqrt(),
            lambda lib: lib.ones(2, dtype=lib.float32) * 2.5,
            lambda lib: lib.eye(2),
            lambda lib: lib.linspace(0, 1, 3),
            lambda lib: lib.tensor([True, False]) + 0.5,
        ):
            assert make(pf).dtype.name == str(make(torch).dtype).removeprefix("torch.")
        assert str(torch.get_default_dtype()) == f"torch.{pf.get_default_dtype().name}"
    finally:
        torch.set_default_dtype(before)
    with pytest.raises(pf.DTypeError, match="expected a floating-point dtype"):
        pf.set_default_dtype(pf.int64)


def test_a_jitted_function_follows_the_default_dtype(default_dtype: None) -> None:
    @pf.jit
    def made() -> pf.Tensor:
        return pf.zeros(2) + 1

    assert made().dtype is pf.float32
    pf.set_default_dtype(pf.float64)
    assert made().dtype is pf.float64
    assert "default dtype" in made.reasons[1]


MODES = [pf.no_grad, pf.no_grad(), pf.inference_mode, pf.inference_mode(), pf.inference_mode(True)]


@pytest.mark.parametrize("decorate", MODES)
def test_modes_decorate_functions_and_generators(decorate: object) -> None:
    @decorate
    def plain() -> bool:
        return pf.is_grad_enabled()

    @decorate
    def generate(n: int) -> Iterator[object]:
        for _ in range(n):
            got = yield pf.is_grad_enabled()
            if got is not None:
                yield got
        return "end"

    assert plain() is False and pf.is_grad_enabled()
    steps = generate(2)
    assert next(steps) is False and pf.is_grad_enabled()
    assert steps.send("hello") == "hello"
    assert next(steps) is False
    with pytest.raises(StopIteration, match="end"):
        next(steps)
    assert list(generate(3)) == [False] * 3 and pf.is_grad_enabled()


def test_a_decorated_generator_closes_and_raises_inside() -> None:
    seen: list[object] = []

    @pf.no_grad()
    def generate() -> Iterator[int]:
        try:
            yield 1
            yield 2
        except ValueError as error:
            seen.append((str(error), pf.is_grad_enabled()))
            yield 3
        finally:
            seen.append(pf.is_grad_enabled())

    steps = generate()
    next(steps)
    assert steps.throw(ValueError("oh")) == 3
    steps.close()
    assert seen == [("oh", False), False] and pf.is_grad_enabled()


def test_inference_mode_switched_off_changes_nothing() -> None:
    with pf.inference_mode(False):
        assert pf.is_grad_enabled()
    with pf.no_grad(), pf.inference_mode(mode=False):
        assert not pf.is_grad_enabled()
    with pf.no_grad(), pf.enable_grad():
        assert pf.is_grad_enabled()
