"""torch.fx over our modules: the same graphs, code and results as PyTorch's."""

from __future__ import annotations

import copy
import operator
import pickle
import re
from typing import Any

import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

BOTH = pytest.mark.parametrize("library", [pf, pytest.param(torch, marks=needs_torch)], ids=["pyflame", "torch"])


def net_of(library: Any) -> Any:
    nn, relu = library.nn, library.nn.functional.relu

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.rest = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
            self.scale = nn.Parameter(library.ones(4))
            self.register_buffer("shift", library.zeros(4))

        def forward(self, x: Any, flag: Any = None) -> Any:
            h = self.rest(relu(self.first(x))) + self.scale * 2.0
            a, b = library.chunk(h, 2, dim=1)
            y = library.cat([a, b], dim=-1).view(h.shape[0], -1)
            return {"out": library.softmax(y - self.shift, -1)[:, 1:3].sum(dim=1), "n": y.size(0)}

    return Net()


def traced(library: Any, root: Any) -> Any:
    return library.fx.symbolic_trace(root)


def plain(text: str) -> str:
    """Code without what is PyTorch's own: where C functions lie, options of relu that it writes out, annotations."""
    text = re.sub(r"torch\._C\._(linalg|fft)\.\1_", r"torch.\1.", text).replace("_operator_", "_operator.")
    text = re.sub(r" : _Any_| -> _Any_", "", text)
    return re.sub(r"\s+", " ", text.replace("pyflame", "torch").replace(", inplace = False", "")).strip()


PROGRAMS = {
    "module": net_of,
    "operators": lambda lib: lambda x, y: -(2**x + x * y - 1) / (x @ y) % 3 > abs(x).T,
    "attributes": lambda lib: lambda x: (x.T @ x).mean().item() + x.shape[0] * x.dtype.itemsize,
    "functions": lambda lib: lambda x: lib.linalg.inv(x) + lib.fft.fft(x).real + lib.where(x > 0, x, 0.0),
    "of nn.functional": lambda lib: lambda x: lib.nn.functional.dropout(x, p=0.5, training=False),
    "containers": lambda lib: lambda x: (lib.stack([x, x]), {"a": [x[..., None, 1:2], (x,)]}),
    "constant": lambda lib: lambda x: x + lib.ones(2),
    "in place": lambda lib: lambda x: x.add_(1).relu_(),
    "unused": lambda lib: lambda x, y=3: x * 2,
    "names": lambda lib: lambda x: lib.relu(lib.relu(x)).relu().relu(),
    "infinite": lambda lib: lambda x: x.masked_fill(x > 0, float("-inf")),
}


@needs_torch
@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_and_code_are_torchs(name: str) -> None:
    ours, theirs = (traced(lib, PROGRAMS[name](lib)) for lib in (pf, torch))
    assert plain(ours.code) == plain(theirs.code)
    described = [[(n.op, n.name, str(n.args), len(n.users)) for n in g.graph.nodes] for g in (ours, theirs)]
    shown = [str(nodes).replace(", 'inplace': False", "") for nodes in described]
    assert shown[0] == shown[1]
    ours.graph.lint()


@needs_torch
@pytest.mark.parametrize(
    "names",
    [["add"] * 4, ["add", "add_7", "add", "add_7"], ["x_01", "x", "x_01", "x_1"], ["_1", "_1", "len", "len", "class"]],
    ids=" ".join,
)
def test_nodes_of_one_name_are_numbered_as_torchs_are(names: list[str]) -> None:
    def given(library: Any) -> list[str]:
        graph = library.fx.Graph()
        return [graph.call_function(library.relu, name=name).name for name in names]

    assert given(pf) == given(torch)


@BOTH
def test_modules_are_put_at_paths(library: Any) -> None:
    gm = traced(library, net_of(library))
    assert gm.add_submodule("new.inner.act", library.nn.ReLU()) and gm.new.inner.act(library.ones(1)).tolist() == [1.0]
    assert not gm.add_submodule("scale.act", library.nn.ReLU())  # a parameter is in the way
    assert gm.delete_submodule("new.inner") and not gm.delete_submodule("new.inner")


@BOTH
def test_a_graph_module_runs_and_can_be_copied(library: Any) -> None:
    net = net_of(library)
    gm, x = traced(library, net), library.randn(2, 3)
    expected = net(x)["out"]
    for one in (gm, copy.deepcopy(gm), copy.copy(gm), library.fx.Interpreter(gm).run):
        result = one(x)
        assert library.allclose(result["out"], expected) and result["n"] == 2
    assert gm.first.weight is net.first.weight and copy.deepcopy(gm).first.weight is not net.first.weight
    assert set(gm.state_dict()) == set(net.state_dict())
    gm(x)["out"].sum().backward()
    assert net.scale.grad is not None


@BOTH
def test_nodes_are_replaced_inserted_and_erased(library: Any) -> None:
    gm, x = traced(library, net_of(library)), library.randn(2, 3)
    (node,) = gm.graph.find_nodes(op="call_function", target=library.nn.functional.relu)
    with gm.graph.inserting_after(node):
        new = gm.graph.call_function(library.sigmoid, (node.args[0],))
    node.replace_all_uses_with(new)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        gm.graph.erase_node(new)
    gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    h, rest = library.sigmoid(gm.first(x)), library.nn.Sequential(*gm.rest.children())
    assert "sigmoid" in gm.code and "relu" not in gm.code
    expected = library.softmax(rest(h) + gm.scale * 2 - gm.shift, -1)[:, 1:3].sum(1)
    assert library.allclose(gm(x)["out"], expected)


