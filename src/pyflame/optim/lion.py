"""Lion: evolved sign momentum (Chen et al., 2023)."""

from __future__ import annotations

from typing import Any

from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Lion(Optimizer):
    """Steps by the sign of a mix of momentum and gradient; one state per parameter, half of Adam's.

        w = w * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g)
        m = beta2 * m + (1 - beta2) * g

    Its authors advise a learning rate of a third to a tenth of AdamW's, and a weight decay as many times larger.

    >>> optimizer = optim.Lion(model.parameters(), lr=1e-4, weight_decay=0.1)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        options = {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, **chosen)

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Lion", group, "lr", "weight_decay")
        checks.betas("Lion", group)

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"exp_avg": 0.0}

    def counts(self, group: dict[str, Any]) -> bool:
        return False

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {
            "lr": group["lr"],
            "beta1": beta1,
            "beta2": beta2,
            "rest1": 1.0 - beta1,
            "rest2": 1.0 - beta2,
            "sign": -1.0 if group["maximize"] else 1.0,
            "shrink": 1.0 - group["lr"] * group["weight_decay"],
        }

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        g, m = g * h["sign"], s["exp_avg"]
        u = FUNCTIONS["sign"](m * h["beta1"] + g * h["rest1"])
        return w * h["shrink"] - u * h["lr"], {"exp_avg": m * h["beta2"] + g * h["rest2"]}
