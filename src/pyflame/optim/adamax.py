"""Adamax."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Adamax(Optimizer):
    """Adam with the largest gradient so far in place of the root of the mean of squares.

        g = g + weight_decay * w
        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, |g| + eps)
        w = w - lr / (1 - beta1^t) * m / u

    >>> optimizer = optim.Adamax(model.parameters())
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "maximize": maximize},
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Adamax", group, "lr", "eps", "weight_decay")
        checks.betas("Adamax", group)

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {
            "lr": group["lr"],
            "beta1": beta1,
            "beta2": beta2,
            "rest1": 1.0 - beta1,
            "eps": group["eps"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
        }

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"rate": group.scalar("lr", float64) / (1.0 - group.scalar("beta1", float64) ** steps)}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        g = g * h["sign"] + w * h["decay"]
        m = s["exp_avg"] + (g - s["exp_avg"]) * h["rest1"]
        u = FUNCTIONS["maximum"](s["exp_inf"] * h["beta2"], FUNCTIONS["abs"](g) + h["eps"])
        return w - m / u * h["rate"], {"exp_avg": m, "exp_inf": u}
