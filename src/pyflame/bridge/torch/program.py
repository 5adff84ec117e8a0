"""A compiled aten graph: parts of ours, each one jitted function, between parts that run node by node: in torch, or
by our ops that look at values (factorisations), which cannot be part of a plan.

A part's function is traced once per signature (shapes, strides, dtypes, and the sizes that dynamic shapes stand for),
then replayed as one plan. Its results have the memory order that torch expects of them: a permuted result is written
in that order by the kernel that computes it.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import starmap
from operator import and_
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node, map_arg
from torch.utils._pytree import tree_map_only

import pyflame as pf
from pyflame.bridge.torch import rows
from pyflame.bridge.torch.bound import Bound
from pyflame.bridge.torch.crossing import (
    TorchStream,
    device_of,
    gpu_at,
    hint,
    only_device,
    resolved,
    to_pyflame,
    to_torch,
)
from pyflame.bridge.torch.options import Options
from pyflame.bridge.torch.split import (
    EVALUATED,
    LEFT_TO_TORCH,
    Part,
    evaluated,
    expected,
    fitted,
    is_random,
    reasons,
    split,
)
from pyflame.bridge.torch.table import call_row, row_of
from pyflame.core import knobs
from pyflame.core.device import DeviceId
from pyflame.core.dtype import default
from pyflame.core.precision import choice, tf32_allowed
from pyflame.core.shape import inverse
from pyflame.core.state import mode, state
from pyflame.transform.direct import ARGUMENT, ITSELF, MADE, MISSED, Argument, Row, again, direct

Step = Callable[[dict[Node, Any]], None]
_UNBOUND: Any = object()  # instead of a plan that was not made yet
MAX_ROWS = 8  # of one graph


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest if that is not their own order; None: row-major, or memory with gaps."""
    strides = [hint(s) for s in tensor.stride()]
    sizes = [hint(n) for n in tensor.shape]
    order = sorted(range(tensor.ndim), key=lambda a: (-strides[a], a))
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step:
            return None
        step *= sizes[axis]
    moved = [a for a in order if sizes[a] != 1]
    return tuple(order) if moved != sorted(moved) else None


