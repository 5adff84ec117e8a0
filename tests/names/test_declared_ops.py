"""Ops that programs declare by a schema and give kernels apart: torch.library, run with torch and with PyFlame."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pyflame as pf

pytestmark = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
LIBRARIES = pytest.mark.parametrize("lib", [torch, pf], ids=["torch", "pyflame"])


def gradient(lib: Any, fn: Any) -> Any:
    y = lib.ones(2, requires_grad=True)
    return lib.autograd.grad(fn(y).sum(), y)[0].tolist()


@LIBRARIES
def test_define_and_impl(lib: Any) -> None:
    mine = lib.library.Library("declared_one", "DEF")
    assert mine.define("scale(Tensor x, float by=2.0, *, int? n=None) -> Tensor") == "scale"
    scale, x = lib.ops.declared_one.scale, lib.ones(2)
    with pytest.raises(NotImplementedError):
        scale(x)
    mine.impl("scale", lambda x, by=2.0, *, n=None: x * by + (n or 0), "CPU")
    assert [scale(x).tolist(), scale(x, 3.0, n=2).tolist(), scale.default(x, by=3.0).tolist()] == [
        [2, 2],
        [5, 5],
        [3, 3],
    ]
    for wrong in (lambda: scale(), lambda: scale(x, 1.0, 2), lambda: scale(x, other=1)):
        with pytest.raises(RuntimeError):
            wrong()
    assert gradient(lib, scale) == [2, 2]  # that of what the kernel calls
    lib.library.register_autograd("declared_one::scale", lambda ctx, g: (g * 7, None), lib=mine)
    assert gradient(lib, scale) == [7, 7]
    with pytest.raises(NotImplementedError):
        scale(x.to("meta")).tolist()
    mine.impl("scale", lambda x, by=2.0, *, n=None: lib.empty(5, device="meta"), "Meta")
    assert tuple(scale(x.to("meta")).shape) == (5,)
    assert not hasattr(lib.ops.declared_one, "another") and "IMPL" in repr(lib.library.Library("a", "IMPL", "CPU"))


@LIBRARIES
def test_functions_of_the_library(lib: Any) -> None:
    lib.library.define("declared_two::f", "(Tensor x) -> Tensor")

    @lib.library.impl("declared_two::f", "default")
    def f(x: Any) -> Any:
        return x + 1

    assert lib.ops.declared_two.f(lib.ones(2)).tolist() == [2, 2]
    lib.library.register_kernel("declared_two::f", "cpu", lambda x: x * 50)
    assert lib.ops.declared_two.f(lib.ones(2)).tolist() == [50, 50]
    lib.library.register_fake("declared_two::f", lambda x: x.new_empty(7))
    assert tuple(lib.ops.declared_two.f(lib.ones(2, device="meta")).shape) == (7,)
    with pytest.raises(RuntimeError):
        lib.library.define("declared_two::f", "(Tensor x) -> Tensor")
    for name, schema in [("declared_two", "(Tensor x) -> Tensor"), ("declared_two::g", "Tensor x")]:
        with pytest.raises(ValueError):
            lib.library.define(name, schema)
    with pytest.raises(ValueError):
        lib.library.Library("declared_two", "NO")


@LIBRARIES
def test_overloads_defaults_and_keys(lib: Any) -> None:
    mine, x = lib.library.Library("declared_three", "FRAGMENT"), lib.ones(2)
    mine.define("ov.one(Tensor x) -> Tensor")
    mine.define("ov.two(Tensor x, Tensor y) -> Tensor")
    mine.impl("ov.one", lambda x: x + 1, "CPU")
    mine.impl("ov.two", lambda x, y: x * 100, "CPU")
    ov = lib.ops.declared_three.ov
    assert [ov(x).tolist(), ov(x, x).tolist(), ov.two(x, x).tolist()] == [[2, 2], [100, 100], [100, 100]]
    assert ov.overloads() == ["one", "two"]

    seen: list[Any] = []
    mine.define(
        "o(Tensor[] xs, Tensor? y=None, bool f=True, str s='a', Scalar q=1, int[2] k=[1, 2]) -> (Tensor, Tensor)"
    )

    def o(xs: Any, y: Any = None, f: Any = True, s: Any = "a", q: Any = 1, k: Any = (1, 2)) -> Any:
        seen.append((y, f, s, q, list(k)))
        return xs[0], xs[1]

    mine.impl("o", o, "CompositeExplicitAutograd")
    first, second = lib.ops.declared_three.o([x, x * 2])
    assert (first.tolist(), second.tolist(), seen) == ([1, 1], [2, 2], [(None, True, "a", 1, [1, 2])])


@LIBRARIES
def test_kernels_above_autograd_and_autocast(lib: Any) -> None:
    mine = lib.library.Library("declared_four", "FRAGMENT")
    mine.define("a(Tensor x) -> Tensor")
    mine.impl("a", lambda x: x * 2, "CPU")
    a = lib.ops.declared_four.a

    class Above(lib.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with lib._C._AutoDispatchBelowAutograd():
                return a(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 11

    mine.impl("a", Above.apply, "Autograd")
    assert gradient(lib, a) == [11, 11]
    keys = lib._C.DispatchKeySet(lib._C.DispatchKey.AutocastCPU) | lib._C.DispatchKeySet(
        lib._C.DispatchKey.AutocastCUDA
    )

    def cast(x: Any) -> Any:
        with lib._C._ExcludeDispatchKeyGuard(keys):
            return a(x.float()) + 1

    mine.impl("a", cast, "AutocastCPU")
    with lib.autocast("cpu", dtype=lib.bfloat16):
        assert a(lib.ones(2, dtype=lib.bfloat16)).tolist() == [3, 3]
    assert a(lib.ones(2)).tolist() == [2, 2] and keys.has(lib._C.DispatchKey.AutocastCUDA)
