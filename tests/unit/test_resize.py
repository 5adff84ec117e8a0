"""A plan found again for other extents is the plan that would be made for them, and gives what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.shape import Size
from pyflame.engine import resize
from pyflame.engine.build import CpuRunner
from pyflame.engine.cpu_layout import CpuLayout
from pyflame.engine.devices import cpu
from pyflame.engine.evaluate import clear_plans, plan_stats
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan
from pyflame.ir.kernel import BufferDecl, Launch, Plan
from pyflame.runtime.base import Device
from pyflame.tensor.creation import positions

Array = np.ndarray[Any, Any]
# On both sides of where plans change: nothing, one, thin products, vectors, panels, sizes that do not differ, blocks of
# flat kernels and of rows, chunks.
LENGTHS = [
    3, 5, 0, 1, 2, 4, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 24, 25, 31, 32, 33, 63, 64, 65, 100, 130, 257, 513, 1030,
]  # fmt: skip
LONG = [1000, 1001, 4095, 4096, 4097, 16384, 16385, 32768, 65535, 65537, 70001, 131072, 200001]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    clear_plans()
    yield
    clear_plans()


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Plans that were found for other extents. Each is compared with the one that would have been made."""
    plans: list[Plan] = []
    plain = resize.resized

    def checked(graph: PendingGraph, device: Device, mode: tuple[Any, ...]) -> tuple[Plan, CpuRunner] | None:
        found = plain(graph, device, mode)
        if found is not None:
            plan = make_plan(graph.copy(), device)
            layout = CpuLayout(plan, cpu())
            assert (found[1]._layout.texts, found[1]._layout.numbers()) == (layout.texts, layout.numbers())
            _compare(found[0], plan)
            plans.append(plan)
        return found

    monkeypatch.setattr(resize, "resized", checked)
    return plans


def _compare(one: Any, other: Any) -> None:
    """All of two plans, kernels and operands too."""
    if isinstance(one, (Plan, Launch, BufferDecl)):
        for field in fields(other):
            _compare(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            _compare(a, b)
    else:
        assert one == other


def _numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)  # type: ignore[no-any-return]


def _chain(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n, 8)
    return pf.relu(pf.tensor(x) * 2.0 + 1.0) - pf.arange(8), np.maximum(x * 2 + 1, 0) - np.arange(8)


def _rows(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n, 33)
    return pf.softmax(pf.tensor(x), -1).sum(0), _softmax(x).sum(0)


def _sums(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n, 5)
    y = pf.tensor(x)
    return pf.cat([y.sum(0), (y * y).sum().reshape(1)]), np.append(x.sum(0), (x * x).sum())


