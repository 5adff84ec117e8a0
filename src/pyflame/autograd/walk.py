"""The backward walk: gradients of a result with respect to every leaf of its tape."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from pyflame.autograd.known_steps import STEPS, learned
from pyflame.autograd.parts import added, filled
from pyflame.autograd.tape import Entry, Joint, Leaf, Part, record
from pyflame.core.errors import GradientError
from pyflame.core.state import mode, state
from pyflame.ir import F, Meta, Node, cast
from pyflame.ir.opdef import Rule


def sum_to(g: Node, meta: Meta) -> Node:
    """Undo broadcasting: sum a gradient down to its source's shape, in its source's dtype."""
    if g.shape != meta.shape:
        skip = g.ndim - len(meta.shape)
        axes = tuple(a for a in range(g.ndim) if a < skip or (meta.shape[a - skip] == 1 and g.shape[a] != 1))
        g = F.reshape(F.reduce_sum(g, axes), meta.shape) if axes else F.expand(g, meta.shape)
    return cast(g, meta.dtype)


def backward(
    roots: Sequence[tuple[Entry | Leaf, Node]],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    entries: dict[Node, Entry | Leaf] | None = None,
    stop: Collection[Entry | Leaf] = (),
    only: Collection[Entry | Leaf] = (),
) -> dict[Entry | Leaf, Node]:
    """Gradients of sum(root * seed) for each leaf, and for each entry in `stop`, beyond which the walk does not go.

    `only`: walk to these; what leads to none of them is left alone, and so not freed. With create_graph `entries` gets
    the entries of the gradients.
    """
    known: dict[Node, Entry | Leaf] = entries if entries is not None else {}
    with mode(in_backward=True):
        return _walk(roots, known, retain_graph, create_graph, stop, only)


def _walk(
    roots: Sequence[tuple[Entry | Leaf, Node]],
    known: dict[Node, Entry | Leaf],
    retain_graph: bool,
    create_graph: bool,
    stop: Collection[Entry | Leaf],
    only: Collection[Entry | Leaf],
) -> dict[Entry | Leaf, Node]:
    gradients: dict[Entry | Leaf, Node] = {}
    recorder: list[Node] | None = [] if create_graph else None
    with _recording(recorder):
        for root, seed in roots:
            gradients[root] = gradients[root] + seed if root in gradients else seed
    if recorder:
        record(recorder, known)
    order = _order([root for root, _ in roots], stop)
    if only:
        order = _leading_to(only, order)
    keep = retain_graph or create_graph
    visit = partial(_visit, gradients=gradients, known=known, create_graph=create_graph, keep=keep)
    if create_graph or STEPS.made is None:
        for entry in order:
            visit(entry, False)
    else:
        STEPS.made[0](order, gradients, state.__dict__, keep, visit)
    if only:
        gradients = {leaf: g for leaf, g in gradients.items() if leaf in only}
    if not create_graph:
        gradients = {leaf: filled(g) for leaf, g in gradients.items()}
    return {leaf: g if leaf in stop or not leaf.hooks else _hooked(leaf, g, known) for leaf, g in gradients.items()}


def _visit(
    entry: Entry,
    learn: bool,
    gradients: dict[Entry | Leaf, Node],
    known: dict[Node, Entry | Leaf],
    create_graph: bool,
    keep: bool,
) -> None:
    """Hand the gradient of an entry on to its parents. `learn`: keep what its rule makes."""
    if entry.freed:
        raise GradientError(
            "[backward] expected a tape that still holds its values but it was freed by an earlier backward; "
            "pass retain_graph=True to the first one"
        )
    g = gradients.pop(entry, None)
    if g is not None:
        if not create_graph:
            g = filled(g)
        if entry.hooks:
            g = _hooked(entry, g, known)
        _step(entry, g, gradients, known, create_graph, learn)
    if not keep:
        entry.free()


class _Unchanged:
    """A `with` block in which nothing changes. Its methods are C's, for each step of a walk enters one."""

    __enter__ = __exit__ = "".format


_UNCHANGED = _Unchanged()


