"""Work that memory limits: a copy, a fused chain, rows, long rows, gradients of rows, sums and transposes.

Bytes are those that must move: every large input and output once. A kernel that reads more often than it writes may
beat the copy, which does both in equal parts. Tensors are far larger than a GPU's caches. Ours run twice: called as
they are ("pyflame"), and through `pf.jit` ("pyflame jit"); ratios are those of the faster one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks import jax_models
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.peers import jax_contender, torch_contenders, torch_tensor
from pyflame.core.device import parse_device
from pyflame.engine.devices import get_device

Sizes = tuple[int, int]
OF_COPY = {"copy": 0.80, "torch.compile": 1.0}
AHEAD = {"torch.compile": 1.0}
CLOSE = {"float32": 1e-3, "bfloat16": 3e-2}
NAMES = {"float32": "f32", "bfloat16": "bf16"}


@functools.cache
def _block() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(1_000_003, np.float32)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Normal numbers, the same million again and again: 268 million fresh ones would take longer than the benchmark."""
    return np.resize(_block().astype(getattr(pf, dtype).numpy), shape)


@dataclass(frozen=True)
class Work:
    """One op in three languages, each given its operands as `arrays` makes them.

    `backward`: the last array is the gradient of the function's result, and gradients of the others are the result.
    """

    name: str
    nbytes: int
    arrays: Callable[[], list[np.ndarray[Any, Any]]]
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    jax: Callable[..., Any]
    dtype: str
    goals: dict[str, float] = field(default_factory=dict)
    backward: bool = False


# --- the work ---------------------------------------------------------------------------------------------------------


def chain(bench: Bench) -> Iterator[Work]:
    n = 1 << (12 if bench.small else 28)
    for dtype in ("float32", "bfloat16"):
        yield Work(
            f"gelu(x*a+b)*sigmoid(x)+c, {n >> 20}M {NAMES[dtype]}",
            2 * n * getattr(pf, dtype).itemsize,
            lambda dtype=dtype: [normal(n, dtype=dtype)],
            lambda x: pf.gelu(x * 1.1 + 0.1) * pf.sigmoid(x) + 0.5,
            lambda torch, x: torch.nn.functional.gelu(x * 1.1 + 0.1) * torch.sigmoid(x) + 0.5,
            lambda jax, jnp, x: jax.nn.gelu(x * 1.1 + 0.1, approximate=False) * jax.nn.sigmoid(x) + 0.5,
            dtype,
            {"copy": 0.90, "torch.compile": 1.0}
            if dtype == "float32"
            else AHEAD,  # erf's arithmetic is the limit there
        )


def _softmax(sizes: Sizes, dtype: str, goals: dict[str, float]) -> Work:
    return Work(
        f"softmax {sizes[0]}x{sizes[1]} {NAMES[dtype]}",
        2 * sizes[0] * sizes[1] * getattr(pf, dtype).itemsize,
        lambda: [normal(*sizes, dtype=dtype)],
        lambda x: pf.softmax(x, -1),
        lambda torch, x: torch.softmax(x, -1),
        lambda jax, jnp, x: jax.nn.softmax(x, -1),
        dtype,
        goals,
    )


def _norms(sizes: Sizes, goals: dict[str, float]) -> list[Work]:
    rows, n = sizes

    def jax_layer_norm(jax: Any, jnp: Any, x: Any, w: Any, b: Any) -> Any:
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(wide - mean).mean(-1, keepdims=True) + 1e-5)
        return ((wide - mean) * scale * w + b).astype(x.dtype)

    def jax_rms_norm(jax: Any, jnp: Any, x: Any, w: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5) * w).astype(x.dtype)

    def operands(weights: int) -> list[np.ndarray[Any, Any]]:
        return [normal(rows, n, dtype="bfloat16"), *[normal(n, dtype="bfloat16") for _ in range(weights)]]

    layer = Work(
        f"layer_norm {rows}x{n} bf16",
        4 * rows * n,
        lambda: operands(2),
        lambda x, w, b: pf.layer_norm(x, (n,), w, b),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (n,), w, b),
        jax_layer_norm,
        "bfloat16",
        goals,
    )
    rms = Work(
        f"rms_norm {rows}x{n} bf16",
        4 * rows * n,
        lambda: operands(1),
        lambda x, w: pf.rms_norm(x, (n,), w, 1e-5),
        lambda torch, x, w: torch.nn.functional.rms_norm(x, (n,), w, 1e-5),
        jax_rms_norm,
        "bfloat16",
        goals,
    )
    return [layer, rms]


