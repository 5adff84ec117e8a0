"""Recurrent layers: all steps of an RNN, a GRU or an LSTM over its projected input are one op, and so is its backward
pass. Either becomes its unrolled steps when a plan is made; until then a layer costs the host a few nodes.

What is kept for the backward pass is the output alone. Its decomposition unrolls the forward steps again: in one plan
with the forward pass those are the same nodes, and nothing is computed twice. Where the forward pass has run before,
what the gates saw comes from one product over all steps instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType
from pyflame.core.errors import ShapeError
from pyflame.core.shape import Shape
from pyflame.ir import F, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE, LEAF

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


class Sequence:
    """The sources of a recurrence by name: Nodes, or their Metas, or arrays.

    x (time, batch, gates * hidden), h0 (batch, features), weight (gates * hidden, features); where given, the cells c0
    (batch, hidden), the bias (gates * hidden) of the product with h, the projection (features, hidden), and inside
    (time, batch, 1), which is false where a step is padding and changes no state.
    """

    def __init__(self, srcs: Any, kind: str, backwards: bool, given: tuple[str, ...]) -> None:
        self.srcs, self.kind, self.backwards, self.given = srcs, kind, backwards, given
        self.x, self.h0, self.weight, *rest = srcs
        named = dict(zip(given, rest, strict=True))
        self.c0, self.bias = named.get("c0"), named.get("bias")
        self.projection, self.inside = named.get("projection"), named.get("inside")
        self.steps, self.batch, wide = self.x.shape
        self.hidden = wide // GATES[kind]
        self.features = self.h0.shape[-1]

    def order(self) -> list[int]:
        """The steps in their order."""
        return list(range(self.steps))[:: -1 if self.backwards else 1]

    def result(self) -> dict[str, Shape]:
        """What the op gives: the last cells and all outputs, one behind the other."""
        cells = {"c": (self.batch, self.hidden)} if self.kind == "lstm" else {}
        return {**cells, "h": (self.steps, self.batch, self.features)}

    def gradients(self) -> dict[str, Shape]:
        """What the backward op gives: gradients of W h, which are those of x too, but for the `new` values of a GRU;
        with a projection its incoming gradient and what it was applied to."""
        found = {"gates": self.x.shape, "h0": self.h0.shape}
        if self.kind == "lstm":
            found["c0"] = (self.batch, self.hidden)
        if self.kind == "gru":
            found["new"] = (self.steps, self.batch, self.hidden)
        if self.projection is not None:
            found["projected"] = (self.steps, self.batch, self.features)
            found["raw"] = (self.steps, self.batch, self.hidden)
        return found


def _total(shapes: dict[str, Shape]) -> Shape:
    return (sum(prod(shape) for shape in shapes.values()),)


def _part(packed: Node, shapes: dict[str, Shape], name: str) -> Node:
    """One of several values that lie behind each other."""
    before = list(shapes)[: list(shapes).index(name)]
    start = sum(prod(shapes[n]) for n in before)
    return F.reshape(F.slice(packed, ((start, 1, prod(shapes[name])),)), shapes[name])


def _filled(size: int, dtype: DType, parts: Iterable[tuple[int, Node]]) -> Node:
    """A vector of values from parts and where they begin, assigned in this order."""
    out = F.uninitialized((size,), dtype)
    for start, part in parts:
        out = F.assign(out, F.reshape(cast(part, dtype), (part.size,)), ((start, 1, part.size),))
    return out


def _at(x: Node, step: int, part: int = 0, parts: int = 1) -> Node:
    """(time, batch, n) -> (batch, n / parts)"""
    _, batch, size = x.shape
    size //= parts
    return F.reshape(F.slice(x, ((step, 1, 1), (0, 1, batch), (part * size, 1, size))), (batch, size))


def _columns(x: Node, count: int) -> list[Node]:
    size = x.shape[-1] // count
    around = tuple((0, 1, n) for n in x.shape[:-1])
    return [F.slice(x, (*around, (i * size, 1, size))) for i in range(count)]


def _turned(x: Node) -> Node:
    return F.permute(x, (1, 0))


def _before(seq: Sequence, h: Node) -> Node:
    """The hidden values before each step, from those behind it."""
    first = F.reshape(cast(seq.h0, h.dtype), (1, *seq.h0.shape))
    keep = F.slice(h, ((int(seq.backwards), 1, seq.steps - 1), *((0, 1, n) for n in h.shape[1:])))
    return F.cat([keep, first] if seq.backwards else [first, keep], 0)


def _hidden(seq: Sequence, h: Node) -> Node:
    """W h, not rounded, for any number of rows."""
    rows = F.matmul_wide(F.reshape(h, (-1, seq.features)), _turned(seq.weight))
    out = F.reshape(rows, (*h.shape[:-1], rows.shape[-1]))
    return out if seq.bias is None else out + cast(seq.bias, out.dtype)


# --- one step: (parts of x, W h, h, c) -> (h before its projection, c, what the way back needs) -----------------------
# and back: (that, dh, dc) -> (gradients of W h by gate, of what a GRU's new value reads from x, of h beside W h, of c).
# The way back is plain arithmetic, which serves the NumPy twins too.

Values = tuple[Node, ...]
Gradients = tuple[list[Node], "Node | None", "Node | None", "Node | None"]


def _lstm(x: list[Node], hidden: Node, h: Node, c: Node) -> tuple[Node, Node, Values]:
    i, f, g, o = _columns(x[0] + hidden, 4)
    i, f, g, o = F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o)
    after = f * c + i * g
    curved = F.tanh(after)
    return o * curved, after, (i, f, g, o, c, curved)


def _lstm_back(values: Values, dh: Node, dc: Node) -> Gradients:
    i, f, g, o, c, curved = values
    dc = dc + dh * o * (1.0 - curved * curved)
    parts = [dc * g * i * (1.0 - i), dc * c * f * (1.0 - f), dc * i * (1.0 - g * g), dh * curved * o * (1.0 - o)]
    return parts, None, None, dc * f


def _gru(x: list[Node], hidden: Node, h: Node, c: None) -> tuple[Node, None, Values]:
    (x_reset, x_update, x_new), (reset, update, new) = x, _columns(hidden, 3)
    r, z = F.sigmoid(x_reset + reset), F.sigmoid(x_update + update)
    n = F.tanh(x_new + r * new)
    return n + z * (h - n), None, (r, z, n, new, h)


def _gru_back(values: Values, dh: Node, dc: None) -> Gradients:
    r, z, n, new, h = values
    dn = dh * (1.0 - z) * (1.0 - n * n)
    return [dn * new * r * (1.0 - r), dh * (h - n) * z * (1.0 - z), dn * r], dn, dh * z, None


def _plain(activation: str) -> Callable[..., tuple[Node, None, Values]]:
    def step(x: list[Node], hidden: Node, h: Node, c: None) -> tuple[Node, None, Values]:
        out = getattr(F, activation)(x[0] + hidden)
        return out, None, (out,)

    return step


def _tanh_back(values: Values, dh: Node, dc: None) -> Gradients:
    return [dh * (1.0 - values[0] * values[0])], None, None, None


def _relu_back(values: Values, dh: Node, dc: None) -> Gradients:
    return [dh * (values[0] > 0.0)], None, None, None


_STEPS: dict[str, Callable[..., Any]] = {"lstm": _lstm, "gru": _gru, "tanh": _plain("tanh"), "relu": _plain("relu")}
_BACK: dict[str, Callable[..., Gradients]] = {
    "lstm": _lstm_back, "gru": _gru_back, "tanh": _tanh_back, "relu": _relu_back,
}  # fmt: skip


# --- all steps --------------------------------------------------------------------------------------------------------


def _unrolled(seq: Sequence, known: Node | None = None) -> Iterator[tuple[int, Node, Node | None, Node, Values]]:
    """Of each step its number, h and c behind it, h before its projection and the values for the way back.

    c is not rounded between steps, h is. `known`: all outputs, where they are in memory.
    """
    dtype, wide = seq.x.dtype, seq.x.dtype.compute
    h = seq.h0
    c = None if seq.c0 is None else cast(seq.c0, wide)
    products = None if known is None else _hidden(seq, _before(seq, known))
    parts = 3 if seq.kind == "gru" else 1  # the gates of a GRU do not all see x + W h
    for t in seq.order():
        hidden = _hidden(seq, h) if products is None else _at(products, t)
        x = [cast(_at(seq.x, t, n, parts), wide) for n in range(parts)]
        raw, after, values = _STEPS[seq.kind](x, hidden, cast(h, wide), c)
        raw = cast(raw, dtype)
        new = raw if seq.projection is None else F.matmul(raw, _turned(seq.projection))
        if seq.inside is not None:  # a sequence that has ended, or has not begun, keeps its state
            inside = _at(seq.inside, t)
            new = F.where(inside, new, h)
            after = None if c is None else F.where(inside, after, c)
        h, c = new if known is None else _at(known, t), after
        yield t, h, c, raw, values


def _forward(*args: Any) -> Node:
    seq = Sequence(args[:-3], *args[-3:])
    (total,), size = _total(seq.result()), seq.batch * seq.features
    start, parts, last = total - seq.steps * size, [], None
    for t, h, c, _, _ in _unrolled(seq):
        parts.append((start + t * size, h))
        last = c
    if last is not None:  # before the last output: who reads all outputs then reads what was assigned last
        parts.insert(-1, (0, last))
    return _filled(total, seq.x.dtype, parts)


def _backward(*args: Any) -> Node:
    """The steps in reverse: dh and dc come from behind, and leave for before."""
    *srcs, kind, backwards, given = args
    cells, g, out, seq = _taken(srcs, kind, backwards, given)
    dtype, wide = seq.x.dtype, seq.x.dtype.compute
    known = _part(out, seq.result(), "h") if out.op.kind == LEAF else None
    dh: Node | None = None
    dc = None if cells is None else cast(cells, wide)
    found: dict[str, dict[int, Node]] = {name: {} for name in seq.gradients()}
    for t, _, _, raw, values in reversed(list(_unrolled(seq, known))):
        dh = cast(_at(g, t), wide) if dh is None else dh + cast(_at(g, t), wide)
        kept_h = kept_c = None
        if seq.inside is not None:
            inside = _at(seq.inside, t)
            kept_h, dh = F.where(inside, 0.0, dh), F.where(inside, dh, 0.0)
            if dc is not None:
                kept_c, dc = F.where(inside, 0.0, dc), F.where(inside, dc, 0.0)
        if seq.projection is not None:
            found["projected"][t], found["raw"][t] = cast(dh, dtype), raw
            dh = F.matmul_wide(cast(dh, dtype), seq.projection)
        gates, new, beside, dc = _BACK[kind](values, dh, dc)
        found["gates"][t] = F.cat([cast(part, dtype) for part in gates], -1)
        if new is not None:
            found["new"][t] = new
        dh = F.matmul_wide(found["gates"][t], seq.weight)
        for more in (beside, kept_h):
            dh = dh if more is None else dh + more
        dc = dc + kept_c if dc is not None and kept_c is not None else dc
    found["h0"][0] = dh  # type: ignore[assignment]
    if dc is not None:
        found["c0"][0] = dc
    # one value for each part: where that part is read in the same plan, the whole is not computed
    whole = []
    for steps in found.values():
        size = next(iter(steps.values())).size
        whole.append(_filled(size * len(steps), dtype, [(size * t, part) for t, part in steps.items()]))
    return F.cat(whole, 0)


def _taken(srcs: Any, kind: str, backwards: bool, given: tuple[str, ...]) -> tuple[Any, Any, Any, Sequence]:
    """The sources of the backward op: gradients of the last cells and of the outputs, result, sources of the op."""
    cells, (g, out, *rest) = (srcs[0], srcs[1:]) if kind == "lstm" else (None, srcs)
    return cells, g, out, Sequence(tuple(rest), kind, backwards, given)


def _gradient(g: Node, out: Node, srcs: tuple[Node, ...], kind: str, backwards: bool, given: Any) -> tuple[Any, ...]:
    """From the gradients at all steps, the weights' as one product over all of them."""
    seq = Sequence(srcs, kind, backwards, given)
    result, shapes = seq.result(), seq.gradients()
    behind = [_part(g, result, name) for name in result]
    packed = F.recurrence_backward(behind, out, srcs, kind, backwards, given)
    part = {name: _part(packed, shapes, name) for name in shapes}
    gates = of_x = part["gates"]
    if kind == "gru":
        of_x = F.cat([*_columns(gates, 3)[:2], part["new"]], -1)

    def product(left: Node, right: Node) -> Node:
        return F.matmul(_turned(F.reshape(left, (-1, left.shape[-1]))), F.reshape(right, (-1, right.shape[-1])))

    found: dict[str, Any] = {"c0": part.get("c0"), "inside": None}
    if seq.bias is not None:
        found["bias"] = F.reduce_sum(gates, (0, 1))
    if seq.projection is not None:
        found["projection"] = product(part["projected"], part["raw"])
    weight = product(gates, _before(seq, _part(out, result, "h")))
    return (of_x, part["h0"], weight, *[found[name] for name in given])


