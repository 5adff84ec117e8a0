"""Adadelta."""

from __future__ import annotations

from typing import Any

from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Adadelta(Optimizer):
    """Steps by the gradient, scaled by the roots of the means of past steps and of past gradients.

        g = g + weight_decay * w
        v = rho * v + (1 - rho) * g²
        d = sqrt(a + eps) / sqrt(v + eps) * g
        a = rho * a + (1 - rho) * d²
        w = w - lr * d

    >>> optimizer = optim.Adadelta(model.parameters())
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize},
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Adadelta", group, "lr", "eps", "weight_decay")
        checks.fraction("Adadelta", group, "rho")

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "rho": group["rho"],
            "rest": 1.0 - group["rho"],
            "eps": group["eps"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
        }

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        sqrt = FUNCTIONS["sqrt"]
        g = g * h["sign"] + w * h["decay"]
        v = s["square_avg"] * h["rho"] + g * g * h["rest"]
        d = sqrt(s["acc_delta"] + h["eps"]) / sqrt(v + h["eps"]) * g
        after = {"square_avg": v, "acc_delta": s["acc_delta"] * h["rho"] + d * d * h["rest"]}
        return w - d * h["lr"], after
