"""OpDef: everything PyFlame knows of an op, and `apply`, which makes a Node of it.

An op is declared by decorating a function over Nodes (see `declare.py`). Methods, functions, gradients, tests and
documentation all derive from the declaration.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError, DTypeError, NoValuesError
from pyflame.core.parameters import parameters
from pyflame.core.state import state
from pyflame.ir.node import NODES, Meta, Node, user_line

# What the compiler must know of an op. Everything else is derived from its declaration.
LEAF = "leaf"  # an evaluated buffer
CONST = "const"  # a number, data of the plan
IOTA = "iota"  # the row-major position of each element
ELEMENTWISE = "elementwise"  # has a C expression
GATHER = "gather"  # elementwise, but reads its first source at a computed position
MOVEMENT = "movement"  # an index map: costs nothing until a copy is needed
REDUCE = "reduce"
KERNEL = "kernel"  # needs an implementation of its own
ASSIGN = "assign"  # the first source with a region overwritten by the second
COPY = "copy"  # the only op that crosses devices
COLLECTIVE = "collective"  # processes take part in it together: between plans, as a copy is
COMPOSITE = "composite"  # kept in the graph for implementations that take it whole, else decomposed
INLINE = "inline"  # a function over other ops: never a Node of its own


@dataclass(eq=False, slots=True)
class OpDef:
    """The declaration of one op."""

    name: str
    kind: str
    fn: Callable[..., Any]  # public arguments -> Node
    doc: str = ""
    infer: Callable[..., tuple[tuple[int, ...], Any]] | None = None  # (*metas, *attrs) -> shape, dtype
    reference: Callable[..., Any] | None = None  # NumPy twin: (*arrays, *attrs), or the public arguments when inline
    grad: Rule | None = None
    decompose: Callable[..., Node] | None = None  # (*srcs, *attrs) -> Node
    c: str | None = None  # C expression over {name} of each source
    identity: str | None = None  # of a reduction, as C text per dtype class: "zero", "one", "lowest", "highest"
    attrs: tuple[str, ...] = ()
    srcs: tuple[str, ...] = ()
    cost: int = 1  # rough flops per element; above 4 a value is stored rather than computed twice
    checked: bool = False  # values are checked at evaluation, so the op's line is kept
    alias: int | None = None  # this source's buffer becomes the output where nobody else holds it
    autocast: str | None = None  # "low": 16-bit; "high": float32; "promote": its widest input; None: as they come
    public: bool = True
    method: bool = True
    samples: Callable[[], Sequence[Sample]] | None = None
    torch: str | Callable[..., Any] | None = None  # oracle: dotted name below torch, or a function (torch, *args)
    differentiable: bool = True
    takes_complex: bool = False  # its kernel only moves elements, so they may be complex; other ops take them apart
    takes_numbers: bool = False  # Python numbers may stand where tensors do
    any_number: bool = False  # which Nodes it makes of a number depends on the number's type alone
    plain: bool = field(init=False)  # nothing about its Nodes needs a second look when a graph is walked

    def __post_init__(self) -> None:
        self.plain = self.kind not in (LEAF, CONST, COPY, COLLECTIVE) and self.alias is None and not self.checked

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Node:
        return self.fn(*args, **kwargs)  # type: ignore[no-any-return]


@dataclass
class Sample:
    """Arguments to try an op with. Arrays stand for tensors; those in `args` that are floats get gradients checked."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    grad: bool = True  # False where the op has a kink or a tie at this sample


