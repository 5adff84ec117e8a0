"""Products with interleaved rows of encoded blocks (core/interleaving.py): encoded_linear in the order of a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.interleaving import as_stored, interleaved, padded, units
from pyflame.ir import F, Node, Sample, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import want_whole
from pyflame.ops.encoded import sample_bytes, want_linear

if TYPE_CHECKING:
    from pyflame.core.encoding import Encoding

OP = "interleaved_linear"


def _rows(data: Node, kind: Encoding, lines: int, out: int) -> Node:
    """`as_stored` of core/interleaving.py."""
    (total, row_bytes), wide = data.shape, lines * kind.nbytes
    sets, blocks = total // lines, row_bytes // kind.nbytes
    whole, parts = F.reshape(data, (sets, blocks, wide)), []
    for first, last, size in units(kind):
        part = F.slice(whole, ((0, 1, sets), (0, 1, blocks), (first * lines, 1, (last - first) * lines)))
        words = F.permute(F.reshape(part, (sets, blocks, (last - first) // size, lines, size)), (0, 3, 1, 2, 4))
        parts.append(F.reshape(words, (sets, lines, blocks, last - first)))
    rows = F.reshape(F.cat(parts, -1), (total, row_bytes))
    return F.slice(rows, ((0, 1, out), (0, 1, row_bytes)))


def _decomposed(x: Node, data: Node, *rest: Any) -> Node:
    *bias, name, width, bits, lines, out = rest
    rows = _rows(data, encoding_of(name), lines, out)
    return F.encoded_linear(x, rows, *bias, encoding=name, width=width, activation_bits=bits)


def _reference(x: Any, data: Any, *rest: Any) -> Any:
    *bias, name, _, _, lines, out = rest
    kind = encoding_of(name)
    return x @ kind.decode(as_stored(data, kind, lines, out)).astype(x.dtype).T + (bias[0] if bias else 0)


def _grad(
    g: Node, data: Node, encoding: str, width: int, lines: int, outputs: int, parents: tuple[object, ...]
) -> tuple[Any, ...]:
    # y = x W^T + b: dx = dy W, db = dy, which the walk sums; W is bytes and has no gradient
    x = None
    if parents[0] is not None:
        rows = _rows(data, encoding_of(encoding), lines, outputs)
        x = F.matmul(g, F.dequantize(rows, encoding=encoding, dtype=g.dtype))
    return (x, None, g)[: len(parents)]


def _samples() -> list[Sample]:
    rng = np.random.default_rng(8)
    x, bias = rng.normal(size=(3, 64)), rng.normal(size=6)
    options = {"width": 64, "activation_bits": 32, "lines": 4, "outputs": 6}
    sets = {name: interleaved(sample_bytes(name, 6, 64), encoding_of(name), 4) for name in ("q4_0", "q8_0")}
    return [
        Sample((x, sets["q4_0"]), {"encoding": "q4_0", **options}),
        Sample((x[0], sets["q8_0"], bias), {"encoding": "q8_0", **options}),
        Sample((x[:0], sets["q8_0"], bias), {"encoding": "q8_0", **options}),
    ]


@primitive(
    COMPOSITE,
    infer=lambda x, data, *rest: ((*x.shape[:-1], rest[-1]), x.dtype),
    attrs=("encoding", "width", "activation_bits", "lines", "outputs"),
    srcs=("x", "data", "bias"),
    reference=_reference,
    decompose=_decomposed,
    grad=_grad,
    samples=_samples,
    autocast="low",
    method=False,
)
def interleaved_linear(
    x: Node,
    data: Node,
    bias: Node | None = None,
    *,
    encoding: Any,
    width: Any,
    lines: Any,
    outputs: Any,
    activation_bits: int = 16,
) -> Any:
    """`encoded_linear` with a weight of `outputs` rows whose bytes lie interleaved in sets of `lines` rows.

    That is the fastest order for a CPU, whose vectors say how many lines; `interleave` knows it. A product with another
    number, on a GPU, or with `activation_bits=32` puts the bytes in order first.

    >>> from pyflame.tensor.interleaved import interleave
    >>> w = interleave(pf.quantize(pf.ones(5, 32), "q8_0"))
    >>> pf.interleaved_linear(pf.ones(2, 32), w.data, encoding="q8_0", width=32, lines=w.lines, outputs=5).shape
    (2, 5)
    """
    kind, wide, bits = want_linear(OP, x, data, bias, encoding, width, activation_bits)
    each, rows = want_whole(OP, "lines", lines), want_whole(OP, "outputs", outputs)
    if not kind.interleaves:
        raise ArgumentError(f"[{OP}] expected an encoding that can be interleaved but got {kind.name}")
    if each < 1 or data.shape[0] != padded(rows, each):
        raise ShapeError(f"[{OP}] expected sets of {each} rows, {rows} in all, but got bytes of shape {data.shape}")
    if bias is not None and bias.shape != (rows,):
        raise ShapeError(f"[{OP}] expected a bias of shape {(rows,)} but got {bias.shape}")
    return (x, data) if bias is None else (x, data, bias), (kind.name, wide, bits, each, rows)
