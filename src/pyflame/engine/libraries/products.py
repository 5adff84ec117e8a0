"""Products and convolutions of a plan as libraries understand them: sizes, strides, and which buffer is which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from pyflame.core.dtype import float16
from pyflame.ir.kernel import Launch, OperandView
from pyflame.libs.conv import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, ConvSpec, packed
from pyflame.libs.gemm import OUTPUTS, GemmSpec, by_columns
from pyflame.libs.lt import Alignments
from pyflame.schedule.split import takes

PROMISED = 16  # bytes of alignment that libraries are told of: what their widest loads want
MAX_CALLS = 64  # into which a batch is cut that one stride cannot describe


@dataclass(frozen=True)
class Gemm:
    """A product, or equal ones at some distances.

    `buffers`: kernel buffer numbers of A, B and C, then of bias and addend where there are; `offsets`: bytes from the
    addresses of A, B and C (and the addend) for each call.
    """

    spec: GemmSpec
    buffers: tuple[int, ...]
    offsets: tuple[tuple[int, int, int], ...]
    aligned: Alignments
    addend: bool

    @property
    def alignment(self) -> tuple[int, ...]:
        """Of the addresses, in the order of the buffers."""
        a, b, c, bias = self.aligned
        return (a, b, c, *([bias] if self.spec.bias else []), *([c] if self.addend else []))


def makes_gradients(launch: Launch) -> bool:
    """Whether it is a product or a convolution of float16 whose result is a gradient, or on the way to one."""
    anchor = launch.kernel.anchor
    if anchor is None or launch.operands[0].dtype is not float16:
        return False
    if anchor.op.name == "conv_general":
        conv = conv_of(launch, False)
        return conv is not None and conv.direction != FORWARD
    return anchor.op.name == "matmul" and bool(anchor.attrs[1])


def gemm_of(launch: Launch, tf32: bool, gradient: bool = False) -> Gemm | None:
    """The product of a launch that consists of what a library may do; None where no call could do it.

    `gradient`: whether float16's subnormals must count though the GPU's matrix units take them for zero.
    """
    kernel, (a, b) = launch.kernel, launch.operands
    ((value, store),) = kernel.stores
    take = takes(kernel)[-1]
    assert kernel.anchor is not None and take.value == value, "the launch is a product's own"
    *batch, m, n = kernel.anchor.meta.shape
    k, dtype, out = a.shape[-1], a.dtype.name, store.dtype.name
    if b.dtype is not a.dtype or out not in OUTPUTS.get(dtype, ()) or not prod((*batch, m, n, k)):
        return None
    extra = [access for v in (take.bias, take.addend) if v >= 0 and (access := kernel.instrs[v].access) is not None]
    if take.addend >= 0 and extra[-1].strides != store.strides:
        return None
    rows, axes = _lines(a, b, store.strides, tuple(batch), m)
    axes.sort(key=lambda axis: axis[0])
    size, *steps = axes.pop() if axes else (1, 0, 0, 0)
    if min((0, *steps, *(s for axis in axes for s in axis))) < 0 or prod(e for e, *_ in axes) > MAX_CALLS:
        return None
    spec = GemmSpec(
        *(rows[0], n, k, dtype, out, size),
        a=(rows[1], a.strides[-1], steps[0]),
        b=(b.strides[-2], b.strides[-1], steps[1]),
        c=(rows[2], store.strides[-1], steps[2]),
        bias=take.bias >= 0,
        activation=take.activation,
        tf32=tf32 and dtype == "float32",
        beta=float(take.addend >= 0),
        gradient=gradient,
    )
    if by_columns(spec) is None:
        return None
    bytes_of = (a.dtype.itemsize, b.dtype.itemsize, store.dtype.itemsize)
    ahead = [[s * size for s, size in zip(axis[1:], bytes_of, strict=True)] for axis in axes]
    buffers = (0, 1, store.buffer, *(access.buffer for access in extra))
    starts = [launch.buffers[number][1] for number in buffers]
    result = gcd(starts[2], *([starts[-1]] if take.addend >= 0 else []))
    promised = [
        gcd(PROMISED, start, *(step[o] for step in ahead)) for o, start in enumerate((starts[0], starts[1], result))
    ]
    bias = gcd(PROMISED, starts[3]) if spec.bias else PROMISED
    return Gemm(spec, buffers, _offsets([axis[0] for axis in axes], ahead), (*promised, bias), take.addend >= 0)  # type: ignore[arg-type]


def _offsets(extents: Sequence[int], steps: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Bytes from the first A, B and C to those of each call, for axes of calls with their steps in bytes."""
    places = product(*(range(extent) for extent in extents))
    return tuple(tuple(sum(i * step[o] for i, step in zip(at, steps, strict=True)) for o in range(3)) for at in places)


