"""Which nodes of an aten graph are ours, and the order of parts in which each side runs as much as it can at once."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects
from torch.fx import GraphModule, Node, map_arg

import pyflame as pf
from pyflame.bridge.torch import rows
from pyflame.bridge.torch.crossing import dtype_of, example, hint
from pyflame.bridge.torch.table import call_row, is_number, row_of
from pyflame.core.device import parse_device
from pyflame.core.dtype import DType
from pyflame.core.errors import PyFlameError, TraceError
from pyflame.core.state import mode
from pyflame.engine.devices import get_device
from pyflame.transform.tracer import Tracer

NUMBER = "a number, which the host computes or checks"
EVALUATED = "it looks at values of tensors: PyFlame runs it by itself, between plans"
LEFT_TO_TORCH = "it looks at values of tensors, which torch does on the GPU"
_TRIAL = parse_device("null:gfx942")  # computes nothing


def expected(node: Node) -> Any:
    """What torch says that a node gives: an example tensor, a number, or a list of them."""
    return node.meta.get("val", node.meta.get("example_value"))


def fitted(result: Any, wanted: Any) -> Any:
    """A result with the dtype that aten gives. Only the width may differ: aten keeps some 16-bit values in 32 bits."""
    if isinstance(wanted, torch.Tensor) and isinstance(result, pf.Tensor):
        kind = dtype_of(wanted.dtype)
        return result if result.dtype is kind or result.dtype.category != kind.category else result.to(kind)
    if isinstance(wanted, (list, tuple)) and isinstance(result, (list, tuple)):
        return [fitted(r, w) for r, w in zip(result, wanted, strict=False)]
    return result


def _difference(result: Any, wanted: Any) -> str:
    """What is wrong with a result, or nothing."""
    if isinstance(wanted, torch.Tensor):
        if not isinstance(result, pf.Tensor):
            return f"gives {type(result).__name__} where torch gives a tensor"
        shape, kind = tuple(hint(n) for n in wanted.shape), dtype_of(wanted.dtype)
        if tuple(result.shape) != shape or result.dtype is not kind:
            return f"gives {_meta(result.dtype, result.shape)} where torch gives {_meta(kind, shape)}"
    elif isinstance(wanted, (list, tuple)):
        if not isinstance(result, (list, tuple)) or len(result) < len(wanted):
            return f"gives other results than the {len(wanted)} of torch"
        return next((d for r, w in zip(result, wanted, strict=False) if (d := _difference(r, w))), "")
    return ""


def _meta(kind: DType, shape: Iterable[int]) -> str:
    return f"{kind.name}{list(shape)}"


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers: their order is the program's. Attention without dropout draws none."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return "dropout_p" not in names or bool(given.get("dropout_p", 0.0))


def op_name(target: Any) -> str:
    """An aten op's name without its overload; empty for what is none."""
    return str(target._schema.name.partition("::")[2]) if isinstance(target, torch._ops.OpOverload) else ""