def _along(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(6, n)
    y = pf.tensor(x)
    return (y - y.sum(1, keepdims=True)).T.reshape(-1), (x - x.sum(1, keepdims=True)).T.reshape(-1)


def _products(n: int) -> tuple[pf.Tensor, Array]:
    x, w = _numbers(n, 24), _numbers(24, 48)
    return pf.relu(pf.tensor(x) @ pf.tensor(w) + 1.0), np.maximum(x @ w + 1, 0)


def _inner(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n, 7)
    return pf.tensor(x).T @ pf.tensor(x), x.T @ x


def _batches(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n, 3, 40)
    y = pf.tensor(x)
    return (y @ y.transpose(1, 2)).sum(-1), (x @ x.transpose(0, 2, 1)).sum(-1)


def _joined(n: int) -> tuple[pf.Tensor, Array]:
    x, y = _numbers(2, n), _numbers(2, n + 3)
    return pf.cat([pf.tensor(x), pf.tensor(y)], 1).flip(1) * 2, np.concatenate([x, y], 1)[:, ::-1] * 2


def _gathered(n: int) -> tuple[pf.Tensor, Array]:
    table, at = _numbers(11, 16), np.arange(n) * 7 % 11
    return (pf.tensor(table)[pf.tensor(at)] + 1).reshape(n, 4, 4).sum(2), (table[at] + 1).reshape(n, 4, 4).sum(2)


def _sliced(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n + 2, 6)
    y = pf.tensor(x) * 3
    return y[2:] - y[:-2], x[2:] * 3 - x[:-2] * 3


def _sorted(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(3, n)
    return pf.sort(pf.tensor(x) * 2, -1)[0].cumsum(-1), np.sort(x * 2, -1).cumsum(-1)


def _written(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(n + 4, 4)
    y = pf.tensor(x) + 1
    y[1 : n + 1] = y[1 : n + 1] * 2
    z = x + 1
    z[1 : n + 1] *= 2
    return y.exp(), np.exp(z)


def _attended(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(1, 2, n, 16)
    y = pf.tensor(x)
    scores = np.einsum("bhid,bhjd->bhij", x, x) / 4
    weights = _softmax(scores) if n else scores
    return pf.nn.functional.scaled_dot_product_attention(y, y, y), np.einsum("bhij,bhjd->bhid", weights, x)


def _normed(n: int) -> tuple[pf.Tensor, Array]:
    x = _numbers(2, n, 32)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return pf.nn.functional.layer_norm(pf.tensor(x), (32,)), (x - mean) / np.sqrt(var + 1e-5)


Program = Callable[[int], tuple[pf.Tensor, Array]]


def _moments(n: int) -> tuple[pf.Tensor, Array]:
    """What is divided by a number of elements, and a place that is one."""
    x = _numbers(n + 2, 6)
    y = pf.tensor(x)
    unit = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    parts = [
        y.var(0),
        y.std(0, correction=0),
        y.argmax(0).float(),
        pf.nn.functional.batch_norm(y, None, None, training=True)[1],
    ]
    return pf.stack(parts), np.stack([x.var(0, ddof=1), x.std(0), x.argmax(0), unit[1]])


def _images(n: int) -> tuple[pf.Tensor, Array]:
    """Of any size: a norm of groups of channels, and a pooling of windows of one."""
    x = _numbers(2, 6, n + 2, 3)
    groups = x.reshape(2, 3, -1)
    unit = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    y = pf.nn.functional.group_norm(pf.tensor(x), 3)
    return y.argmin(2) + y[:, :, 0], unit.reshape(x.shape).argmin(2) + unit.reshape(x.shape)[:, :, 0]


PROGRAMS: list[Program] = [
    _chain, _rows, _sums, _along, _products, _inner, _batches, _joined, _gathered, _sliced, _sorted, _written,
    _attended, _normed, _moments, _images,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_all_lengths(program: Program, found: list[Plan]) -> None:
    for n in LENGTHS:
        ours, wanted = program(n)
        np.testing.assert_allclose(ours.numpy(), wanted, 1e-3, 2e-3, err_msg=f"length {n}")
    assert len(found) > len(LENGTHS) // 3


@pytest.mark.parametrize("program", [_chain, _rows, _sums, _along, _joined], ids=lambda p: p.__name__.strip("_"))
def test_long_ones(program: Program, found: list[Plan]) -> None:
    for n in LONG:
        ours, wanted = program(n)
        np.testing.assert_allclose(ours.numpy(), wanted, 2e-3, 2e-2, err_msg=f"length {n}")
    assert found


def _model(length: int) -> list[list[float]]:
    """A transformer, and its gradients."""
    pf.manual_seed(0)
    layer = pf.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    out = layer(pf.tensor(_numbers(2, length, 16)))
    (out * out).sum().backward()
    return [out.flatten().tolist(), *[p.grad.flatten().tolist() for p in layer.parameters() if p.grad is not None]]


@pytest.mark.slow
def test_gradients_of_a_model(found: list[Plan]) -> None:
    lengths = [4, 9, 14, 40, 41, 42, 70]
    ours = [_model(n) for n in lengths]
    assert found
    clear_plans()
    for n, resized in zip(lengths, ours, strict=True):
        assert _model(n) == resized, f"length {n}"


def _product_of(n: int) -> pf.Tensor:
    x = pf.tensor(_numbers(n, 64))
    return pf.softmax(pf.relu(x @ x.T) * 0.5, -1)


@pf.no_grad()
def _multihead(n: int) -> pf.Tensor:
    x, layer = pf.tensor(_numbers(n, 2, 64)), pf.nn.MultiheadAttention(64, 4)
    return layer(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("made", [_product_of, _multihead], ids=lambda p: p.__name__.strip("_"))
def test_no_length_is_planned_after_a_few(made: Callable[[int], pf.Tensor], found: list[Plan]) -> None:
    def step(n: int) -> None:
        made(n).sum().item()

    for n in (200, 201, 202):
        step(n)
    before = plan_stats.misses
    for n in range(203, 230):
        step(n)
    assert plan_stats.misses == before


def _two_ways(n: int) -> tuple[pf.Tensor, Array]:
    """Of 16 rows two ways of seeing them are one, which a plan for just that length would compute once."""
    x = _numbers(n * 16)
    y, sums = pf.tensor(x), []
    for shape in ((n, 16), (16, n)):
        sums += [pf.exp(y.reshape(shape) * 0.5).sum(1), (y.reshape(shape).T @ y.reshape(shape)).sum(1)]
    wanted = [np.exp(x.reshape(s) * 0.5).sum(1) for s in ((n, 16), (16, n))]
    inner = [(x.reshape(s).T @ x.reshape(s)).sum(1) for s in ((n, 16), (16, n))]
    return pf.cat(sums), np.concatenate([wanted[0], inner[0], wanted[1], inner[1]])


def _square(n: int) -> tuple[pf.Tensor, Array]:
    """At 20 the transposed rows have the weight's shape."""
    x, w = _numbers(n, 20), _numbers(20, 20)
    y, v = pf.tensor(x), pf.tensor(w)
    mixed = pf.cat([y @ v, pf.relu(y), v.T * 2.0, v @ v])
    return mixed.sum(1), np.concatenate([x @ w, np.maximum(x, 0), w.T * 2, w @ w]).sum(1)


@pytest.mark.parametrize(
    ("program", "width", "plans"), [(_products, 24, 0), (_rows, 33, 1), (_two_ways, 16, 4), (_square, 20, 2)]
)
def test_a_length_that_comes_to_equal_a_width(program: Program, width: int, plans: int) -> None:
    """`plans`: at other lengths, where sizes are compared, or where rows become short."""
    for n in (40, 41, *range(width - 4, width + 5)):
        ours, wanted = program(n)
        np.testing.assert_allclose(ours.numpy(), wanted, 1e-3, 2e-3, err_msg=f"length {n}")
        if n == 41:
            before = plan_stats.misses
    assert plan_stats.misses - before <= plans


def test_graphs_that_differ_in_more_than_numbers_are_planned(found: list[Plan]) -> None:
    x = _numbers(6, 4)
    for n in (1, 2, 3, 4, 5):
        y = pf.tensor(x[:n])
        for made, wanted in (
            (y.sum(0), x[:n].sum(0)),
            (y.sum(1), x[:n].sum(1)),
            (pf.tensor(x[:n].astype(np.float64)).sum(0), x[:n].sum(0)),
            (y.T.contiguous().sum(0), x[:n].sum(1)),
        ):
            np.testing.assert_allclose(made.numpy(), wanted, 1e-5, 1e-5)


def test_a_plan_for_other_extents_can_be_looked_at() -> None:
    for n in (5, 6, 7):
        pf.softmax(pf.tensor(_numbers(n, 40)), -1).numpy()
    with pf.profile() as seen:
        pf.softmax(pf.tensor(_numbers(8, 40)), -1).numpy()
    assert [(k.calls, k.bytes) for k in seen.kernels] == [(1, 2 * 4 * 8 * 40)]
    assert (seen.compile.plan_misses, seen.compile.plan_hits) == (0, 1)


def test_what_cannot_be_traced_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise TypeError("whole numbers alone")

    monkeypatch.setattr(resize, "TracedPlan", broken)
    (pf.tensor(_numbers(5, 3)) * 2).numpy()
    with pytest.warns(RuntimeWarning, match="whole numbers alone"):
        doubled = (pf.tensor(_numbers(6, 3)) * 2).numpy()
    np.testing.assert_array_equal(doubled, _numbers(6, 3) * 2)
    np.testing.assert_array_equal((pf.tensor(_numbers(7, 3)) * 2).numpy(), _numbers(7, 3) * 2)


@pytest.mark.filterwarnings("error")
def test_a_size_that_becomes_a_value_is_planned_each_time() -> None:
    for classes in (3, 4, 5, 9):
        x, target = _numbers(7, classes), np.arange(7) % classes
        ours = pf.nn.functional.cross_entropy(pf.tensor(x), pf.tensor(target)).item()
        assert ours == pytest.approx(-np.log(_softmax(x)[np.arange(7), target]).mean(), 1e-5)


@pytest.mark.filterwarnings("error")
def test_a_size_that_a_choice_falls_back_to_is_planned_each_time() -> None:
    for n in (3, 4, 5, 9):
        x = _numbers(7, n)
        assert pf.argmin(pf.tensor(x) * 1.5, -1).tolist() == x.argmin(-1).tolist()


@pytest.mark.filterwarnings("error")
def test_lengths_of_attention_that_is_decomposed() -> None:
    pages, table = pf.tensor(_numbers(4, 8, 2, 16)), pf.tensor([[2, 0, 1, 3]])
    sinks, long = pf.tensor(_numbers(2)), pf.tensor(_numbers(1, 2, 30, 16))
    whole = pf.paged_attention(long, pages, pages, table, pf.tensor([30]), sinks=sinks).numpy()
    for n in (3, 4, 5, 9):
        last = long[:, :, 30 - n :].clone()
        ours = pf.paged_attention(last, pages, pages, table, pf.tensor([30]), sinks=sinks).numpy()
        np.testing.assert_allclose(ours, whole[:, :, 30 - n :], 1e-5, 1e-6)


def test_lengths_that_come_again_have_no_plan_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize.TracedPlan, "plan", lambda *_: pytest.fail("the whole plan was made for a run"))
    for length in [20, 21, *range(22, 30), *range(22, 30), *range(22, 30)]:
        ours, want = _rows(length)
        np.testing.assert_allclose(ours.numpy(), want, 1e-5, 1e-5)


def test_a_plan_of_any_begin_tells_nothing_of_an_assignment() -> None:
    """A planner's copy of it begins at 0, under the same signature."""
    x = pf.tensor(np.arange(8.0))
    x[3:5] = pf.tensor([1.0, 2.0]) * 2
    any_begin, own = PendingGraph([x._node], slices=True), PendingGraph([x._node])
    assert any_begin.starts and not own.starts
    resize.structure_of(any_begin.copy())
    found = resize.structure_of(own)
    resize.forget()
    assert resize.structure_of(own) == found


def test_a_size_is_a_tuple_of_numbers() -> None:
    """Both have one signature, and what is learned of the first node with it is taken for all."""
    made = [positions(shape, None) for shape in (Size((5,)), (5,))]
    assert made[0].sig == made[1].sig
    resize.forget()
    graphs = [PendingGraph([node]) for node in made]
    assert [resize.structure_of(graph)[1] for graph in graphs] == [(5, 5), (5, 5)]
    resize.forget()
    assert resize.structure_of(graphs[1]) == resize.structure_of(graphs[0])
