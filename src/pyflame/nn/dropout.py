"""Dropout layers: they act in training mode only. Inside jit every replay draws anew."""

from __future__ import annotations

from pyflame.core.errors import ArgumentError
from pyflame.nn import functional
from pyflame.nn.module import Module
from pyflame.tensor import Tensor


class _Dropout(Module):
    _function: str

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"[{type(self).__name__}] expected a probability in [0, 1] but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = getattr(functional, self._function)(input, self.p, self.training, self.inplace)
        return out

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Each element becomes 0 with probability p; the others are divided by 1 - p.

    >>> nn.Dropout(0.5).eval()(pf.ones(3))
    tensor([1., 1., 1.])
    """

    _function = "dropout"


class Dropout1d(_Dropout):
    """Whole channels of (N, C, L) or (C, L) become 0 with probability p."""

    _function = "dropout1d"


class Dropout2d(_Dropout):
    """Whole channels of (N, C, H, W) become 0 with probability p."""

    _function = "dropout2d"


class Dropout3d(_Dropout):
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) become 0 with probability p."""

    _function = "dropout3d"


class AlphaDropout(_Dropout):
    """Dropout for networks of SELU: it keeps mean and variance. As in PyTorch, `inplace` changes nothing."""

    _function = "alpha_dropout"

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = getattr(functional, self._function)(input, self.p, self.training)
        return out


class FeatureAlphaDropout(AlphaDropout):
    """Alpha dropout of whole channels of (N, C, ...)."""

    _function = "feature_alpha_dropout"