class Rule:
    """A gradient rule. Its parameter names say what it needs, and so what the tape must keep:
    `g` the incoming gradient, `out` the result, a source's name that source, `<source>_meta` only its shape and dtype,
    `srcs`/`metas` all of them, `rest` those behind the named ones, `parents` per source None where no gradient is
    wanted, and any attribute of the op.
    """

    def __init__(self, fn: Callable[..., Any], srcs: tuple[str, ...], attrs: tuple[str, ...]) -> None:
        self.fn = fn
        self.needs = parameters(fn)
        known = {"g", "out", "srcs", "metas", "rest", "parents", *srcs, *(s + "_meta" for s in srcs), *attrs}
        unknown = set(self.needs) - known
        if unknown:
            raise ValueError(f"gradient rule asks for {sorted(unknown)}; known here are {sorted(known)}")
        self.keeps_out = "out" in self.needs
        self.src_names = srcs
        # by the number of sources, whether the rule needs the value of each; one answer where it is the same for all
        self.kept: dict[int, tuple[bool, ...] | bool] = {}
        # where each parameter comes from: one of the lists below, and a place in it; None: all of it
        places: dict[str, tuple[int, Any]] = {"g": (0, 0), "out": (0, 1), "srcs": (1, None), "metas": (2, None)}
        places |= {"rest": (1, slice(len(srcs), None)), "parents": (4, None)}
        for number, name in enumerate(srcs):
            places |= {name: (1, number), name + "_meta": (2, number)}
        places |= {name: (3, number) for number, name in enumerate(attrs)}
        self._places = [places[name] for name in self.needs]

    def keeps(self, srcs: tuple[Node, ...]) -> tuple[Node | None, ...]:
        """The sources whose values the rule needs, None for the others."""
        kept = self.kept.get(len(srcs))
        if kept is None:
            every, rest = "srcs" in self.needs, "rest" in self.needs
            named = [every or name in self.needs for name in self.src_names]
            flags = tuple([*named, *[every or rest] * len(srcs)][: len(srcs)])
            kept = self.kept[len(srcs)] = flags[0] if len(set(flags)) == 1 else flags
        if type(kept) is tuple:
            return tuple([s if k else None for s, k in zip(srcs, kept)])  # noqa: B905  a keyword takes 0.3 us
        # a tuple of its own: references to nodes are counted to see who holds them, and a shared one would hide one
        return (*srcs,) if kept else (None,) * len(srcs)

    def __call__(
        self,
        g: Node,
        out: Node | None,
        srcs: Sequence[Node | None],
        metas: Sequence[Meta],
        attrs: tuple[Any, ...],
        parents: Sequence[object],
    ) -> Any:
        lists: tuple[Any, ...] = ((g, out), srcs, metas, attrs, parents)
        return self.fn(*[lists[at] if place is None else lists[at][place] for at, place in self._places])


OPS: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    if op.name in OPS:
        raise ValueError(f"op {op.name!r} is declared twice")
    OPS[op.name] = op
    return op


# What is known of signatures and of the results of ops: what was asked for lately, and before that. A program that sees
# new shapes for days fills the first table again and again; what it still asks for moves along.
_signatures: dict[tuple[Any, ...], int] = {}
_old_signatures: dict[tuple[Any, ...], int] = {}
_inferred: dict[tuple[Any, ...], tuple[Meta, int] | None] = {}
_old_inferred: dict[tuple[Any, ...], tuple[Meta, int] | None] = {}
_numbers = itertools.count()  # not the table's length: two threads may find the same one, and none comes twice
_UNKNOWN: Any = object()
MAX_KNOWN = 50_000  # entries of a table


def signature(*key: Any) -> int:
    """A small integer that stands for this combination, the same one each time it comes again soon."""
    found = _signatures.get(key)
    return _new_signature(key) if found is None else found


def _new_signature(key: tuple[Any, ...]) -> int:
    global _signatures, _old_signatures
    if len(_signatures) >= MAX_KNOWN:
        _signatures, _old_signatures = {}, _signatures
    known = _old_signatures.get(key)
    return _signatures.setdefault(key, next(_numbers) if known is None else known)


_META = DeviceId("meta")


def _place(op: OpDef, metas: Sequence[Meta]) -> tuple[DeviceId, bool]:
    """Where an op runs: on the committed device of its sources, else on the current one, or where a source has no
    values to be copied there."""
    found: DeviceId | None = None
    valueless = False
    for meta in metas:
        if not meta.committed:
            valueless = valueless or meta.device is _META
        elif meta.device is not found:
            if found is not None:
                listed = " and ".join(sorted({str(m.device) for m in metas if m.committed}))
                raise DeviceError(
                    f"[{op.name}] expected all tensors on one device but got {listed}; move one with .to(...)"
                )
            found = meta.device
    if found is not None:
        return found, True
    return (_META if valueless else state.device), False


_MOVING = (MOVEMENT, ASSIGN, COPY, GATHER)


