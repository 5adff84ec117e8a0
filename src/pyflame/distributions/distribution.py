"""Distribution: what all of them have, and helpers for their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import default
from pyflame.core.errors import ArgumentError, NotSupportedError, ShapeError
from pyflame.core.generator import Generator, default_generator
from pyflame.core.limits import finfo
from pyflame.core.shape import Size
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import no_grad

F: dict[str, Callable[..., Tensor]] = FUNCTIONS  # typed: almost all ops give one tensor


class Distribution:
    """Base of all distributions: `batch_shape` of independent ones, each over values of `event_shape`.

    >>> d = pf.distributions.Normal(pf.zeros(3), 1.0)
    >>> d.batch_shape, d.sample((2,)).shape, d.log_prob(pf.zeros(3)).shape
    ((3,), (2, 3), (3,))
    """

    has_rsample = False
    # Conditions on the parameters: name -> test. Evaluated with validate_args=True only.
    arg_checks: dict[str, Callable[[Tensor], Tensor]] = {}  # noqa: RUF012

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args:
            self._validate()

    def _validate(self) -> None:
        for name, right in self.arg_checks.items():
            value = getattr(self, name)
            if not bool(right(value).all()):
                raise ArgumentError(
                    f"[{type(self).__name__}] expected {name} to satisfy its constraint but got {value!r}"
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

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        """The same distribution for a larger batch."""
        raise self._without("expand")

    def _without(self, what: str) -> NotSupportedError:
        return NotSupportedError(f"[{type(self).__name__}] expected another distribution: this one has no {what}")

    def __repr__(self) -> str:
        shown = [f"{k}: {v.shape}" for k, v in vars(self).items() if isinstance(v, Tensor) and not k.startswith("_")]
        return f"{type(self).__name__}({', '.join(shown)})"


class Parametrized(Distribution):
    """A distribution whose parameters broadcast to its batch shape: `names` lists them in the constructor's order."""

    names: tuple[str, ...] = ()

    def __init__(self, *values: Any, validate_args: bool | None = None) -> None:
        for name, value in zip(self.names, broadcast_all(*values), strict=True):
            setattr(self, name, value)
        super().__init__(getattr(self, self.names[0]).shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        return type(self)(*[getattr(self, name).expand(tuple(batch_shape)) for name in self.names])


def positive(x: Tensor) -> Tensor:
    """Above 0."""
    return x > 0


def unit(x: Tensor) -> Tensor:
    """From 0 to 1."""
    return (x >= 0) & (x <= 1)


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
