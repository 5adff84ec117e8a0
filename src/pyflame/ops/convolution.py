"""Convolutions. One primitive, `conv_general`, and views around it:

    out[n, g, o, p] = sum over c, k of  x[n, g, c, (p*stride + k*rhs_dilation - pad_lo) / lhs_dilation] * w[g, o, c, k]

where positions that are no whole number or outside of x count as 0. It has always three spatial axes; conv1d and
conv2d have leading ones of size 1. Its gradients and transposed convolutions are conv_general again, of permuted and
flipped views, so second derivatives follow. (XLA calls it conv_general_dilated.)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import FLOAT8, WIDE_UNSIGNED, bool_
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import Shape
from pyflame.ir import F, Node, Sample, cast, common_dtype, composite, primitive
from pyflame.ir.opdef import KERNEL
from pyflame.ops.base import per_axis

Triple = tuple[int, int, int]
_ONES: Triple = (1, 1, 1)
_AXES = ("width", "height", "depth")


class Geometry(NamedTuple):
    """Where the windows of a convolution lie, per spatial axis."""

    stride: Triple
    pad_lo: Triple
    out: Triple
    lhs_dilation: Triple
    rhs_dilation: Triple


def _zip(fn: Callable[..., int], *triples: Triple) -> Triple:
    a, b, c = (fn(*values) for values in zip(*triples, strict=True))
    return a, b, c


def _reference(x: Any, w: Any, *geometry: Triple) -> Any:
    """One kernel position at a time: gather what it meets, multiply, add."""
    stride, pad_lo, out, lhs, rhs = geometry
    result = np.zeros((*x.shape[:2], w.shape[1], *out), np.result_type(x, w))
    if x.size == 0:
        return result
    for k in product(*(range(size) for size in w.shape[3:])):
        met = x
        for axis in range(3):
            at = np.arange(out[axis]) * stride[axis] + k[axis] * rhs[axis] - pad_lo[axis]
            inside = (at >= 0) & (at % lhs[axis] == 0) & (at // lhs[axis] < x.shape[3 + axis])
            met = np.take(met, np.where(inside, at // lhs[axis], 0), axis=3 + axis)
            met = met * inside.reshape(-1, *[1] * (2 - axis))
        result += np.einsum("ngcxyz,goc->ngoxyz", met, w[(..., *k)])
    return result


def _flip_taps(w: Node) -> Node:
    return F.slice(w, (*((0, 1, size) for size in w.shape[:3]), *((size - 1, -1, size) for size in w.shape[3:])))


def _grad(
    g: Node, x: Node, w: Node, stride: Triple, pad_lo: Triple, lhs_dilation: Triple, rhs_dilation: Triple
) -> tuple[Node, Node]:
    # With i*lhs = p*stride + k*rhs - lo and the tap k' = K-1-k:  p*stride = i*lhs + k'*rhs - ((K-1)*rhs - lo),
    # so dx is a convolution of g by the flipped taps in which stride and lhs_dilation have changed places.
    taps: Triple = w.shape[3:]  # type: ignore[assignment]
    extents: Triple = x.shape[3:]  # type: ignore[assignment]
    low = _zip(lambda k, d, lo: (k - 1) * d - lo, taps, rhs_dilation, pad_lo)
    back = Geometry(lhs_dilation, low, extents, stride, rhs_dilation)
    dx = F.conv_general(g, F.permute(_flip_taps(w), (0, 2, 1, 3, 4, 5)), *back)
    if lhs_dilation != _ONES and stride == _ONES:
        return dx, _mirrored_weight_grad(g, x, taps, low, lhs_dilation, rhs_dilation)
    # dw[k] = sum over n, p of x[(k*rhs + p*stride - lo) / lhs] * g[p]: k and p, and with them stride and rhs_dilation,
    # have changed places; the batch is summed over. (C, G, N, S) * (G, O, N, P) -> (C, G, O, K) -> (G, O, C, K)
    weight = Geometry(rhs_dilation, pad_lo, taps, lhs_dilation, stride)
    dw = F.conv_general(F.permute(x, (2, 1, 0, 3, 4, 5)), F.permute(g, (1, 2, 0, 3, 4, 5)), *weight)
    return dx, F.permute(dw, (1, 2, 0, 3, 4, 5))


def _mirrored_weight_grad(
    g: Node, x: Node, taps: Triple, low: Triple, lhs_dilation: Triple, rhs_dilation: Triple
) -> Node:
    # Of a dilated x: dw[k] = sum over n, i of x[i] * g[i*lhs + k'*rhs - low] with k' = K-1-k, so that g, which lies
    # densely, is what the windows run over. (O, G, N, P) * (G, C, N, S) -> (O, G, C, K) -> (G, O, C, K)
    weight = Geometry(rhs_dilation, low, taps, _ONES, lhs_dilation)
    dw = F.conv_general(F.permute(g, (2, 1, 0, 3, 4, 5)), F.permute(x, (1, 2, 0, 3, 4, 5)), *weight)
    return _flip_taps(F.permute(dw, (1, 0, 2, 3, 4, 5)))


@primitive(
    KERNEL,
    infer=lambda x, w, *geometry: ((*x.shape[:2], w.shape[1], *Geometry(*geometry).out), x.dtype),
    attrs=Geometry._fields,
    srcs=("x", "w"),
    reference=_reference,
    grad=_grad,
    cost=2,
    autocast="low",
    public=False,
)
def conv_general(
    x: Node, w: Node, stride: Triple, pad_lo: Triple, out: Triple, lhs_dilation: Triple, rhs_dilation: Triple
) -> Any:
    """x (N, G, C, S0, S1, S2) convolved with w (G, O, C, K0, K1, K2): (N, G, O, P0, P1, P2)."""
    return (x, w), (stride, pad_lo, out, lhs_dilation, rhs_dilation)


# --- arguments ----------------------------------------------------------------------------------------------------


def _triple(op: str, name: str, value: Any, rank: int, least: int) -> Triple:
    """One number per axis; leading axes that do not exist get the one that changes nothing, which is the least."""
    a, b, c = (least,) * (3 - rank) + per_axis(op, name, value, rank, least)
    return a, b, c


def _check(
    op: str, rank: int, x: Any, weight: Any, bias: Any, groups: Any, transposed: bool
) -> tuple[Node, Node, Node | None]:
    """Shapes and dtypes of the tensors: x gets a batch axis, all get one dtype."""
    spatial = ", ".join(reversed(_AXES[:rank]))
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"[{op}] expected input ([batch,] channels, {spatial}) but got shape {x.shape}")
    layout = "in, out/groups" if transposed else "out, in/groups"
    if weight.ndim != rank + 2 or 0 in weight.shape[2:]:
        raise ShapeError(f"[{op}] expected weight ({layout}, {spatial}) without empty axes but got {weight.shape}")
    if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
        raise ArgumentError(f"[{op}] expected groups of at least 1 but got {groups!r}")
    channels = x.shape[-rank - 1]
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != wanted:
        raise ShapeError(
            f"[{op}] expected {wanted} input channels for weight {weight.shape} and groups={groups} "
            f"but got {channels} in {x.shape}"
        )
    if weight.shape[0] % groups:
        raise ShapeError(f"[{op}] expected weight.shape[0] to be a multiple of groups={groups} but got {weight.shape}")
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (outputs,):
        raise ShapeError(f"[{op}] expected a bias of shape ({outputs},) but got {bias.shape}")
    dtype = common_dtype(op, (x, weight))
    if dtype is bool_ or dtype in FLOAT8 + WIDE_UNSIGNED:
        raise DTypeError(f"[{op}] expected numbers to add up but got {dtype.name}; cast first, x.to(pf.float32)")
    batched = x if x.ndim == rank + 2 else F.reshape(x, (1, *x.shape))
    return cast(batched, dtype), cast(weight, dtype), bias


def _pads(op: str, rank: int, padding: Any, taps: Triple, stride: Triple, dilation: Triple) -> tuple[Triple, Triple]:
    """Zeros before and behind each axis."""
    if padding == "valid":
        return (0, 0, 0), (0, 0, 0)
    if padding == "same":
        if stride != (1, 1, 1):
            raise ArgumentError(
                f"[{op}] expected stride 1 with padding='same' but got {stride[3 - rank :]}; pad by numbers"
            )
        total = _zip(lambda k, d: (k - 1) * d, taps, dilation)
        return _zip(lambda t: t // 2, total), _zip(lambda t: t - t // 2, total)
    if isinstance(padding, str):
        raise ArgumentError(f"[{op}] expected padding 'same', 'valid' or numbers but got {padding!r}")
    pad = _triple(op, "padding", padding, rank, 0)
    return pad, pad


def _split(channels: int, groups: int, shape: Shape, rank: int) -> Shape:
    """(channels, *spatial) -> (groups, channels/groups, three spatial axes)."""
    return (groups, channels // groups, *[1] * (3 - rank), *shape)


def _finish(out: Node, bias: Node | None, x: Node, rank: int) -> Node:
    """Add the bias; (N, G, O, P0, P1, P2) -> ([N,] G*O, *P)."""
    n, groups, outputs = out.shape[:3]
    if bias is not None:
        out = F.add(out, cast(F.reshape(bias, (groups, outputs, 1, 1, 1)), out.dtype))
    batch = () if x.ndim == rank + 1 else (n,)
    return F.reshape(out, (*batch, groups * outputs, *out.shape[6 - rank :]))


def _conv(rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Node:
    op = f"conv{rank}d"
    batched, w, bias = _check(op, rank, x, weight, bias, groups, transposed=False)
    step = _triple(op, "stride", stride, rank, 1)
    hop = _triple(op, "dilation", dilation, rank, 1)
    n, channels, *size = batched.shape
    x6 = F.reshape(batched, (n, *_split(channels, groups, tuple(size), rank)))
    w6 = F.reshape(w, (groups, w.shape[0] // groups, w.shape[1], *[1] * (3 - rank), *w.shape[2:]))
    taps: Triple = w6.shape[3:]  # type: ignore[assignment]
    extents: Triple = x6.shape[3:]  # type: ignore[assignment]
    low, high = _pads(op, rank, padding, taps, step, hop)
    room = _zip(lambda s, lo, hi, k, d: s + lo + hi - (k - 1) * d - 1, extents, low, high, taps, hop)
    if min(room) < 0:
        raise ShapeError(
            f"[{op}] expected a kernel that fits the padded input but got weight {weight.shape}, dilation={dilation!r} "
            f"for input {x.shape}, padding={padding!r}; pad more"
        )
    out = _zip(lambda r, s: r // s + 1, room, step)
    return _finish(F.conv_general(x6, w6, *Geometry(step, low, out, (1, 1, 1), hop)), bias, x, rank)


def _conv_transpose(
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Node:
    op = f"conv_transpose{rank}d"
    batched, w, bias = _check(op, rank, x, weight, bias, groups, transposed=True)
    step = _triple(op, "stride", stride, rank, 1)
    hop = _triple(op, "dilation", dilation, rank, 1)
    pad = _triple(op, "padding", padding, rank, 0)
    extra = _triple(op, "output_padding", output_padding, rank, 0)
    if any(e and e >= max(s, d) for e, s, d in zip(extra, step, hop, strict=True)):
        raise ArgumentError(
            f"[{op}] expected output_padding below stride or dilation but got {output_padding!r} "
            f"with stride={stride!r}, dilation={dilation!r}"
        )
    n, channels, *size = batched.shape
    x6 = F.reshape(batched, (n, *_split(channels, groups, tuple(size), rank)))
    w6 = F.reshape(w, (groups, channels // groups, w.shape[1], *[1] * (3 - rank), *w.shape[2:]))
    taps: Triple = w6.shape[3:]  # type: ignore[assignment]
    extents: Triple = x6.shape[3:]  # type: ignore[assignment]
    full = _zip(lambda s, st, k, d, e: (s - 1) * st + (k - 1) * d + e + 1, extents, step, taps, hop, extra)
    out = _zip(lambda f, p: f - 2 * p, full, pad)
    if min(out) < 1:
        raise ShapeError(
            f"[{op}] expected an output of at least one element per axis but got {out[3 - rank :]} "
            f"for input {x.shape}, weight {weight.shape}, padding={padding!r}; pad less"
        )
    # Element i meets output q = i*stride + k*dilation - padding: the input is dilated, the taps run backwards.
    low = _zip(lambda k, d, p: (k - 1) * d - p, taps, hop, pad)
    flipped = F.permute(_flip_taps(w6), (0, 2, 1, 3, 4, 5))
    return _finish(F.conv_general(x6, flipped, *Geometry((1, 1, 1), low, out, step, hop)), bias, x, rank)


# --- NumPy twins over the public arguments --------------------------------------------------------------------------


def _listed(value: Any, rank: int) -> list[int]:
    return list(value) * (rank // len(value)) if isinstance(value, (tuple, list)) else [value] * rank


def _conv_twin(rank: int) -> Callable[..., Any]:
    def twin(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        """Pad with zeros; then a strided slice of the input for each tap."""
        if x.ndim == rank + 1:
            return twin(x[None], weight, bias, stride, padding, dilation, groups)[0]
        step, hop, taps = _listed(stride, rank), _listed(dilation, rank), weight.shape[2:]
        if padding == "same":
            total = [(k - 1) * d for k, d in zip(taps, hop, strict=True)]
            pads = [(t // 2, t - t // 2) for t in total]
        else:
            pads = [(p, p) for p in _listed(0 if padding == "valid" else padding, rank)]
        x = np.pad(x, [(0, 0), (0, 0), *pads])
        size = [(s - (k - 1) * d - 1) // st + 1 for s, k, d, st in zip(x.shape[2:], taps, hop, step, strict=True)]
        out = np.zeros((x.shape[0], weight.shape[0], *size))
        c, o = weight.shape[1], weight.shape[0] // groups
        for g, k in product(range(groups), product(*(range(k) for k in taps))):
            window = tuple(
                slice(k[a] * hop[a], k[a] * hop[a] + size[a] * step[a] - step[a] + 1, step[a]) for a in range(rank)
            )
            met = x[(slice(None), slice(g * c, (g + 1) * c), *window)]
            tap = weight[(slice(g * o, (g + 1) * o), slice(None), *k)]
            out[:, g * o : (g + 1) * o] += np.moveaxis(np.tensordot(tap, met, (1, 1)), 0, 1)
        return out if bias is None else out + bias.reshape(-1, *[1] * rank)

    return twin


def _transpose_twin(rank: int) -> Callable[..., Any]:
    def twin(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        """Each tap adds the whole input, spread out by the stride, to the output; then the padding is cut off."""
        if x.ndim == rank + 1:
            return twin(x[None], weight, bias, stride, padding, output_padding, groups, dilation)[0]
        step, hop, pad, extra = (_listed(v, rank) for v in (stride, dilation, padding, output_padding))
        taps, size = weight.shape[2:], x.shape[2:]
        full = [(s - 1) * st + (k - 1) * d + 1 + e for s, st, k, d, e in zip(size, step, taps, hop, extra, strict=True)]
        out = np.zeros((x.shape[0], weight.shape[1] * groups, *full))
        c, o = weight.shape[0] // groups, weight.shape[1]
        for g, k in product(range(groups), product(*(range(k) for k in taps))):
            window = tuple(
                slice(k[a] * hop[a], k[a] * hop[a] + size[a] * step[a] - step[a] + 1, step[a]) for a in range(rank)
            )
            tap = weight[(slice(g * c, (g + 1) * c), slice(None), *k)]
            met = np.tensordot(tap, x[:, g * c : (g + 1) * c], (0, 1))
            out[(slice(None), slice(g * o, (g + 1) * o), *window)] += np.moveaxis(met, 0, 1)
        inside: Any = (..., *(slice(p, n - p) for p, n in zip(pad, full, strict=True)))
        out = out[inside]
        return out if bias is None else out + bias.reshape(-1, *[1] * rank)

    return twin


def _samples(rank: int, transposed: bool) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        r = np.random.default_rng(rank).standard_normal
        size = {1: (9,), 2: (6, 7), 3: (3, 4, 5)}[rank]
        taps = {1: (3,), 2: (3, 2), 3: (2, 3, 2)}[rank]

        def weight(o: int, c: int, k: Shape = taps) -> Any:
            return r((c, o, *k)) if transposed else r((o, c, *k))

        ones = (1,) * rank
        found = [
            Sample((r((2, 3, *size)), weight(4, 3))),
            Sample((r((2, 3, *size)), weight(4, 3), r(4)), {"stride": 2, "padding": 1}),
            Sample((r((1, 2, *size)), weight(3, 2)), {"padding": 2, "dilation": 2}),
            Sample((r((3, *size)), weight(2, 3), r(2)), {"stride": (2,) * (rank - 1) + (1,)}),  # without a batch
            Sample((r((2, 2, *ones)), weight(2, 2, ones))),
            Sample((r((1, 1, *ones)), weight(1, 1)), {} if transposed else {"padding": taps[0]}),
            Sample((np.swapaxes(r((2, size[-1], *size[:-1], 3)), 1, -1), weight(2, 3))),  # channels last
            Sample((r((0, 3, *size)), weight(4, 3), r(4))),
        ]
        if transposed:
            found += [
                Sample((r((2, 4, *size)), r((4, 3, *taps)), r(6)), {"groups": 2, "stride": 3, "output_padding": 2}),
                Sample((r((2, 3, *size)), r((3, 1, *taps)), None, 2, 1, 1, 3, 1)),
            ]
        else:
            found += [
                Sample((r((2, 4, *size)), r((6, 2, *taps)), r(6)), {"groups": 2, "stride": 2, "padding": 1}),
                Sample((r((2, 3, *size)), r((3, 1, *taps))), {"groups": 3, "padding": "same"}),
                Sample((r((2, 3, *size)), weight(2, 3)), {"padding": "same", "dilation": 2}),
                Sample((r((2, 3, *size)), weight(2, 3)), {"padding": "valid"}),
            ]
        return found

    return samples


def _declared(rank: int, transposed: bool = False) -> dict[str, Any]:
    name = f"conv{'_transpose' if transposed else ''}{rank}d"
    twin = _transpose_twin(rank) if transposed else _conv_twin(rank)
    samples = _samples(rank, transposed)
    return dict(reference=twin, torch=f"nn.functional.{name}", samples=samples, method=False, autocast="low")


# --- the public ops ---------------------------------------------------------------------------------------------------


@composite(**_declared(1))
def conv1d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over one axis: input ([N,] C, L), weight (O, C/groups, K). padding: numbers, "same" or "valid".

    >>> pf.conv1d(pf.ones(2, 3, 8), pf.ones(4, 3, 3), padding=1).shape
    (2, 4, 8)
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@composite(**_declared(2))
def conv2d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over two axes: input ([N,] C, H, W), weight (O, C/groups, KH, KW). padding as in conv1d.

    >>> pf.conv2d(pf.ones(1, 3, 224, 224), pf.ones(64, 3, 7, 7), stride=2, padding=3).shape
    (1, 64, 112, 112)
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@composite(**_declared(3))
def conv3d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over three axes: input ([N,] C, D, H, W), weight (O, C/groups, KD, KH, KW).

    >>> pf.conv3d(pf.ones(1, 2, 4, 8, 8), pf.ones(3, 2, 3, 3, 3), padding="same").shape
    (1, 3, 4, 8, 8)
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@composite(**_declared(1, transposed=True))
def conv_transpose1d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """Transposed convolution over one axis, the gradient of conv1d for its input: weight (C, O/groups, K).

    >>> pf.conv_transpose1d(pf.ones(2, 3, 8), pf.ones(3, 4, 2), stride=2).shape
    (2, 4, 16)
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(**_declared(2, transposed=True))
def conv_transpose2d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """Transposed convolution over two axes, the gradient of conv2d for its input: weight (C, O/groups, KH, KW).

    >>> pf.conv_transpose2d(pf.ones(2, 3, 8, 8), pf.ones(3, 4, 3, 3), stride=2, padding=1, output_padding=1).shape
    (2, 4, 16, 16)
    """
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(**_declared(3, transposed=True))
def conv_transpose3d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """Transposed convolution over three axes, the gradient of conv3d for its input: weight (C, O/groups, KD, KH, KW).

    >>> pf.conv_transpose3d(pf.ones(1, 2, 4, 4, 4), pf.ones(2, 3, 2, 2, 2), stride=2).shape
    (1, 3, 8, 8, 8)
    """
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
