"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.optim import checks
from pyflame.optim.adam import AdamLike
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Params, Scalar, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class NAdam(AdamLike):
    """Adam that looks one step ahead, with a momentum that grows.

        g = g + weight_decay * w                             decoupled_weight_decay: w = w * (1 - lr * weight_decay)
        mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2),  p = p * mu_t
        m, v as in Adam
        w = w - lr * ((1 - mu_t) / (1 - p) * g + mu_t+1 / (1 - p * mu_t+1) * m) / (sqrt(v / (1 - beta2^t)) + eps)

    >>> optimizer = optim.NAdam(model.parameters())
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
            },
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        checks.not_negative("NAdam", group, "momentum_decay")

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"mu_product": Scalar(1.0), "exp_avg": 0.0, "exp_avg_sq": 0.0}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {**super().scalars(group), "growth": group["momentum_decay"]}

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2, growth = (group.scalar(name, float64) for name in ("beta1", "beta2", "growth"))
        mu, ahead = (beta1 * (1.0 - 0.5 * 0.96 ** (t * growth)) for t in (steps, steps + 1.0))
        return {"mu": mu, "ahead": ahead, "unbias": 1.0 / (1.0 - beta2**steps)}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        w, g = self.decayed(group, w, g, h)
        product = s["mu_product"] * h["mu"]
        after = {"mu_product": product, **self.moments(g, s, h)}
        root = FUNCTIONS["sqrt"](after["exp_avg_sq"] * h["unbias"]) + h["eps"]
        w = w - g / root * (h["lr"] * (1.0 - h["mu"]) / (1.0 - product))
        w = w - after["exp_avg"] / root * (h["lr"] * h["ahead"] / (1.0 - product * h["ahead"]))
        return w, after
