"""Views: tensors that share memory, as in PyTorch.

Tensors hold immutable Nodes, so no two of them share a Node that changes. Instead a view knows the tensor it is a view
of and the path from there (paths.py), and that tensor knows its views. A write to any of them becomes a write to the
tensor at the root; then every live view gets the Node that its path reads from the root's new one. Reading a view costs
nothing more than reading any tensor, and a tensor without views pays nothing at all.

A view is *attached* where gradients flow through it: its place on the tape follows from its parent's. `detach()` and
`.data` make views that are not: they keep their own place on the tape and let no gradient through. Such a view hangs
from a tensor that holds no tape of its own, so that `losses.append(loss.detach())` keeps no graph alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pyflame.autograd import Entry, Leaf, record
from pyflame.core.dtype import bool_
from pyflame.core.errors import ArgumentError, GradientError, NotSupportedError
from pyflame.core.maker import Maker
from pyflame.core.shape import Region, contiguous_strides
from pyflame.core.state import mode, state
from pyflame.engine.commit import write_all
from pyflame.ir import Node
from pyflame.tensor.paths import Layout, Path, Strides, follow, layout_after, write_back
from pyflame.tensor.tensor import TENSORS, Tensor, alias, read

if TYPE_CHECKING:
    Tape = Entry | Leaf | None


class Link:
    """What ties a tensor to those that share its memory: its parent (None: it is the root), and its views."""

    __slots__ = ("attached", "layout", "overlaps", "parent", "path", "views")

    def __init__(
        self,
        parent: Tensor | None = None,
        path: Path = (),
        attached: bool = True,
        overlaps: bool = False,
        views: dict[weakref.ref[Tensor], None] | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.parent = parent
        self.path = path
        self.attached = attached
        self.overlaps = overlaps  # whether elements share places in memory, so that nothing can be written through it
        self.layout = layout  # what PyTorch would hold, once somebody asked
        self.views = {} if views is None else views  # those that are alive

    def add(self, view: Tensor) -> None:
        self.views[weakref.ref(view, self.views.pop)] = None  # who goes takes itself out

    def remove(self, gone: Container[int]) -> None:
        """Forget views, by their ids."""
        for ref in [ref for ref in list(self.views) if id(ref()) in gone]:
            self.views.pop(ref, None)

    def live(self) -> list[Tensor]:
        return [view for ref in list(self.views) if (view := ref()) is not None]

    @property
    def tied(self) -> bool:
        """Whether there is another tensor with the same memory."""
        return self.parent is not None or bool(self.views)


LINKS = Maker(Link, ("parent", "path", "attached", "overlaps", "views", "layout"))


class Change(NamedTuple):
    """A tensor and what it holds after a write."""

    cell: Tensor
    node: Node
    entry: Tape


# --- making views ---------------------------------------------------------------------------------------------------


def link(view: Tensor, parent: Tensor, path: Path, attached: bool = True) -> Tensor:
    """Make a tensor that was read from another a view of it."""
    above = parent._link
    if above is None:
        above = parent._link = Link()
    view._link = Link(parent, path, attached)
    above.add(view)
    if state.tracer is not None:
        state.tracer.links.append(view)
    return view


def view_of(parent: Tensor, path: Path, node: Node, entry: Tape = None, place: Layout | None = None) -> Tensor:
    """A new view of a tensor, where there is no tracer. Each index comes here. `place`: its layout, where known."""
    above = parent._link
    if above is None:
        above = parent._link = Link()
    view: Tensor = TENSORS.new(node, entry, LINKS.new(parent, path, True, False, {}, place))
    views = above.views
    views[weakref.ref(view, views.pop)] = None
    return view


# Steps that PyTorch cannot always make without a copy. Strides need not be known for others.
MAY_COPY = frozenset(("reshape", "bitcast", "view_as_complex"))
_COPIED = Layout((), (), 0, bool_)


def _place(parent: Tensor, path: Path) -> Layout | None:
    """Where PyTorch would hold what a path reads; _COPIED where it would copy that, None where nobody need know."""
    above = parent._link
    if above is not None and above.parent is not None:
        for step in path:
            if step.op.name in MAY_COPY:
                return layout_after(layout(parent), path) or _COPIED
    return None


def _recorded_chain(source: Node, made: Node, tape: Entry | Leaf) -> Tape:
    """The place on the tape of what moves made of a Node that has one."""
    nodes, entries, view = [], {source: tape}, made
    while view is not source:
        nodes.append(view)
        view = view.srcs[0]
    record(nodes[::-1], entries)
    return entries.get(made)


def link_view(view: Tensor, parent: Tensor, path: Path) -> Tensor:
    """Make the result of a view op a view, unless PyTorch would have made a copy.

    Without gradient recording it is one that no gradient flows through.
    """
    if _place(parent, path) is _COPIED:
        return view
    if not state.grad_enabled and parent._tape is not None:
        return link_detached(view, parent, path)
    return link(view, parent, path)


def read_as(parent: Tensor, source: Node, made: Node, path: Path) -> Tensor:
    """A new tensor of what moves made of a tensor's Node, where there is neither a tracer nor a recorder: a view, but
    where PyTorch makes a copy."""
    tape, place, entry = parent._entry, _place(parent, path), None
    if tape is not None and state.grad_enabled:
        entry = _recorded_chain(source, made, tape)
    elif made is source:
        made = alias(made)
    if place is _COPIED:
        return TENSORS.new(made, entry)  # type: ignore[no-any-return]
    if tape is not None and not state.grad_enabled:
        return link_detached(TENSORS.new(made), parent, path)
    return view_of(parent, path, made, entry, place)


def link_detached(view: Tensor, parent: Tensor, path: Path = ()) -> Tensor:
    """Make a tensor a view without gradients, hung from the nearest tensor above that holds no tape."""
    while (above := parent._link) is not None and above.parent is not None:
        path, parent = above.path + path, above.parent
        if not above.attached:
            return link(view, parent, path, attached=False)
    if isinstance(parent._tape, Entry) and state.tracer is None:  # a trace's links are cut when it ends
        parent = _put_root_above(parent)
    return link(view, parent, path, attached=False)


def _put_root_above(cell: Tensor) -> Tensor:
    """A new root that nobody else sees, above the old one: it has its value and memory, not its tape."""
    root = Tensor(cell._node)
    below = cell._link or Link()
    loose = [view for view in below.live() if not _link_of(view).attached]
    below.remove({id(view) for view in loose})
    root._link = Link()
    for view in [cell, *loose]:
        if view is cell:
            below.parent, below.path, below.attached = root, (), False
            cell._link = below
        else:
            _link_of(view).parent = root
        root._link.add(view)
    return root


def _link_of(view: Tensor) -> Link:
    assert view._link is not None
    return view._link


def root_of(cell: Tensor) -> Tensor:
    """The tensor that holds the memory of this one."""
    while (above := cell._link) is not None and above.parent is not None:
        cell = above.parent
    return cell


def links_above(cell: Tensor) -> Iterator[Link]:
    """Those that tie a view to the tensor that holds its memory, from the view upwards."""
    while (above := cell._link) is not None and above.parent is not None:
        yield above
        cell = above.parent


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same part of the same memory."""
    found = []
    for cell in (one, other):
        path: Path = ()
        while (above := cell._link) is not None and above.parent is not None:
            path, cell = above.path + path, above.parent
        found.append((id(cell), path))
    return found[0] == found[1]


