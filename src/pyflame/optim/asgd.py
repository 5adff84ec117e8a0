"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Scalar, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class ASGD(Optimizer):
    """Gradient descent with a falling rate; `ax` in its state is the average of the parameters from step `t0` on.

        g = g + weight_decay * w
        w = w * (1 - lambd * eta) - eta * g
        ax = ax + mu * (w - ax)
        eta = lr / (1 + lambd * lr * t)^alpha,  mu = 1 / max(1, t - t0)

    >>> optimizer = optim.ASGD(model.parameters())
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("ASGD", group, "lr", "weight_decay")

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"eta": Scalar(group["lr"]), "mu": Scalar(1.0), "ax": 0.0}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "lambd": group["lambd"],
            "alpha": group["alpha"],
            "t0": group["t0"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
        }

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        lr, lambd, alpha, t0 = (group.scalar(name, float64) for name in ("lr", "lambd", "alpha", "t0"))
        return {
            "eta": lr / (1.0 + lambd * lr * steps) ** alpha,
            "mu": 1.0 / FUNCTIONS["clamp"](steps - t0, 1.0),
        }

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        g = g * h["sign"] + w * h["decay"]
        w = w * (1.0 - h["lambd"] * s["eta"]) - g * s["eta"]
        ax = FUNCTIONS["where"](s["mu"] == 1.0, w, s["ax"] + (w - s["ax"]) * s["mu"])
        return w, {"eta": h["eta"], "mu": h["mu"], "ax": ax}
