"""Random numbers: elementwise functions of a position, so they fuse like any arithmetic and need no memory.

A draw is named by (seed, offset), which are constants and so data of the plan: another draw neither plans nor compiles
anything. The offset is taken from the generator when the op is called. Bits and uniforms are equal on every device;
`core/philox.py` defines them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core import philox
from pyflame.core.dtype import DType, bfloat16, float16, float32, float64, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.generator import Generator, default_generator
from pyflame.core.state import state
from pyflame.ir import F, Node, Sample, as_number, cast, composite, const, is_number, primitive
from pyflame.ir.opdef import ELEMENTWISE
from pyflame.ops.base import want_whole

_STREAM = ("position", "seed", "offset")


def stream(generator: Generator | None) -> tuple[Node, Node]:
    """Seed and offset of a new stream, as constants. Inside jit the plan draws them anew at each call."""
    generator = default_generator if generator is None else generator
    if not isinstance(generator, Generator):
        raise ArgumentError(f"[random] expected a pf.Generator but got {generator!r}")
    if state.streams is not None:
        return state.streams.take(lambda: _draw(generator))  # type: ignore[no-any-return]
    return _draw(generator)


def _draw(generator: Generator) -> tuple[Node, Node]:
    if state.tracer is not None:
        seed, offset = const(0, int64), const(0, int64)
        state.tracer.drew(generator, seed, offset)
        return seed, offset
    numbers = generator.next_stream()
    return const(numbers[0], int64), const(numbers[1], int64)


def _at(draw: Callable[[int, int, int], Any]) -> Callable[..., Any]:
    """The NumPy twin of a draw at any positions."""

    def reference(position: Any, seed: Any, offset: Any) -> Any:
        values = draw(int(seed), int(offset), int(position.max()) + 1 if position.size else 0)
        return values[position]

    return reference


def _declare(name: str, dtype: DType, c: str, draw: Callable[[int, int, int], Any], cost: int) -> None:
    @primitive(
        ELEMENTWISE,
        infer=lambda position, seed, offset: (position.shape, dtype),
        srcs=_STREAM,
        reference=_at(draw),
        c=c + "({seed}, {offset}, {position})",
        name=name,
        cost=cost,
        public=False,
        differentiable=False,
    )
    def op(position: Node, seed: Node, offset: Node) -> Any:
        return (position, seed, offset), ()


_declare("random_bits", int64, "(int64_t)pf_random_u64", lambda *a: philox.random_u64(*a).view(np.int64), 40)
_declare("random_uniform_f32", float32, "pf_random_uniform_f32", philox.random_uniform_f32, 40)
_declare("random_uniform_f64", float64, "pf_random_uniform_f64", philox.random_uniform_f64, 40)
_declare("random_normal_f32", float32, "pf_random_normal_f32", philox.random_normal_f32, 80)
_declare("random_normal_f64", float64, "pf_random_normal_f64", philox.random_normal_f64, 120)


@composite(public=False)
def random_uniform(position: Node, dtype: DType, generator: Generator | None = None) -> Node:
    """Uniform numbers in [0, 1), one for each position. Those of 16 bits are multiples of what their mantissa holds."""
    if dtype is float64:
        return F.random_uniform_f64(position, *stream(generator))
    values = F.random_uniform_f32(position, *stream(generator))
    if dtype is float32:
        return values
    if dtype not in (float16, bfloat16):
        raise DTypeError(f"[rand] expected a float dtype of 16 bits or more but got {dtype.name}; cast afterwards")
    # rounding could give 1, which is outside: cut instead
    steps = 2.0**11 if dtype is float16 else 2.0**8
    return cast(cast(cast(values * steps, int64), float32) * (1.0 / steps), dtype)


@composite(public=False)
def random_normal(position: Node, dtype: DType, generator: Generator | None = None) -> Node:
    """Standard normal numbers, one for each position."""
    if dtype is float64:
        return F.random_normal_f64(position, *stream(generator))
    if dtype not in (float32, float16, bfloat16):
        raise DTypeError(f"[randn] expected a float dtype of 16 bits or more but got {dtype.name}; cast afterwards")
    return cast(F.random_normal_f32(position, *stream(generator)), dtype)


def _within(bits: Any, low: Any, span: Any) -> Any:
    drawn = philox.random_below(bits.view(np.uint64), int(span) % 2**64)
    return (drawn + np.int64(low).view(np.uint64)).view(np.int64)


@primitive(
    ELEMENTWISE,
    infer=lambda bits, low, span: (bits.shape, int64),
    srcs=("bits", "low", "span"),
    reference=_within,
    c="(int64_t)((uint64_t){low} + pf_random_below((uint64_t){bits}, (uint64_t){span}))",
    cost=8,
    public=False,
    differentiable=False,
)
def random_within(bits: Node, low: Node, span: Node) -> Any:
    """Integers in [low, low + span) from 64 random bits, off their probability by at most span / 2**64; 0 is 2**64."""
    return (bits, low, span), ()


@composite(public=False)
def random_integers(position: Node, low: int, high: int, generator: Generator | None = None) -> Node:
    """Integers in [low, high)."""
    bits = F.random_bits(position, *stream(generator))
    return F.random_within(bits, const(low, int64), const(high - low, int64))


@primitive(
    ELEMENTWISE,
    infer=lambda x, position, seed, offset, keep, scale: (x.shape, x.dtype),
    srcs=("x", "position", "seed", "offset", "keep", "scale"),
    reference=lambda x, position, seed, offset, keep, scale: np.where(
        _at(philox.random_uniform_f32)(position, seed, offset) < keep, x * scale, np.zeros_like(x)
    ),
    c="pf_random_uniform_f32({seed}, {offset}, {position}) < {keep} ? {x} * {scale} : ({T})0",
    grad=lambda g, position, seed, offset, keep, scale: _dropout_grad(g, position, seed, offset, keep, scale),
    cost=42,
    public=False,
)
def dropout_at(x: Node, position: Node, seed: Node, offset: Node, keep: Node, scale: Node) -> Any:
    """x * scale where the stream is below `keep`, else 0."""
    return (x, position, seed, offset, keep, scale), ()


def _dropout_grad(g: Node, *stream: Node) -> tuple[Any, ...]:
    # y = mask * scale * x: the same mask, computed again from (seed, offset) rather than kept
    return (F.dropout_at(g, *stream), *[None for _ in stream])


def probability(op: str, p: Any) -> float:
    """A number in [0, 1], or an error."""
    value = float(as_number(p)) if is_number(p) else float("nan")
    if not 0.0 <= value <= 1.0:
        raise ArgumentError(f"[{op}] expected a probability in [0, 1] but got {p!r}")
    return value


@composite(
    reference=lambda x, p=0.5, training=True, generator=None: x if not training or p == 0.0 else np.zeros_like(x),
    torch=lambda torch, x, p=0.5, training=True: torch.nn.functional.dropout(x, p, training),
    # What is random is tested in tests/unit/test_random.py; here are the cases with one possible answer.
    samples=lambda: [
        Sample((np.linspace(-2.0, 2.0, 15).reshape(3, 5),), dict(p=0.0)),
        Sample((np.linspace(-2.0, 2.0, 15).reshape(3, 5),), dict(p=1.0)),
        Sample((np.linspace(-2.0, 2.0, 7), 0.7, False)),
        Sample((np.zeros((0, 3)), 1.0)),
    ],
)
def dropout(x: Node, p: float = 0.5, training: bool = True, generator: Generator | None = None) -> Node:
    """Each element becomes 0 with probability p; the others are divided by 1 - p. Without `training`, x itself.

    >>> pf.dropout(pf.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    p = probability("dropout", p)
    if not x.dtype.is_float:
        raise DTypeError(f"[dropout] expected a floating-point tensor but got {x.dtype.name}")
    if not training or p == 0.0:
        return x
    numbers = [const(1.0 - p, float32), const(1.0 / (1.0 - p) if p < 1.0 else 0.0, x.dtype.compute)]
    return F.dropout_at(x, F.iota(x.shape), *stream(generator), *numbers)


# Only certain outcomes can be compared: probabilities of 0 and 1.
_CERTAIN = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


@composite(
    differentiable=False,
    torch="bernoulli",
    reference=lambda x: x,
    samples=lambda: [Sample((_CERTAIN,)), Sample((_CERTAIN[:, 0],)), Sample((np.ones((0, 3)),))],
)
def bernoulli(input: Node, p: float | None = None, generator: Generator | None = None) -> Node:
    """1 with a probability given by each element of the input, or by `p`, else 0; in the input's dtype.

    >>> pf.bernoulli(pf.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    wide = float64 if input.dtype is float64 else float32
    if p is None and not input.dtype.is_float:
        raise DTypeError(f"[bernoulli] expected floating-point probabilities but got {input.dtype.name}; or pass p=")
    limit = cast(input, wide) if p is None else const(probability("bernoulli", p), wide)
    drawn = F.random_uniform(F.iota(input.shape), wide, generator) < limit
    return cast(drawn, input.dtype)


@composite(
    differentiable=False,
    torch="multinomial",
    reference=lambda x, n, replacement=False: x.argmax(-1)[..., None].repeat(n, -1),
    samples=lambda: [Sample((_CERTAIN, 1)), Sample((_CERTAIN, 4, True)), Sample((_CERTAIN[1], 1))],
)
def multinomial(input: Node, num_samples: int, replacement: bool = False, generator: Generator | None = None) -> Node:
    """Indices drawn with the probabilities of each row, which need not sum to 1. (n,) -> (k,), (rows, n) -> (rows, k).

    >>> pf.multinomial(pf.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    if input.ndim not in (1, 2) or input.shape[-1] == 0:
        raise ShapeError(
            f"[multinomial] expected probabilities of shape (n,) or (rows, n), n > 0, but got {input.shape}"
        )
    if not input.dtype.is_float:
        raise DTypeError(f"[multinomial] expected floating-point probabilities but got {input.dtype.name}")
    n = input.shape[-1]
    k = want_whole("multinomial", "num_samples", num_samples)
    if k < 1 or (not replacement and k > n):
        allowed = "at least 1" if replacement else f"in [1, {n}] (or replacement=True)"
        raise ArgumentError(f"[multinomial] expected a number of samples {allowed} but got {num_samples!r}")
    weights = cast(input, float64)
    if not replacement:
        # The k smallest arrival times of exponentials with these rates: Exp(w) = Exp(1) / w.
        # 1e-300 keeps 0 / 0 out where the exponential is 0.
        arrival = -F.log(1.0 - F.random_uniform(F.iota(input.shape), float64, generator)) + 1e-300
        chosen: Any = F.topk(weights / arrival, k, -1)
        return chosen[1]  # type: ignore[no-any-return]
    # Inverse of the distribution function: how many of its steps lie at or below u * total. u < 1 keeps it inside, and
    # an element of weight 0 is no step of its own.
    steps = F.cumsum(weights, -1)
    total = F.slice(steps, (*[(0, 1, s) for s in input.shape[:-1]], (n - 1, 1, 1)))
    u = F.random_uniform(F.iota((*input.shape[:-1], k)), float64, generator) * total
    below = F.reshape(steps, (*input.shape[:-1], 1, n)) <= F.reshape(u, (*input.shape[:-1], k, 1))
    return F.reduce_sum(cast(below, int64), (below.ndim - 1,))


@composite(public=False)
def random_permutation(position: Node, generator: Generator | None = None) -> Node:
    """The positions in random order: the order in which 64 random bits each would be sorted."""
    return F.argsort(F.random_bits(position, *stream(generator)))
