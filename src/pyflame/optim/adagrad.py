"""Adagrad."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Adagrad(Optimizer):
    """Steps by the gradient over the root of the sum of all its squares so far.

        g = g + weight_decay * w
        v = v + g²
        w = w - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps)

    >>> optimizer = optim.Adagrad(model.parameters(), lr=1e-2)
    """

    saves_untouched = True

    choices = ("foreach", "differentiable", "fused")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
            },
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"sum": group["initial_accumulator_value"]}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "lr_decay": group["lr_decay"],
            "eps": group["eps"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
        }

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"rate": group.scalar("lr", float64) / (1.0 + (steps - 1.0) * group.scalar("lr_decay", float64))}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        g = g * h["sign"] + w * h["decay"]
        v = s["sum"] + g * g
        return w - g / (FUNCTIONS["sqrt"](v) + h["eps"]) * h["rate"], {"sum": v}
