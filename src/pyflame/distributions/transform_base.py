"""Transform: what all transforms have; their inverses, chains, and batches taken as one event."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, NotSupportedError, ShapeError
from pyflame.core.shape import Size
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.distribution import sum_rightmost
from pyflame.tensor import Tensor


class Transform:
    """Base: call it, `inv` undoes it, `log_abs_det_jacobian(x, y)` is log |dy/dx|. Subclasses define `_call` and
    `_inverse`. With `cache_size=1`, undoing the latest result gives the very argument: atanh(tanh(20)) is infinite.

    >>> t = pf.distributions.ExpTransform()
    >>> t(pf.tensor(0.0)), t.inv(pf.tensor(1.0))
    (tensor(1.), tensor(0.))
    """

    bijective: Any = False
    domain: Any
    codomain: Any
    # Attributes that make two transforms of a class equal; None: a transform equals itself only.
    _compared: tuple[str, ...] | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError(f"[{type(self).__name__}] expected a cache_size of 0 or 1 but got {cache_size}")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)
        self._inv: Transform | None = None
        super().__init__()  # a Module, in some programs

    @property
    def event_dim(self) -> int:
        """The axes of an event, where the transform keeps their number."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ArgumentError(
                f"[{type(self).__name__}] expected .domain.event_dim or .codomain.event_dim to be asked: they differ"
            )
        return int(self.domain.event_dim)

    @property
    def inv(self) -> Transform:
        """The transform that undoes this one; its inverse is this one."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> Any:
        """1 where the function rises, -1 where it falls."""
        raise NotSupportedError(f"[{type(self).__name__}] expected a transform of one number: this one has no sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with a cache of another size."""
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_inv": None, "_cached_x_y": (None, None)}

    def __eq__(self, other: object) -> bool:
        if self._compared is None or type(self) is not type(other):
            return self is other
        return all(_same(getattr(self, name), getattr(other, name)) for name in self._compared)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and x is self._cached_x_y[0]:
            return self._cached_x_y[1]  # type: ignore[no-any-return]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size and y is self._cached_x_y[1]:
            return self._cached_x_y[0]  # type: ignore[no-any-return]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotSupportedError(f"[{type(self).__name__}] expected a subclass that defines _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotSupportedError(f"[{type(self).__name__}] expected a subclass that defines _inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|."""
        raise NotSupportedError(f"[{type(self).__name__}] expected a transform with log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Size:
        """The shape of the result for an argument of this shape."""
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        """The shape of the argument for a result of this shape."""
        return Size(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _same(a: Any, b: Any) -> bool:
    equal = a == b
    return bool(equal.all()) if isinstance(equal, Tensor) else bool(equal)


def shape_error(transform: Transform, expected: str, shape: Any) -> ShapeError:
    return ShapeError(f"[{type(transform).__name__}] expected {expected} but got shape {tuple(shape)}")


class _InverseTransform(Transform):
    """Another transform the other way round."""

    _inv: Transform

    def __init__(self, transform: Transform) -> None:
        super().__init__()  # the transform itself caches
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return self._inv.codomain  # type: ignore[no-any-return]

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return self._inv.domain  # type: ignore[no-any-return]

    @property
    def bijective(self) -> Any:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = None

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Size:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


class ComposeTransform(Transform):
    """One transform after another.

    >>> d = pf.distributions
    >>> d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)])(pf.tensor(0.0))
    tensor(3.)
    """

    _compared = ("parts",)

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [p.with_cache(cache_size) if cache_size else p for p in parts]

    def _end(self, ordered: Sequence[tuple[Constraint, Constraint]]) -> Constraint:
        """The constraint at one end, over as many axes as the parts need; `ordered` goes from the other end to it."""
        if not ordered:
            return constraints.real
        axes = ordered[0][0].event_dim
        for start, end in ordered:
            axes = max(axes + end.event_dim - start.event_dim, end.event_dim)
        last = ordered[-1][1]
        return constraints.independent(last, axes - last.event_dim) if axes > last.event_dim else last

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return self._end([(p.codomain, p.domain) for p in reversed(self.parts)])

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return self._end([(p.domain, p.codomain) for p in self.parts])

    @property
    def bijective(self) -> Any:
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        out: Any = 1
        for part in self.parts:
            out = out * part.sign
        return out

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return ComposeTransform([p.with_cache(cache_size) for p in self.parts], cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        out: Any = x.new_zeros(x.shape) if not self.parts else 0.0
        axes = self.domain.event_dim
        for i, part in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 else part(x)
            out = out + sum_rightmost(part.log_abs_det_jacobian(x, after), axes - part.domain.event_dim)
            axes += part.codomain.event_dim - part.domain.event_dim
            x = after
        return out  # type: ignore[no-any-return]

    def forward_shape(self, shape: Any) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return Size(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last axes are one event: log_abs_det_jacobian is summed over them.

    >>> t = pf.distributions.IndependentTransform(pf.distributions.ExpTransform(), 1)
    >>> t.log_abs_det_jacobian(pf.ones(3), pf.ones(3).exp())
    tensor(3.)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        if x.ndim < self.domain.event_dim:
            raise shape_error(self, f"at least {self.domain.event_dim} axes", x.shape)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        if y.ndim < self.codomain.event_dim:
            raise shape_error(self, f"at least {self.codomain.event_dim} axes", y.shape)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"
