"""Views one by one: what shares memory with what, and what a write through a view means. torch is the oracle."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.errors import PyFlameError
from tests.needs import needs_torch, torch

VIEWS: dict[str, Callable[[Any], Any]] = {
    "integer": lambda x: x[1],
    "slice": lambda x: x[:, 1:3],
    "strided slice": lambda x: x[..., ::2],
    "none": lambda x: x[None, 0],
    "ellipsis": lambda x: x[..., -1],
    "chained": lambda x: x[0][1],
    "view": lambda x: x.view(6, 4),
    "view_as": lambda x: x.view_as(x),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "t": lambda x: x[0].t(),
    "T": lambda x: x[0].T,
    "mT": lambda x: x.mT,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(2, 3),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "chunk": lambda x: x.chunk(2, 2)[1],
    "split": lambda x: x.split([1, 2], 1)[1],
    "tensor_split": lambda x: x.tensor_split(3, 2)[0],
    "unbind": lambda x: x.unbind(1)[2],
    "iteration": lambda x: list(x)[1],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "same dtype": lambda x: x.to(x.dtype),
    "float": lambda x: x.float(),
    "contiguous": lambda x: x.contiguous(),
    "cpu": lambda x: x.cpu(),
    "reshape of a view that fits": lambda x: x[1].reshape(-1),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "clone": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "repeat": lambda x: x.repeat(1, 1, 1),
    "list": lambda x: x[[0, 1]],
    "mask": lambda x: x[x > -100],
    "reshape of a transpose": lambda x: x.transpose(0, 1).reshape(-1),
    "flatten of a slice": lambda x: x[:, :2].flatten(),
    "contiguous transpose": lambda x: x.mT.contiguous(),
    "dtype": lambda x: x.to(x.dtype).double(),
    "deepcopy": copy.deepcopy,
    "sum": lambda x: x + 0,
}


def cube(m: Any) -> Any:
    return m.arange(24, dtype=m.float32).reshape(2, 3, 4).clone()


def same(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


@needs_torch
@pytest.mark.parametrize("make", [*VIEWS.values(), *COPIES.values()], ids=[*VIEWS, *COPIES])
@pytest.mark.parametrize("write", ["v.mul_(-3.0)", "x.sub_(7.0)", "v[...] = 5.0", "x[1, 2] = 0.5"])
def test_a_view_and_its_base_see_each_other_s_writes(make: Callable[[Any], Any], write: str) -> None:
    ours, theirs = cube(pf), cube(torch)
    mine, other = make(ours), make(theirs)
    exec(write, {"x": ours, "v": mine})
    exec(write, {"x": theirs, "v": other})
    same(ours, theirs)
    same(mine, other)


@needs_torch
def test_functions_of_several_tensors_give_a_view_of_each() -> None:
    for m in (pf, torch):
        x, y = m.arange(2, dtype=m.float32), m.zeros(3)
        left, right = m.meshgrid(x, y, indexing="xy")
        (row, column), wide = m.atleast_2d([x, y]), m.broadcast_tensors(y.reshape(3, 1), m.ones(1, 2))[0]
        x.add_(1.0)
        row.mul_(2.0)
        column[0, 1] = 5.0
        m.atleast_3d(y)[0, 2] = 7.0
        assert left.tolist() == [[2, 4]] * 3
        assert right.tolist() == [[0, 0], [5, 5], [7, 7]] == wide.tolist()
        assert y.tolist() == [0, 5, 7]


def test_what_changes_nothing_is_the_tensor_itself() -> None:
    x = pf.zeros(2, 3)
    assert x.contiguous() is x
    assert x.float() is x
    assert x.to(pf.float32) is x
    assert x.mT.contiguous() is not x
    assert x[0].contiguous()._link.parent is x


@needs_torch
def test_view_raises_where_torch_needs_a_copy() -> None:
    with pytest.raises(pf.ShapeError, match=r"\[view\] .* use reshape"):
        pf.zeros(2, 3).t().view(-1)
    with pytest.raises(RuntimeError):
        torch.zeros(2, 3).t().view(-1)


@needs_torch
@pytest.mark.parametrize("mode", [nullcontext, pf.eager])
def test_expanded_views_take_one_number_and_refuse_more(mode: Any) -> None:
    for m, context in ((pf, mode), (torch, nullcontext)):
        with context():
            fill_expanded(m)


def fill_expanded(m: Any) -> None:
    x = m.zeros(3, 1)
    wide = x.expand(3, 4)
    wide.fill_(2.0)
    assert x.tolist() == [[2], [2], [2]]
    wide[:, 0].mul_(2.0)  # each element once
    assert wide.tolist() == [[4] * 4] * 3
    with pytest.raises((pf.ArgumentError, RuntimeError), match="clone"):
        wide.add_(m.ones(3, 4))


# --- gradients --------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize(
    "body",
    [
        "y[0].mul_(2)",
        "y[0].mul_(x[1])",
        "v = y.t(); v[1:].mul_(3); y = y + v.t()",
        "v = y[:1]; y.mul_(2); y = y * 1 + v",
        "y.view(-1)[2] = 7",
        "y[0] += 1; y[0] *= 3",
        "y.detach().add_(5)",
        "y.data[0] = 9",
        "d = y.detach(); d[0] = 9; y[1].add_(d[0])",
        "y[:, 0] = x[:, 1]",
        "y.diagonal().mul_(4)",
        "v = y[0]; w = v[1:]; v.mul_(2); w.mul_(x[0, 0]); y[1].add_(v)",
    ],
)
def test_gradients_of_writes_through_views(body: str) -> None:
    found = []
    for m in (pf, torch):
        x = (m.arange(6, dtype=m.float64) + 1).reshape(2, 3).clone().requires_grad_()
        names = {"x": x, "y": x * 1}
        exec(body, names)
        (names["y"] * (m.arange(6, dtype=m.float64).reshape(2, 3) + 1)).sum().backward()
        found.append((names["y"].detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize("write", ["p[0].zero_()", "p.view(-1).add_(1)", "p.t()[0] = 2.0", "p.add_(1)"])
def test_views_of_leaves_are_written_without_recording_only(write: str) -> None:
    p = nn.Parameter(pf.ones(2, 3))
    with pytest.raises(pf.GradientError, match="no_grad"):
        exec(write, {"p": p})
    assert p.tolist() == [[1, 1, 1], [1, 1, 1]]
    with pf.no_grad():
        exec(write, {"p": p})
    assert p.tolist() != [[1, 1, 1], [1, 1, 1]]
    assert p.is_leaf
    (p * 2).sum().backward()
    assert p.grad.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_values_saved_for_backward_are_those_of_then() -> None:
    """torch raises here; a value that the tape needs is an immutable node, so the gradient is right."""
    x = pf.tensor([2.0, 3.0], requires_grad=True)
    y = x * 1
    z = y * y
    y[0].fill_(100.0)
    z.sum().backward()
    assert x.grad.tolist() == [4, 6]


@pytest.mark.slow(16)
def test_a_detached_tensor_keeps_no_tape_alive() -> None:
    x = pf.ones(3, requires_grad=True)
    y = (x * 2).exp()
    tape = weakref.ref(y)
    kept = y.detach()
    follows = kept[1:]
    del y
    gc.collect()
    assert tape() is None
    kept.fill_(4.0)
    assert follows.tolist() == [4, 4]
    late = pf.zeros(3)
    shadow = late.detach()
    late.add_(x)
    entry = late._entry
    assert entry is not None
    held = weakref.ref(late)
    del late
    gc.collect()
    assert held() is None
    assert shadow.tolist() == [1, 1, 1]


# --- memory -----------------------------------------------------------------------------------------------------------


def address(x: pf.Tensor) -> int:
    pf.eval(x)
    return x._node.data.address  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "write",
    ["a[:2].fill_(i)", "a[0][1] = i", "a.view(-1)[3:5].fill_(i)", "a.t()[1].copy_(pf.ones(4))", "v[1].mul_(2)",
     "a.t()[1].mul_(2)", "a[1][2:].add_(i)", "a.data[1] = i", "v.detach()[0, 1:] = i"],
)  # fmt: skip
def test_a_loop_of_writes_through_views_stays_in_one_buffer(write: str) -> None:
    a = pf.zeros(4, 5).clone()
    v = a[1:]
    where = address(a)
    for i in range(4):
        exec(write, {"a": a, "v": v, "i": float(i), "pf": pf})
        assert address(a) == where
    assert v.tolist() == a.tolist()[1:]


def test_views_that_are_gone_are_forgotten() -> None:
    a = pf.zeros(4, 5)
    for _ in range(1000):
        a[1]
    assert len(a._link.views) < 100


def test_a_write_to_one_element_copies_no_row() -> None:
    """`a[0][1] = 5` is one assignment of one element to `a`."""
    a = pf.zeros(3, 1000)
    pf.eval(a)
    a[0][1] = 5.0
    node = a._node
    assert node.op.name == "assign"
    assert node.attrs[0] == ((0, 1, 1), (1, 1, 1))
    assert node.srcs[0].op.name != "assign"


# --- data, parameters and state dicts ---------------------------------------------------------------------------------


@needs_torch
def test_assigning_data_shares_the_other_s_memory() -> None:
    for m, modules in ((pf, nn), (torch, torch.nn)):
        p, other = modules.Parameter(m.zeros(3)), m.ones(3)
        before, row = p.detach(), p.data[1:]
        p.data = other
        before.fill_(7.0)
        assert row.tolist() == [7, 7]
        assert p.tolist() == [1, 1, 1]
        other.mul_(2.0)
        assert p.tolist() == [2, 2, 2]
        p.data.add_(1.0)
        assert other.tolist() == [3, 3, 3]
        base = m.zeros(2, 3)
        p.data = base[1]
        p.data.fill_(5.0)
        assert base.tolist() == [[0, 0, 0], [5, 5, 5]]
        p.data = m.zeros(5)
        assert tuple(p.shape) == (5,)
        (p * 2).sum().backward()
        assert p.grad.tolist() == [2] * 5


def test_updates_of_data_in_place_keep_the_parameter_where_it_is() -> None:
    p = nn.Parameter(pf.ones(3))
    step = pf.jit(lambda: (p * 2).sum())
    for _ in range(3):
        (p * p).sum().backward()
        p.data -= 0.25 * p.grad
        p.data[0] += 1.0
        p.grad.data.zero_()
        assert p.grad.tolist() == [0, 0, 0]
        step()
    assert p._link.parent is None
    assert step.traces == 1
    np.testing.assert_allclose(p.tolist(), [1.875, 0.125, 0.125])


@needs_torch
def test_a_parameter_shares_the_memory_of_what_it_is_made_of() -> None:
    for m, modules in ((pf, nn), (torch, torch.nn)):
        t = m.zeros(2, 2)
        row = t[0]
        p = modules.Parameter(t)
        t.add_(1.0)
        p.data.mul_(3.0)
        assert t.tolist() == p.tolist() == [[3, 3], [3, 3]]
        row.zero_()
        assert p.tolist() == [[0, 0], [3, 3]]


@needs_torch
def test_weights_are_loaded_as_nanogpt_loads_them() -> None:
    """`sd[k].copy_(...)` under no_grad, transposed for some."""
    found = []
    for m, modules in ((pf, nn), (torch, torch.nn)):
        model = modules.Sequential(modules.Linear(3, 4), modules.LayerNorm(4), modules.Linear(4, 2, bias=False))
        given = {k: m.arange(v.numel(), dtype=m.float32).reshape(v.shape) for k, v in model.state_dict().items()}
        given["0.weight"] = given["0.weight"].reshape(3, 4)
        sd = model.state_dict()
        for k in sd:
            with m.no_grad():
                sd[k].copy_(given[k].t() if k == "0.weight" else given[k])
        found.append([p.tolist() for p in model.parameters()])
        assert all(p.requires_grad for p in model.parameters())
    assert found[0] == found[1]


@needs_torch
def test_initialisation_through_data() -> None:
    found = []
    for m, modules in ((pf, nn), (torch, torch.nn)):
        layer, embedding = modules.Linear(3, 2), modules.Embedding(4, 3)
        layer.weight.data.fill_(0.5)
        layer.weight.data[1] = 2.0
        layer.bias.data.zero_()
        embedding.weight.data[0].zero_()
        embedding.weight.data[1:].fill_(1.0)
        modules.init.constant_(layer.weight.data[0], 3.0)
        modules.init.zeros_(embedding.weight.data[3])
        for p in layer.parameters():
            p.data.clamp_(-1.0, 2.5)
        out = layer(embedding(m.tensor([0, 1, 3])))
        found.append(out.tolist())
    assert found[0] == found[1]


def test_init_functions_write_through_data() -> None:
    layer = nn.Linear(30, 20)
    layer.weight.data.normal_(mean=5.0, std=0.1)
    assert abs(layer.weight.mean().item() - 5.0) < 0.1
    nn.init.uniform_(layer.weight.data, 2.0, 3.0)
    assert 2.0 <= layer.weight.min().item() <= layer.weight.max().item() <= 3.0


@needs_torch
def test_an_average_of_a_state_dict() -> None:
    found = []
    for m, modules in ((pf, nn), (torch, torch.nn)):
        model, shadow = modules.Linear(2, 1), modules.Linear(2, 1)
        for number, module in enumerate((model, shadow)):
            for p in module.parameters():
                p.data.fill_(number + 1.0)
        with m.no_grad():
            theirs = model.state_dict()
            for key, value in shadow.state_dict().items():
                value.mul_(0.9).add_(theirs[key], alpha=0.1)
            for a, b in zip(shadow.parameters(), model.parameters(), strict=True):
                a.data.mul_(0.5).add_(b.data * 0.5)
        found.append([p.tolist() for p in shadow.parameters()])
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)


def test_tied_weights_stay_tied() -> None:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    head.state_dict()["weight"].fill_(2.0)
    assert (embedding.weight.numpy() == 2.0).all()
    other = nn.Linear(3, 5, bias=False)
    other.weight.data = embedding.weight.data
    embedding.weight.data.mul_(3.0)
    assert (other.weight.numpy() == 6.0).all()
    optimizer = pf.optim.SGD(other.parameters(), lr=1.0)
    other(pf.ones(1, 3)).sum().backward()
    optimizer.step()
    assert (embedding.weight.numpy() == 5.0).all()
    assert (head.weight.numpy() == 5.0).all()


def test_a_converted_module_leaves_old_views_behind() -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.data
    layer.double()
    before.zero_()
    assert layer.weight.dtype is pf.float64
    assert layer.weight.abs().sum().item() > 0
    layer.weight.data.fill_(1.0)
    assert before.tolist() == [[0, 0], [0, 0]]


# --- jit, checkpoint, copies ------------------------------------------------------------------------------------------


def test_jit_writes_through_views_of_state_and_arguments() -> None:
    cache = pf.zeros(3, 4)
    row = cache[1]

    @pf.jit
    def step(x: pf.Tensor, buffer: pf.Tensor) -> pf.Tensor:
        row.add_(x)
        cache.t()[0].mul_(2.0)
        buffer[0].copy_(row)
        return row.sum()

    given = pf.zeros(2, 4).clone()
    seen, tail = cache.view(-1), given[0, 2:]
    for _ in range(4):
        total = step(pf.ones(4), given)
    assert row.tolist() == [30, 4, 4, 4] == cache[1].tolist() == seen.tolist()[4:8] == given[0].tolist()
    assert tail.tolist() == [4, 4]
    assert total.item() == 42
    assert step.traces == 1


def test_jit_refuses_arguments_that_share_memory_with_what_it_writes() -> None:
    x = pf.zeros(4)
    write = pf.jit(lambda a, b: a.add_(b))
    write(x, pf.ones(4))
    with pytest.raises(pf.TraceError, match="share no memory"):
        write(x, x.view(-1))
    step = pf.jit(lambda a: x.add_(a))
    step(pf.ones(4))
    with pytest.raises(pf.TraceError, match="share no memory"):
        step(x[:])
    assert x.tolist() == [2, 2, 2, 2]


def test_what_a_jitted_function_returns_is_a_value_of_its_own() -> None:
    x = pf.zeros(3)
    read = pf.jit(lambda: x[1:])
    out = read()
    out.fill_(1.0)
    assert x.tolist() == [0, 0, 0]
    x.fill_(2.0)
    assert read().tolist() == [2, 2]
    assert read.traces == 1


def test_checkpoint_writes_once() -> None:
    seen, x = pf.zeros(2, 3), pf.ones(3, requires_grad=True)
    row = seen[1]

    def fn(x: pf.Tensor, count: pf.Tensor) -> pf.Tensor:
        with pf.no_grad():
            row.add_(x)
            count[0].add_(1.0)
        return (x * 2).exp()

    count = pf.zeros(2)
    pf.checkpoint(fn, x, count).sum().backward()
    assert seen.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert row.tolist() == [1, 1, 1]
    assert count.tolist() == [1, 0]
    np.testing.assert_allclose(x.grad.numpy(), np.full(3, 2 * np.e**2), rtol=1e-6)


def test_copies_and_pickles_share_as_in_torch() -> None:
    x = pf.zeros(3)
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    x.fill_(1.0)
    assert shallow.tolist() == [1, 1, 1]
    assert deep.tolist() == [0, 0, 0]
    layer = nn.Linear(2, 2)
    other = copy.deepcopy(layer)
    layer.weight.data.fill_(3.0)
    assert (other.weight.numpy() != 3.0).any()


def test_parts_of_complex_numbers() -> None:
    found = []
    for m in (pf, torch):
        z = m.tensor([[1 + 2j, 3 - 4j], [5j, 6]])
        real, turned = z.real, z.T.imag
        real.mul_(2)
        z.imag[0] = 7.0
        z.real[:, 1].add_(1)
        turned[0, 1] = -1
        z.mul_(1j)
        x = m.tensor([1 + 1j, 2.0]).requires_grad_()
        y = x * 1
        y.real.mul_(3)
        (y.real.sum() + y.imag.sum()).backward()
        found.append([z.tolist(), real.tolist(), turned.tolist(), x.grad.tolist()])
    assert found[0] == found[1]


def test_parts_of_what_is_in_memory_keep_their_values_and_follow_writes() -> None:
    """A part that was read before is memory, not an op: writes copy it for those who read the old value."""
    x = pf.arange(12.0).reshape(3, 4).contiguous()
    pf.eval(x)
    for _ in range(3):
        x[1], x[1, 2:], x[2, 3]
    part, later = x[1], x[1] * 2
    flat = x[1].reshape(2, 2)
    x[1, 0] = 50
    assert part.tolist() == [50, 5, 6, 7] and flat.tolist() == [[50, 5], [6, 7]]
    assert later.tolist() == [8, 10, 12, 14]
    part[1] = 60
    assert x[1].tolist() == [50, 60, 6, 7] and x[1, 1].item() == 60
    column = x.t()[1]
    x.mul_(2)
    assert column.tolist() == [2, 120, 18] and part.tolist() == [100, 120, 12, 14]


def test_writes_through_a_view_in_a_loop_do_not_copy_the_tensor() -> None:
    x = pf.ones(1 << 20)
    pf.eval(x)
    peaks = []
    for _ in range(5):
        x[1:].mul_(2)
        pf.reset_peak_memory_stats("cpu")
        pf.eval(x)
        peaks.append(pf.memory_stats("cpu").peak_allocated)
    assert peaks[-1] < peaks[0] + (1 << 20) and x[7].item() == 32


def test_a_view_op_that_is_found_again_asks_for_whole_numbers_still() -> None:
    x = pf.arange(6).reshape(2, 3)
    for _ in range(2):
        assert x.view(3, 2).shape == (3, 2)
        assert x.transpose(0, 1).shape == (3, 2)
        with pytest.raises(PyFlameError):
            x.view(3.0, 2)  # equal to 3, and no size
        with pytest.raises(PyFlameError):
            x.transpose(0.0, 1)


@pytest.mark.parametrize("read", ["transpose", "chunk", "unbind", "flatten"])
def test_a_view_op_that_is_found_again_gives_another_view(read: str) -> None:
    arguments = {"transpose": (0, 1), "chunk": (2, 1), "unbind": (), "flatten": ()}[read]
    for number in range(3):
        x = pf.zeros(2, 4)
        out = getattr(x, read)(*arguments)
        first = out if isinstance(out, pf.Tensor) else out[0]
        first.fill_(number)
        x[0, 0] += 1
        assert first.flatten()[0].item() == x[0, 0].item() == number + 1


def test_a_view_op_that_is_found_again_is_recorded_where_a_gradient_is_wanted() -> None:
    plain, leaf = pf.ones(2, 4), pf.ones(2, 4, requires_grad=True)
    for x in (plain, leaf, plain, leaf):
        parts = x.chunk(2, dim=1)
        assert [part.requires_grad for part in parts] == [x is leaf] * 2
        with pf.no_grad():
            assert not x.chunk(2, dim=1)[0].requires_grad
    (parts[1] * 3).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[0, 0, 3, 3]] * 2


def test_a_view_of_a_view_that_is_found_again_is_a_copy_where_torch_copies() -> None:
    x = pf.arange(6).reshape(2, 3)
    for base, shared in ((x, True), (x.t(), False), (x.t().contiguous(), True)):
        flat = base.reshape(6)
        flat[0] = 7
        assert (base[0, 0].item() == 7) is shared
        base[0, 0] = 0