# --- NumPy twins ------------------------------------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _numpy_step(kind: str, x: Any, hidden: Any, h: Any, c: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    if kind == "lstm":
        i, f, g, o = np.split(x + hidden, 4, axis=-1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        after = f * c + i * g
        return o * np.tanh(after), after, (i, f, g, o, c, np.tanh(after))
    if kind == "gru":
        (x_reset, x_update, x_new), (reset, update, new) = np.split(x, 3, axis=-1), np.split(hidden, 3, axis=-1)
        r, z = _sigmoid(x_reset + reset), _sigmoid(x_update + update)
        n = np.tanh(x_new + r * new)
        return (1 - z) * n + z * h, None, (r, z, n, new, h)
    out = np.tanh(x + hidden) if kind == "tanh" else np.maximum(x + hidden, 0)
    return out, None, (out,)


def _numpy_steps(seq: Sequence) -> Iterator[tuple[int, Any, Any, Any, tuple[Any, ...]]]:
    """As `_unrolled`."""
    h, c = seq.h0, seq.c0
    for t in seq.order():
        hidden = h @ seq.weight.T + (0 if seq.bias is None else seq.bias)
        raw, after, values = _numpy_step(seq.kind, seq.x[t], hidden, h, c)
        new = raw if seq.projection is None else raw @ seq.projection.T
        if seq.inside is not None:
            new = np.where(seq.inside[t], new, h)
            after = None if c is None else np.where(seq.inside[t], after, c)
        h, c = new, after
        yield t, h, c, raw, values


def _forward_reference(*args: Any) -> Any:
    x, h0, weight, *rest, kind, backwards, given = args
    named = dict(zip(given, rest, strict=True))
    outputs, _, *cells = _recurrent_reference(x, h0, weight, kind, backwards, **named)
    return np.concatenate([part.reshape(-1) for part in (*cells, outputs)])


def _recurrent_reference(x: Any, h0: Any, weight: Any, kind: str, backwards: bool = False, **given: Any) -> Any:
    seq = Sequence((x, h0, weight, *given.values()), kind, backwards, tuple(given))
    outputs, last = np.zeros(seq.result()["h"]), None
    for t, h, c, _, _ in _numpy_steps(seq):
        outputs[t], last = h, c
    return outputs, outputs[seq.order()[-1]], *([] if last is None else [last])


def _backward_reference(*args: Any) -> Any:
    *srcs, kind, backwards, given = args
    dc, g, _, seq = _taken(srcs, kind, backwards, given)
    dh = np.zeros_like(seq.h0)
    found: dict[str, Any] = {name: np.zeros(shape) for name, shape in seq.gradients().items()}
    for t, _, _, raw, values in reversed(list(_numpy_steps(seq))):
        inside = True if seq.inside is None else seq.inside[t]
        kept, dh = np.where(inside, 0, dh + g[t]), np.where(inside, dh + g[t], 0)
        kept_c, dc = (None, None) if dc is None else (np.where(inside, 0, dc), np.where(inside, dc, 0))
        if seq.projection is not None:
            found["projected"][t], found["raw"][t] = dh, raw
            dh = dh @ seq.projection
        back: Any = _BACK[kind]
        gates, new, beside, dc = back(values, dh, dc)
        found["gates"][t] = np.concatenate(gates, -1)
        if new is not None:
            found["new"][t] = new
        dh = found["gates"][t] @ seq.weight + kept + (0 if beside is None else beside)
        dc = None if dc is None else dc + kept_c
    found["h0"] = dh
    if dc is not None:
        found["c0"] = dc
    return np.concatenate([part.reshape(-1) for part in found.values()])


# --- the ops ----------------------------------------------------------------------------------------------------------


def _torch_recurrence(
    torch: Any, x: Any, h0: Any, weight: Any, kind: str, backwards: bool = False, **named: Any
) -> Any:
    """torch's cells, one after the other."""
    cell = {"lstm": torch.lstm_cell, "gru": torch.gru_cell, "tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}
    wide, cells, inside, projection = x.shape[-1], named.get("c0"), named.get("inside"), named.get("projection")
    same, zero = torch.eye(wide, dtype=x.dtype), torch.zeros(wide, dtype=x.dtype)
    bias = named.get("bias", zero)
    h, outputs = h0, [x] * len(x)
    for t in range(len(x))[:: -1 if backwards else 1]:
        if kind == "lstm":
            # without a product with h, which may be of another size than the cells
            pre = x[t] + h @ weight.T
            raw, after = cell[kind](
                pre, (torch.zeros_like(cells), cells), same, weight.new_zeros(wide, wide // 4), zero, zero
            )
            new = raw if projection is None else raw @ projection.T
            cells = after if inside is None else torch.where(inside[t], after, cells)
        else:
            new = cell[kind](x[t], h, same, weight, zero, bias)
        h = outputs[t] = new if inside is None else torch.where(inside[t], new, h)
    ends = (h,) if kind != "lstm" else (h, cells)
    return torch.stack(outputs), *ends


def _samples() -> list[Sample]:
    rng = np.random.default_rng(11)

    def made(*shape: int) -> Any:
        return rng.uniform(-1.0, 1.0, shape)

    inside = (np.arange(3)[:, None] < np.array([3, 1]))[:, :, None]
    cells = {"c0": made(2, 2)}
    return [
        Sample((made(3, 2, 8), made(2, 2), made(8, 2), "lstm"), cells),
        Sample((made(3, 2, 8), made(2, 2), made(8, 2), "lstm", True), {**cells, "inside": inside}),
        Sample((made(2, 2, 8), made(2, 1), made(8, 1), "lstm"), {**cells, "projection": made(1, 2)}),
        Sample((made(3, 2, 6), made(2, 2), made(6, 2), "gru"), {"bias": made(6)}),
        Sample((made(3, 2, 6), made(2, 2), made(6, 2), "gru", True), {"inside": inside}),
        Sample((made(3, 2, 3), made(2, 3), made(3, 3), "tanh", True)),
        Sample((made(1, 2, 3), made(2, 3), made(3, 3), "relu")),
    ]


@primitive(
    COMPOSITE,
    infer=lambda *args: (_total(Sequence(args[:-3], *args[-3:]).result()), args[0].dtype),
    attrs=("kind", "backwards", "given"),
    srcs=("x", "h0", "weight"),
    reference=_forward_reference,
    decompose=_forward,
    grad=_gradient,
    public=False,
)
def recurrence(srcs: tuple[Node, ...], kind: str, backwards: bool, given: tuple[str, ...]) -> Any:
    """The last cells and all outputs of a recurrence (see `Sequence`), one behind the other."""
    return srcs, (kind, backwards, given)


@primitive(
    COMPOSITE,
    infer=lambda *args: (_total(_taken(args[:-3], *args[-3:])[-1].gradients()), args[0].dtype),
    attrs=("kind", "backwards", "given"),
    srcs=("behind",),
    reference=_backward_reference,
    decompose=_backward,
    public=False,
)
def recurrence_backward(
    behind: list[Node], out: Node, srcs: tuple[Node, ...], kind: str, backwards: bool, given: tuple[str, ...]
) -> Any:
    """Gradients at all steps of a recurrence (see `Sequence.gradients`), one behind the other.

    `behind`: gradients of the parts of its result; `out`: what the recurrence gave.
    """
    return (*behind, out, *srcs), (kind, backwards, given)


@composite(reference=_recurrent_reference, torch=_torch_recurrence, autocast="low", public=False, samples=_samples)
def recurrent(
    x: Node, h0: Node, weight: Node, kind: str, backwards: bool = False, c0: Node | None = None,
    bias: Node | None = None, projection: Node | None = None, inside: Node | None = None,
) -> tuple[Node, ...]:  # fmt: skip
    """All steps of an "lstm", a "gru" or a plain "tanh" or "relu" layer over its projected input: outputs (time, batch,
    features) and the last h, of an LSTM the last c too. See `Sequence`."""
    if (x.ndim, h0.ndim, weight.ndim) != (3, 2, 2):
        raise ShapeError(
            "[recurrent] expected (time, batch, gates * hidden), (batch, features) and (gates * hidden, features) but "
            f"got {x.shape}, {h0.shape} and {weight.shape}"
        )
    dtype = x.dtype
    optional = {"c0": c0, "bias": bias, "projection": projection, "inside": inside}
    given = {name: node for name, node in optional.items() if node is not None}
    srcs = [
        n if name == "inside" else cast(n, dtype) for name, n in {"x": x, "h0": h0, "weight": weight, **given}.items()
    ]
    packed = F.recurrence(tuple(srcs), kind, backwards, tuple(given))
    seq = Sequence(srcs, kind, backwards, tuple(given))
    *cells, outputs = [_part(packed, seq.result(), name) for name in seq.result()]
    return outputs, _at(outputs, seq.order()[-1]), *cells