@BOTH
def test_a_graph_is_written_by_hand(library: Any) -> None:
    graph = library.fx.Graph()
    x = graph.placeholder("x")
    double = graph.call_function(operator.mul, (x, 2))
    graph.call_function(library.sin, (x,))
    weight = graph.get_attr("layer.weight")
    graph.output((double, graph.call_method("sum", (weight,))))
    assert graph.eliminate_dead_code() and len(graph.nodes) == 5
    gm = library.fx.GraphModule({"layer.weight": library.nn.Parameter(library.ones(3))}, graph, "Hand")
    assert type(gm).__name__ == "Hand" and [n for n, _ in gm.named_parameters()] == ["layer.weight"]
    assert [v.tolist() for v in gm(library.ones(1))] == [[2.0], 3.0]
    with graph.inserting_before(double):
        double.update_arg(0, graph.call_function(library.relu, (weight,)))
    double.args[0].append(weight)
    with pytest.raises(RuntimeError, match="before it"):
        graph.lint()


@BOTH
def test_tracers_interpreters_and_transformers_of_ones_own(library: Any) -> None:
    class Whole(library.fx.Tracer):
        def is_leaf_module(self, m: Any, name: str) -> bool:
            return isinstance(m, library.nn.Sequential) or super().is_leaf_module(m, name)

    net, x = net_of(library), library.randn(2, 3)
    assert "rest" in [n.target for n in Whole().trace(net).nodes]

    class Other(library.fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is library.softmax:
                return super().call_function(library.exp, args[:1], {})
            return super().call_function(target, args, kwargs)

    changed = Other(traced(library, net)).transform()
    assert "exp" in changed.code and "softmax" not in changed.code and changed(x)["out"].shape == (2,)


@BOTH
def test_patterns_are_replaced(library: Any) -> None:
    gm = traced(library, lambda x, a, b: library.cat([a, b]).sum() + library.cat([x, a]).sum())
    found = library.fx.replace_pattern(
        gm, lambda a, b: library.cat([a, b]).sum(), lambda a, b: library.stack([a, b]).max()
    )
    assert len(found) == 2 and "cat" not in gm.code
    one = library.ones(2)
    assert gm(one, one * 2, one * 3).item() == 5.0


@BOTH
def test_what_depends_on_values_is_refused(library: Any) -> None:
    with pytest.raises(ValueError, match="control flow"):
        traced(library, lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(ValueError, match="iterated"):
        traced(library, lambda x: list(x))
    with pytest.raises(RuntimeError, match="len"):
        traced(library, lambda x: len(x))


def test_a_graph_module_is_pickled() -> None:
    gm, x = traced(pf, net_of(pf)), pf.randn(2, 3)
    again = pickle.loads(pickle.dumps(gm))
    assert again(x)["out"].tolist() == gm(x)["out"].tolist() and again.code == gm.code


def test_modules_and_functions_are_as_before_a_trace() -> None:
    before = pf.nn.Module.__call__, pf.nn.Module.__getattr__
    with pytest.raises(ValueError, match="control flow"):
        pf.fx.symbolic_trace(lambda x: x if x > 0 else -x)
    assert (pf.nn.Module.__call__, pf.nn.Module.__getattr__) == before
    assert pf.relu(pf.ones(1)).tolist() == [1.0]


def _own(x: Any, n: int) -> Any:
    return x * n if n else x


pf.fx.wrap("_own")


def test_wrapped_functions_are_one_node() -> None:
    gm = pf.fx.symbolic_trace(lambda x: _own(x, 3))
    assert [n.op for n in gm.graph.nodes] == ["placeholder", "call_function", "output"]
    assert gm(pf.ones(1)).tolist() == [3.0]


def test_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pf.fx.symbolic_trace(pf.nn.Sequential(pf.nn.Linear(2, 2))).graph.print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert lines[3].split() == ["call_module", "_0", "0", "(input_1,)", "{}"]


@BOTH
def test_graphs_built_by_hand(library: Any) -> None:
    """e3nn and opt_einsum_fx write their products so."""
    graph = library.fx.Graph()
    tracer = library.fx.proxy.GraphAppendingTracer(graph)
    x, w = (library.fx.Proxy(graph.placeholder(name), tracer) for name in "xw")
    y = library.einsum("ij,jk->ik", x.reshape(2, 3), w)
    graph.output((library.cat([y, library.relu(-y)], dim=-1) * 2).node)
    graph.lint()
    module = library.fx.GraphModule({}, graph, "product")
    assert module(library.arange(6.0), library.ones(3, 2)).tolist() == [[6.0, 6.0, 0.0, 0.0], [24.0, 24.0, 0.0, 0.0]]
    alone = library.fx.Proxy(library.fx.Graph().placeholder("x"))
    assert (alone + 1).node.op == "call_function"
