"""`transform_to` and `biject_to`: a transform from all real numbers into a constraint's region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentTypeError, NotSupportedError
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Makes a transform for a constraint, by the constraint's class.

    >>> d = pf.distributions
    >>> d.transform_to(d.constraints.positive)(pf.tensor(0.0))
    tensor(1.)
    """

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Set what makes the transform for a class of constraints, or that of an instance; also a decorator."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise ArgumentTypeError(f"[register] expected a constraint or a class of them but got {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        if type(constraint) not in self._registry:
            raise NotSupportedError(
                f"[transform_to] expected a constraint with a transform but got {constraint!r}; add one with register"
            )
        return self._registry[type(constraint)](constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _to_interval(c: Any) -> Transform:
    low, high = c.lower_bound, c.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _above(c: Any) -> Transform:
    # the types of `positive` and `nonnegative` are those of greater_than(0) and greater_than_eq(0)
    return ComposeTransform([ExpTransform(), AffineTransform(c.lower_bound, 1)])


_COMMON: dict[Any, Factory] = {
    constraints.real: lambda c: identity_transform,
    constraints.greater_than: _above,
    constraints.greater_than_eq: _above,
    constraints.less_than: lambda c: ComposeTransform([ExpTransform(), AffineTransform(c.upper_bound, -1)]),
    constraints.interval: _to_interval,
    constraints.half_open_interval: _to_interval,
    constraints.corr_cholesky: lambda c: CorrCholeskyTransform(),
}


def _register_common(to: ConstraintRegistry) -> None:
    """What both share; the parts of a constraint are looked up in the same registry."""
    for kind, factory in _COMMON.items():
        to.register(kind, factory)
    to.register(
        constraints.independent, lambda c: IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims)
    )
    to.register(constraints.cat, lambda c: CatTransform([to(part) for part in c.cseq], c.dim, c.lengths))
    to.register(constraints.stack, lambda c: StackTransform([to(part) for part in c.cseq], c.dim))


_register_common(biject_to)
_register_common(transform_to)
biject_to.register(constraints.simplex, lambda c: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda c: PositiveDefiniteTransform())
