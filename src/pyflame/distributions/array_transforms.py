"""Transforms of vectors, matrices and slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.limits import finfo
from pyflame.core.shape import Size
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.distribution import F, sum_rightmost
from pyflame.distributions.matrices import cholesky, from_lower_triangle, lower_triangle
from pyflame.distributions.scalar_transforms import TanhTransform, inside
from pyflame.distributions.transform_base import Transform, shape_error
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, eye


class ReshapeTransform(Transform):
    """Values of one shape as values of another.

    >>> pf.distributions.ReshapeTransform((4,), (2, 2))(pf.ones(3, 4)).shape
    (3, 2, 2)
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(
                f"[ReshapeTransform] expected shapes of equally many elements but got {in_shape} and {out_shape}"
            )

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _moved(self, shape: Any, old: Size, new: Size) -> Size:
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != tuple(old):
            raise shape_error(self, f"a shape that ends with {tuple(old)}", shape)
        return Size((*shape[:cut], *new))

    def forward_shape(self, shape: Any) -> Size:
        return self._moved(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self._moved(shape, self.out_shape, self.in_shape)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])


class SoftmaxTransform(Transform):
    """exp(x), divided by its sum; the inverse is log(y), so x comes back but for a constant.

    >>> pf.distributions.SoftmaxTransform()(pf.zeros(2)).tolist()
    [0.5, 0.5]
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    _compared = ()

    def _call(self, x: Tensor) -> Tensor:
        return F["softmax"](x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return F["log"](y)

    def forward_shape(self, shape: Any) -> Size:
        if len(shape) < 1:
            raise shape_error(self, "at least 1 axis", shape)
        return Size(shape)

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """n real numbers as n + 1 probabilities: each takes its part, a sigmoid, of what is left.

    >>> pf.distributions.StickBreakingTransform()(pf.zeros(1)).tolist()
    [0.5, 0.5]
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True
    _compared = ()

    @staticmethod
    def _offset(x: Tensor) -> Tensor:
        """log(n), …, log(1): equal parts come from zeros."""
        n = x.shape[-1]
        return F["log"](arange(n, 0, -1, dtype=x.dtype, device=x.device))

    def _call(self, x: Tensor) -> Tensor:
        part = inside(F["sigmoid"](x - self._offset(x)))
        left = F["cumprod"](1 - part, -1)
        return F["pad"](part, (0, 1), value=1.0) * F["pad"](left, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        part = y[..., :-1]
        left = (1 - F["cumsum"](part, -1)).clamp(min=finfo(y.dtype).tiny)
        return F["log"](part) - F["log"](left) + self._offset(part)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x)
        return (-x + F["logsigmoid"](x) + F["log"](y[..., :-1])).sum(-1)

    def forward_shape(self, shape: Any, more: int = 1) -> Size:
        if len(shape) < 1:
            raise shape_error(self, "at least 1 axis", shape)
        return Size((*shape[:-1], shape[-1] + more))

    def inverse_shape(self, shape: Any) -> Size:
        return self.forward_shape(shape, -1)


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 real numbers as a Cholesky factor of correlations: each row breaks a stick of squares.

    >>> pf.distributions.CorrCholeskyTransform()(pf.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        edge = 1 - finfo(x.dtype).eps
        n = self.forward_shape(x.shape)[-1]
        r = from_lower_triangle(F["tanh"](x).clamp(-edge, edge), n, -1)
        left = F["cumprod"](F["sqrt"](1 - r * r), -1)
        return (r + eye(n, dtype=x.dtype, device=x.device)) * F["pad"](left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F["pad"](1 - F["cumsum"](y * y, -1)[..., :-1], (1, 0), value=1.0)
        part = lower_triangle(y, -1) / F["sqrt"](lower_triangle(left, -1))
        return F["atanh"](part)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Of x and the lower triangle of y."""
        left = lower_triangle(1 - F["cumsum"](y * y, -1), -2)
        stretch = TanhTransform().log_abs_det_jacobian(x, x).sum(-1)
        return 0.5 * F["log"](left).sum(-1) + stretch

    def forward_shape(self, shape: Any) -> Size:
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5) if len(shape) else 0
        if not len(shape) or n * (n - 1) // 2 != shape[-1]:
            raise shape_error(self, "a last axis of n (n - 1) / 2 elements", shape)
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Size:
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise shape_error(self, "square matrices", shape)
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class LowerCholeskyTransform(Transform):
    """Square matrices as lower triangles with positive diagonals: exp of the diagonal, nothing above it.

    >>> pf.distributions.LowerCholeskyTransform()(pf.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain: Any = constraints.lower_cholesky
    _compared = ()

    @staticmethod
    def _on_diagonal(fn: str, x: Tensor) -> Tensor:
        return F["tril"](x, -1) + F["diag_embed"](F[fn](F["diagonal"](x, 0, -2, -1)))

    def _call(self, x: Tensor) -> Tensor:
        return self._on_diagonal("exp", x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._on_diagonal("log", y)


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """Square matrices as positive definite ones, L L^T with L of LowerCholeskyTransform.

    >>> pf.distributions.PositiveDefiniteTransform()(pf.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = super()._call(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return super()._inverse(cholesky(y))


class StackTransform(Transform):
    """A transform for each slice along an axis.

    >>> d = pf.distributions
    >>> d.StackTransform([d.ExpTransform(), d.identity_transform])(pf.zeros(2)).tolist()
    [1.0, 0.0]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if not all(isinstance(t, Transform) for t in tseq):
            raise ArgumentError(f"[{type(self).__name__}] expected transforms but got {list(tseq)!r}")
        self.transforms, self.dim = [t.with_cache(cache_size) if cache_size else t for t in tseq], dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        new: Any = super().with_cache(cache_size)
        new.transforms = [t.with_cache(cache_size) for t in self.transforms]
        return new  # type: ignore[no-any-return]

    def _parts(self, x: Tensor, length: int) -> None:
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] != length:
            raise shape_error(self, f"{length} elements along axis {self.dim}", x.shape)

    def _split(self, x: Tensor) -> list[Tensor]:
        self._parts(x, len(self.transforms))
        return [x.select(self.dim, i) for i in range(len(self.transforms))]

    def _join(self, parts: list[Tensor]) -> Tensor:
        return F["stack"](parts, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(part) for t, part in zip(self.transforms, self._split(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t.inv(part) for t, part in zip(self.transforms, self._split(y), strict=True)])

    def _jacobians(self, x: Tensor, y: Tensor) -> list[Tensor]:
        paired = zip(self.transforms, self._split(x), self._split(y), strict=True)
        return [t.log_abs_det_jacobian(a, b) for t, a, b in paired]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._join(self._jacobians(x, y))

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CatTransform(StackTransform):
    """A transform for each run along an axis, of the lengths given.

    >>> d = pf.distributions
    >>> d.CatTransform([d.ExpTransform(), d.identity_transform], lengths=[1, 2])(pf.zeros(3)).tolist()
    [1.0, 0.0, 0.0]
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ArgumentError(f"[CatTransform] expected {len(self.transforms)} lengths but got {len(self.lengths)}")

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    def _split(self, x: Tensor) -> list[Tensor]:
        self._parts(x, sum(self.lengths))
        return list(F["split"](x, self.lengths, self.dim))

    def _join(self, parts: list[Tensor]) -> Tensor:
        return F["cat"](parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        event = self.event_dim
        parts = [
            sum_rightmost(part, event - t.event_dim)
            for t, part in zip(self.transforms, self._jacobians(x, y), strict=True)
        ]
        axis = (self.dim if self.dim < 0 else self.dim - x.ndim) + event
        if axis < 0:
            return F["cat"](parts, axis)
        return sum(parts[1:], parts[0])  # the runs are parts of one event

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)
