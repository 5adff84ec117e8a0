"""Distribution: what all of them have, and helpers for their parameters."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import default
from pyflame.core.errors import ArgumentError, NotSupportedError, ShapeError, type_name
from pyflame.core.generator import Generator, default_generator
from pyflame.core.limits import finfo
from pyflame.core.shape import Size
from pyflame.core.state import state
from pyflame.distributions import constraints
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import grad_of, no_grad

F: dict[str, Callable[..., Tensor]] = FUNCTIONS  # typed: almost all ops give one tensor


class Distribution:
    """Base of all distributions: `batch_shape` of independent ones, each over values of `event_shape`.

    >>> d = pf.distributions.Normal(pf.zeros(3), 1.0)
    >>> d.batch_shape, d.sample((2,)).shape, d.log_prob(pf.zeros(3)).shape
    ((3,), (2, 3), (3,))
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: Any = {}  # noqa: RUF012 - name of a parameter -> the constraint that it satisfies
    support: Any = constraints.dependent  # the constraint that all values satisfy
    # Parameters as attributes, with the number of their axes that belong to an event.
    _ranks: dict[str, int] = {}  # noqa: RUF012
    # Parameters that follow from others here, so that nobody gave them: logits, where there are probs.
    _derived: tuple[str, ...] = ()
    _validate_args = False

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()  # a Module, in some programs

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let what takes a value check it first, where that is asked for."""
        super().__init_subclass__(**kwargs)
        for name in ("log_prob", "cdf"):
            if name in vars(cls):
                setattr(cls, name, _checked(vars(cls)[name]))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check values and parameters where validate_args does not say so. They do not at first:
        a check evaluates what it checks.
        """
        if value not in (True, False):
            raise ArgumentError(f"[set_default_validate_args] expected a bool but got {value!r}")
        Distribution._validate_args = value

    def _validate_parameters(self) -> None:
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint) or name in self._derived:
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise ArgumentError(
                    f"[{type(self).__name__}] expected {name} to satisfy {constraint!r} but got {value!r}"
                )

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"[{type(self).__name__}] expected a tensor as value but got {type_name(value)}")
        event = tuple(self._event_shape)
        own = (*self._batch_shape, *event)
        pairs = zip(reversed(value.shape), reversed(own), strict=False)
        if tuple(value.shape[value.ndim - len(event) :]) != event or any(1 not in p and p[0] != p[1] for p in pairs):
            raise ShapeError(f"[{type(self).__name__}] expected a value that fits {own} but got shape {value.shape}")
        support = self.support
        if not constraints.is_dependent(support) and not bool(support.check(value).all()):
            raise ArgumentError(
                f"[{type(self).__name__}] expected a value in the support {support!r} but got {value!r}"
            )

    @property
    def batch_shape(self) -> Size:
        """The shape of independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> tuple[int, ...]:
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*given, *self._batch_shape, *self._event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise self._without("mean")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise self._without("mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise self._without("variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return F["sqrt"](self.variance)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Values drawn; gradients do not flow through them."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Values drawn as a function of the parameters, so that gradients flow to these."""
        raise self._without("rsample")

    def sample_n(self, n: int) -> Tensor:
        """n values."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability of a value."""
        raise self._without("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        raise self._without("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which there is this probability."""
        raise self._without("icdf")

    def entropy(self) -> Tensor:
        """The expected value of minus log_prob."""
        raise self._without("entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return F["exp"](self.entropy())

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a first axis."""
        raise self._without("enumerate_support")

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """What `expand` fills: an empty one of its class, or what the `expand` of a subclass has begun."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotSupportedError(
                f"[{type(self).__name__}] expected an expand() of its own, since it has an __init__ of its own, but it "
                f"has that of {cls.__name__}"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _copied_into(self, instance: Any) -> Any:
        """A copy; where a subclass's `expand` has begun an instance, that one, with what it lacks."""
        if instance is None:
            return copy.copy(self)
        vars(instance).update({**vars(self), **vars(instance)})
        return instance

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution for a larger batch. A subclass with more parameters puts them into what
        `_get_checked_instance` gives and hands that on, as `_instance`.
        """
        if not self._ranks:
            raise self._without("expand")
        new = self._copied_into(_instance)
        new._batch_shape = Size(batch_shape)
        for name, rank in self._ranks.items():
            value = getattr(self, name)
            setattr(new, name, value.expand(*batch_shape, *value.shape[value.ndim - rank :]))
        return new

    def _without(self, what: str) -> NotSupportedError:
        return NotSupportedError(f"[{type(self).__name__}] expected another distribution: this one has no {what}")

    def __repr__(self) -> str:
        given = {k: v for k, v in vars(self).items() if isinstance(v, Tensor) and not k.startswith("_")}
        shown = [f"{k}: {v if v.numel() == 1 else v.shape}" for k, v in given.items()]
        return f"{type(self).__name__}({', '.join(shown)})"


def _checked(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(method)
    def check_first(self: Distribution, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return method(self, value)

    return check_first


class ExponentialFamily(Distribution):
    """Densities exp(<t(x), θ> - F(θ) + k(x)): a subclass gives θ as `_natural_params`, F as `_log_normalizer` and the
    expected k as `_mean_carrier_measure`; entropy and kl_divergence follow from the gradients of F.

    >>> issubclass(pf.distributions.Normal, pf.distributions.ExponentialFamily)
    True
    """

    @property
    def _mean_carrier_measure(self) -> Any:
        raise self._without("_mean_carrier_measure")

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise self._without("_natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise self._without("_log_normalizer")

    def _expanded_normalizer(self) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """F, the natural parameters it is taken at, and its gradients, which are the expected t(x)."""
        given = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*given)
        slopes: Any = grad_of(normalizer.sum(), given, create_graph=True)
        return normalizer, given, list(slopes)

    def entropy(self) -> Tensor:
        normalizer, given, slopes = self._expanded_normalizer()
        out: Tensor = normalizer - self._mean_carrier_measure
        for value, slope in zip(given, slopes, strict=True):
            out = out - (value * slope).reshape(*self._batch_shape, -1).sum(-1)
        return out


class Parametrized(Distribution):
    """A distribution whose parameters broadcast to its batch shape: `names` lists them in the constructor's order."""

    names: tuple[str, ...] = ()

    def __init__(self, *values: Any, validate_args: bool | None = None) -> None:
        for name, value in zip(self.names, broadcast_all(*values), strict=True):
            setattr(self, name, value)
        self._ranks = dict.fromkeys(self.names, 0)
        super().__init__(getattr(self, self.names[0]).shape, validate_args=validate_args)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the tensors."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    kind = next((t.dtype for t in tensors if t.dtype.is_float), default.float)
    made = [v if isinstance(v, Tensor) else as_tensor(v, dtype=kind) for v in values]
    shapes = np.broadcast_shapes(*[t.shape for t in made])
    return tuple(t.expand(shapes) for t in made)


def clamped(probs: Tensor) -> Tensor:
    """Probabilities a little away from 0 and 1, so that their logarithms are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1.0 - eps)


def one_of(op: str, probs: Any, logits: Any) -> bool:
    """Whether probabilities were given, rather than logits."""
    if (probs is None) == (logits is None):
        raise ArgumentError(f"[{op}] expected either probs or logits but got {'both' if probs is not None else 'none'}")
    return probs is not None


def host_draw(
    op: str,
    draw: Callable[[np.random.Generator], np.ndarray[Any, Any]],
    like: Tensor,
    generator: Generator | None = None,
) -> Tensor:
    """Values that NumPy draws on the host, from the next stream of a generator: not inside of pf.jit."""
    if state.tracer is not None:
        state.tracer.escaped(f"{op}.sample()")
    key, offset = (generator or default_generator).next_stream()
    drawn = draw(np.random.Generator(np.random.Philox(key=np.array([key, offset], np.uint64))))
    return tensor(np.asarray(drawn), dtype=like.dtype)


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """Summed over the last axes."""
    return value.sum(tuple(range(-count, 0))) if count else value


def check_last(op: str, value: Tensor) -> None:
    """Refuse a parameter without an axis of categories."""
    if value.ndim < 1:
        raise ShapeError(f"[{op}] expected parameters with at least one axis but got a 0-d tensor")
