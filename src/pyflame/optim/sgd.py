"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.core.errors import ArgumentError
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Momentum(Optimizer):
    """Base of rules whose only state is a `momentum_buffer`: whether there is one tells whether there was an update."""

    shows_steps = False

    def _pf_packed(self, group: ParamGroup, p: Tensor, step: float | None) -> dict[str, Tensor]:
        packed = super()._pf_packed(group, p, step)
        packed.pop("step", None)  # PyTorch has none
        return packed

    def _pf_unpacked_step(self, entry: dict[str, Any]) -> float:
        return float(entry.get("momentum_buffer") is not None)


class SGD(Momentum):
    """Gradient descent, with momentum in PyTorch's form.

        d = g + weight_decay * w                         (-g to maximise)
        b = momentum * b + (1 - dampening) * d           the first time b = d
        w = w - lr * b                                   nesterov: w - lr * (d + momentum * b)

    >>> optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    """

    choices = ("foreach", "differentiable", "fused")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError(
                "[SGD] expected a momentum above 0 and no dampening for nesterov but got "
                f"momentum={group['momentum']} and dampening={group['dampening']}"
            )

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if group["momentum"] else {}

    def counts(self, group: dict[str, Any]) -> bool:
        return bool(group["momentum"])

    def branches(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return bool(group["nesterov"]), bool(group["dampening"])

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "decay": group["weight_decay"],
            "momentum": group["momentum"],
            "damped": 1.0 - group["dampening"],
        }

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        if not (group["momentum"] and group["dampening"]):
            return {}
        return {"damped": FUNCTIONS["where"](steps > 1.0, group.scalar("damped", float64), 1.0)}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        d = g * h["sign"] + w * h["decay"]
        if not group["momentum"]:
            return w - d * h["lr"], {}
        b = s["momentum_buffer"] * h["momentum"] + (d * h["damped"] if group["dampening"] else d)
        return w - (d + b * h["momentum"] if group["nesterov"] else b) * h["lr"], {"momentum_buffer": b}
