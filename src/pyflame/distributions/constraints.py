"""Regions that parameters and values lie in, by torch.distributions.constraints' names.

`check` gives one bool for each event: a constraint over vectors (`event_dim` 1) drops the last axis. Only the checks of
definite matrices evaluate anything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, ArgumentTypeError, NotSupportedError, ShapeError
from pyflame.core.limits import finfo
from pyflame.tensor import Tensor
from pyflame.tensor.creation import full
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.linalg import cholesky_ex, eigvalsh

F: dict[str, Callable[..., Tensor]] = FUNCTIONS

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """Base: `check` says which events of a value lie in the region.

    >>> pf.distributions.constraints.positive.check(pf.tensor([-1.0, 2.0])).tolist()
    [False, True]
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event satisfies the constraint."""
        raise NotSupportedError(f"[{type(self).__name__}] expected a subclass that defines check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Dependent(Constraint):
    """Stands for a region that depends on other parameters, so that a class cannot know it."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._known = {"is_discrete": is_discrete, "event_dim": event_dim}

    def _static(self, name: str) -> Any:
        if self._known[name] is NotImplemented:
            raise NotSupportedError(f"[constraints] expected an instance but got a class: it cannot tell {name}")
        return self._known[name]

    @property
    def is_discrete(self) -> Any:
        """Whether the values are whole numbers."""
        return self._static("is_discrete")

    @property
    def event_dim(self) -> Any:
        """The axes of an event."""
        return self._static("event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        given = {"is_discrete": is_discrete, "event_dim": event_dim}
        return _Dependent(**{k: self._known[k] if v is NotImplemented else v for k, v in given.items()})

    def check(self, value: Tensor) -> Tensor:
        raise ArgumentError("[constraints] expected an instance's constraint but got a dependent one: nothing to check")


def is_dependent(constraint: Constraint) -> bool:
    """Whether a constraint depends on other parameters.

    >>> pf.distributions.constraints.is_dependent(pf.distributions.Uniform.support)
    True
    """
    return isinstance(constraint, _Dependent)


class dependent_property(property, _Dependent):
    """A property of instances that is a dependent constraint on their class."""

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[..., Any]) -> dependent_property:  # type: ignore[override]
        return dependent_property(fn, **self._known)


def _constraint(op: str, value: Any) -> Constraint:
    if not isinstance(value, Constraint):
        raise ArgumentError(f"[{op}] expected a constraint but got {type(value).__name__}")
    return value


def _check_rank(op: str, value: Tensor, rank: int) -> None:
    if value.ndim < rank:
        raise ShapeError(f"[{op}] expected a value with at least {rank} axes but got shape {value.shape}")


