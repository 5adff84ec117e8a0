"""The changes that AMDOptimizer tries. Each takes a model and how it runs, and gives both anew, or says why it does not
apply. torch's nn and ours have the same names, so one text serves both (`backends/models.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

from pyflame.backends import models
from pyflame.core.config import KernelPyTorchConfig, RunSettings
from pyflame.core.device import Target

_LINEAR = ("Linear", "NonDynamicallyQuantizableLinear")
_CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d")
_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")


@dataclass(frozen=True)
class Subject:
    """A model as it is by now, and how it runs."""

    model: Any
    settings: RunSettings

    def copy(self) -> Any:
        """A model whose weights may be changed."""
        return models.copied(self.model)


@dataclass(frozen=True)
class Situation:
    """What decides whether a change applies."""

    library: ModuleType
    inputs: Sequence[Any]
    config: KernelPyTorchConfig
    target: Target
    training: bool


Change = tuple[Subject | None, str]  # the changed subject and what was done; None and why not


def fold_batch_norms(subject: Subject, at: Situation) -> Change:
    """Batch norms into the convolutions and linear layers before them."""
    if at.training:
        return None, "the model trains: its batch norms use the statistics of the batch; call .eval()"
    model = subject.copy()
    pairs = _followed(model, at)
    if not pairs:
        return None, "no batch norm follows a convolution or linear layer"
    fusion = at.library.nn.utils.fusion
    with at.library.no_grad():
        for layer, norm in pairs:
            modules = dict(model.named_modules())
            linear = type(modules[layer]).__name__ in _LINEAR
            fuse = fusion.fuse_linear_bn_eval if linear else fusion.fuse_conv_bn_eval
            _put(model, layer, fuse(modules[layer], modules[norm]))
            _put(model, norm, at.library.nn.Identity())
    return replace(subject, model=model), f"{len(pairs)} batch norms folded"


def _followed(model: Any, at: Situation) -> list[tuple[str, str]]:
    """Layers whose result a batch norm takes, by name, seen in a run of the model. Whether somebody else takes it too
    is not seen here: then the folded model gives other results, and is refused."""
    made: dict[int, tuple[str, Any]] = {}  # id of a result -> the layer, and the result, so that the id stays its own
    calls: dict[str, int] = {}
    pairs: list[tuple[str, str]] = []

    def listen(name: str) -> Callable[..., None]:
        def heard(module: Any, args: Any, result: Any) -> None:
            kind = type(module).__name__
            calls[name] = calls.get(name, 0) + 1
            if kind in _NORMS and args and id(args[0]) in made and module.running_mean is not None:
                pairs.append((made[id(args[0])][0], name))
            elif kind in _CONVOLUTIONS or (kind == "Linear" and result.ndim == 2):
                made[id(result)] = name, result

        return heard

    handles = [m.register_forward_hook(listen(n)) for n, m in model.named_modules() if n]
    with at.library.no_grad():
        models.finished(model(*at.inputs))
    for handle in handles:
        handle.remove()
    layers = [layer for layer, _ in pairs]
    return [p for p in pairs if calls[p[0]] == calls[p[1]] == 1 and layers.count(p[0]) == 1]


def _put(model: Any, name: str, module: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        model = getattr(model, part)
    setattr(model, last, module)


def fuse_operators(subject: Subject, at: Situation) -> Change:
    """Ops into few kernels, replayed as one plan; on GPUs as a captured graph."""
    if not at.config.enable_operator_fusion:
        return None, "enable_operator_fusion is False"
    replays = "a captured graph" if at.target.is_gpu else "one plan"
    return replace(subject, settings=replace(subject.settings, fuse=True)), f"fused kernels, replayed as {replays}"


def channels_last(subject: Subject, at: Situation) -> Change:
    """Weights of 2-d convolutions with the channels side by side in memory."""
    if at.training:
        return None, "the model trains: its parameters stay as they are; call model.to(memory_format=...) yourself"
    count = sum(p.ndim == 4 for p in subject.model.parameters())
    if not count:
        return None, "no weight has four axes"
    model = subject.copy().to(memory_format=at.library.channels_last)
    return replace(subject, model=model), f"{count} weights channels-last"


def mixed_precision(subject: Subject, at: Situation) -> Change:
    """Products in 16 bits, weights as they are."""
    low = at.config.half_precision() if at.config.enable_mixed_precision else None
    if low is None:
        return None, "enable_mixed_precision, or allow_bf16 and allow_fp16, are False"
    if subject.settings.autocast or subject.settings.dtype:
        return None, f"it computes in {subject.settings.autocast or subject.settings.dtype} already"
    return replace(subject, settings=replace(subject.settings, autocast=low)), f"products in {low}"


def half_weights(subject: Subject, at: Situation) -> Change:
    """Weights and all else in 16 bits."""
    low = at.config.half_precision()
    if at.training:
        return None, "the model trains: small updates are lost in 16-bit weights"
    if low is None:
        return None, "allow_bf16 and allow_fp16 are False"
    if subject.settings.dtype:
        return None, f"it computes in {subject.settings.dtype} already"
    model = models.cast(subject.copy(), low)
    settings = replace(subject.settings, autocast=None, dtype=low)
    return Subject(model, settings), f"weights in {low}"


def float8_weights(subject: Subject, at: Situation) -> Change:
    """Weights of linear layers in the target's 8-bit floats, with a scale per row."""
    if at.training:
        return None, "the model trains"
    if not at.target.fp8:
        return None, f"{at.target.name} has no 8-bit floats"
    model = subject.copy()
    layers = [n for n, m in model.named_modules() if type(m).__name__ in _LINEAR]
    if not layers:
        return None, "there is no linear layer"
    kind = "float8_e4m3fnuz" if at.target.fp8 == "fnuz" else "float8_e4m3fn"
    for name in layers:
        made = _float8_class(at.library)(dict(model.named_modules())[name] if name else model, kind)
        if not name:
            model = made
        else:
            _put(model, name, made)
    return replace(subject, model=model), f"{len(layers)} weights in {kind}"