def _cross_entropy(sizes: Sizes, goals: dict[str, float]) -> Work:
    rows, classes = sizes
    return Work(
        f"cross_entropy {rows}x{classes} bf16",
        2 * rows * classes,
        lambda: [normal(rows, classes, dtype="bfloat16"), np.random.default_rng(0).integers(0, classes, rows)],
        lambda x, y: pf.cross_entropy(x, y),
        lambda torch, x, y: torch.nn.functional.cross_entropy(x, y),
        lambda jax, jnp, x, y: jax_models.cross_entropy(x, y),
        "bfloat16",
        goals,
    )


def rows(bench: Bench) -> Iterator[Work]:
    sizes = (64, 256) if bench.small else (16384, 8192)
    yield _softmax(sizes, "bfloat16", OF_COPY)
    yield from _norms(sizes, OF_COPY)
    yield _cross_entropy((64, 501) if bench.small else (8192, 50304), OF_COPY)
    yield _softmax(sizes, "float32", OF_COPY)


def long_rows(bench: Bench) -> Iterator[Work]:
    sizes = (2, 10_000) if bench.small else (64, 1 << 20)
    yield _softmax(sizes, "bfloat16", AHEAD)
    yield _cross_entropy(sizes, AHEAD)


def backward(bench: Bench) -> Iterator[Work]:
    """From the input and the gradient of the result to the gradient of the input: two reads and a write.

    torch keeps what its forward has saved for it; the others begin with the input.
    """
    sizes = (64, 256) if bench.small else (16384, 8192)
    for work in (*_norms(sizes, {}), _softmax(sizes, "bfloat16", {})):
        yield Work(
            work.name.replace(" ", " backward ", 1),
            6 * sizes[0] * sizes[1],
            lambda work=work: [*work.arrays(), normal(*sizes, dtype="bfloat16")],
            work.ours,
            work.torch,
            work.jax,
            work.dtype,
            backward=True,
        )


def moves(bench: Bench) -> Iterator[Work]:
    m, n = (64, 256) if bench.small else (16384, 8192)
    for dtype in ("bfloat16", "float32"):
        yield Work(
            f"transposed copy {m}x{n} {NAMES[dtype]}",
            2 * m * n * getattr(pf, dtype).itemsize,
            lambda dtype=dtype: [normal(m, n, dtype=dtype)],
            lambda x: x.permute(1, 0).contiguous(),
            lambda torch, x: x.t().contiguous(),
            lambda jax, jnp, x: x.T,
            dtype,
        )
    for name, axis in (("rows", 1), ("columns", 0), ("all", None)):
        yield Work(
            f"sum over {name} {m}x{n} f32",
            4 * m * n,
            lambda: [normal(m, n)],
            lambda x, axis=axis: x.sum(axis=axis),
            lambda torch, x, axis=axis: x.sum(axis),
            lambda jax, jnp, x, axis=axis: x.sum(axis),
            "float32",
        )


SECTIONS = {"chain": chain, "rows": rows, "long": long_rows, "backward": backward, "moves": moves}

# --- contenders -------------------------------------------------------------------------------------------------------


