"""Launches of plans as libraries see them, and how they are divided: no device, no library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import pyflame as pf
from pyflame.engine.devices import get_device
from pyflame.engine.libraries.calls import CudnnConvolutions, RocblasProducts
from pyflame.engine.libraries.products import Conv, Gemm, conv_of, gemm_of, merged
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.ir.kernel import Draft
from pyflame.libs.conv import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, ConvSpec
from pyflame.libs.gemm import GemmSpec
from pyflame.schedule.split import Way, alone, divide, may_be_direct, takes


@pytest.fixture(autouse=True)
def _null() -> Iterator[None]:
    with pf.device("null:sm_90"):
        yield


def plan_of(*tensors: pf.Tensor) -> Draft:
    nodes = [t._node for t in tensors]
    return draft_plan(PendingGraph(nodes), get_device(nodes[0].meta.device).target)


def numbers(*shape: int, dtype: str = "float32") -> pf.Tensor:
    made = pf.rand(*shape).to(getattr(pf, dtype))
    pf.eval(made)
    return made


def anchored(plan: Draft) -> int:
    (number,) = [n for n, x in enumerate(plan.launches) if x.kernel.anchor is not None]
    return number


def gemm(tensor: pf.Tensor, tf32: bool = False, take: int = -1) -> Gemm | None:
    """The product that a library would be asked for, with as much behind it as it knows."""
    plan = plan_of(tensor)
    number = anchored(plan)
    found = takes(plan.launches[number].kernel)[take]
    (product,) = divide(plan, {number: Way(found, may_be_direct(plan, plan.launches[number], found))}).values()
    return gemm_of(plan.launches[product], tf32)


def some(found: Gemm | None) -> Gemm:
    assert found is not None
    return found


def test_rows_and_columns() -> None:
    a, b, w = numbers(3, 4, 8), numbers(8, 6), numbers(6, 8)
    assert some(gemm(a @ b)).spec == GemmSpec(12, 6, 8, a=(8, 1, 0), b=(6, 1, 0), c=(6, 1, 0))  # batch axes are rows
    linear = some(gemm(a @ w.T)).spec
    assert (linear.m, linear.b, linear.c) == (12, (1, 8, 0), (6, 1, 0))
    assert some(gemm(a @ b, tf32=True)).spec.tf32
    assert not some(gemm(a.to(pf.float64) @ b.to(pf.float64), tf32=True)).spec.tf32
    stacked = some(gemm(a @ numbers(3, 8, 5))).spec
    assert (stacked.batch, stacked.a, stacked.b, stacked.c) == (3, (8, 1, 32), (5, 1, 40), (5, 1, 20))
    repeated = some(gemm(numbers(4, 8) @ numbers(3, 8, 5))).spec
    assert (repeated.batch, repeated.a) == (3, (8, 1, 0))


def test_heads_of_attention() -> None:
    """Two batch axes that no one stride describes: the larger is the batch, the other is stepped through."""
    q, k = numbers(2, 10, 5, 16, dtype="bfloat16"), numbers(2, 12, 5, 16, dtype="bfloat16")
    found = some(gemm(q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1)))
    assert found.spec == GemmSpec(10, 12, 16, "bfloat16", batch=5, a=(80, 1, 16), b=(1, 80, 16), c=(12, 1, 120))
    assert found.offsets == ((0, 0, 0), (1600, 1920, 1200))
    assert found.aligned == (16, 16, 16, 16)
    odd = some(gemm(q[:, :, :, 1:].permute(0, 2, 1, 3) @ k[:, :, :, 1:].permute(0, 2, 3, 1)))
    assert odd.aligned[:2] == (2, 2)  # one element behind the begin
    many = numbers(80, 1, 3, 4).permute(0, 2, 1, 3) @ numbers(80, 4, 3, 5).permute(0, 2, 1, 3)
    assert gemm(many) is None or len(some(gemm(many)).offsets) <= 64


def test_what_is_behind() -> None:
    a, b, v, c = numbers(4, 8), numbers(8, 6), numbers(6), numbers(4, 6)
    plain = some(gemm(a @ b)).spec
    assert not plain.bias and not plain.activation and plain.beta == 0
    every = some(gemm(pf.gelu(c + (a @ b + v), "tanh")))
    assert (every.spec.bias, every.spec.beta, every.spec.activation) == (True, 1.0, "gelu")
    assert len(every.buffers) == len(every.alignment) == 5
    turned = c.T @ numbers(4, 3) + numbers(3, 6).T
    assert gemm(turned) is None and some(gemm(turned, take=0)).spec.beta == 0  # a sum of another layout is ours

    def product(terms: int) -> pf.Tensor:
        return (numbers(4, terms).to(pf.bfloat16) @ numbers(terms, 6).to(pf.bfloat16)).to(pf.float32)

    wide = some(gemm(product(512) + v))
    assert (wide.spec.dtype, wide.spec.out, wide.spec.bias) == ("bfloat16", "float32", True)
    assert some(gemm(product(8))).spec.out == "float32"
    narrow = some(gemm(product(8) + v))  # what is stored in between is read again: the less the better
    assert (narrow.spec.out, narrow.spec.bias) == ("bfloat16", False)
    assert gemm(a.to(pf.int32) @ b.to(pf.int32)) is None
    assert gemm(numbers(4, 16)[:, ::2] @ b) is None


def test_division() -> None:
    """The bias is computed first, the product goes to memory in between, the rest reads it there."""
    a, b, v, c = numbers(4, 1, 8), numbers(8, 6), numbers(6), numbers(4, 1, 6)
    plan = plan_of(pf.tanh(a @ b + v * 2.0) * c)
    number = anchored(plan)
    whole = plan.launches[number]
    before = plan.arena_bytes
    (product,) = divide(plan, {number: Way(takes(whole.kernel)[-1], False)}).values()
    assert [x.ops for x in plan.launches] == [("mul",), ("matmul", "add"), ("tanh", "mul")]
    assert plan.launches[product].kernel.anchor is not None
    assert plan.arena_bytes - before == 64 + 4 * 6 * 4
    bias, stored, rest = (x.kernel for x in plan.launches)
    assert bias.loops == ((6,),) and rest.loops == ((24,),)
    assert len(stored.stores) == len(rest.stores) == 1
    assert plan.launches[product].flops >= 2 * 4 * 6 * 8
    assert {n for n, _ in plan.launches[2].buffers} & {n for n, _ in plan.launches[product].buffers}


def test_alone() -> None:
    a, b, c = numbers(4, 8), numbers(8, 6), numbers(6, 5)
    plan = plan_of(pf.relu(a @ b) @ c)
    single = alone(plan, 0)
    assert [x.role for x in single.buffers] == ["input", "input", "output"]
    assert len(single.launches) == 1 and len(plan.launches) == 2
    assert plan.buffers[plan.launches[0].buffers[-1][0]].role == "scratch"  # nothing of the plan has changed


def test_merged_axes() -> None:
    assert merged((2, 3, 4), (12, 4, 1), (12, 4, 1)) == [(24, 1, 1)]
    assert merged((2, 3), (3, 1), (1, 2)) == [(2, 3, 1), (3, 1, 2)]
    assert merged((1, 1), (5, 7)) == []


# --- convolutions -----------------------------------------------------------------------------------------------------


def convolutions(
    x: tuple[int, ...], w: tuple[int, ...], transposed: bool = False, dtype: Any = pf.float32, **options: Any
) -> dict[str, ConvSpec]:
    """What libraries would be asked for by a convolution and its gradients, by direction."""
    a, b = numbers(*x).to(dtype).requires_grad_(), numbers(*w).to(dtype).requires_grad_()
    out = getattr(pf, f"conv{'_transpose' if transposed else ''}{len(x) - 2}d")(a, b, **options)
    forward = plan_of(out).launches
    out.backward(numbers(*out.shape).to(dtype))
    assert a.grad is not None and b.grad is not None
    launches = [*forward, *plan_of(a.grad, b.grad).launches]
    found = [conv_of(x, False) for x in launches if x.kernel.anchor and x.kernel.anchor.op.name == "conv_general"]
    return {c.direction: c.spec for c in found if isinstance(c, Conv)}


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((4, 16, 20, 24), (32, 16, 3, 3), dict(padding=1)),
        ((2, 12, 14, 15), (24, 3, 3, 3), dict(padding=(2, 1), groups=4, dilation=2)),
        ((2, 8, 100), (16, 8, 7), dict(padding=3)),
        ((2, 4, 8, 9, 10), (8, 4, 3, 3, 2), dict(padding=(1, 1, 0))),
    ],
    ids=["3x3", "groups and dilation", "one axis", "three axes"],
)
def test_convolutions(x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> None:
    axes = len(x) - 2

    def each(name: str, usual: int) -> tuple[int, ...]:
        value = options.get(name, usual)
        return value if isinstance(value, tuple) else (value,) * axes

    window = (each("stride", 1), each("padding", 0), each("dilation", 1), options.get("groups", 1))
    spec = ConvSpec(x[0], x[1], x[2:], w[0], w[2:], *window)
    assert convolutions(x, w, **options) == dict.fromkeys((FORWARD, BACKWARD_DATA, BACKWARD_FILTER), spec)


ALL = (FORWARD, BACKWARD_DATA, BACKWARD_FILTER)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a library takes convolutions of dilated inputs."""
    monkeypatch.setattr("pyflame.engine.planning._library_takes", lambda device, op: True)


