"""Activations that are short combinations of ops."""

from __future__ import annotations

from pyflame.core.errors import ArgumentError
from pyflame.core.generator import Generator
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import replaced
from pyflame.tensor.random import rand_like


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above 0, alpha * (exp(x / alpha) - 1) below.

    >>> nn.functional.celu(pf.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    out = F["celu"](input, alpha)
    return replaced("celu", input, out) if inplace else out


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where it would cross it.

    >>> nn.functional.softshrink(pf.tensor([-1.0, 0.2, 1.0]))
    tensor([-0.5000,  0.0000,  0.5000])
    """
    if lambd < 0.0:
        raise ArgumentError(f"[softshrink] expected lambd of at least 0 but got {lambd}")
    return input - F["clamp"](input, -lambd, lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - F["tanh"](input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x above the threshold, else `value`.

    >>> nn.functional.threshold(pf.tensor([0.5, 2.0]), 1.0, -1.0)
    tensor([-1.,  2.])
    """
    out = F["where"](input <= threshold, value, input)
    return replaced("threshold", input, out) if inplace else out


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold`, in place."""
    return replaced("threshold", input, F["where"](input <= threshold, value, input))


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """x above 0; below, x times a slope drawn from [lower, upper), or their mean when not training."""
    if not lower <= upper:
        raise ArgumentError(f"[rrelu] expected lower <= upper but got lower={lower}, upper={upper}")
    if training:
        slope = rand_like(input, generator=generator) * (upper - lower) + lower
        out = F["where"](input > 0.0, input, input * slope)
    else:
        out = F["leaky_relu"](input, (lower + upper) / 2.0)
    return replaced("rrelu", input, out) if inplace else out


def rrelu_(
    input: Tensor,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`rrelu`, in place."""
    return rrelu(input, lower, upper, training, True, generator)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its norm along an axis, which counts as at least eps.

    >>> nn.functional.normalize(pf.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    return input / F["clamp"](F["norm"](input, p, dim, True), eps)


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    generator: Generator | None = None,
) -> Tensor:
    """A random choice with probabilities softmax(logits), softened by tau; with `hard` one-hot, the gradient soft.

    `eps` is PyTorch's, and without effect there, too.

    >>> int(nn.functional.gumbel_softmax(pf.zeros(5), hard=True).sum())
    1
    """
    # -log(-log u) for u in (0, 1): the ends, where it is infinite, are left out
    noise = -(-rand_like(logits, generator=generator).clamp(1e-20, 1.0 - 1e-7).log()).log()
    soft: Tensor = F["softmax"]((logits + noise) / tau, dim)
    if not hard:
        return soft
    best = F["argmax"](soft, dim, True)
    chosen = F["scatter"](F["mul"](soft.detach(), 0.0), dim, best, 1.0)
    return chosen - soft.detach() + soft
