"""Batch and instance norm with running statistics, which change in place as in PyTorch."""

from __future__ import annotations

from pyflame.core.errors import ArgumentError
from pyflame.nn.ops import F
from pyflame.nn.parameter import settle
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad


def update_stats(running: Tensor | None, batch: Tensor, share: float | Tensor) -> None:
    """running <- (1 - share) * running + share * batch. The cell is rebound, so a jitted step carries it along."""
    if running is not None:
        with no_grad():
            running.copy_(running + (batch - running) * share)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 per channel of (N, C, ...), then scaled and shifted.

    Training goes by the batch's statistics and moves the running ones towards them by `momentum`.

    >>> mean, var = pf.zeros(3), pf.ones(3)
    >>> nn.functional.batch_norm(pf.randn(8, 3, 4, 4), mean, var, training=True).shape
    (8, 3, 4, 4)
    """
    out: Tensor = F["batch_norm"](input, running_mean, running_var, weight, bias, training, 0.0, eps)
    if training and (running_mean is not None or running_var is not None):
        with no_grad():
            mean, var = F["batch_norm_stats"](input)
        _update(running_mean, running_var, mean, var, momentum)
    return out


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over each channel of each sample of (N, C, ...); else by running statistics.

    >>> nn.functional.instance_norm(pf.randn(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """
    if not use_input_stats and (running_mean is None or running_var is None):
        raise ArgumentError("[instance_norm] expected running statistics, or use_input_stats=True, but got neither")
    out: Tensor = F["instance_norm"](input, running_mean, running_var, weight, bias, use_input_stats, 0.0, eps)
    if use_input_stats and (running_mean is not None or running_var is not None):
        n, channels, *rest = input.shape
        with no_grad():
            # (N, C, ...) -> (1, N*C, ...): each sample's channels have statistics of their own, which are averaged
            mean, var = F["batch_norm_stats"](input.reshape(1, n * channels, *rest))
            mean, var = (s.reshape(n, channels).mean(0) for s in (mean, var))
        _update(running_mean, running_var, mean, var, momentum)
    return out


def _update(
    running_mean: Tensor | None, running_var: Tensor | None, mean: Tensor, var: Tensor, momentum: float | Tensor
) -> None:
    update_stats(running_mean, mean, momentum)
    update_stats(running_var, var, momentum)
    # Nothing that is evaluated later depends on them: left pending they would keep a step's activations alive.
    settle(t for t in (running_mean, running_var) if t is not None)
