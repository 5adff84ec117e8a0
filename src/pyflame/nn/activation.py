"""Activations as modules. Each calls the function of the same name with what it was made with."""

from __future__ import annotations

from typing import Any

from pyflame.nn import functional, init
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter, new_parameter
from pyflame.tensor import Tensor


class _Activation(Module):
    """Holds settings and hands them to `_function`, by name."""

    _function: str

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = tuple(name for name in settings if name != "inplace")
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        if getattr(self, "inplace", False):
            settings["inplace"] = True
        out: Tensor = getattr(functional, self._function)(input, **settings)
        return out

    def extra_repr(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self._settings]
        return ", ".join(shown + (["inplace=True"] if getattr(self, "inplace", False) else []))


# --- without settings -------------------------------------------------------------------------------------------------


class _Inplace(_Activation):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class _Plain(_Activation):
    def __init__(self) -> None:
        super().__init__()


class ReLU(_Inplace):
    """max(x, 0).

    >>> nn.ReLU()(pf.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    _function = "relu"


class ReLU6(_Inplace):
    """min(max(x, 0), 6)."""

    _function = "relu6"


class SELU(_Inplace):
    """scale * (max(0, x) + min(0, alpha * (exp(x) - 1))), with constants that keep mean 0 and variance 1."""

    _function = "selu"


class SiLU(_Inplace):
    """x * sigmoid(x), also called swish."""

    _function = "silu"


class Mish(_Inplace):
    """x * tanh(softplus(x))."""

    _function = "mish"


class Hardsigmoid(_Inplace):
    """A sigmoid of straight lines: min(max(x + 3, 0), 6) / 6."""

    _function = "hardsigmoid"


class Hardswish(_Inplace):
    """x * hardsigmoid(x)."""

    _function = "hardswish"


class Sigmoid(_Plain):
    """1 / (1 + exp(-x)).

    >>> nn.Sigmoid()(pf.tensor([0.0]))
    tensor([0.5000])
    """

    _function = "sigmoid"


class Tanh(_Plain):
    """The hyperbolic tangent."""

    _function = "tanh"


class LogSigmoid(_Plain):
    """log(sigmoid(x))."""

    _function = "logsigmoid"


class Softsign(_Plain):
    """x / (1 + |x|)."""

    _function = "softsign"


class Tanhshrink(_Plain):
    """x - tanh(x)."""

    _function = "tanhshrink"


# --- with settings ----------------------------------------------------------------------------------------------------


class LeakyReLU(_Activation):
    """x above 0, negative_slope * x below.

    >>> nn.LeakyReLU(0.1)(pf.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """

    _function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(_Activation):
    """x above 0, alpha * (exp(x) - 1) below."""

    _function = "elu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(_Activation):
    """x above 0, alpha * (exp(x / alpha) - 1) below."""

    _function = "celu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class GELU(_Activation):
    """x times the probability that a standard normal number is below x; `approximate="tanh"` is a close formula.

    >>> nn.GELU()(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8413])
    """

    _function = "gelu"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class Softplus(_Activation):
    """log(1 + exp(beta * x)) / beta, a smooth ReLU; x itself where beta * x exceeds the threshold."""

    _function = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(_Activation):
    """x within [min_val, max_val], the nearer end outside."""

    _function = "hardtanh"

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        """`min_value` and `max_value` are older words for the ends."""
        low, high = min_val if min_value is None else min_value, max_val if max_value is None else max_value
        super().__init__(min_val=low, max_val=high, inplace=inplace)


class Threshold(_Activation):
    """x above the threshold, else `value`."""

    _function = "threshold"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class _Shrink(_Activation):
    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """x outside of [-lambd, lambd], 0 inside."""

    _function = "hardshrink"


class Softshrink(_Shrink):
    """x moved towards 0 by lambd, and 0 where it would cross it."""

    _function = "softshrink"


class RReLU(_Activation):
    """x above 0; below, x times a random slope in [lower, upper) when training, their mean in evaluation."""

    _function = "rrelu"

    def __init__(self, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, inplace=inplace)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """x above 0, weight * x below, with a weight that is learned: one for all, or one per channel of (N, C, ...).

    >>> nn.PReLU()(pf.tensor([-4.0, 2.0]))
    tensor([-1.,  2.], grad_fn=<LeakyReluBackward0>)
    """

    weight: Parameter

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: object = None, dtype: object = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = new_parameter(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to its first value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


# --- along an axis ----------------------------------------------------------------------------------------------------


class _AlongAxis(_Activation):
    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class _AlongGuessed(_AlongAxis):
    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)  # type: ignore[arg-type]


class Softmax(_AlongGuessed):
    """exp(x) divided by its sum along an axis.

    >>> nn.Softmax(dim=-1)(pf.zeros(2))
    tensor([0.5000, 0.5000])
    """

    _function = "softmax"


class LogSoftmax(_AlongGuessed):
    """log(softmax(x)) along an axis."""

    _function = "log_softmax"


class Softmin(_AlongGuessed):
    """softmax(-x) along an axis."""

    _function = "softmin"


class GLU(_AlongAxis):
    """The first half of an axis times the sigmoid of the second half."""

    _function = "glu"


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, -3)
