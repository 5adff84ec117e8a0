"""Convolutions against torch's: ResNet-50's layers without vendor libraries beside cuDNN, and those of small CNNs.

A layer's forward pass and both gradients are measured one by one, in bfloat16 with channels side by side in memory on
both sides: that is how a whole model runs. Images, weights and results are in memory before and after, as in a plan.
A call does it for several batches, one after the other on both sides, so that the host's time does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyflame as pf
from benchmarks import conv as cpu_conv
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.gpu.models import setting, without_libraries
from benchmarks.gpu.ops import normal
from benchmarks.peers import torch_tensor
from pyflame.core import knobs

FAR = 2e-2
BATCH = 128
FACTORS = (1, 2, 4, 8)  # of images and gradients: each batch is another one, and rounds in the same places
GOAL = 0.6
PASSES = ("forward", "input gradient", "weight gradient")
# ResNet-50's: channels, outputs, size of the image, kernel, stride
LAYERS = (
    (3, 64, 224, 7, 2), (64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (256, 64, 56, 1, 1),
    (256, 128, 56, 1, 1), (128, 128, 56, 3, 2), (256, 512, 56, 1, 2), (128, 512, 28, 1, 1), (512, 128, 28, 1, 1),
    (128, 128, 28, 3, 1), (512, 256, 28, 1, 1), (256, 256, 28, 3, 2), (512, 1024, 28, 1, 2), (256, 1024, 14, 1, 1),
    (1024, 256, 14, 1, 1), (256, 256, 14, 3, 1), (1024, 512, 14, 1, 1), (512, 512, 14, 3, 2), (1024, 2048, 14, 1, 2),
    (512, 2048, 7, 1, 1), (2048, 512, 7, 1, 1), (512, 512, 7, 3, 1),
)  # fmt: skip


def conv(bench: Bench, section: str = "conv") -> None:
    """Both; flops count twice the multiplications."""
    with setting(knobs.GRAPH_BRANCHES, "1"):
        _layers(bench, section)
    _small_networks(bench, section)


# --- ResNet-50 --------------------------------------------------------------------------------------------------------


def _layers(bench: Bench, section: str) -> None:
    """Our own kernels beside torch's library. The stem's input needs no gradient."""
    for c, o, size, k, stride in LAYERS[:3] if bench.small else LAYERS:
        batch, size = (1, 8) if bench.small else (BATCH, size)
        out = (size + 2 * (k // 2) - k) // stride + 1
        shapes = (batch, size, size, c), (o, k, k, c), (batch, out, out, o)
        arrays = [normal(*shape, dtype="bfloat16") for shape in shapes]  # image, weight, gradient; channels last
        flops = 2 * batch * o * c * k * k * out * out * len(FACTORS)
        for which in PASSES:
            if which == "input gradient" and c == 3:
                continue
            made: dict[str, Group] = {"pyflame own": functools.partial(_our_layer, bench, arrays, k, stride, which)}
            if bench.takes("torch"):
                made["torch"] = functools.partial(_torch_layer, bench, arrays, k, stride, which)
            seconds, failed = bench.measure(made, FAR)
            name = f"{batch}x{size}x{size}x{c} -> {o}, {k}x{k} stride {stride}, {which}"
            unit = "GFLOP/s" if bench.small else "TFLOP/s"
            bench.add(section, Line(name, flops, unit, seconds, failed=failed, goals={"torch": GOAL}))


def _our_layer(bench: Bench, arrays: list[Any], k: int, stride: int, which: str) -> dict[str, Call]:
    x, w, g = (pf.tensor(a, device=bench.device) for a in arrays)
    given = [[t.permute(0, 3, 1, 2) for t in (x * f, w, g * f)] for f in FACTORS]
    pf.eval(given)

    def one(x: pf.Tensor, w: pf.Tensor, g: pf.Tensor) -> Any:
        x, w = x.detach(), w.detach()
        wanted = {"input gradient": x, "weight gradient": w}.get(which)
        if wanted is not None:
            wanted.requires_grad_()
        y = pf.conv2d(x, w, stride=stride, padding=k // 2)
        if wanted is not None:
            y.backward(g)
        return y if wanted is None else wanted.grad

    @pf.jit
    def step(given: list[list[pf.Tensor]]) -> Any:
        return [one(*batch) for batch in given]

    def run() -> Any:
        result = step(given)
        pf.eval(result)
        return result

    with without_libraries(True):
        run()
    return {"pyflame own": run}


def _torch_layer(bench: Bench, arrays: list[Any], k: int, stride: int, which: str) -> dict[str, Call]:
    import torch

    x, w, g = (torch_tensor(a, bench.torch_device).permute(0, 3, 1, 2) for a in arrays)
    given = [(x * f, g * f) for f in FACTORS]
    options = ([stride] * 2, [k // 2] * 2, [1, 1])

    def one(x: Any, g: Any) -> Any:
        if which == "forward":
            return torch.conv2d(x, w, None, *options)
        wanted = [which == name for name in (*PASSES[1:], "bias gradient")]
        found = torch.ops.aten.convolution_backward(g, x, w, None, *options, False, [0, 0], 1, wanted)
        return found[wanted.index(True)]

    return {"torch": lambda: [one(*batch) for batch in given]}


# --- small networks ---------------------------------------------------------------------------------------------------


def _small_networks(bench: Bench, section: str) -> None:
    """Convolutions of small CNNs in full float32, alone and with both gradients."""
    bench.set_precision("highest")
    for case in cpu_conv.CASES[:1] if bench.small else cpu_conv.CASES:
        n, c, o, size, k, stride, groups = case
        x, w = normal(n, c, size, size), normal(o, c // groups, k, k)
        options = {"stride": stride, "padding": k // 2, "groups": groups}
        pixels = ((size + 2 * (k // 2) - k) // stride + 1) ** 2
        flops = 2 * n * o * c // groups * k * k * pixels
        for gradients in (False, True):
            made: dict[str, Group] = {"pyflame": functools.partial(_our_conv, bench, x, w, options, gradients)}
            if bench.takes("torch"):
                made["torch"] = functools.partial(_torch_conv, bench, x, w, options, gradients)
            seconds, failed = bench.measure(made, FAR)
            name = f"conv {n}x{c}x{size}x{size} -> {o}, {k}x{k} stride {stride} groups {groups}"
            name += ", with gradients" if gradients else " + relu"
            bench.add(section, Line(name, flops * (3 if gradients else 1), "GFLOP/s", seconds, failed=failed))


def _our_conv(bench: Bench, x: Any, w: Any, options: dict[str, int], gradients: bool) -> dict[str, Call]:
    a, b = (pf.tensor(v, device=bench.device) for v in (x, w))

    def forward(u: Any, v: Any) -> Any:
        return pf.relu(pf.conv2d(u, v, **options))

    jitted = pf.jit(_both(forward) if gradients else forward)

    def run() -> Any:
        result = jitted(a, b)
        pf.eval(result)
        return result

    return {"pyflame": run}


def _torch_conv(bench: Bench, x: Any, w: Any, options: dict[str, int], gradients: bool) -> dict[str, Call]:
    import torch

    a, b = (torch_tensor(v, bench.torch_device) for v in (x, w))

    def forward(u: Any, v: Any) -> Any:
        return torch.relu(torch.conv2d(u, v, **options))

    return {"torch": functools.partial(_both(forward) if gradients else forward, a, b)}


def _both(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Forward and backward, to the gradients of input and weight; the same words in torch and here."""

    def step(u: Any, v: Any) -> Any:
        u, v = u.detach().requires_grad_(), v.detach().requires_grad_()
        forward(u, v).sum().backward()
        return u.grad, v.grad

    return step
