"""RAdam: rectified Adam."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.optim.adam import AdamLike
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class RAdam(AdamLike):
    """Adam that steps by the mean of gradients alone until the mean of squares is trustworthy.

        g = g + weight_decay * w                             decoupled_weight_decay: w = w * (1 - lr * weight_decay)
        m, v as in Adam,  R = 2 / (1 - beta2) - 1,  r = R - 2 t beta2^t / (1 - beta2^t)
        w = w - lr * m / (1 - beta1^t)                       r > 5: also times sqrt((1 - beta2^t) c) / (sqrt(v) + eps),
                                                             c = (r - 4) (r - 2) R / ((R - 4) (R - 2) r)

    >>> optimizer = optim.RAdam(model.parameters())
    """

    choices = ("foreach", "capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
            },
            **chosen,
        )

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        lr, beta1, beta2 = (group.scalar(name, float64) for name in ("lr", "beta1", "beta2"))
        most = 2.0 / (1.0 - beta2) - 1.0
        bias2 = 1.0 - beta2**steps
        r = most - 2.0 * steps * beta2**steps / bias2
        trusted = r > 5.0
        c = (r - 4.0) * (r - 2.0) * most / ((most - 4.0) * (most - 2.0) * r)
        # below 5 the number under the root may be negative
        root = FUNCTIONS["sqrt"](bias2 * FUNCTIONS["where"](trusted, c, 0.0))
        return {"rate": lr / (1.0 - beta1**steps), "root": root, "trusted": trusted.to(float64)}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        w, g = self.decayed(group, w, g, h)
        after = self.moments(g, s, h)
        root = FUNCTIONS["sqrt"](after["exp_avg_sq"]) + h["eps"]
        scale = FUNCTIONS["where"](h["trusted"] > 0.0, h["root"] / root, 1.0)
        return w - after["exp_avg"] * scale * h["rate"], after
