"""The engine's functions in C (engine/native.c) against what stands for them in Python."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.core.maker import MAKERS, Maker
from pyflame.engine import native
from pyflame.engine.ownership import reliable
from pyflame.engine.pending import PendingGraph
from pyflame.ir import Node
from pyflame.tensor import Tensor


@pytest.fixture(autouse=True)
def _loaded() -> None:
    if not reliable():
        pytest.skip("without the GIL they stay in Python")
    native.load()
    assert native.walk is not None


def _in_memory(*shape: int) -> Tensor:
    out = pf.arange(float(pf.zeros(shape).numel())).reshape(shape)
    pf.eval(out)
    return out


def _chain() -> list[Tensor]:
    x = y = _in_memory(4)
    for _ in range(200):  # beyond the room that a walk begins with
        y = y * 2.0 + x
    return [y]


def _shared() -> list[Tensor]:
    x = _in_memory(3, 4)
    y = x.exp()
    return [y + y, y * 2.0, y, y + y]


def _slices() -> list[Tensor]:
    x = _in_memory(6, 4)
    pending = x * 3.0
    return [x[2:4] + 1.0, x[1] * 2.0, pending[1:3] + x[0], x[0].reshape(2, 2) + 1.0, x.narrow(0, 1, 2) * 2.0]


def _assignments() -> list[Tensor]:
    x, y = _in_memory(5, 3), pf.zeros(4)
    x[2] = 7.0
    y[1:3] += 1.0
    return [x, y * 2.0, x[1:4] + 1.0]


def _checked() -> list[Tensor]:
    return [_in_memory(5, 3)[pf.tensor([1, 3])] + 1.0]


def _copied() -> list[Tensor]:
    return [_in_memory(3).to("null") + 1.0]


@pytest.mark.parametrize("program", [_chain, _shared, _slices, _assignments, _checked, _copied])
@pytest.mark.parametrize("slices", [False, True])
def test_a_walk_in_c_is_that_in_python(
    program: Callable[[], list[Tensor]], slices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program()  # which indices are known then
    found = []
    for walk in (native.walk, None):
        monkeypatch.setattr(native, "walk", walk)
        found.append(_described(PendingGraph([t._node for t in program()], slices=slices)))
    assert found[0] == found[1]


def _described(graph: PendingGraph) -> dict[str, Any]:
    def places(nodes: list[Node]) -> list[int]:
        return [graph.order.index(n) for n in nodes]

    lists = ("inputs", "constants", "outputs", "owned", "copies", "collectives")
    out: dict[str, Any] = {name: places(getattr(graph, name)) for name in lists}
    out |= {name: getattr(graph, name) for name in ("key", "sliced", "assigned", "starts")}
    return out | {"lines": len(graph.lines), "ops": [n.op.name for n in graph.order]}


def test_a_walk_leaves_no_references_behind() -> None:
    nodes = [t._node for t in (*_slices(), *_assignments())]
    PendingGraph(nodes, slices=True)
    held = [[node, node.srcs, node.op] for node in PendingGraph(nodes, slices=True).order]
    before = [list(map(sys.getrefcount, things)) for things in held]
    for _ in range(10):
        PendingGraph(nodes, slices=True)
    assert [list(map(sys.getrefcount, things)) for things in held] == before


def test_what_fails_in_a_walk_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise ZeroDivisionError

    nodes = [t._node for t in _slices()]
    for name, wanted in (("_view_in_memory", nodes), ("_note", [_checked()[0]._node])):
        with monkeypatch.context() as patched:
            patched.setattr(PendingGraph, name, fails)
            with pytest.raises(ZeroDivisionError):
                PendingGraph(wanted, slices=True)
    PendingGraph(nodes, slices=True)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.kind.__name__)
def test_an_object_made_in_c_has_its_slots_and_no_references_too_many(maker: Maker) -> None:
    values = [object() for _ in maker.names]
    before = list(map(sys.getrefcount, values))
    made = maker.new(*values)
    assert type(made) is maker.kind
    assert [getattr(made, name) for name in maker.names] == values
    assert list(map(sys.getrefcount, values)) == [count + 1 for count in before]
    if maker.counted is not None:
        assert getattr(maker.new(*values), maker.counted) > getattr(made, maker.counted)
    del made
    assert list(map(sys.getrefcount, values)) == before
    assert getattr(maker.new(), maker.names[-1]) is None
    with pytest.raises(SystemError):
        maker.new(*values, None)


@pytest.mark.slow
def test_a_tensor_made_in_c_is_one_like_any_other() -> None:
    x = _in_memory(3)
    y = x * 2.0
    y.note = y  # a circle
    gone = weakref.ref(y)
    assert copy.deepcopy(x + 1.0).tolist() == [1, 2, 3] and pickle.loads(pickle.dumps(x[1:])).tolist() == [1, 2]
    del y
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_without_c_the_same_is_done_in_python(tmp_path: Path) -> None:
    """As where the process does not show Python's functions."""
    program = tmp_path / "program.py"
    program.write_text(
        "from pyflame.engine import native\n"
        "native.load = lambda: None\n"
        "import pyflame as pf\n"
        "x = pf.arange(6.0).reshape(2, 3).requires_grad_()\n"
        "y = x.detach()[1] * 2.0\n"
        "(x[1] * x[0] + y).sum().backward()\n"
        "x.data[0, 1] = 9.0\n"
        "print(y.tolist(), x.grad.tolist(), x[0].tolist(), x[0, 1].item(), native.walk)\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "[6.0, 8.0, 10.0] [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]] [0.0, 9.0, 2.0] 9.0 None\n"