def test_strided_convolutions(whole: None) -> None:
    found = convolutions((2, 8, 31, 29), (16, 8, 3, 5), stride=(2, 3), padding=(2, 1))
    assert found == dict.fromkeys(ALL, ConvSpec(2, 8, (31, 29), 16, (3, 5), (2, 3), (2, 1)))


def test_transposed_convolutions(whole: None) -> None:
    """Forward is the gradient for the input of another convolution, and the other way round."""
    found = convolutions((2, 8, 7, 6), (8, 4, 3, 2), transposed=True, stride=2, padding=1, output_padding=1)
    assert found == dict.fromkeys(ALL, ConvSpec(2, 4, (14, 11), 8, (3, 2), (2, 2), (1, 1)))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((4, 16, 20, 24), (16, 16, 3, 3), dict(padding=1)),
        ((2, 12, 14, 15), (12, 3, 3, 3), dict(padding=(2, 1), groups=4, stride=2)),
        ((2, 4, 8, 9, 10), (4, 4, 3, 3, 2), dict(padding=(1, 1, 0), stride=(1, 2, 2))),
    ],
    ids=["3x3", "groups and stride", "three axes"],
)
def test_channels_last(
    whole: None, transposed: bool, x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]
) -> None:
    """In 16 bits on matrix cores; nothing is copied to another order behind a library."""
    found = convolutions(x, w, transposed, pf.bfloat16, **options)
    assert set(found) == set(ALL) and len(set(found.values())) == 1
    assert all(spec.channels_last and spec.dtype == "bfloat16" for spec in found.values())


