"""Cases of whole programs: vendor libraries, jit's replays, encoded weights, attention and training steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pyflame.core import knobs
from pyflame.core.device import CPU
from pyflame.core.dtype import DType, bfloat16, float16, float32
from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.state import mode
from pyflame.doctor.closeness import Array
from pyflame.doctor.selftest.bench import Bench
from pyflame.engine.evaluate import clear_plans
from pyflame.tensor import Tensor
from pyflame.tensor.creation import zeros
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.transform import explain, jit

FLOATS = (float32, float16, bfloat16)

# --- libraries --------------------------------------------------------------------------------------------------------


@contextmanager
def _own_kernels() -> Iterator[None]:
    """Without vendor libraries. Plans know nothing of this choice, so those made before and within are forgotten."""
    before = os.environ.get(knobs.LIBRARIES.name)
    os.environ[knobs.LIBRARIES.name] = "none"
    clear_plans()
    try:
        yield
    finally:
        del os.environ[knobs.LIBRARIES.name]
        if before is not None:
            os.environ[knobs.LIBRARIES.name] = before
        clear_plans()


def _both_ways(bench: Bench, what: str, fn: Callable[..., Tensor], arrays: list[Array], terms: int) -> None:
    """By what a plan chooses, which may be a library's, and by our own kernels."""
    right = bench.right(fn, *arrays)
    given = [bench.here(a) for a in arrays]
    ways = {x.implementation for x in explain(fn(*given), run=False).launches}
    bench.check(f"{what} by {', '.join(sorted(ways))}", fn(*given), right, terms=terms)
    bench.result.notes.append(f"{what}: {', '.join(sorted(ways))}")
    if bench.device.kind in ("rocm", "cuda"):
        with _own_kernels():
            bench.check(f"{what} by our own kernels", fn(*given), right, terms=terms)


def libraries_gemm(bench: Bench) -> None:
    """Products with a bias and an activation, in sizes that are no multiples of a tile too."""
    for dtype in FLOATS:
        for m, k, n in ((17, 33, 19),) if bench.small else ((64, 512, 96), (257, 1023, 129)):
            arrays = [bench.normal(m, k, dtype=dtype), bench.normal(k, n, dtype=dtype), bench.normal(n, dtype=dtype)]
            _both_ways(bench, f"{dtype.name} {m}x{k}x{n}", lambda a, b, c: (a @ b + c).relu(), arrays, k)


def libraries_convolution(bench: Bench) -> None:
    for dtype in FLOATS[: 1 if bench.small else None]:
        n, c, size, out = (1, 3, 7, 4) if bench.small else (4, 32, 29, 48)
        arrays = [bench.normal(n, c, size, size, dtype=dtype), bench.normal(out, c, 3, 3, dtype=dtype)]
        _both_ways(bench, dtype.name, lambda x, w: F["conv2d"](x, w, stride=2, padding=1), arrays, 9 * c)


# --- graphs -----------------------------------------------------------------------------------------------------------


def _program(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).gelu()
    return (y - y.mean(-1, keepdims=True)).softmax(-1) * x.sum(-1, keepdims=True)


def graphs_replay(bench: Bench) -> None:
    """A jitted function called again and again, with other inputs: on a GPU its third call is a captured graph's."""
    fast = jit(_program)
    rows, width = (5, 16) if bench.small else (65, 256)
    for turn in range(6):
        x, w = bench.normal(rows, width, dtype=float32), bench.normal(width, width, dtype=float32)
        got = fast(bench.here(x), bench.here(w))
        bench.check(f"call {turn}", got, bench.right(_program, x, w), terms=width, looser=8.0)


def graphs_state(bench: Bench) -> None:
    """A jitted function that changes a tensor from outside, and whose results are kept from call to call."""
    total = zeros(64, device=str(bench.device))

    @jit
    def add(x: Tensor) -> Tensor:
        total.add_(x)
        return total * 2

    want, kept = np.zeros(64, np.float64), []
    for turn in range(6):
        x = bench.normal(64, dtype=float32)
        want = want + x
        kept.append((turn, add(bench.here(x)), want * 2))
    for turn, got, right in kept:  # a later replay must not have overwritten an earlier result
        bench.check(f"result of call {turn}", got, right, terms=6)
    bench.check("the state", total, want, terms=6)


