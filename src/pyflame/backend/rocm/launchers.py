"""The ROCm backend's `launch_*` functions: ops over memory of an AMD GPU given by address, such as a memory manager's.

They run the kernels that tensors run, on a stream of `pf.rocm.Stream` or, without one, in order with that of tensors.
The result is computed in the pool's memory and copied to where it is wanted. Elements are float32. What leaves a block
of a memory manager is refused; other addresses are the caller's business.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.backend.rocm.memory import check_range
from pyflame.core.checks import natural
from pyflame.core.device import DeviceId
from pyflame.core.dtype import DType, float32, int32
from pyflame.core.errors import ArgumentError, suggest
from pyflame.core.state import mode
from pyflame.engine.evaluate import evaluate
from pyflame.engine.memory import gpu_of
from pyflame.engine.value import Foreign, Value
from pyflame.ir import F, Node, cast, const
from pyflame.tensor.creation import leaf
from pyflame.tensor.streams import Stream
from pyflame.tensor.torch_cuda import rocm

BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum")
UNARY = ("neg", "abs", "sqrt", "exp", "log", "sin", "cos", "tanh", "relu", "sigmoid", "gelu", "silu")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SHORT = {"max": "maximum", "min": "minimum"}

Source = tuple[int, tuple[int, ...], DType]  # address, shape, dtype


def _launch(
    name: str, output: int, sources: Sequence[Source], stream: Stream | None, work: Callable[..., Node]
) -> None:
    """Compute a Node over foreign memory and put its value to an address."""
    device: DeviceId = rocm.id_of(name, None if stream is None else stream.device)
    gpu = gpu_of(name, device)
    with mode(device=device, recorder=None, tracer=None), gpu.using(stream.stream) if stream else _NOTHING:
        nodes = []
        for address, shape, dtype in sources:
            nbytes = dtype.itemsize * math.prod(natural(name, "a size", n) for n in shape)
            memory = Foreign(check_range(name, gpu, address, nbytes), nbytes)
            nodes.append(leaf(Value(memory), shape, dtype, device, True))
        result = F.contiguous(cast(work(*nodes), float32))
        check_range(name, gpu, output, result.meta.nbytes)
        evaluate([result])
        gpu.copy(output, result.data.address, result.meta.nbytes)


_NOTHING = contextlib.nullcontext()


def _named(name: str, op: str, known: tuple[str, ...]) -> Any:
    found = _SHORT.get(str(op).lower(), str(op).lower())
    if found not in known:
        raise ArgumentError(f"[{name}] expected one of {', '.join(known)} but got {op!r}{suggest(found, known)}")
    return getattr(F, found)


def launch_gelu_forward(output: int, input: int, numel: int, stream: Stream | None = None) -> None:
    """output = gelu(input)."""
    _launch("launch_gelu_forward", output, [(input, (numel,), float32)], stream, F.gelu)


def launch_silu_forward(output: int, input: int, numel: int, stream: Stream | None = None) -> None:
    """output = silu(input)."""
    _launch("launch_silu_forward", output, [(input, (numel,), float32)], stream, F.silu)


def launch_elementwise_binary(op: str, output: int, a: int, b: int, numel: int, stream: Stream | None = None) -> None:
    """output = op(a, b), where op is one of add, sub, mul, div, pow, maximum, minimum."""
    work = _named("launch_elementwise_binary", op, BINARY)
    _launch("launch_elementwise_binary", output, [(p, (numel,), float32) for p in (a, b)], stream, work)


def launch_elementwise_unary(op: str, output: int, input: int, numel: int, stream: Stream | None = None) -> None:
    """output = op(input), where op is one of neg, abs, sqrt, exp, log, sin, cos, tanh, relu, sigmoid, gelu, silu."""
    work = _named("launch_elementwise_unary", op, UNARY)
    _launch("launch_elementwise_unary", output, [(input, (numel,), float32)], stream, work)


def launch_comparison(op: str, output: int, a: int, b: int, numel: int, stream: Stream | None = None) -> None:
    """output = 1 where op(a, b) holds, else 0; op is one of eq, ne, lt, le, gt, ge."""
    work = _named("launch_comparison", op, COMPARISONS)
    _launch("launch_comparison", output, [(p, (numel,), float32) for p in (a, b)], stream, work)


def launch_where(output: int, condition: int, x: int, y: int, numel: int, stream: Stream | None = None) -> None:
    """output = x where the condition is not 0, else y."""
    sources = [(p, (numel,), float32) for p in (condition, x, y)]
    _launch("launch_where", output, sources, stream, lambda c, x, y: F.where(F.ne(c, const(0.0, float32)), x, y))


def launch_clamp(
    output: int, input: int, min_val: float, max_val: float, numel: int, stream: Stream | None = None
) -> None:
    """output = input, at least min_val and at most max_val."""
    _launch("launch_clamp", output, [(input, (numel,), float32)], stream, lambda x: F.clamp(x, min_val, max_val))


def launch_mse_loss(output: int, predictions: int, targets: int, numel: int, stream: Stream | None = None) -> None:
    """output[0] = the mean of (predictions - targets)^2."""
    sources = [(p, (numel,), float32) for p in (predictions, targets)]
    _launch("launch_mse_loss", output, sources, stream, F.mse_loss)


def launch_bce_loss(output: int, predictions: int, targets: int, numel: int, stream: Stream | None = None) -> None:
    """output[0] = the mean binary cross-entropy of probabilities."""
    sources = [(p, (numel,), float32) for p in (predictions, targets)]
    _launch("launch_bce_loss", output, sources, stream, F.binary_cross_entropy)


def launch_cross_entropy_loss(
    output: int, logits: int, targets: int, N: int, C: int, stream: Stream | None = None
) -> None:
    """output[0] = the mean cross-entropy of N rows of C logits; targets are N int32."""
    sources = [(logits, (N, C), float32), (targets, (N,), int32)]
    _launch("launch_cross_entropy_loss", output, sources, stream, F.cross_entropy)


__all__ = [
    "launch_bce_loss",
    "launch_clamp",
    "launch_comparison",
    "launch_cross_entropy_loss",
    "launch_elementwise_binary",
    "launch_elementwise_unary",
    "launch_gelu_forward",
    "launch_mse_loss",
    "launch_silu_forward",
    "launch_where",
]