def _lines(
    a: OperandView, b: OperandView, c: Sequence[int], batch: tuple[int, ...], m: int
) -> tuple[tuple[int, int, int], list[tuple[int, ...]]]:
    """The rows of a product with their strides in A and C, and the batch around them with its strides in A, B and C."""
    a_steps, b_steps = (_batch_strides(v, len(batch)) for v in (a, b))
    if not any(b_steps):  # one B for all: batch axes may be rows
        lines = merged((*batch, m), (*a_steps, a.strides[-2]), tuple(c[:-1]))
        if len(lines) <= 1:
            rows, *steps = lines[0] if lines else (1, 0, 0)
            return (rows, steps[0], steps[1]), []
    return (m, a.strides[-2], c[-2]), merged(batch, a_steps, b_steps, tuple(c[:-2]))


def _batch_strides(view: OperandView, rank: int) -> tuple[int, ...]:
    """Strides of an operand's batch axes, 0 where it is broadcast."""
    own = [0 if size == 1 else step for size, step in zip(view.shape[:-2], view.strides[:-2], strict=True)]
    return (*[0] * (rank - len(own)), *own)


def merged(extents: Sequence[int], *strides: Sequence[int]) -> list[tuple[int, ...]]:
    """(extent, strides) of the axes that are left where those that all step through as one are one, without ones.

    >>> merged((2, 3, 1), (12, 4, 0), (3, 1, 9))
    [(6, 4, 1)]
    """
    out: list[tuple[int, ...]] = []
    for size, *steps in zip(extents, *strides, strict=True):
        if size == 1:
            continue
        if out and all(outer == step * size for outer, step in zip(out[-1][1:], steps, strict=True)):
            out[-1] = (out[-1][0] * size, *steps)
        else:
            out.append((size, *steps))
    return out


# --- convolutions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conv:
    """A convolution or one of its gradients. `strides`: of the result as a library leaves it, per axis of the launch's.

    `sources`: the two operands' names, "x", "w" or "y"; `back`: bytes from the second one's address to its begin.
    """

    direction: str
    spec: ConvSpec
    strides: tuple[int, ...]
    sources: tuple[str, str]
    back: int = 0


def conv_of(launch: Launch, tf32: bool) -> Conv | None:
    """The convolution of a launch; None where it is none that libraries know.

    Where its operands lie in both orders, as with one channel, it is the one in which the launch stores its result.
    """
    anchor = launch.kernel.anchor
    assert anchor is not None
    x, w = launch.operands
    if w.dtype is not x.dtype or not x.dtype.is_float or not prod((*x.shape, *w.shape, *anchor.meta.shape)):
        return None
    tf32 = tf32 and x.dtype.name == "float32"
    ways = [find(x, w, anchor.attrs, tf32, last) for find in _DIRECTIONS for last in (False, True)]
    found = [conv for conv in ways if conv is not None]
    stored = [access.strides for _, access in launch.kernel.stores]
    return next((conv for conv in found if any(lies_so(anchor.meta.shape, s, conv.strides) for s in stored)), None) or (
        found[0] if found else None
    )