class _IndependentConstraint(Constraint):
    """Another constraint that holds for all elements of the last axes."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = _constraint("independent", base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise ArgumentError(f"[independent] expected a number of axes but got {reinterpreted_batch_ndims!r}")
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> Any:
        """The base's."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        """The base's and those added."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        _check_rank("independent", value, self.event_dim)
        return _all(self.base_constraint.check(value), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


def _all(right: Tensor, axes: int) -> Tensor:
    """Whether all of the last axes hold."""
    return right.all(tuple(range(-axes, 0))) if axes else right


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: that of its components, for each of them.

    >>> c = pf.distributions.constraints
    >>> c.MixtureSameFamilyConstraint(c.positive).check(pf.tensor([-1.0, 2.0])).tolist()
    [False, True]
    """

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = _constraint("MixtureSameFamilyConstraint", base_constraint)

    @property
    def is_discrete(self) -> Any:
        """The components'."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        """The components'."""
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        _check_rank("MixtureSameFamilyConstraint", value, self.event_dim)
        return self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Bounded(Constraint):
    """Values that compare with bounds as `tests` says, and whole numbers where discrete."""

    tests: dict[str, Callable[[Any, Any], Any]] = {}  # noqa: RUF012

    def __init__(self, *bounds: Any, **named: Any) -> None:
        given = dict(zip(self.tests, bounds, strict=False)) | named
        if len(bounds) + len(named) != len(self.tests) or given.keys() != self.tests.keys():
            raise ArgumentTypeError(f"[{self!r}] expected {', '.join(self.tests)} but got {(*bounds, *named)}")
        vars(self).update(given)

    def check(self, value: Tensor) -> Tensor:
        parts = [test(value, getattr(self, name)) for name, test in self.tests.items()]
        if self.is_discrete:
            parts.append(value % 1 == 0)
        out: Tensor = parts[0] if len(parts) == 1 else parts[0] & parts[1]
        return out if len(parts) < 3 else out & parts[2]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name, '?')}" for name in self.tests)
        return f"{type(self).__name__[1:]}({shown})"


class _GreaterThan(_Bounded):
    lower_bound: Any
    tests = {"lower_bound": operator.gt}  # noqa: RUF012


class _GreaterThanEq(_Bounded):
    lower_bound: Any
    tests = {"lower_bound": operator.ge}  # noqa: RUF012


class _LessThan(_Bounded):
    upper_bound: Any
    tests = {"upper_bound": operator.lt}  # noqa: RUF012


class _Interval(_Bounded):
    lower_bound: Any
    upper_bound: Any
    tests = {"lower_bound": operator.ge, "upper_bound": operator.le}  # noqa: RUF012


class _HalfOpenInterval(_Bounded):
    lower_bound: Any
    upper_bound: Any
    tests = {"lower_bound": operator.ge, "upper_bound": operator.lt}  # noqa: RUF012


class _IntegerInterval(_Interval):
    is_discrete = True


class _IntegerGreaterThan(_GreaterThanEq):
    is_discrete = True


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return boolean.check(value).all(-1) & (value.sum(-1) == 1)


class _Real(Constraint):
    """All numbers and infinities, not nan."""

    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (F["abs"](value.sum(-1) - 1) < 1e-6)


class _Multinomial(Constraint):
    """Counts that sum to at most a bound, as PyTorch's."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        right: Tensor = (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)
        return right


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _all(F["tril"](value) == value, 2)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (F["diagonal"](value, 0, -2, -1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Lower Cholesky factors whose rows have length 1."""

    def check(self, value: Tensor) -> Tensor:
        slack = 10 * finfo(value.dtype).eps * value.shape[-1]
        length = F["sqrt"]((value * value).sum(-1))
        return super().check(value) & (F["abs"](length - 1.0) <= slack).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype="bool", device=value.device)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return _all(F["isclose"](value, value.mT, atol=1e-6), 2)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return (eigvalsh(value) >= 0).all(-1) if bool(symmetric.all()) else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        right: Tensor = cholesky_ex(value).info == 0 if bool(symmetric.all()) else symmetric
        return right


class _Stack(Constraint):
    """A constraint for each slice along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = [_constraint("stack", c) for c in cseq], dim

    @property
    def is_discrete(self) -> Any:
        """Whether one of them is."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> Any:
        """The most of them, and the stacked axis where it lies inside of an event."""
        most = max(c.event_dim for c in self.cseq)
        return most + 1 if self.dim + most < 0 else most

    def check(self, value: Tensor) -> Tensor:
        slices = [value.select(self.dim, i) for i in range(value.shape[self.dim])]
        return F["stack"]([c.check(v) for c, v in zip(self.cseq, slices, strict=True)], self.dim)


class _Cat(_Stack):
    """A constraint for each run along an axis, of the lengths given."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ArgumentError(f"[cat] expected {len(self.cseq)} lengths but got {len(self.lengths)}")

    @property
    def event_dim(self) -> Any:
        """The most of them."""
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        runs = F["split"](value, self.lengths, self.dim)
        return F["cat"]([c.check(v) for c, v in zip(self.cseq, runs, strict=True)], self.dim)


dependent = _Dependent()
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