def test_what_no_library_convolves() -> None:
    assert not convolutions((2, 8, 9, 9), (4, 8, 2, 2), padding="same").get(FORWARD)  # more padding on one side
    assert conv_of(plan_of(pf.conv2d(numbers(2, 8, 9, 18)[..., ::2], numbers(4, 8, 3, 3))).launches[-1], False) is None
    integers = pf.conv2d(numbers(1, 1, 4, 4).to(pf.int32), numbers(1, 1, 2, 2).to(pf.int32))
    assert conv_of(plan_of(integers).launches[-1], False) is None


# --- what libraries are told ------------------------------------------------------------------------------------------


class Recorder:
    """A library that writes down what it is asked to start."""

    name, version = "recorder", "1"

    def __init__(self) -> None:
        self.started: list[tuple[Any, ...]] = []

    def supports(self, spec: Any, workspace_bytes: int = 0) -> bool:
        return not (getattr(spec, "bias", False) or spec.tf32)

    def propose(self, direction: str, spec: ConvSpec) -> list[SimpleNamespace]:
        asked = dict(direction=direction, spec=spec)
        return [
            SimpleNamespace(engine=1, workspace=1 << 40, deterministic=True, **asked),
            SimpleNamespace(engine=2, workspace=64, deterministic=False, **asked),
            SimpleNamespace(engine=3, workspace=128, deterministic=True, **asked),
        ]

    def matmul(self, *arguments: Any) -> None:
        self.started.append(arguments)

    convolve = matmul


def test_rocblas() -> None:
    q, k = numbers(2, 10, 5, 16), numbers(2, 12, 5, 16)
    c = numbers(2, 5, 10, 12)
    found = some(gemm(c + q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1), tf32=True))
    blas = Recorder()
    (call,) = RocblasProducts(blas).offers(found)
    call.start([1000, 2000, 3000, 4000], 5000, 7)
    specs = {arguments[0] for arguments in blas.started}
    assert len(specs) == 1 and specs.pop() == replace(found.spec, tf32=False)
    size = call.workspace
    assert [a[1:] for a in blas.started] == [
        (1000, 2000, 3000, 0, 7, 5000, size, 4000),
        (1000 + 3200, 2000 + 3840, 3000 + 2400, 0, 7, 5000, size, 4000 + 2400),
    ]
    biased = gemm(numbers(4, 8) @ numbers(8, 6) + numbers(6))
    assert RocblasProducts(blas).offers(some(biased)) == []


def test_cudnn() -> None:
    """Plans that vary or want too much are left out; x, w and y are told by the direction."""
    a, b = numbers(2, 4, 9, 9).requires_grad_(), numbers(6, 4, 3, 3).requires_grad_()
    out = pf.conv2d(a, b)
    forward = plan_of(out).launches[-1]
    out.backward(numbers(*out.shape))
    assert a.grad is not None and b.grad is not None
    backward = [x for x in plan_of(a.grad, b.grad).launches if x.kernel.anchor]
    dnn = Recorder()
    wanted = {FORWARD: (1, 2, 3), BACKWARD_DATA: (3, 2 - 8 * 4, 1), BACKWARD_FILTER: (1, 3, 2)}
    for launch in (forward, *backward):
        conv = conv_of(launch, False)
        assert conv is not None
        (call,) = CudnnConvolutions(dnn).offers(conv, launch)
        assert (call.workspace, call.rank) == (128, 0)
        call.start([1, 2, 3], 4, 5)
        plan, *rest = dnn.started.pop()
        assert (plan.engine, plan.direction, plan.spec) == (3, conv.direction, conv.spec)
        assert tuple(rest[:3]) == wanted.pop(plan.direction)
        assert rest[3:] == [5, 4, 128]
    assert not wanted