def lies_so(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether two strides are the same, as far as they matter."""
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, others, strict=True))


Attrs = tuple[tuple[int, ...], ...]  # stride, padding in front, size of the result, dilation of x, dilation of w


def _lies(view: OperandView, strides: Sequence[int]) -> bool:
    return lies_so(view.shape, view.strides, strides)


def _data(shape: Sequence[int], last: bool) -> tuple[int, ...]:
    """Strides of (N, G, C, spatial), with the channels of all groups last or before the spatial axes."""
    if not last:
        return packed(tuple(shape))
    n, groups, channels, *size = shape
    s = packed((n, *size, groups, channels))
    return (s[0], s[-2], s[-1], *s[1:-2])


def _taps(shape: Sequence[int], last: bool) -> tuple[int, ...]:
    """Strides of (G, O, C, taps), with C last or before the taps."""
    if not last:
        return packed(tuple(shape))
    groups, filters, channels, *kernel = shape
    s = packed((groups, filters, *kernel, channels))
    return (s[0], s[1], s[-1], *s[2:-1])


def _spec(
    batch: int, groups: int, channels: int, filters: int, size: Sequence[int], kernel: Sequence[int],
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], out: Sequence[int], dtype: str, tf32: bool,
    last: bool,
) -> ConvSpec | None:  # fmt: skip
    """The problem without axes of no extent, or None where it has another result than `out`."""
    axes = [i for i in range(3) if (size[i], kernel[i], out[i], padding[i]) != (1, 1, 1, 0)] or [2]
    if min(padding) < 0:
        return None
    room = [size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1 for i in axes]
    if any(r < 0 or r // stride[i] + 1 != out[i] for r, i in zip(room, axes, strict=True)):
        return None

    def kept(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values[i] for i in axes)

    sizes = (batch, groups * channels, kept(size), groups * filters, kept(kernel))
    return ConvSpec(*sizes, kept(stride), kept(padding), kept(dilation), groups, dtype, tf32, last)


def _forward(x: OperandView, w: OperandView, attrs: Attrs, tf32: bool, last: bool) -> Conv | None:
    stride, padding, out, x_dilation, dilation = attrs
    (n, groups, channels, *size), (_, filters, _, *kernel) = x.shape, w.shape
    if x_dilation != (1, 1, 1) or not _lies(x, _data(x.shape, last)) or not _lies(w, _taps(w.shape, last)):
        return None
    spec = _spec(n, groups, channels, filters, size, kernel, stride, padding, dilation, out, x.dtype.name, tf32, last)
    return None if spec is None else Conv(FORWARD, spec, _data((n, groups, filters, *out), last), ("x", "w"))


def _backward_data(y: OperandView, w: OperandView, attrs: Attrs, tf32: bool, last: bool) -> Conv | None:
    """A convolution of y by flipped taps whose channels have changed places (ops/convolution.py)."""
    ones, low, out, stride, dilation = attrs
    (n, groups, filters, *size), (_, channels, _, *kernel) = y.shape, w.shape
    s = _taps((groups, filters, channels, *kernel), last)
    flipped = (s[0], s[2], s[1], *(-step for step in s[3:]))
    if ones != (1, 1, 1) or not _lies(y, _data(y.shape, last)) or not _lies(w, flipped):
        return None
    padding = [(k - 1) * d - lo for k, d, lo in zip(kernel, dilation, low, strict=True)]
    spec = _spec(n, groups, channels, filters, out, kernel, stride, padding, dilation, size, y.dtype.name, tf32, last)
    back = sum((k - 1) * step for k, step in zip(kernel, s[3:], strict=True)) * w.dtype.itemsize
    strides = _data((n, groups, channels, *out), last)
    return None if spec is None else Conv(BACKWARD_DATA, spec, strides, ("y", "w"), back)


def _backward_filter(x: OperandView, y: OperandView, attrs: Attrs, tf32: bool, last: bool) -> Conv | None:
    """A convolution in which the batch is what is summed over, and taps and pixels have changed places."""
    dilation, padding, out, x_dilation, stride = attrs
    (channels, groups, n, *size), (_, filters, _, *pixels) = x.shape, y.shape
    s, t = _data((n, groups, channels, *size), last), _data((n, groups, filters, *pixels), last)
    if x_dilation != (1, 1, 1) or not _lies(x, (s[2], s[1], s[0], *s[3:])):
        return None
    if not _lies(y, (t[1], t[2], t[0], *t[3:])):
        return None
    spec = _spec(n, groups, channels, filters, size, out, stride, padding, dilation, pixels, x.dtype.name, tf32, last)
    u = _taps((groups, filters, channels, *out), last)
    return None if spec is None else Conv(BACKWARD_FILTER, spec, (u[2], u[0], u[1], *u[3:]), ("x", "y"))


_DIRECTIONS = (_forward, _backward_data, _backward_filter)