def _recording(recorder: list[Node] | None) -> mode | _Unchanged:
    """The mode in which gradients are computed; most often that is the mode of the thread, and nothing need change."""
    here = state.__dict__
    if recorder is here["recorder"] is here["autocast"] is None:
        return _UNCHANGED
    return mode(recorder=recorder, autocast=None)


def _hooked(entry: Entry | Leaf, g: Node, known: dict[Node, Entry | Leaf]) -> Node:
    """Show a finished gradient to those who asked for it."""
    for hook in list(entry.hooks or ()):
        replaced = hook(g, known)
        g = g if replaced is None else replaced
    return g


def _step(
    entry: Entry,
    g: Node,
    gradients: dict[Entry | Leaf, Node],
    known: dict[Node, Entry | Leaf],
    create_graph: bool,
    learn: bool,
) -> None:
    recorder: list[Node] | None = [] if create_graph else None
    if isinstance(entry, Part):
        joint = entry.parents[0]
        assert isinstance(joint, Joint)
        with _recording(recorder):
            before = joint.collected[entry.position]
            joint.collected[entry.position] = gradients[joint] = g if before is None else added(before, g)
    elif isinstance(entry, Joint):
        given, entry.collected = entry.collected, [None] * len(entry.collected)
        results = entry.rule(given, known, create_graph)
        with _recording(recorder):
            _hand_on(entry, _fitted(entry, results), gradients)
    else:
        rule = entry.op.grad
        if rule is None:
            raise GradientError(
                f"[{entry.op.name}] expected an op with a gradient but it has none; use .detach() to leave it out"
            )
        with _recording(recorder):
            made = partial(_by_rule, entry, g, rule)
            _hand_on(entry, learned(entry, g, made) if learn else made(), gradients)
    if recorder is not None:
        if entry.out is not None:
            known[entry.out] = entry
        for node, parent in zip(entry.srcs, entry.parents, strict=False):  # a joint entry keeps no sources
            if node is not None and parent is not None:
                known[node] = parent
        record(recorder, known)


def _by_rule(entry: Entry, g: Node, rule: Rule) -> list[Node | None]:
    return _fitted(entry, rule(g, entry.out, entry.srcs, entry.metas, entry.attrs, entry.parents))


def _fitted(entry: Entry, results: Sequence[Any]) -> list[Node | None]:
    """What a rule gave for each parent that wants a gradient, as gradients of the entry's sources."""
    return [
        None if parent is None or result is None else result if result.meta is meta else sum_to(result, meta)
        for parent, meta, result in zip(entry.parents, entry.metas, results, strict=True)
    ]


def _hand_on(entry: Entry, results: Sequence[Node | None], gradients: dict[Entry | Leaf, Node]) -> None:
    """Add them to the gradients of the entry's parents."""
    for parent, result in zip(entry.parents, results, strict=True):
        if parent is None or result is None:
            continue
        before = gradients.get(parent)
        gradients[parent] = result if before is None else added(before, result)


def _order(roots: Sequence[Entry | Leaf], stop: Collection[Entry | Leaf]) -> list[Entry]:
    """Entries reachable from the roots, each before those that it was made of, which are older. Leaves and `stop` are
    no part of it: no gradient goes further there."""
    stack: list[Any] = list(roots)
    seen: set[Any] = {None, *stop}
    order: list[Entry] = []
    while stack:
        entry = stack.pop()
        if entry not in seen:
            seen.add(entry)
            if type(entry) is not Leaf:
                order.append(entry)
                stack += entry.parents
    order.sort(key=_age, reverse=True)
    return order


def _leading_to(wanted: Collection[Entry | Leaf], order: list[Entry]) -> list[Entry]:
    """Those of the entries whose gradients reach one that is wanted, in their order. One that was freed may do so."""
    leading: set[Any] = set()
    for entry in reversed(order):  # the oldest first
        if entry.freed or any(parent in leading or parent in wanted for parent in entry.parents):
            leading.add(entry)
    return [entry for entry in order if entry in leading]


_age = attrgetter("age")