@cache
def _float8_class(library: ModuleType) -> type:
    """A linear layer of a library with its weight in 8-bit floats: y = x (W8 * scale)^T + b."""

    class Float8Linear(library.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, layer: Any, kind: str) -> None:
            super().__init__()
            dtype, weight = getattr(library, kind), layer.weight.detach().float()
            largest = weight.abs().amax(dim=1, keepdim=True)
            scale = library.where(largest > 0, largest / library.finfo(dtype).max, library.ones_like(largest))
            self.register_buffer("weight", (weight / scale).to(dtype))
            self.register_buffer("scale", scale)
            self.bias = layer.bias
            self.training = layer.training

        def forward(self, x: Any) -> Any:
            weight = self.weight.to(x.dtype) * self.scale.to(x.dtype)
            return library.nn.functional.linear(x, weight, self.bias)

    return Float8Linear


_SAFE: dict[str, Callable[[Subject, Situation], Change]] = {
    "operator_fusion": fuse_operators,
    "batch_norm_folding": fold_batch_norms,
}
# What each level tries, in this order, and the largest error of a result that it allows: |got - want| relative to the
# element's size and the usual one (doctor/closeness.py). 16-bit products differ by some 1e-2, 8-bit weights by 5e-2.
REWRITES: dict[str, dict[str, Callable[[Subject, Situation], Change]]] = {
    "conservative": _SAFE,
    "balanced": {**_SAFE, "channels_last": channels_last, "mixed_precision": mixed_precision},
    "aggressive": {
        **_SAFE,
        "channels_last": channels_last,
        "half_weights": half_weights,
        "mixed_precision": mixed_precision,
        "float8_weights": float8_weights,
    },
}
ALLOWED = {"conservative": 1e-4, "balanced": 3e-2, "aggressive": 1e-1}
