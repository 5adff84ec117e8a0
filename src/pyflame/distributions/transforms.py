"""Functions of a distribution's values that can be undone, with the logarithm of how much they stretch."""

from __future__ import annotations

import math
from typing import Any

from pyflame.distributions.distribution import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor


class Transform:
    """Base: call it, `inv` undoes it, `log_abs_det_jacobian(x, y)` is log |dy/dx|.

    >>> t = pf.distributions.ExpTransform()
    >>> t(pf.tensor(0.0)), t.inv(pf.tensor(1.0))
    (tensor(1.), tensor(0.))
    """

    event_dim = 0

    def __init__(self, cache_size: int = 0) -> None:
        """`cache_size` is PyTorch's: nothing is cached, as equal parts of a graph are computed once."""

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass that defines __call__")

    def inv(self, y: Tensor) -> Tensor:
        """x with self(x) = y."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass that defines inv")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass that defines log_abs_det_jacobian")


class ExpTransform(Transform):
    """y = exp(x).

    >>> pf.distributions.ExpTransform()(pf.tensor(0.0))
    tensor(1.)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return F["exp"](x)

    def inv(self, y: Tensor) -> Tensor:
        return F["log"](y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)).

    >>> pf.distributions.SigmoidTransform()(pf.tensor(0.0))
    tensor(0.5)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return F["sigmoid"](x)

    def inv(self, y: Tensor) -> Tensor:
        return F["log"](y) - F["log1p"](-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F["softplus"](-x) - F["softplus"](x)


class TanhTransform(Transform):
    """y = tanh(x).

    >>> pf.distributions.TanhTransform()(pf.tensor(0.0))
    tensor(0.)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return F["tanh"](x)

    def inv(self, y: Tensor) -> Tensor:
        return F["atanh"](y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh²), without cancellation
        return 2.0 * (math.log(2.0) - x - F["softplus"](-2.0 * x))


class AffineTransform(Transform):
    """y = loc + scale * x.

    >>> pf.distributions.AffineTransform(1.0, 2.0)(pf.tensor(3.0))
    tensor(7.)
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    def __call__(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x  # type: ignore[no-any-return]

    def inv(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        stretch = F["log"](F["abs"](as_tensor(self.scale, dtype=x.dtype))).expand(x.shape)
        return stretch.sum(tuple(range(-self.event_dim, 0))) if self.event_dim else stretch