def run_nodes(nodes: Iterable[Node], env: dict[Node, Any], generator: pf.Generator | None) -> None:
    """Run nodes on tensors of ours; numbers are computed as torch would."""
    for node in nodes:
        args, kwargs = map_arg((node.args, node.kwargs), env.__getitem__)
        row = row_of(node.target)
        if row is None:  # Python's operators over sizes
            env[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            continue
        if row in rows.RANDOM:
            kwargs = {**kwargs, "generator": generator}  # type: ignore[dict-item]
        env[node] = fitted(call_row(row, args, kwargs), expected(node))


class WholeGraph(NamedTuple):
    """A graph of one part: which arguments it takes, and of each result what it is (as in a row) and which."""

    taken: list[int]
    results: list[tuple[int, Any]]


class OurPart:
    """Nodes that run as one jitted function, on tensors of the torch device `place`."""

    def __init__(self, part: Part, outputs: list[Node], device: DeviceId, place: torch.device, modes: mode) -> None:
        inside = set(part.nodes)
        self.nodes = part.nodes
        self.inputs = list(dict.fromkeys(a for n in part.nodes for a in n.all_input_nodes if a not in inside))
        self.outputs = outputs
        self.device, self.place, self.modes = device, place, modes
        self.orders = [memory_order(expected(n)) if isinstance(expected(n), torch.Tensor) else None for n in outputs]
        self.back = [o and inverse(o) for o in self.orders]
        self.random = any(is_random(n) for n in part.nodes)
        self.generator = pf.Generator(0)
        self.jitted = pf.jit(self._compute)
        examples = [expected(n) for n in self.inputs]
        tensors = [v if isinstance(v, torch.Tensor) else None for v in examples]
        self.numeric = [i for i, v in enumerate(tensors) if v is None]
        self.lazy = [i for i, v in enumerate(tensors) if v is not None and (v.is_neg() or v.dtype.is_complex)]
        self.elsewhere = [i for i, v in enumerate(tensors) if v is not None and v.device.type != place.type]
        self.masks = [0 if v is None else v.dtype.itemsize - 1 for v in tensors]
        self.dynamic = any(is_symbolic(v) for v in examples)
        self.shared = device == device_of(place)  # the plan reads torch's memory
        self.bound: OrderedDict[Any, Bound | None] = OrderedDict()
        self.rows: tuple[Row, ...] = ()  # calls of the whole graph that are made in C
        changing = self.numeric or self.lazy or self.elsewhere or self.dynamic or self.random
        self.may_have_rows = not changing
        self.graph: WholeGraph | None = None  # if this part is all of it

    def _compute(self, *values: Any) -> list[Any]:
        env: dict[Node, Any] = dict(zip(self.inputs, values, strict=True))
        run_nodes(self.nodes, env, self.generator)
        results = [env[n] for n in self.outputs]
        return [r.permute(o) if o else r for r, o in zip(results, self.orders, strict=True)]

    def __call__(self, env: dict[Node, Any]) -> None:
        env.update(zip(self.outputs, self.run([env[n] for n in self.inputs]), strict=True))

    def run_graph(self, args: list[Any]) -> Sequence[Any]:
        """The results of the graph that this part is all of; `args` is emptied."""
        if self.rows:
            results: Sequence[Any] = again(self.rows, args)
            if results is not MISSED:
                return results
        assert self.graph is not None
        out = self.run([args[i] for i in self.graph.taken])
        sources: tuple[Any, ...] = out, args
        results = [which if kind == ITSELF else sources[kind][which] for kind, which in self.graph.results]
        args.clear()
        return results

    def run(self, given: list[Any]) -> list[torch.Tensor]:
        """The outputs for these inputs."""
        for i in self.lazy:
            given[i] = resolved(given[i])
        for i in self.elsewhere:  # a number in a tensor of the CPU
            given[i] = given[i].to(self.place)
        if self.random:  # torch.manual_seed decides, and each run draws anew
            self.generator.manual_seed(int(torch.randint(2**62, ())))
        key = self._key(given)
        bound = self.bound.get(key, _UNBOUND)
        if bound is _UNBOUND:
            bound = self._bind(key, given)
        return self._run(bound, given) if bound is not None else self._replay(given)

    def _key(self, given: list[Any]) -> Any:
        """What a plan depends on, beside what Dynamo's guards fix."""
        if not self.numeric:
            layout: Any = tuple([t.stride() for t in given])
            sizes = tuple([t.shape for t in given]) if self.dynamic else ()
        else:
            layout = tuple([t.stride() if isinstance(t, torch.Tensor) else _static(t) for t in given])
            sizes = tuple([t.shape for t in given if isinstance(t, torch.Tensor)])
        return layout, sizes, tf32_allowed(), state.deterministic, default.float

    def _bind(self, key: Any, given: list[Any]) -> Bound | None:
        """Trace and plan for these tensors; None where the plan cannot run on torch's memory as it lies."""
        with self.modes:
            replay, _ = self.jitted.find(tuple(self._ours(given)), {})
        plan = direct(replay) if self.shared else None
        bound = None if plan is None else Bound(plan, self.orders, self.place)
        self.bound[key] = bound
        while len(self.bound) > knobs.PLAN_CACHE.integer():
            self.bound.popitem(last=False)
        if bound is not None and self.graph is not None and self.may_have_rows:
            self._lay(bound, self.graph, key[0])
        return bound

    def _lay(self, bound: Bound, graph: WholeGraph, layout: Sequence[tuple[int, ...]]) -> None:
        """Let C make such calls of the graph from now on, where it can."""
        slots = bound.slots
        if slots is None:
            return
        arguments = list(starmap(Argument, zip(graph.taken, layout, self.masks, strict=True)))
        results = [(kind, slots[which] if kind == MADE else which) for kind, which in graph.results]
        guards = (choice, "precision", choice.precision), (default, "float", default.float)
        row = bound.plan.row(arguments, bound.makers, results, (*guards, (state, "deterministic", state.deterministic)))
        if row is not None:
            self.rows = row, *self.rows[: MAX_ROWS - 1]

    def _ours(self, given: list[Any]) -> list[Any]:
        return [to_pyflame(v.detach(), self.device) if isinstance(v, torch.Tensor) else v for v in given]

    def _run(self, bound: Bound, given: list[Any]) -> list[torch.Tensor]:
        """The usual way: by addresses."""
        if self.numeric:  # sizes are part of the plan
            masks = [m for m, v in zip(self.masks, given, strict=True) if isinstance(v, (torch.Tensor, float))]
            given = [v for v in given if isinstance(v, (torch.Tensor, float))]
            addresses = [v.data_ptr() if isinstance(v, torch.Tensor) else 0 for v in given]
        else:
            masks, addresses = self.masks, [t.data_ptr() for t in given]
        if any(map(and_, addresses, masks)):
            given = [v.clone() if a & m else v for v, a, m in zip(given, addresses, masks, strict=True)]
            addresses = [v.data_ptr() if isinstance(v, torch.Tensor) else 0 for v in given]
        return bound.run(addresses, given)

    def _replay(self, given: list[Any]) -> list[torch.Tensor]:
        """By tensors of ours: where memory must be copied between devices, or a result is a constant."""
        with self.modes:
            results = self.jitted(*self._ours(given))
            taken: set[int] = set()
            out = []
            for back, result in zip(self.back, results, strict=True):
                made = to_torch(result, self.place)
                storage = id(result._node.data.storage)
                if storage in taken:  # two results that are one to us: torch may write to either
                    made = made.clone()
                taken.add(storage)
                out.append(made.permute(back) if back else made)
        return out


def is_symbolic(value: Any) -> bool:
    """Whether an example has sizes that may differ from call to call."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _static(value: Any) -> Any:
    """What of a number is part of a plan: floats are its data."""
    return float if type(value) is float else value


class SingleNodes:
    """Nodes that run one after the other: in torch, or here where an op of ours that looks at values has them."""

    def __init__(self, part: Part, evaluated: Collection[Node], modes: mode) -> None:
        self.nodes = part.nodes
        self.evaluated, self.modes = evaluated, modes

    def __call__(self, env: dict[Node, Any]) -> None:
        with self.modes, torch.no_grad():
            for node in self.nodes:
                args, kwargs = map_arg((node.args, node.kwargs), env.__getitem__)
                run = _evaluate if node in self.evaluated else _in_torch
                env[node] = run(node, args, kwargs)


def _in_torch(node: Node, args: Any, kwargs: Any) -> Any:
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _evaluate(node: Node, args: Any, kwargs: Any) -> Any:
    """Run an op of ours that looks at values, on the host. What it refuses (singular matrices) is torch's to report."""
    given = tree_map_only(torch.Tensor, lambda t: to_pyflame(t.detach()), (args, kwargs))
    row = row_of(node.target)
    assert row is not None  # or it had been left to torch
    try:
        found = fitted(call_row(row, *given), expected(node))
    except pf.PyFlameError:
        return _in_torch(node, args, kwargs)
    if isinstance(found, pf.Tensor):
        return _ordered(found, expected(node))
    return [_ordered(f, w) for f, w in zip(found, expected(node), strict=False)]


def _ordered(result: pf.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """A result in torch's order of memory, by which later ops of the graph go."""
    order = memory_order(wanted)
    return to_torch(result.permute(order)).permute(inverse(order)) if order else to_torch(result)


class OutputView:
    """A result that is a view of an argument or of another result: torch makes it, so that both share memory."""

    def __init__(self, node: Node, root: Node, chain: list[Node]) -> None:
        self.node, self.root, self.chain = node, root, chain
        self.reads = {root, *(a for n in chain for a in n.all_input_nodes if a is not n.args[0])}
        self.calls: list[Any] = [(n.target, n.args[1:], n.kwargs) for n in chain]
        self.fixed = len(self.reads) == 1  # no argument changes
        self.strides, self.layout = _layout_in(root, node) if self.fixed else (None, None)

    def __call__(self, env: dict[Node, Any]) -> None:
        value = env[self.root]
        if self.layout is not None and value.stride() == self.strides:
            shape, strides, offset = self.layout
            env[self.node] = value.as_strided(shape, strides, value.storage_offset() + offset)
            return
        for target, args, kwargs in self.calls if self.fixed else map_arg(self.calls, env.__getitem__):
            value = target(value, *args, **kwargs)
        env[self.node] = value


Layout = tuple[tuple[int, ...], tuple[int, ...], int]


def _layout_in(root: Node, node: Node) -> tuple[tuple[int, ...] | None, Layout | None]:
    """The strides of a root, and shape, strides and offset of a view of it with these strides: one call instead of a
    chain of them. None where sizes may change, or elements are seen as others."""
    whole, view = expected(root), expected(node)
    if not all(isinstance(t, torch.Tensor) and not is_symbolic(t) for t in (whole, view)):
        return None, None
    if whole.dtype != view.dtype or view.dtype.is_complex:
        return None, None
    offset = int(view.storage_offset()) - int(whole.storage_offset())
    return whole.stride(), (tuple(view.shape), view.stride(), offset)


def _views(output: Node) -> list[OutputView]:
    found = [OutputView(n, *_root(n)) for n in output.all_input_nodes]
    uses = Counter(view.root for view in found)
    return [v for v in found if v.chain and (v.root.op != "call_function" or uses[v.root] > 1)]


def _root(node: Node) -> tuple[Node, list[Node]]:
    """What a node is a view of, and the ops that lead from there to it."""
    chain: list[Node] = []
    while node.op == "call_function" and (node.target is operator.getitem or getattr(node.target, "is_view", False)):
        chain.insert(0, node)
        node = node.args[0]  # type: ignore[assignment]
    if chain and not isinstance(expected(node), torch.Tensor):  # one of several results, which are no views
        return chain[0], chain[1:]
    return node, chain


class Program:
    """A graph ready to be called with its arguments in a list, which it empties (AOTAutograd's convention)."""

    def __init__(self, graph: GraphModule, options: Options) -> None:
        self._boxed_call = True  # of the instance: Dynamo copies those attributes to what it wraps around
        self.why = reasons(graph)
        self.parts = split(graph, self.why)
        self.placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self.constants = {n: _attribute(graph, str(n.target)) for n in graph.graph.nodes if n.op == "get_attr"}
        (output,) = [n for n in graph.graph.nodes if n.op == "output"]
        self.result: Sequence[Any] = output.args[0]
        self.views = _views(output)
        views = {view.node for view in self.views}
        # what the steps give: results, and what these are views of
        self.wanted = [r for r in self.result if r not in views] + [r for view in self.views for r in view.reads]
        self.place = only_device(_devices(graph))
        self.device = options.device or device_of(self.place)
        self.gpu = gpu_at(self.place)
        if self.gpu is not None:  # values are the GPU's: only torch looks at them there
            self.why = {n: LEFT_TO_TORCH if w == EVALUATED else w for n, w in self.why.items()}
        self.modes = options.modes(self.device)
        self.steps, self.dead = self._steps(output)
        self.whole = self._whole()

    def _whole(self) -> OurPart | None:
        """Where one plan is all there is: that part. Most graphs are, and need no table of values."""
        if len(self.steps) != 1 or self.constants or not isinstance(part := self.steps[0], OurPart):
            return None
        made, arguments = ({n: i for i, n in enumerate(nodes)} for nodes in (part.outputs, self.placeholders))
        results = [
            (MADE, made[r]) if r in made else (ARGUMENT, arguments[r]) if r in arguments else (ITSELF, r)
            for r in self.wanted
        ]
        part.graph = WholeGraph([arguments[n] for n in part.inputs], results)
        return part

    def _steps(self, output: Node) -> tuple[list[Step], list[list[Node]]]:
        """What to run, and which values nobody needs after each step."""
        used_by: list[set[Node]] = [{a for n in p.nodes for a in n.all_input_nodes} for p in self.parts]
        views = {view.node for view in self.views}
        needed = [{n for n in output.all_input_nodes if n not in views} | {r for v in self.views for r in v.reads}]
        for used in reversed(used_by):
            needed.insert(0, needed[0] | used)
        steps: list[Step] = []
        dead: list[list[Node]] = []
        known = {*self.placeholders, *self.constants}
        alone = set(evaluated(self.why))
        for at, part in enumerate(self.parts):
            later = needed[at + 1]
            outputs = [n for n in part.nodes if n in later] if part.ours else part.nodes
            steps.append(
                OurPart(part, outputs, self.device, self.place, self.modes)
                if part.ours
                else SingleNodes(part, alone, self.modes)
            )
            known |= set(outputs)
            dead.append([n for n in known if n not in later])
            known &= later
        return steps, dead

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self.gpu is None:
            return self._run(args)
        with TorchStream(self.gpu):
            return self._run(args)

    def _run(self, args: list[Any]) -> Sequence[Any]:
        if self.whole is not None:
            made = self.whole.run_graph(args)
            if not self.views:
                return made
            env: dict[Any, Any] = dict(zip(self.wanted, made, strict=True))
        else:
            env = dict(zip(self.placeholders, args, strict=True))
            args.clear()
            env.update(self.constants)
            for step, dead in zip(self.steps, self.dead, strict=True):
                step(env)
                for node in dead:
                    env.pop(node, None)
        if self.views:
            with torch.no_grad():
                for view in self.views:
                    view(env)
        return [env[r] if isinstance(r, Node) else r for r in self.result]


def _attribute(graph: GraphModule, name: str) -> Any:
    found: Any = graph
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _devices(graph: GraphModule) -> list[torch.device]:
    """Of all tensors of a graph. A number in a tensor of the CPU may meet tensors of a GPU, as in torch."""
    found = [v for n in graph.graph.nodes if isinstance(v := expected(n), torch.Tensor)]
    large = [v.device for v in found if v.ndim or v.device.type != "cpu"]
    return large or [v.device for v in found]