def layout(cell: Tensor) -> Layout:
    """Where PyTorch would hold the elements of a tensor: row-major but for views."""
    known = cell._link
    if known is None or known.parent is None:
        return Layout(cell._node.meta.shape, contiguous_strides(cell.shape), 0, cell._node.meta.dtype)
    if known.layout is None:
        known.layout = layout_after(layout(known.parent), known.path)
        if known.layout is None:
            raise AssertionError("a view that cannot be one")
    return known.layout


def strides(cell: Tensor) -> Strides:
    """The strides that PyTorch would hold for a tensor."""
    return layout(cell).strides


# --- writing --------------------------------------------------------------------------------------------------------


def write(cell: Tensor, node: Node, entry: Tape) -> None:
    """Give a tensor that has relatives another value, and with it all of them."""
    changed = changes(cell, node, entry)
    if state.rebinds is not None:
        for change in changed:
            state.rebinds.note(change.cell)
    if state.tracer is not None:
        for change in changed:
            state.tracer.write(*change)
        return
    cells = [change.cell for change in changed]
    write_all(
        (
            [*cells, *cells],
            ["_node"] * len(cells) + ["_entry"] * len(cells),
            [*[c.node for c in changed], *[c.entry for c in changed]],
        )
    )
    root = cells[0]
    if isinstance(root._entry, Entry) and any(not _link_of(v).attached for v in _link_of(root).live()):
        _put_root_above(root)


