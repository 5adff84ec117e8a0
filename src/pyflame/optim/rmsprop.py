"""RMSprop."""

from __future__ import annotations

from typing import Any

from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class RMSprop(Optimizer):
    """Steps by the gradient over the root of the mean of its squares.

        g = g + weight_decay * w
        v = alpha * v + (1 - alpha) * g²
        u = g / (sqrt(v) + eps)                   centered: sqrt(v - a²), a = alpha * a + (1 - alpha) * g
        w = w - lr * u                            momentum: w - lr * b, b = momentum * b + u

    >>> optimizer = optim.RMSprop(model.parameters(), lr=1e-2, momentum=0.9)
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("RMSprop", group, "lr", "alpha", "eps", "weight_decay", "momentum")

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return dict.fromkeys(names, 0.0)

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "alpha": group["alpha"],
            "rest": 1.0 - group["alpha"],
            "eps": group["eps"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
            "momentum": group["momentum"],
        }

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        g = g * h["sign"] + w * h["decay"]
        v = s["square_avg"] * h["alpha"] + g * g * h["rest"]
        after = {"square_avg": v}
        if group["centered"]:
            a = after["grad_avg"] = s["grad_avg"] + (g - s["grad_avg"]) * h["rest"]
            v = v - a * a
        u = g / (FUNCTIONS["sqrt"](v) + h["eps"])
        if group["momentum"] > 0:
            u = after["momentum_buffer"] = s["momentum_buffer"] * h["momentum"] + u
        return w - u * h["lr"], after
