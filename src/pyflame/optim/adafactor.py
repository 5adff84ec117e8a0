"""Adafactor: second moments kept as a row and a column."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import float64
from pyflame.core.errors import ArgumentError
from pyflame.core.limits import finfo
from pyflame.optim import checks
from pyflame.optim.group import ParamGroup
from pyflame.optim.optimizer import Optimizer, Params, Reduced, Slots
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS


class Adafactor(Optimizer):
    """Steps by the gradient over the root of the mean of its squares, of which matrices keep a row and a column only.

        k = t ** beta2_decay
        r, c = r + k * (mean of g² along rows - r), the same for columns; v = r c / max(mean of r, eps1)
        v = v + k * (g² - v)                                   for vectors and single numbers
        u = g / sqrt(max(v, eps1²));  u = u / max(1, rms(u) / d)
        w = w * (1 - lr * weight_decay) - max(eps2, rms(w)) * min(lr, 1 / sqrt(t)) * u

    `eps` is (eps1, eps2); without an eps1 it is the machine epsilon of the first parameter of the group.

    >>> optimizer = optim.Adafactor(model.parameters(), lr=1e-2)
    """

    takes_complex = False
    choices = ("foreach",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **chosen: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": tuple(eps),
                "d": d,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
            **chosen,
        )

    def check(self, group: dict[str, Any]) -> None:
        checks.not_negative("Adafactor", group, "lr", "weight_decay")
        if not group["beta2_decay"] <= 0.0:
            raise ArgumentError(f"[Adafactor] expected beta2_decay of at most 0 but got {group['beta2_decay']}")
        if not group["d"] >= 1.0:
            raise ArgumentError(f"[Adafactor] expected d of at least 1 but got {group['d']}")
        for value in group["eps"]:
            if value is not None and not value >= 0.0:
                raise ArgumentError(f"[Adafactor] expected eps of at least 0 but got {group['eps']}")

    def slots_of(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        if p.ndim > 1:
            return {"row_var": Reduced(0.0, -1), "col_var": Reduced(0.0, -2)}
        return {"variance": 0.0}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        eps1, eps2 = group["eps"]
        eps1 = finfo(group["params"][0].dtype).eps if eps1 is None else eps1
        return {
            "lr": group["lr"],
            "beta2_decay": group["beta2_decay"],
            "eps1": eps1,
            "least": eps1 * eps1,
            "eps2": eps2,
            "d": group["d"],
            "sign": -1.0 if group["maximize"] else 1.0,
            "shrink": 1.0 - group["lr"] * group["weight_decay"],
        }

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        relative = FUNCTIONS["minimum"](group.scalar("lr", float64), FUNCTIONS["rsqrt"](steps))
        return {"part": steps ** group.scalar("beta2_decay", float64), "relative": relative}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        maximum, rsqrt = FUNCTIONS["maximum"], FUNCTIONS["rsqrt"]
        g = g * h["sign"]
        squares = g * g
        if w.ndim > 1:
            r = s["row_var"] + (squares.mean(-1, keepdims=True) - s["row_var"]) * h["part"]
            c = s["col_var"] + (squares.mean(-2, keepdims=True) - s["col_var"]) * h["part"]
            v = r * c / maximum(r.mean(-2, keepdims=True), h["eps1"])
            after = {"row_var": r, "col_var": c}
        else:
            v = s["variance"] + (squares - s["variance"]) * h["part"]
            after = {"variance": v}
        u = g * rsqrt(maximum(v, h["least"]))
        step = maximum(h["eps2"], _rms(w)) * h["relative"] / (_rms(u) / h["d"]).clamp(min=1.0)
        return w * h["shrink"] - u * step, after


def _rms(x: Tensor) -> Tensor:
    """The root of the mean of the squares."""
    return (x * x).mean().sqrt()
