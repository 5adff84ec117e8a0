"""Muon: momentum made orthogonal, for the matrices of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pyflame.core.dtype import bfloat16
from pyflame.core.errors import ArgumentError
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Params, Slots
from pyflame.optim.sgd import Momentum
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS

_RATIOS = (None, "original", "match_rms_adamw")


class Muon(Momentum):
    """Steps by the momentum with all its singular values brought near 1. Only for matrices: use AdamW for the rest.

        b = momentum * b + (1 - momentum) * g               nesterov: u = (1 - momentum) * g + momentum * b, else u = b
        x = u / |u|, then ns_steps times  x = a x + (b (x xᵀ) + c (x xᵀ)²) x           in bfloat16
        w = w * (1 - lr * weight_decay) - lr * ratio * x

    `adjust_lr_fn` chooses the ratio for a matrix of n rows and m columns: "original" (or None) sqrt(max(1, n / m)),
    "match_rms_adamw" 0.2 * sqrt(max(n, m)), with which learning rates of AdamW fit.

    >>> optimizer = optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.02)
    """

    takes_complex = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": tuple(ns_coefficients),
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Muon", group, "lr", "momentum", "weight_decay")
        if group["adjust_lr_fn"] not in _RATIOS:
            raise ArgumentError(f"[Muon] expected adjust_lr_fn among {_RATIOS} but got {group['adjust_lr_fn']!r}")
        if len(group["ns_coefficients"]) != 3:
            raise ArgumentError(f"[Muon] expected 3 ns_coefficients but got {len(group['ns_coefficients'])}")
        if not group["ns_steps"] < 100:
            raise ArgumentError(f"[Muon] expected fewer than 100 ns_steps but got {group['ns_steps']}")
        for p in group["params"]:
            if p.ndim != 2:
                raise ArgumentError(
                    f"[Muon] expected parameters of 2 axes but got one of shape {p.shape}; give those to another "
                    "optimiser, as AdamW"
                )

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"momentum_buffer": 0.0}

    def branches(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return bool(group["nesterov"]), group["ns_coefficients"], group["ns_steps"], group["adjust_lr_fn"]

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "momentum": group["momentum"],
            "rest": 1.0 - group["momentum"],
            "shrink": 1.0 - group["lr"] * group["weight_decay"],
            "eps": group["eps"],
        }

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        b = s["momentum_buffer"] + (g - s["momentum_buffer"]) * h["rest"]
        u = g + (b - g) * h["momentum"] if group["nesterov"] else b
        x = _orthogonal(u, group["ns_coefficients"], group["ns_steps"], h["eps"])
        rows, columns = w.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        else:
            ratio = math.sqrt(max(1.0, rows / columns)) if columns else 1.0
        return w * h["shrink"] - x.to(w.dtype) * (h["lr"] * ratio), {"momentum_buffer": b}


def _orthogonal(u: Tensor, coefficients: tuple[float, float, float], steps: int, eps: Tensor) -> Tensor:
    """`u` with its singular values brought near 1 by Newton and Schulz's iteration, in bfloat16."""
    a, b, c = coefficients
    addmm: Callable[..., Tensor] = FUNCTIONS["addmm"]
    tall = u.shape[0] > u.shape[1]
    x = (u.T if tall else u).to(bfloat16)
    norm = (x.to(u.dtype) ** 2).sum().sqrt().to(bfloat16)
    x = x / FUNCTIONS["maximum"](norm, eps.to(bfloat16))
    for _ in range(steps):
        gram = x @ x.T
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
