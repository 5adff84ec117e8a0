"""Adam, AdamW, and what their relatives share with them."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class AdamLike(Optimizer):
    """What Adam and its relatives share: their options, weight decay in both forms, and the two running means."""

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative(type(self).__name__, group, "lr", "eps", "weight_decay")
        checks.betas(type(self).__name__, group)

    def branches(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return (bool(group["decoupled_weight_decay"]),)

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {
            "lr": group["lr"],
            "beta1": beta1,
            "beta2": beta2,
            "rest1": 1.0 - beta1,
            "rest2": 1.0 - beta2,
            "eps": group["eps"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
            "shrink": 1.0 - group["lr"] * group["weight_decay"],
        }

    def decayed(self, group: ParamGroup, w: Tensor, g: Tensor, h: Slots) -> tuple[Tensor, Tensor]:
        """The parameter and its gradient after weight decay."""
        g = g * h["sign"]
        return (w * h["shrink"], g) if group["decoupled_weight_decay"] else (w, g + w * h["decay"])

    def moments(self, g: Tensor, s: Slots, h: Slots) -> Slots:
        """The means of the gradients and of their squares."""
        m = s["exp_avg"] + (g - s["exp_avg"]) * h["rest1"]
        return {"exp_avg": m, "exp_avg_sq": s["exp_avg_sq"] * h["beta2"] + g * g * h["rest2"]}


class Adam(AdamLike):
    """Adam: steps by the mean of the gradients over the root of the mean of their squares.

        g = g + weight_decay * w                             decoupled_weight_decay: w = w * (1 - lr * weight_decay)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g²                     amsgrad: the largest v so far goes into the next line
        w = w - lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    >>> optimizer = optim.Adam(model.parameters(), lr=1e-3)
    """

    choices = ("foreach", "capturable", "differentiable", "fused")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
            **chosen,
        )

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0, **({"max_exp_avg_sq": 0.0} if group["amsgrad"] else {})}

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        lr, beta1, beta2 = (group.scalar(name, float64) for name in ("lr", "beta1", "beta2"))
        return {"rate": lr / (1.0 - beta1**steps), "unbias": FUNCTIONS["rsqrt"](1.0 - beta2**steps)}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        w, g = self.decayed(group, w, g, h)
        after = self.moments(g, s, h)
        m, v = after["exp_avg"], after["exp_avg_sq"]
        if group["amsgrad"]:
            v = after["max_exp_avg_sq"] = FUNCTIONS["maximum"](s["max_exp_avg_sq"], v)
        return w - m / (FUNCTIONS["sqrt"](v) * h["unbias"] + h["eps"]) * h["rate"], after


class AdamW(Adam):
    """Adam with weight decay apart from the gradient: w shrinks by `lr * weight_decay` at each step.

    >>> optimizer = optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True, **chosen
        )