def _gradients(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Ours: from operands and the gradient of the result to the operands' gradients."""

    def gradients(*given: Any) -> Any:
        *operands, slope = given
        leaves = [t.detach().requires_grad_() for t in operands]
        fn(*leaves).backward(slope)
        return tuple(t.grad for t in leaves)

    return gradients


def _ours(work: Work, bench: Bench, arrays: list[np.ndarray[Any, Any]]) -> dict[str, Call]:
    tensors = [pf.tensor(a, device=bench.device) for a in arrays]
    pf.eval(*tensors)
    fn = _gradients(work.ours) if work.backward else work.ours
    jitted = pf.jit(lambda *t: fn(*t))

    def evaluated(call: Callable[..., Any]) -> Call:
        def run() -> Any:
            result = call(*tensors)
            pf.eval(result)
            return result

        return run

    return {"pyflame": evaluated(fn), "pyflame jit": evaluated(jitted)}


def _torch(work: Work, bench: Bench, arrays: list[np.ndarray[Any, Any]]) -> dict[str, Call]:
    if not work.backward:
        compiled = bench.takes("torch.compile")
        return torch_contenders(work.torch, *arrays, compiled=compiled, device=bench.torch_device)
    import torch
    from torch._functorch import config

    *operands, slope = (torch_tensor(a, bench.torch_device) for a in arrays)
    leaves = [t.requires_grad_() for t in operands]

    def gradients(fn: Callable[..., Any]) -> Call:
        made: list[Any] = []  # by the first call, which may compile

        def run() -> Any:
            if not made:
                with config.patch(donated_buffer=False):  # else a compiled gradient runs only once
                    made.append(fn(*leaves))
                    return torch.autograd.grad(made[0], leaves, slope, retain_graph=True)
            return torch.autograd.grad(made[0], leaves, slope, retain_graph=True)

        return run

    eager = functools.partial(work.torch, torch)
    return {"torch": gradients(eager), "torch.compile": gradients(torch.compile(lambda *t: eager(*t)))}


def _jax(work: Work, bench: Bench, arrays: list[np.ndarray[Any, Any]]) -> dict[str, Call]:
    bench.need_jax()

    def gradients(jax: Any, jnp: Any, *given: Any) -> Any:
        *operands, slope = given
        return jax.vjp(functools.partial(work.jax, jax, jnp), *operands)[1](slope)

    return jax_contender(gradients if work.backward else work.jax, *arrays, blocking=False)


def run(bench: Bench, section: str) -> None:
    """Measure the work of a section."""
    for work in SECTIONS[section](bench):
        arrays = work.arrays()
        groups: dict[str, Group] = {"pyflame": functools.partial(_ours, work, bench, arrays)}
        if bench.takes("torch"):
            groups["torch"] = functools.partial(_torch, work, bench, arrays)
        if bench.takes("jax.jit"):
            groups["jax.jit"] = functools.partial(_jax, work, bench, arrays)
        seconds, failed = bench.measure(groups, CLOSE[work.dtype])
        bench.add(section, Line(work.name, work.nbytes, "GB/s", seconds, failed=failed, goals=work.goals))


def copy(bench: Bench) -> None:
    """The limit: bytes read and written by the best copy of a large buffer that anybody makes."""
    nbytes = (1 << 20) if bench.small else (1 << 30)
    groups: dict[str, Group] = {"pyflame": functools.partial(_clone, bench, nbytes)}
    groups["driver"] = functools.partial(_driver_copy, bench, nbytes)
    if bench.takes("torch"):
        groups["torch"] = functools.partial(_torch_copy, bench, nbytes)
    seconds, failed = bench.measure(groups)
    line = Line(f"copy of {nbytes >> 20} MiB, read and written", 2 * nbytes, "GB/s", seconds, failed=failed)
    bench.limit = max((2 * nbytes / s for s in seconds.values()), default=0.0)
    bench.add("copy", line)


def _clone(bench: Bench, nbytes: int) -> dict[str, Call]:
    source = pf.tensor(normal(nbytes // 4), device=bench.device)
    pf.eval(source)

    def run() -> Any:
        result = source.clone()
        pf.eval(result)
        return result

    return {"pyflame": run}


def _driver_copy(bench: Bench, nbytes: int) -> dict[str, Call]:
    """The vendor's own copy within a GPU; on the CPU, NumPy's."""
    host = normal(nbytes // 4)
    if not bench.gpu:
        other = np.empty_like(host)
        return {"driver": lambda: np.copyto(other, host)}
    device = get_device(parse_device(bench.device))
    source, target = (device.allocate(nbytes) for _ in range(2))
    device.upload_from(source.address, host.ctypes.data, nbytes)
    return {"driver": lambda: device.copy(target.address, source.address, nbytes)}


def _torch_copy(bench: Bench, nbytes: int) -> dict[str, Call]:
    import torch

    source = torch_tensor(normal(nbytes // 4), bench.torch_device)
    target = torch.empty_like(source)
    return {"torch": lambda: target.copy_(source)}
