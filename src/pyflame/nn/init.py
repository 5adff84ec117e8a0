"""Initialisation: functions that fill a tensor in place, with PyTorch's names, defaults and distributions.

They are not recorded on a tape. Each takes `generator=`, else the global one is used.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import float64
from pyflame.core.errors import ArgumentError, ShapeError, suggest
from pyflame.core.generator import Generator
from pyflame.nn.parameter import settle
from pyflame.tensor import Tensor
from pyflame.tensor.creation import eye, place_of
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.random import rand, randn

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]


def _filled(tensor: Tensor, fill: Callable[[], object]) -> Tensor:
    """Run what fills the tensor, without a tape, and compute it."""
    with no_grad():
        fill()
    settle([tensor])
    return tensor


def _sized(op: str, tensor: Tensor, least: int, most: int) -> None:
    if not least <= tensor.ndim <= most:
        wanted = f"{least}" if least == most else f"{least} or more" if most > 9 else f"{least} to {most}"
        raise ShapeError(f"[{op}] expected a tensor with {wanted} axes but got shape {tensor.shape}")


# --- numbers ----------------------------------------------------------------------------------------------------------


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers in [a, b).

    >>> bool((nn.init.uniform_(pf.empty(5), 2.0, 3.0) >= 2.0).all())
    True
    """
    return _filled(tensor, lambda: tensor.uniform_(a, b, generator=generator))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers.

    >>> nn.init.normal_(pf.empty(3, 4), std=0.02).shape
    (3, 4)
    """
    return _filled(tensor, lambda: tensor.normal_(mean, std, generator=generator))


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normal numbers of which those outside of [a, b] are drawn again.

    >>> bool((nn.init.trunc_normal_(pf.empty(100)).abs() <= 2.0).all())
    True
    """
    if not (std > 0.0 and a < b):
        raise ArgumentError(f"[trunc_normal_] expected std > 0 and a < b but got std={std}, a={a}, b={b}")

    def fill() -> None:
        # The inverse of the distribution function: exact however far out the interval lies, as far as float64 can tell
        # its ends apart.
        low, high = (math.erf((end - mean) / (std * math.sqrt(2.0))) for end in (a, b))
        drawn = rand(tensor.shape, generator=generator, dtype=float64, device=place_of(tensor, None))
        values = _erfinv(drawn * (high - low) + low) * (std * math.sqrt(2.0)) + mean
        tensor.copy_(values.clamp(a, b))

    return _filled(tensor, fill)