def changes(cell: Tensor, node: Node, entry: Tape) -> list[Change]:
    """All that changes with a tensor's value, the root first."""
    _check_places(cell)
    value, region, value_entry = _part_written(cell, node, entry)
    path: Path = ()
    base = cell
    while (above := base._link) is not None and above.parent is not None and above.attached:
        path, base = above.path + path, above.parent
        if state.grad_enabled and isinstance(base._tape, Leaf):
            raise GradientError(
                "[in-place] expected a view of a tensor that is not a leaf of the tape but got one of a leaf that "
                "requires grad; use `with pf.no_grad():` to change it, or write to .data"
            )
    before = base._tape
    if base is not cell:
        node, entry = _recorded_write(base, path, value, region, value_entry)
    if (above := base._link) is not None and above.parent is not None:  # not attached: only the value goes further up
        top = base
        while (above := top._link) is not None and above.parent is not None:
            path, top = above.path + path, above.parent
        with mode(recorder=None):
            node = write_back(read(top), path, value, region)
        return [Change(top, node, top._tape), *_spread(top, node, top._tape, False, {id(base): entry})]
    return [Change(base, node, entry), *_spread(base, node, entry, entry is not before, {})]


def _check_places(cell: Tensor) -> None:
    """Raise where a write goes through a view whose elements share places in memory."""
    if any(link.overlaps for link in links_above(cell)):
        raise ArgumentError(
            "[in-place] expected a view whose elements lie at different places in memory but got one made by "
            "as_strided, whose elements overlap; use .clone() first, or write to the tensor it was made of"
        )


def _part_written(cell: Tensor, node: Node, entry: Tape) -> tuple[Node, Region | None, Tape]:
    """A new value as what was assigned to a region of the old one, if it is that."""
    if node.op.name != "assign" or node.srcs[0] is not read(cell):
        return node, None, entry if state.grad_enabled else None
    if not state.grad_enabled or entry is None:
        return node.srcs[1], node.attrs[0], None
    if not isinstance(entry, Entry) or entry.op is not node.op or entry.freed:
        return node, None, entry
    return node.srcs[1], node.attrs[0], entry.parents[1]


def _recorded_write(
    base: Tensor, path: Path, value: Node, region: Region | None, entry: Tape
) -> tuple[Node, Entry | Leaf | None]:
    """The base after a write to a view of it, and its place on the tape."""
    below, tape = read(base), base._tape
    if not state.grad_enabled or (tape is None and entry is None):
        with mode(recorder=None):
            return write_back(below, path, value, region), tape
    found = {n: e for n, e in ((below, tape), (value, entry)) if e is not None}
    recorder: list[Node] = []
    with mode(recorder=recorder):
        node = write_back(below, path, value, region)
    record(recorder, found)
    return node, found.get(node)


def _spread(cell: Tensor, node: Node, entry: Tape, taped: bool, given: dict[int, Tape]) -> Iterator[Change]:
    """What the views of a tensor hold after it has changed. `taped`: its place on the tape has changed as well.

    `given`: places on the tape that views have got themselves.
    """
    if cell._link is None:
        return
    for view in cell._link.live():
        if state.tracer is not None and not state.tracer.follows(view):
            continue
        known = _link_of(view)
        if known.attached and taped and entry is not None:
            below, tape = _recorded_read(node, entry, known.path)
        else:
            tape = None if known.attached and taped else given.get(id(view), view._tape)
            with mode(recorder=None):
                below = follow(node, known.path)
                if below is node and tape is not entry:  # the tape knows values by their Node
                    below = alias(node)
        yield Change(view, below, tape)
        yield from _spread(view, below, tape, tape is not view._tape, given)


def _recorded_read(node: Node, entry: Entry | Leaf, path: Path) -> tuple[Node, Entry | Leaf | None]:
    found = {node: entry}
    recorder: list[Node] = []
    with mode(recorder=recorder):
        view = follow(node, path)
    record(recorder, found)
    return view, found.get(view)