def is_check(node: Node) -> bool:
    """Whether a node raises torch's error for the number that a factorisation reports, or is a part of its result."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return is_check(node.args[0])
    return node.target is with_effects and node.args[1] is torch.ops.aten._linalg_check_errors.default


def _why(node: Node, error: Exception) -> str:
    if isinstance(error, TraceError) and op_name(node.target) in rows.EVALUATING:
        return EVALUATED
    if isinstance(error, TraceError):
        return "it looks at values of tensors, which exist only when a plan runs"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def _row_major(node: Any) -> bool:
    """Whether a tensor is computed by the graph and fills its memory in the order in which ours do."""
    wanted = expected(node)
    return node.op == "call_function" and bool(wanted.is_contiguous()) and hint(wanted.storage_offset()) == 0


class Trial:
    """Builds nodes one after the other on a device that computes nothing, and says why one is not ours."""

    def __init__(self) -> None:
        get_device(_TRIAL)
        self.values: dict[Node, Any] = {}
        self.generator = pf.Generator(0)
        self.tracer = Tracer("a torch graph")  # so that what looks at values raises, as it will in the plan

    def _mode(self) -> mode:
        return mode(tracer=self.tracer, eager=False, grad_enabled=False, autocast=None, device=_TRIAL)

    def reason(self, node: Node) -> str:
        """Why this node runs in torch; empty if it is ours."""
        try:
            with self._mode():
                why = self._tried(node)
                if why:
                    self.values[node] = self._example(expected(node))
        except (
            PyFlameError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            KeyError,
            NotImplementedError,
        ) as error:
            why = _why(node, error)
            self.note(node)
        return why

    def note(self, node: Node) -> None:
        """Take what torch says that a node gives for its value."""
        with self._mode():
            try:
                self.values[node] = self._example(expected(node))
            except PyFlameError:
                self.values[node] = None  # a dtype or layout that is not ours: what uses it is refused, too

    def _tried(self, node: Node) -> str:
        if node.op == "placeholder" or node.op == "get_attr":
            self.note(node)
            return ""
        if is_number(expected(node)) or is_check(node):
            return NUMBER
        row = row_of(node.target)
        if row is None:
            return f"PyFlame has no {node.target}"
        if op_name(node.target) in rows.BY_MEMORY and not _row_major(node.args[0]):
            return "it goes by the order of memory, which is not row-major in torch"
        args, kwargs = map_arg((node.args, node.kwargs), self.values.__getitem__)
        ignored = rows.UNUSED.get(op_name(node.target), ())
        read = [a for at, a in enumerate(node.args) if at not in ignored]
        missing = [a for a in _nodes_in((read, node.kwargs)) if self.values[a] is None and expected(a) is not None]
        if missing:
            return f"its argument {missing[0]} has a dtype or layout that PyFlame has not"
        named: dict[str, Any] = dict(kwargs)
        if row in rows.RANDOM:
            if named.get("generator") is not None:
                return "a generator of torch's"
            named["generator"] = self.generator
        found = fitted(call_row(row, _hinted(args), _hinted(named)), expected(node))
        self.values[node] = found
        return _difference(found, _read_parts(node))

    def _example(self, wanted: Any) -> Any:
        if isinstance(wanted, torch.Tensor):
            if wanted.layout is not torch.strided:
                raise pf.NotSupportedError(f"[bridge] expected a dense tensor but got layout {wanted.layout}")
            return example(wanted.shape, wanted.dtype, pf.empty)
        if isinstance(wanted, (list, tuple)):
            return [self._example(w) for w in wanted]
        return hint(wanted)


def _nodes_in(values: Any) -> list[Node]:
    """The nodes among arguments."""
    found: list[Node] = []
    map_arg(values, found.append)
    return found


def _read_parts(node: Node) -> Any:
    """What torch says that a node gives, but None for parts of a tuple that nobody reads."""
    wanted = expected(node)
    if not isinstance(wanted, (list, tuple)) or any(user.target is not operator.getitem for user in node.users):
        return wanted
    read = {user.args[1] for user in node.users}
    return [part if at in read else None for at, part in enumerate(wanted)]


def _hinted(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_hinted(v) for v in value)
    return {k: _hinted(v) for k, v in value.items()} if isinstance(value, dict) else hint(value)


@dataclass
class Part:
    """Nodes that run together: jitted by us, or one after the other, in torch or by our ops that look at values."""

    ours: bool
    nodes: list[Node] = field(default_factory=list)


def reasons(graph: GraphModule) -> dict[Node, str]:
    """For each computing node why it is not ours, or an empty text. Parts of a tuple go where the tuple is made."""
    trial = Trial()
    found: dict[Node, str] = {}
    for node in graph.graph.nodes:
        if node.op == "output":
            continue
        why = trial.reason(node)
        if node.op == "call_function":
            producer = node.args[0] if node.target is operator.getitem else None
            if isinstance(producer, Node) and found.get(producer):
                why = found[producer]
                trial.note(node)
            found[node] = why
    return found


def fallen(why: dict[Node, str]) -> dict[Node, str]:
    """The ops that are not ours, and why. Numbers are nobody's, and parts of a tuple are no ops."""
    return {n: w for n, w in why.items() if w not in ("", NUMBER, EVALUATED) and n.target is not operator.getitem}


def evaluated(why: dict[Node, str]) -> list[Node]:
    """The ops that run here by themselves, between plans."""
    return [n for n, w in why.items() if w == EVALUATED and n.target is not operator.getitem]


def split(graph: GraphModule, why: dict[Node, str]) -> list[Part]:
    """The nodes as parts to be run in this order. Each part takes every node that is ready, so parts are few."""
    waiting = [n for n in graph.graph.nodes if n in why]
    done = {n for n in graph.graph.nodes if n.op in ("placeholder", "get_attr")}
    before = _random_order(waiting)
    parts: list[Part] = []
    ours = False  # sizes of dynamic shapes come first
    while waiting:
        part = Part(ours)
        for node in waiting:
            if (not why[node]) is ours and all(a in done for a in (*node.all_input_nodes, *before.get(node, ()))):
                part.nodes.append(node)
                done.add(node)
        waiting = [n for n in waiting if n not in done]
        if part.nodes:
            parts.append(part)
        ours = not ours
    return parts


def _random_order(nodes: list[Node]) -> dict[Node, tuple[Node]]:
    """The random node that must run before each random node."""
    drawn = [n for n in nodes if is_random(n)]
    return {node: (last,) for last, node in pairwise(drawn)}