def _erfinv(y: Tensor) -> Tensor:
    """The inverse of erf: a first guess by Winitzki's formula, then two of Halley's steps."""
    y = y.clamp(-1.0 + 2e-16, 1.0 - 2e-16)
    log = (-y * y).log1p()
    half = log / 2.0 + 2.0 / (math.pi * 0.147)
    x = y.sign() * ((half * half - log / 0.147).sqrt() - half).clamp(0.0).sqrt()
    for _ in range(2):
        step = (x.erf() - y) * (x * x).exp() * (math.sqrt(math.pi) / 2.0)
        x = x - step / (x * step + 1.0)
    return x


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    >>> nn.init.constant_(pf.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    return _filled(tensor, lambda: tensor.fill_(val))


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


# --- identities -------------------------------------------------------------------------------------------------------


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

    >>> nn.init.eye_(pf.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    _sized("eye_", tensor, 2, 2)
    return _filled(tensor, lambda: tensor.copy_(eye(*tensor.shape)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight (out, in, ...) so that it hands its input on, channel by channel.

    >>> nn.init.dirac_(pf.empty(2, 2, 3))[0, 0]
    tensor([0., 1., 0.])
    """
    _sized("dirac_", tensor, 3, 5)
    if groups < 1 or tensor.shape[0] % groups:
        raise ArgumentError(
            f"[dirac_] expected groups that divide the {tensor.shape[0]} output channels but got {groups}"
        )
    values = np.zeros(tensor.shape, np.float32)
    each = tensor.shape[0] // groups
    middle = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(each, tensor.shape[1])):
            values[(group * each + channel, channel, *middle)] = 1.0
    return _filled(tensor, lambda: tensor.copy_(values))


# --- scaled by the sizes of a layer -----------------------------------------------------------------------------------

_GAINS = {
    **dict.fromkeys(
        ["linear", "sigmoid", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))],
        1.0,
    ),
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance behind a nonlinearity. `param`: the slope of "leaky_relu".

    >>> nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ArgumentError(f"[calculate_gain] expected a number as slope but got {param!r}")
        return math.sqrt(2.0 / (1.0 + slope**2))
    if nonlinearity not in _GAINS:
        known = [*_GAINS, "leaky_relu"]
        raise ArgumentError(
            f"[calculate_gain] expected one of {known} but got {nonlinearity!r}{suggest(str(nonlinearity), known)}"
        )
    return _GAINS[nonlinearity]


def fans(op: str, tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output of a weight (out, in, ...) has, and how many outputs each input has."""
    _sized(op, tensor, 2, 99)
    taps = math.prod(tensor.shape[2:])
    return tensor.shape[1] * taps, tensor.shape[0] * taps


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """`fans` under the name that programs import from PyTorch."""
    return fans("_calculate_fan_in_and_fan_out", tensor)


def _fan(op: str, tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"[{op}] expected mode 'fan_in' or 'fan_out' but got {mode!r}")
    return fans(op, tensor)[mode == "fan_out"]


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The fan that a mode names, under the name that programs import from PyTorch."""
    return _fan("_calculate_correct_fan", tensor, mode)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight with uniform numbers in ±gain * sqrt(6 / (fan_in + fan_out)).

    >>> bool((nn.init.xavier_uniform_(pf.empty(3, 3)).abs() <= 1.0).all())
    True
    """
    bound = gain * math.sqrt(6.0 / sum(fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight with normal numbers of deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans("xavier_normal_", tensor))), generator)


def _kaiming(op: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """gain / sqrt(fan)"""
    fan = _fan(op, tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight with uniform numbers in ±gain * sqrt(3 / fan). `a`: the slope of the leaky_relu behind it.

    >>> nn.init.kaiming_uniform_(pf.empty(3, 5), nonlinearity="relu").shape
    (3, 5)
    """
    bound = math.sqrt(3.0) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight with normal numbers of deviation gain / sqrt(fan)."""
    return normal_(tensor, 0.0, _kaiming("kaiming_normal_", tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with a matrix whose rows, or columns if there are fewer, are orthonormal. (n, ...) counts as (n, rest).

    >>> w = nn.init.orthogonal_(pf.empty(3, 3))
    >>> pf.allclose(w @ w.T, pf.eye(3), atol=1e-5)
    True
    """
    _sized("orthogonal_", tensor, 2, 99)
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])

    def fill() -> None:
        drawn = randn(max(rows, columns), min(rows, columns), generator=generator, dtype=float64, device="cpu").numpy()
        q, r = np.linalg.qr(drawn)
        q = q * np.sign(np.diagonal(r))  # otherwise not every orthogonal matrix would be equally likely
        tensor.copy_(gain * (q if rows >= columns else q.T).reshape(tensor.shape))

    return _filled(tensor, fill)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal numbers and a share of zeros in each column.

    >>> int((nn.init.sparse_(pf.empty(10, 4), 0.3) == 0).sum())
    12
    """
    _sized("sparse_", tensor, 2, 2)
    none = math.ceil(sparsity * tensor.shape[0])
    place = place_of(tensor, None)

    def fill() -> None:
        tensor.normal_(0.0, std, generator=generator)
        rank = rand(tensor.shape, generator=generator, device=place).argsort(0).argsort(0)
        tensor.masked_fill_(rank < none, 0.0)

    return _filled(tensor, fill)


def _older(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function by PyTorch's name of before 0.4, without the underscore; it warns, as there."""

    @functools.wraps(function)
    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"[{name}] is deprecated in favour of nn.init.{name}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    name = function.__name__.removesuffix("_")
    deprecated.__name__ = deprecated.__qualname__ = name
    deprecated.__doc__ = f"An older name of `{name}_`."
    return deprecated


uniform, normal, constant, dirac = _older(uniform_), _older(normal_), _older(constant_), _older(dirac_)
xavier_uniform, xavier_normal = _older(xavier_uniform_), _older(xavier_normal_)
kaiming_uniform, kaiming_normal = _older(kaiming_uniform_), _older(kaiming_normal_)
orthogonal, sparse = _older(orthogonal_), _older(sparse_)
# what programs import from PyTorch's file
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