def followers(cell: Tensor, node: Node) -> list[Change]:
    """What changes with a tensor that has got another value behind the tape's back, itself left out."""
    if cell._link is None or not cell._link.tied:
        return []
    with mode(grad_enabled=False):
        return [change for change in changes(cell, node, cell._entry) if change.cell is not cell]


class Aside:
    """The views of a tensor, taken off its memory while a plan runs that may overwrite it.

    They read from a leaf that gets its memory when the plan is done. Whoever evaluates them meanwhile waits for the
    device, as for any plan.
    """

    def __init__(self, cell: Tensor) -> None:
        node = cell._node
        self.cell = cell
        self.leaf = Node(node.op, (), (), node.meta, node.sig)
        self._read_from(self.leaf)

    def undo(self) -> None:
        """The plan may not overwrite the memory after all."""
        self._read_from(self.cell._node)

    def _read_from(self, node: Node) -> None:
        moved = list(_spread(self.cell, node, self.cell._entry, False, {}))
        write_all(([c.cell for c in moved], ["_node"] * len(moved), [c.node for c in moved]))


# --- leaving and joining --------------------------------------------------------------------------------------------


def part(cell: Tensor) -> None:
    """Cut a tensor loose: it gets memory of its own, and its relatives keep theirs."""
    old = cell._link
    if old is None:
        return
    if old.live():
        _put_heir(cell)
    elif old.parent is not None:
        _link_of(old.parent).remove({id(cell)})
    cell._link = None


def _put_heir(cell: Tensor) -> None:
    """Let a tensor that nobody else sees stand where this one stood among its relatives, with its value and tape."""
    old = _link_of(cell)
    heir = Tensor(read(cell), cell._tape if isinstance(cell._tape, Entry) else None)
    heir._link = Link()
    if old.parent is not None:
        _link_of(old.parent).remove({id(cell)})
        link(heir, old.parent, old.path, old.attached)
    for view in old.live():
        _link_of(view).parent = heir
        _link_of(heir).add(view)


def lie_as(cell: Tensor, view: Tensor) -> None:
    """Let a tensor be what a view of it is, as `x.t_()` does. All that share its memory keep their shapes."""
    old, made = cell._link, view._link
    if state.grad_enabled and isinstance(cell._tape, Leaf):
        raise GradientError(
            "[in-place] expected a tensor that is not a leaf of the tape but this one requires grad; use the function "
            "without the underscore, or `with pf.no_grad():`"
        )
    if state.rebinds is not None:
        state.rebinds.note(cell)
    node, entry = read(view), view._tape
    if isinstance(cell._tape, Leaf):
        entry = cell._tape
        entry.meta = node.meta
    if made is not None and old is not None and (old.parent is not None or any(v is not view for v in old.live())):
        if state.tracer is not None and state.tracer.cell(cell) is not None:
            raise NotSupportedError(
                "[in-place] expected a tensor that the jitted function has made, or one that shares no memory, but got "
                "one from outside that does; use the function without the underscore"
            )
        _put_heir(cell)
        assert made.parent is not None
        below = _link_of(link(cell, made.parent, made.path, made.attached))
        below.layout, below.overlaps = made.layout, made.overlaps
    else:
        cell._link = None
    cell._put(node, entry)


def share(cell: Tensor, other: Tensor) -> None:
    """Let a tensor that has no relatives share the memory of another, whose value it has already.

    The other becomes a view of it where that can be: a parameter stays the root, which jitted functions know.
    """
    below = other._link
    has_parent = below is not None and below.parent is not None
    if has_parent or isinstance(other._tape, Entry) or isinstance(cell._tape, Entry):  # no tape may hang below a view
        link_detached(cell, other)
        return
    link(other, cell, (), attached=False)
    for view in below.live() if below is not None else ():  # its views stay its own
        _link_of(other).add(view)


def replace(cell: Tensor, value: Tensor) -> None:
    """Give a tensor the value and memory of another; what shared memory with it before no longer does."""
    part(cell)
    leaf = cell._entry
    if isinstance(leaf, Leaf):
        leaf.meta = value._node.meta  # gradients come in the new dtype
    cell._node = alias(value._node)
    share(cell, value)