# --- encoded weights --------------------------------------------------------------------------------------------------


def encoded(bench: Bench, name: str) -> None:
    """A linear layer whose weight stays encoded, for one row and for several, against the decoded weight."""
    width, out = (256, 8) if bench.small else (1024, 96)
    kind = encoding_of(name)
    data = kind.encode(bench.random.standard_normal((out, width)).astype(np.float32))
    decoded = kind.decode(data).astype(np.float64)
    for rows in (1, 5) if bench.small else (1, 5, 130):
        x = bench.normal(rows, width, dtype=float32)
        options: dict[str, Any] = {"encoding": name, "width": width}
        got = F["encoded_linear"](bench.here(x), bench.here(data), activation_bits=32, **options)
        bench.check(f"{rows} rows", got, x @ decoded.T, terms=width)
        got = F["encoded_linear"](bench.here(x), bench.here(data), **options)
        bench.check(f"{rows} rows, inputs of 16 bits", got, x @ decoded.T, terms=width, eps=2.0**-16)


# --- attention --------------------------------------------------------------------------------------------------------


def attention(bench: Bench, dtype: DType) -> None:
    """Causal, with fewer heads of keys, in a length that is no multiple of a tile; and one query, as in decoding."""
    heads, shared, length, size = (2, 1, 9, 16) if bench.small else (8, 2, 203, 64)
    q, k, v = (bench.normal(2, h, length, size, dtype=dtype) for h in (heads, shared, shared))

    def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F["scaled_dot_product_attention"](q, k, v, is_causal=True, enable_gqa=True)  # type: ignore[no-any-return]

    def last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F["scaled_dot_product_attention"](q[:, :, -1:], k, v, enable_gqa=True)  # type: ignore[no-any-return]

    for what, fn in (("causal", causal), ("one query", last)):
        got = fn(*[bench.here(a) for a in (q, k, v)])
        bench.check(what, got, bench.right(fn, q, k, v), terms=length)


# --- training ---------------------------------------------------------------------------------------------------------


def _trained(steps: int, width: int, fast: bool, arrays: list[Array], dtype: Any) -> tuple[list[float], list[Array]]:
    """Losses and weights of a small network that is trained on the current device."""
    from pyflame.nn import functional
    from pyflame.nn.activation import GELU
    from pyflame.nn.containers import Sequential
    from pyflame.nn.linear import Linear
    from pyflame.nn.norm import LayerNorm
    from pyflame.optim import SGD
    from pyflame.tensor.creation import tensor

    model = Sequential(Linear(width, width), GELU(), LayerNorm(width), Linear(width, 4)).to(dtype)
    for p, a in zip(model.parameters(), arrays, strict=False):
        p.data = tensor(a, dtype=dtype)
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = tensor(arrays[-2], dtype=dtype), tensor(arrays[-1])

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if fast else step
    losses = [float(run()) for _ in range(steps)]
    return losses, [p.detach().numpy() for p in model.parameters()]


def training(bench: Bench, fast: bool) -> None:
    """Some steps with momentum: losses and weights against the CPU in float64."""
    steps, width = (2, 8) if bench.small else (8, 64)
    shapes = [(width, width), (width,), (width,), (width,), (4, width), (4,)]
    arrays: list[Array] = [bench.normal(*s, dtype=float32) / np.float32(width**0.5) for s in shapes]
    arrays += [bench.normal(16, width, dtype=float32), bench.random.integers(0, 4, 16)]
    losses, weights = _trained(steps, width, fast, arrays, float32)
    with mode(device=CPU):
        right, exact = _trained(steps, width, False, arrays, "float64")
    terms = width * steps * steps
    bench.check("losses", np.array(losses, np.float32), np.array(right), terms=terms)
    for number, (got, want) in enumerate(zip(weights, exact, strict=True)):
        bench.check(f"parameter {number} after {steps} steps", got, want, terms=terms)
    bench.true(f"the loss fell from {losses[0]:.4f} to {losses[-1]:.4f}", losses[-1] < losses[0])
