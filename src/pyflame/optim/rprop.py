"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Rprop(Optimizer):
    """Steps by the sign of the gradient; each step grows while the sign stays the same and shrinks when it turns.

        step = clamp(step * (etas[1] if g * g_before > 0, etas[0] if < 0, else 1), *step_sizes)
        g = 0 where it turned
        w = w - sign(g) * step

    >>> optimizer = optim.Rprop(model.parameters())
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "etas": tuple(etas), "step_sizes": tuple(step_sizes), "maximize": maximize},
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Rprop", group, "lr")
        low, high = group["etas"]
        if not 0.0 < low < 1.0 < high:
            raise ArgumentError(f"[Rprop] expected etas below and above 1 but got {group['etas']}")

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"prev": 0.0, "step_size": group["lr"]}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        low, high = group["etas"]
        least, most = group["step_sizes"]
        return {
            "low": low,
            "high": high,
            "least": least,
            "most": most,
            "sign": -1.0 if group["maximize"] else 1.0,
        }

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        where, minimum, maximum = (FUNCTIONS[name] for name in ("where", "minimum", "maximum"))
        g = g * h["sign"]
        turn = g * s["prev"]
        factor = where(turn > 0.0, h["high"], where(turn < 0.0, h["low"], 1.0))
        size = minimum(maximum(s["step_size"] * factor, h["least"]), h["most"])
        g = where(turn < 0.0, 0.0, g)
        return w - FUNCTIONS["sign"](g) * size, {"prev": g, "step_size": size}