def _infer(op: OpDef, metas: Sequence[Meta], attrs: tuple[Any, ...]) -> tuple[Meta, int] | None:
    device, committed = _place(op, metas)
    for meta in metas:
        if meta.device is not device and meta.device is not None:
            return None
        if meta.dtype.category == "c" and not (op.takes_complex or op.kind in _MOVING):
            raise DTypeError(
                f"[{op.name}] expected real numbers but got complex ones, for which it is not defined here; compute "
                "with .real and .imag"
            )
    assert op.infer is not None
    shape, dtype = op.infer(*metas, *attrs)
    meta = Meta(shape, dtype, device, committed)
    return meta, signature(op.name, attrs, meta)


def _learn(key: tuple[Any, ...], op: OpDef, metas: Sequence[Meta], attrs: tuple[Any, ...]) -> tuple[Meta, int] | None:
    """What an op gives that was not asked for lately."""
    global _inferred, _old_inferred
    if len(_inferred) >= MAX_KNOWN:
        _inferred, _old_inferred = {}, _inferred
    found = _old_inferred.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        found = _infer(op, metas, attrs)
    _inferred[key] = found
    return found  # type: ignore[no-any-return]


def apply(op: OpDef, srcs: tuple[Node, ...], attrs: tuple[Any, ...] = ()) -> Node:
    """Make the Node of an op. Shape, dtype and device errors are raised here, at the user's line."""
    here = state.__dict__  # one look-up of the thread's state: this is the hottest function of graph building
    current = here["device"]
    if current is None:  # this thread's first use of a device: it is chosen now
        current = state.device
    key: tuple[Any, ...]
    if len(srcs) == 1:
        key = (op, attrs, current, srcs[0].meta)
    elif len(srcs) == 2:
        key = (op, attrs, current, srcs[0].meta, srcs[1].meta)
    else:
        key = (op, attrs, current, *[s.meta for s in srcs])
    found = _inferred.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        found = _learn(key, op, [s.meta for s in srcs], attrs)
    if found is None:
        # Uncommitted sources follow the op to where it runs.
        device, _ = _place(op, [s.meta for s in srcs])
        return apply(op, tuple(copy_to(s, device) for s in srcs), attrs)
    recorder = here["recorder"]
    if recorder is not None and op.grad is None and op.decompose is not None and op.differentiable:
        return op.decompose(*srcs, *attrs)
    node: Node = NODES.new(op, srcs, attrs, found[0], found[1])
    if recorder is not None:
        recorder.append(node)
    here["pending"] += 1
    if op.checked:
        node.line = here["line"] or user_line()
    return node


def copy_to(node: Node, device: DeviceId, commit: bool = False) -> Node:
    """The same value on another device; the Node itself where it is there already."""
    meta = node.meta
    if meta.device is None or (meta.device == device and meta.committed >= commit):
        return node
    if meta.device.kind == "meta" and device.computes:
        raise NoValuesError(
            f"[copy] expected a tensor with values but got one of the meta device, which has none to copy to {device}: "
            "Cannot copy out of meta tensor; no data! Use to_empty, empty_like(..., device=...) or "
            "load_state_dict(..., assign=True)"
        )
    copied = Meta(meta.shape, meta.dtype, device, commit or meta.committed)
    if node.op.kind != LEAF and all(s.meta.device is None for s in node.srcs):
        # Positions, empty buffers and what is made of numbers alone: made where it is needed.
        return Node(node.op, node.srcs, node.attrs, copied, signature(node.op.name, node.attrs, copied))
    out = Node(OPS["copy_to"], (node,), (), copied, signature("copy_to", copied))
    if state.recorder is not None:
        state.recorder.append(out)
    return out


def placed(node: Node) -> Node:
    """A constant, which has no memory and no device, as a value of the current device; another Node as it is."""
    return node if node.meta.device is not None else apply(OPS["clone"], (node,))


class Builder:
    """`F.exp(x)`: an op by name, for rules and decompositions, so that op families need not import each other."""

    def __getattr__(self, name: str) -> Callable[..., Node]:
        try:
            fn = OPS[name].fn
        except KeyError:
            raise AttributeError(f"no op named {name!r}") from None
        setattr(self, name, fn)
        return fn


F = Builder()
