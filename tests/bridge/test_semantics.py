"""What torch promises beside values: writes, aliases, seeds, autocast, shapes that change, ops that are not ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib
import torch
from torch import nn

import pyflame as pf
import pyflame.bridge.torch as bridge
from pyflame.bridge.torch.program import memory_order
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DeviceError


def compiled(fn: Any, **kwargs: Any) -> Any:
    return torch.compile(fn, backend="pyflame", fullgraph=True, **kwargs)


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["pyflame"].partition(":")
    assert module == "pyflame.bridge.torch" and getattr(bridge, name) is bridge.backend
    assert "pyflame" in torch._dynamo.list_backends()


def test_writes_to_arguments_come_back() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        x[0] = 7
        return x.sum()

    x = torch.ones(2, 3)
    assert float(compiled(fn)(x)) == 27
    assert x.tolist() == [[7, 7, 7], [2, 2, 2]]


def test_results_share_memory_as_in_eager() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y.t(), y[0], x.view(-1), x + 1

    x = torch.randn(3, 4)
    y, turned, row, flat, other = compiled(fn)(x)
    assert flat.data_ptr() == x.data_ptr()
    y.add_(1)
    assert torch.equal(turned.t(), y) and torch.equal(row, y[0])
    assert torch.equal(other, x + 1)  # one value to the plan, two tensors to torch


def test_results_may_be_written_to() -> None:
    fn = compiled(lambda x: (x * 2, torch.zeros(3), torch.ones(2).expand(3, 2), x.flip(0)))
    x = torch.arange(4.0)
    for out in fn(x):
        out.add_(5)
    want = (x * 2, torch.zeros(3), torch.ones(3, 2), x.flip(0))
    assert all(torch.equal(g, w) for g, w in zip(fn(x), want, strict=True))


def test_weights_are_shared_and_seen_when_they_change() -> None:
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    forward = compiled(layer)
    forward(x)
    with torch.no_grad():
        layer.weight.mul_(3)
    torch.testing.assert_close(forward(x), layer(x))


@pytest.mark.parametrize("make", [nn.Dropout, nn.Dropout2d])
def test_random_ops_follow_torchs_seed(make: Any) -> None:
    drop = compiled(make(0.3))
    x = torch.ones(8, 64, 2, 2, requires_grad=True)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first) and not torch.equal(first, second)
    assert 0.2 < float((first == 0).float().mean()) < 0.4
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())


def test_autocast_is_in_the_graph() -> None:
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = compiled(layer)(x), layer(x)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got, want)


def test_shapes_that_change_are_planned_one_by_one() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.reshape(x.shape[0] * 2, -1) + x.shape[1], -1).sum(0)

    forward = torch.compile(fn, backend="pyflame", fullgraph=True)
    for rows in (4, 6, 10, 6):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(forward(x), fn(x))


@pytest.mark.slow
def test_shapes_that_change_in_training() -> None:
    """The sizes that the backward graph reads are results of the forward graph."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (torch.linalg.inv(x @ x.mT + torch.eye(x.shape[0])).reshape(-1, 2).sin() * x.shape[1]).sum()

    forward = compiled(fn, dynamic=True)
    for size in (4, 6):
        x = torch.randn(size, 8, requires_grad=True)
        got, want = (torch.autograd.grad(f(x), x)[0] for f in (forward, fn))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_memory_order_is_kept() -> None:
    conv = nn.Conv2d(3, 4, 3, padding=1)
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    got, want = compiled(conv)(x), conv(x)
    assert got.stride() == want.stride() == (100, 1, 20, 4)
    torch.testing.assert_close(got, want)
    assert memory_order(torch.empty(2, 3)) is None and memory_order(torch.empty(2, 3).t()) == (1, 0)
    assert memory_order(torch.empty(1).expand(4)) is None  # no order of dense memory


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.int32, torch.bool, torch.complex64])
def test_dtypes(kind: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, 2.0]).to(kind)

    def fn(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return t + t, t == t, torch.cat([t, t])

    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        assert got.dtype is want.dtype
        torch.testing.assert_close(got, want)


def test_what_is_not_ours_runs_in_torch_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (torch.fake_quantize_per_tensor_affine(x.sin() + 3 * torch.eye(3), 0.1, 0, -128, 127) * 2).cos()

    x = torch.randn(3, 3, requires_grad=True)
    told = bridge.explain(fn, x)
    assert any("fake_quantize" in op for op in told.fallbacks)
    assert told.graphs[0].here >= 4 and {g.kind for g in told.graphs} == {"forward", "backward"}
    assert "torch runs aten.fake_quantize" in capsys.readouterr().out
    got, want = torch.compile(fn, backend="pyflame")(x), fn(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    left, right = (torch.autograd.grad(out.sum(), x)[0] for out in (got, want))
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_a_dtype_that_is_not_ours_runs_in_torch() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float8_e5m2fnuz).to(torch.int32) + 1

    assert "float8_e5m2fnuz" in str(bridge.explain(fn, torch.arange(4)))
    assert compiled(fn)(torch.arange(4)).tolist() == [1, 2, 3, 4]


def test_explain_names_graph_breaks() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    told = bridge.explain(fn, torch.ones(3))
    assert len(told.graphs) == 2 and len(told.breaks) == 1 and not told.fallbacks


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"devise": "cpu"}, ArgumentError),
        ({"deterministic": 1}, ArgumentTypeError),
        ({"device": "rocm:99"}, DeviceError),
    ],
)
def test_options_are_checked(options: dict[str, Any], kind: type[Exception]) -> None:
    forward = torch.compile(lambda x: x + 1, backend="pyflame", options=options)
    with pytest.raises(Exception, match="expected") as caught:
        forward(torch.ones(2))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), kind)


def test_options_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyflame.core.state import state

    seen: list[Any] = []
    monkeypatch.setattr(pf, "sin", lambda x, fn=pf.sin: seen.append((state.deterministic, state.libraries)) or fn(x))
    from pyflame.bridge.torch import table

    table._named.cache_clear()
    try:
        options = {"deterministic": True, "libraries": "none", "device": "cpu"}
        assert compiled(lambda x: x.sin(), options=options)(torch.zeros(2)).tolist() == [0, 0]
    finally:
        table._named.cache_clear()
    assert seen[-1] == (True, "none") and not state.deterministic and state.libraries is None


def test_several_devices_are_refused() -> None:
    from pyflame.bridge.torch.crossing import only_device

    assert only_device([torch.device("cpu")]) == torch.device("cpu")
    with pytest.raises(DeviceError, match="cpu and cuda:0"):
        only_device([torch.device("cpu"), torch.device("cuda:0")])


def test_a_bad_index_raises() -> None:
    with pytest.raises(IndexError, match="index"):
        compiled(lambda x, i: x[i] + 1)(torch.ones(3), torch.tensor([5]))
