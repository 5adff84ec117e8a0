"""Calls and steps of backward walks whose outcome is known, in C (engine/calls.c), against the same in Python."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.autograd import Entry, known_steps, parts
from pyflame.doctor.samples import cases
from pyflame.engine import host, native
from pyflame.engine.devices import cpu
from pyflame.engine.ownership import reliable
from pyflame.engine.value import Value
from pyflame.ir import OPS, Node, recipe
from pyflame.tensor import Tensor, dispatch, known_calls, known_views
from pyflame.tensor import tensor as tensor_module
from pyflame.tensor.dispatch import FUNCTIONS

FAMILIES = sorted({op.fn.__module__.rpartition(".")[2] for op, _, _ in cases()} - {"random"})


@pytest.fixture(autouse=True)
def _loaded() -> None:
    if not reliable():
        pytest.skip("without the GIL they stay in Python")
    native.load()
    assert known_calls.CALLS.made is not None and known_steps.STEPS.made is not None


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        made = pf.tensor(value)
        return made.requires_grad_() if made.dtype.is_float else made
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(_tensors, value))
    return value


def _described(out: Any) -> Any:
    """All that can be told of Tensors: their graph, and what the tape holds."""
    if isinstance(out, (list, tuple)):
        return type(out), [_described(o) for o in out]
    if not isinstance(out, Tensor):
        return out
    numbers: dict[int, int] = {}
    found: list[Any] = []

    def node(n: Node | None) -> Any:
        if n is None or id(n) in numbers:
            return n and numbers[id(n)]
        srcs = [node(s) for s in n.srcs]
        numbers[id(n)] = len(numbers)
        data = n.data
        if isinstance(data, Value):
            data = id(data.storage), data.offset
        found.append((n.op, srcs, n.attrs, n.meta, n.sig, repr(data), n.line))
        return numbers[id(n)]

    def entry(e: Any) -> Any:
        if type(e) is not Entry:
            return e if e is None else id(e)
        if id(e) not in numbers:
            parents = [entry(p) for p in e.parents]
            numbers[id(e)] = len(numbers)
            kept = [node(s) for s in e.srcs], node(e.out)
            found.append((e.op, e.attrs, parents, e.metas, e.meta, *kept, e.freed, e.hooks))
        return numbers[id(e)]

    return type(out), node(out._node), entry(out._entry), found, out._link is None, out._grad


def _learnt(call: Callable[[], Any]) -> Any:
    """What a call gives that was learnt from others."""
    return [call() for _ in range(recipe.SELDOM + 3)][-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_makes_what_python_makes(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample of every op. Random ones give something else each time."""
    for op, _, sample in cases():
        if op.fn.__module__.rpartition(".")[2] != family or op.name not in FUNCTIONS:
            continue
        args, kwargs = _tensors(sample.args), {k: _tensors(v) for k, v in sample.kwargs.items()}

        def call(name: str = op.name, args: Any = args, kwargs: Any = kwargs) -> Any:
            return FUNCTIONS[name](*args, **kwargs)

        found = _described(_learnt(call))
        with monkeypatch.context() as patched:
            patched.setattr(known_calls.CALLS, "made", None)
            assert found == _described(call()), op.name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_makes_what_python_makes(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for op, _, sample in cases():
        if op.fn.__module__.rpartition(".")[2] != family or op.name not in FUNCTIONS:
            continue
        args, kwargs = _tensors(sample.args), {k: _tensors(v) for k, v in sample.kwargs.items()}
        leaves = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        if not sample.grad or not leaves:
            continue

        def gradients(name: str = op.name, args: Any = args, kwargs: Any = kwargs, leaves: Any = leaves) -> Any:
            out = FUNCTIONS[name](*args, **kwargs)
            if not isinstance(out, Tensor) or not out.requires_grad or out.dtype.is_complex:
                return None
            return _described(list(pf.autograd.grad((out * 0.5).sum(), leaves, allow_unused=True)))

        found = _learnt(gradients)
        with monkeypatch.context() as patched:
            patched.setattr(known_calls.CALLS, "made", None)
            patched.setattr(known_steps.STEPS, "made", None)
            assert found == gradients(), op.name


SUMS: dict[str, Callable[[Tensor], Any]] = {
    "used often": lambda x: x.exp() * x.sin() + x * x,
    "of constants": lambda x: x * 2.0 + x * 3.0,
    "of parts": lambda x: x[0] * x[1] + x[1].exp() * x[0].sin(),
    "of parts that overlap": lambda x: x[:2].exp().sum() + x[1:].sin().sum() * x[0, 0],
    "of a part and the whole": lambda x: x[0].exp() * x.sum() + (x * x).sum(),
    "in 16 bits": lambda x: (lambda h: h * h.exp() + h)(x.to(pf.float16)),
}


@pytest.mark.parametrize("name", SUMS)
def test_gradients_are_added_as_in_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _list(3, 4).requires_grad_()

    def gradient() -> Any:
        (g,) = pf.autograd.grad(SUMS[name](x).sum(), x)
        return _described(g), pf.nn.functional.relu(g).tolist()

    found = _learnt(gradient)
    monkeypatch.setattr(known_calls.CALLS, "made", None)
    monkeypatch.setattr(known_steps.STEPS, "made", None)
    assert found == gradient()


def test_gradients_are_added_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = _list(5).requires_grad_(), _list(5).to("null").requires_grad_()
    _learnt(lambda: pf.autograd.grad((x.exp() * x.sin()).sum(), x))
    monkeypatch.setattr(parts, "F", None)  # by which Python would add
    asked: list[Any] = []
    monkeypatch.setattr(known_steps, "added", lambda *pair: asked.append(pair) or parts.added(*pair))
    pf.autograd.grad((x.exp() * x.sin()).sum(), x)
    assert not asked
    _learnt(lambda: pf.autograd.grad((y.exp() * y.sin()).sum(), y))
    assert asked  # on another device Python says where they are added


READS: dict[str, Callable[[Tensor], Any]] = {
    "number": lambda x: x[1],
    "numbers": lambda x: x[-1, 2],
    "slices": lambda x: x[1:3, ::2],
    "all": lambda x: x[..., None, 1:],
    "of a view": lambda x: x[1:3][1, 2:],
    "of a turned one": lambda x: x.T[2:4].reshape(2, 4)[1],
    "shape": lambda x: x.reshape(2, -1),
    "turned": lambda x: x.transpose(0, 1),
    "parts": lambda x: x.chunk(2, dim=1),
    "names": lambda x: x.unsqueeze(dim=0).permute(1, 0, 2),
    "the same": lambda x: x.reshape(4, 6),
    "larger": lambda x: x[:1].expand(3, -1),
}


@pytest.mark.parametrize("kind", ["in memory", "pending", "taped", "of no tape", "turned"])
@pytest.mark.parametrize("name", READS)
def test_a_view_is_read_as_in_python(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        base = _list(4, 6)
        if kind != "pending":
            pf.eval(base)
        if kind in ("taped", "of no tape"):
            base = base.requires_grad_() * 2.0
        if kind == "turned":
            base = _list(6, 4).T
        with pf.set_grad_enabled(kind != "of no tape"):
            out = READS[name](base)
            one = out[0] if isinstance(out, (list, tuple)) else out
            told: list[Any] = []
            view = one
            while view._link is not None and view._link.parent is not None:
                link = view._link
                told.append((link.path, link.attached, link.overlaps, [v is view for v in link.parent._link.live()]))
                view = link.parent
            told += [view is base, one._node.meta, one._node.op, one._node.sig, one._node.attrs, one.tolist()]
            told += [None if one._entry is None else _tape(one._entry), one.requires_grad, type(out)]
            if name != "larger":  # whose elements share places
                with pf.no_grad():
                    one.mul_(2.0)
        return [*told, base.tolist()]

    found = _learnt(run)
    monkeypatch.setattr(known_views.READS, "made", None)
    assert found == run()


def _tape(entry: Any) -> Any:
    if type(entry) is not Entry:
        return type(entry)
    kept = [source is None for source in entry.srcs]
    return (
        entry.op,
        entry.attrs,
        entry.metas,
        entry.meta,
        kept,
        entry.out is None,
        entry.freed,
        [*map(_tape, entry.parents)],
    )


def _list(*shape: int) -> Tensor:
    return pf.arange(float(np.prod(shape))).reshape(shape).clone()


def test_random_streams_are_drawn_anew() -> None:
    x, seen = pf.ones(64), set()
    for _ in range(5):
        pf.manual_seed(3)  # so that the first calls draw the same
        _learnt(lambda: pf.nn.functional.dropout(x, 0.5))
        seen.add(tuple(pf.nn.functional.dropout(x, 0.5).tolist()))
    pf.manual_seed(3)
    drawn = {tuple(pf.nn.functional.dropout(x, 0.5).tolist()) for _ in range(recipe.SELDOM + 4)}
    assert len(seen) == 1 and len(drawn) == recipe.SELDOM + 4


def test_calls_that_look_alike_are_told_apart() -> None:
    x, y = _list(3), _list(3) + 1
    whole = pf.tensor([1, 2, 3])
    _learnt(
        lambda: (x * y, x * 2.0, whole * 2, whole * 2.5, pf.clamp(x, 0.0), x.sum(0), pf.sum(x, dim=0, keepdim=True))
    )
    assert (x * x).tolist() == [0, 1, 4] and (y * x).tolist() == [0, 2, 6]
    assert (x * 3).tolist() == [0, 3, 6] and (x * -0.5).tolist() == [0, -0.5, -1] and (3.0 * x).tolist() == [0, 3, 6]
    assert (
        (whole * 3).tolist() == [3, 6, 9]
        and (whole * 0.5).tolist() == [0.5, 1, 1.5]
        and (whole * True).dtype is pf.int64
    )
    assert str(pf.clamp(x, -0.0)) == str(pf.clamp(x, 0.0)) and pf.clamp(x, 1.0).tolist() == [1, 1, 2]
    assert x.sum(0, True).shape == (1,) and x.sum(0).shape == () and x.sum(0, keepdim=False).shape == ()
    assert pf.copysign(y, -0.0).tolist() == [-1, -2, -3] and pf.copysign(y, 0.0).tolist() == [1, 2, 3]
    for value in (0.0, -0.0) * (recipe.SELDOM + 3):
        assert pf.copysign(y, value).tolist() == ([1, 2, 3] if str(value) == "0.0" else [-1, -2, -3])


def test_modes_change_what_a_call_gives() -> None:
    x, whole = _list(4).requires_grad_(), pf.tensor([1, 2])
    assert _learnt(lambda: x.exp()).requires_grad and _learnt(lambda: whole / 2).dtype is pf.float32
    with pf.no_grad():
        assert not _learnt(lambda: x.exp()).requires_grad
    assert not x.detach().exp().requires_grad and x.exp().requires_grad
    pf.set_default_dtype(pf.float64)
    try:
        assert (whole / 2).dtype is pf.float64
    finally:
        pf.set_default_dtype(pf.float32)
    with pf.autocast(pf.bfloat16):
        assert (x.reshape(2, 2) @ x.reshape(2, 2)).dtype is pf.bfloat16
    assert pf.jit(lambda a: a.exp() * 2.0)(x.detach()).tolist() == (x.detach().exp() * 2.0).tolist()


def test_second_derivatives_and_kept_tapes() -> None:
    x = pf.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(recipe.SELDOM + 3):
        y = (x * x * x).sum()
        (first,) = pf.autograd.grad(y, x, create_graph=True)
        (second,) = pf.autograd.grad(first.sum(), x)
        assert first.tolist() == [3, 12, 27] and second.tolist() == [6, 12, 18]
        y = (x.exp() * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(pf.GradientError):
            y.backward()
        x.grad = None


def test_a_call_leaves_no_references_behind() -> None:
    x, y = _list(4, 5).requires_grad_(), _list(4, 5)
    pf.eval(x, y)

    def step() -> None:
        z = pf.softmax(x * y + x * 0.5, dim=-1)
        (pf.cat([z, z * 2.0]).sum() + z.max(1)[0].sum()).backward()
        x.grad = None

    for _ in range(recipe.SELDOM + 3):
        step()
    held = [x._node, y._node, x._entry, x._node.meta, x._node.op, None, (), False, True, OPS["mul"]]
    before = list(map(sys.getrefcount, held))
    for _ in range(200):
        step()
    assert all(abs(now - then) < 50 for now, then in zip(map(sys.getrefcount, held), before, strict=True))


def test_classes_that_are_asked_leave_others_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Asked(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    plain, special = pf.nn.Parameter(pf.ones(3, 4)), Asked([[1.0, 2.0], [3.0, 4.0]])
    _learnt(lambda: pf.exp(plain))
    _learnt(lambda: plain.transpose(0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "call", None)  # which Python would call
        assert type(pf.exp(plain)) is Tensor and plain.transpose(0, 1).shape == (4, 3)
    for _ in range(recipe.SELDOM + 3):
        asked.clear()
        assert type(pf.exp(special)) is Asked and type(special.transpose(0, 1)) is Asked and type(special[0]) is Asked
        assert {"exp", "transpose"} < set(asked)


def test_item_in_c_sees_who_runs_a_plan() -> None:
    x, taken, go_on = pf.tensor(2.5), threading.Event(), threading.Event()

    def hold() -> None:
        with cpu().lock:
            taken.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    assert host.in_c is not None and host.in_c(x._node) == 2.5
    with cpu().lock:
        assert host.in_c(x._node) is None
    thread.start()
    taken.wait()
    seen = host.in_c(x._node)
    go_on.set()
    thread.join()
    assert seen is None and host.in_c(x._node) == 2.5 and not cpu().lock.taken()


def test_item_in_c_and_what_it_leaves_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pf.tensor([[1.5, -2.0], [0.25, 8.0]])
    assert tensor_module.ITEM.made(pf.tensor(2.5)) == 2.5 and tensor_module.ITEM.made(values) is None
    assert [values[i, k].item() for i in range(2) for k in range(2)] == [1.5, -2.0, 0.25, 8.0]
    for dtype in (pf.float64, pf.int64, pf.int32, pf.bool_, pf.uint8, pf.float16, pf.complex64):
        cast = values.to(dtype)
        want = np.asarray(cast.numpy())[0, 1].item()
        assert cast[0, 1].item() == want and type(cast[0, 1].item()) is type(want)
    assert (values * 2).sum().item() == 15.5  # pending
    assert pf.nn.Parameter(pf.ones(1)).item() == 1
    for wrong in (values, pf.ones(0)):
        with pytest.raises(pf.ShapeError, match=r"\[item\] expected a tensor with one element but got shape"):
            wrong.item()
    with pytest.raises(TypeError):
        values[0, 0].item(1, 2)
    with pytest.raises(pf.TraceError, match=r"item\(\)"):
        pf.jit(lambda x: x * x[0, 0].item())(values)
    with pytest.raises((TypeError, AttributeError)):
        Tensor.item(3)

    class Asked(Tensor):
        pass

    asked: list[Any] = []
    monkeypatch.setattr(
        Asked, "__torch_function__", classmethod(lambda cls, func, *rest: asked.append(func.__name__) or 7)
    )
    assert Asked([3.0]).item() == 7 and asked == ["item"]


def test_what_is_known_of_calls_has_an_end() -> None:
    table, x = known_calls.RECIPES.table, _list(3)
    pf.eval(x)
    before = dict(table)
    try:
        table.clear()
        table.update(dict.fromkeys(range(recipe.MAX_KNOWN // 64 * 64 + 64), 1))
        assert (x + 41.0).tolist() == [41, 42, 43] and [*table.values()] == [1]
        for count in range(2, recipe.SELDOM):
            _ = x + 41.0
            assert [*table.values()] == [count]
    finally:
        table.clear()
        table.update(before)
