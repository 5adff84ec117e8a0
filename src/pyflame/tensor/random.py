"""Random tensors. Each takes `generator=`, else the global generator is used, which `manual_seed` starts over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype, default, float32, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.generator import Generator, default_generator
from pyflame.core.shape import Shape, broadcast_shapes, check_shape
from pyflame.core.state import state
from pyflame.ir import F, Node, as_number, cast, is_number
from pyflame.tensor.arguments import whole_number
from pyflame.tensor.creation import finish, place_of, positions, shape_of, tensor, torch_options
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor, read

# --- the global generator ---------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> Generator:
    """Start the global generator over from this seed: the same program then draws the same numbers, on any device.

    >>> _ = pf.manual_seed(0); a = pf.rand(2); _ = pf.manual_seed(0); bool((a == pf.rand(2)).all())
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Start the global generator over from a seed of the operating system; gives that seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the global generator started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the global generator, as a small tensor of bytes that can be saved."""
    return tensor(np.array(default_generator.get_state(), np.uint64).view(np.uint8))


def set_rng_state(new_state: Tensor) -> None:
    """Continue where `get_rng_state` was called."""
    held = tensor(new_state).numpy()
    default_generator.set_state(tuple((held.view(np.uint64) if held.dtype == np.uint8 else held).tolist()))


# --- new tensors ------------------------------------------------------------------------------------------------------


def _uniform(shape: Shape, dtype: DType, device: object, generator: Generator | None) -> Node:
    """Of a complex dtype both parts are uniform."""
    if dtype.is_complex:
        return F.complex(*(_uniform(shape, dtype.real, device, generator) for _ in range(2)))
    return F.random_uniform(positions(shape, device), dtype, generator)


def _normal(shape: Shape, dtype: DType, device: object, generator: Generator | None) -> Node:
    """Of a complex dtype both parts are normal, each with half of the variance."""
    if dtype.is_complex:
        return F.complex(*(_normal(shape, dtype.real, device, generator) * 0.5**0.5 for _ in range(2)))
    return F.random_normal(positions(shape, device), dtype, generator)


def _integers(
    op: str, low: Any, high: Any, shape: Shape, dtype: DType, device: object, generator: Generator | None
) -> Node:
    low, high = whole_number(low), whole_number(high)
    for bound in (low, high):
        if not is_number(bound) or isinstance(as_number(bound), float):
            raise DTypeError(f"[{op}] expected whole numbers as bounds but got low={low!r}, high={high!r}")
    low, high = int(low), int(high)
    if low >= high:
        raise ArgumentError(f"[{op}] expected low < high but got low={low}, high={high}")
    if low < -(1 << 63) or high > 1 << 63:
        raise ArgumentError(f"[{op}] expected bounds of 64 bits but got low={low}, high={high}")
    return cast(F.random_integers(positions(shape, device), low, high, generator), dtype)


@torch_options
def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1).

    >>> pf.rand(2, 3).shape
    (2, 3)
    """
    return finish(_uniform(shape_of("rand", size), as_dtype(dtype or default.float), device, generator), requires_grad)


@torch_options
def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers with mean 0 and standard deviation 1.

    >>> pf.randn(2, 3).shape
    (2, 3)
    """
    return finish(_normal(shape_of("randn", size), as_dtype(dtype or default.float), device, generator), requires_grad)


@torch_options
def randint(
    low: Any = None,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Whole numbers in [low, high): randint(low, high, size), or randint(high, size) from 0.

    >>> bool((pf.randint(0, 10, (100,)) < 10).all())
    True
    """
    if size is None and isinstance(high, (tuple, list)):
        low, high, size = 0, low, high
    elif high is None or low is None:  # randint(high, size=size), randint(high=high, size=size)
        low, high = 0, low if high is None else high
    if size is None:
        raise ShapeError("[randint] expected a shape but got none; write randint(low, high, (n,))")
    node = _integers("randint", low, high, shape_of("randint", (size,)), as_dtype(dtype or int64), device, generator)
    return finish(node, requires_grad)


@torch_options
def randperm(n: int, *, generator: Generator | None = None, dtype: object = None, device: object = None) -> Tensor:
    """0 .. n - 1 in random order.

    >>> sorted(pf.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    shape = check_shape("randperm", (n,))
    return Tensor(cast(F.random_permutation(positions(shape, device), generator), as_dtype(dtype or int64)))


@torch_options
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers with this mean and standard deviation: numbers with a size, or tensors that broadcast.

    >>> pf.normal(0.0, 0.02, (3, 4)).shape
    (3, 4)
    """
    if not isinstance(std, Tensor):
        _spread("normal", std)
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if size is not None:
        shape = shape_of("normal", (size,))
    elif tensors:
        shape = broadcast_shapes("normal", *[t.shape for t in tensors])
    else:
        raise ShapeError("[normal] expected a size for a mean and a std that are numbers; write normal(0.0, 1.0, (n,))")
    wanted = (
        as_dtype(dtype) if dtype is not None else next((t.dtype for t in tensors if t.dtype.is_float), default.float)
    )
    place = place_of(tensors[0], device) if tensors else device
    drawn: Tensor = Tensor(_normal(shape, wanted, place, generator)) * std + mean
    return drawn.requires_grad_() if requires_grad else drawn


@torch_options
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1) with the shape, dtype and device of another tensor."""
    place = place_of(input, device)
    return finish(_uniform(input.shape, as_dtype(dtype or input.dtype), place, generator), requires_grad)


@torch_options
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal numbers with the shape, dtype and device of another tensor."""
    place = place_of(input, device)
    return finish(_normal(input.shape, as_dtype(dtype or input.dtype), place, generator), requires_grad)


@torch_options
def randint_like(
    input: Tensor,
    low: Any = None,
    high: Any = None,
    *,
    generator: Generator | None = None,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Whole numbers in [low, high), or [0, low), with the shape, dtype and device of another tensor.

    >>> pf.randint_like(pf.zeros(2), high=1)
    tensor([0., 0.])
    """
    low, high = (0, low) if high is None else (0 if low is None else low, high)
    place = place_of(input, device)
    node = _integers("randint_like", low, high, input.shape, as_dtype(dtype or input.dtype), place, generator)
    return finish(node, requires_grad)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the probabilities of each row, which need not sum to 1. (n,) -> (k,), (rows, n) -> (rows, k).

    Outside of jit the probabilities are evaluated and checked.

    >>> pf.multinomial(pf.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    out: Tensor = FUNCTIONS["multinomial"](input, num_samples, replacement, generator)
    if state.tracer is None and input.numel() and input.device.id.computes:
        _check_weights(input, 1 if replacement else num_samples)
    return out


def _check_weights(input: Tensor, needed: int) -> None:
    weights = input.detach()
    array = weights.numpy()
    if not ((array >= 0) & (array < math.inf)).all():
        raise ArgumentError(
            "[multinomial] expected finite probabilities of at least 0 but got a negative one, NaN or infinity"
        )
    positive = (array > 0).sum(axis=-1).min()
    if positive < needed:
        raise ArgumentError(
            f"[multinomial] expected at least {needed} probabilities above 0 in each row but one row has {positive}"
        )


# --- in place ---------------------------------------------------------------------------------------------------------


def _spread(op: str, std: Any) -> float:
    value = float(as_number(std)) if is_number(std) else math.nan
    if not value >= 0.0:
        raise ArgumentError(f"[{op}] expected a standard deviation of at least 0 but got {std!r}")
    return value


def _refill(self: Tensor, node: Node) -> Tensor:
    """Take a new value in the tensor's dtype. The old one is not read."""
    return self._rebind(Tensor(cast(node, self.dtype)))


def _place(self: Tensor) -> object:
    read(self)  # inside jit the cell becomes an output of the plan
    return place_of(self, None)


def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers in [a, b)."""
    if not (math.isfinite(a) and math.isfinite(b) and a <= b):
        raise ArgumentError(f"[uniform_] expected finite bounds with a <= b but got a={a}, b={b}")
    return _refill(
        self, F.random_uniform(positions(self.shape, _place(self)), self.dtype, generator) * float(b - a) + float(a)
    )


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers."""
    spread = _spread("normal_", std)
    return _refill(self, _normal(self.shape, self.dtype, _place(self), generator) * spread + float(mean))


def bernoulli_(self: Tensor, p: float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with probability p, else 0."""
    return self._rebind(FUNCTIONS["bernoulli"](self.detach(), p, generator))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponentially distributed numbers of this rate."""
    if not lambd > 0.0:
        raise ArgumentError(f"[exponential_] expected a rate above 0 but got {lambd}")
    wide = self.dtype if self.dtype.name == "float64" else float32
    return _refill(self, F.log(1.0 - _uniform(self.shape, wide, _place(self), generator)) * (-1.0 / lambd))


def random_(self: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill with whole numbers in [low, high); without bounds, all that the dtype holds exactly from 0 on."""
    if high is None:
        low, high = (0, low) if low else (0, _exact(self.dtype))
    return _refill(self, _integers("random_", low, high, self.shape, int64, _place(self), generator))


def _exact(dtype: DType) -> int:
    """One more than the largest integer up to which all are exact."""
    if dtype.is_float:
        return 1 << {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}.get(dtype.name, 3)
    return 2 if dtype.category == "b" else 1 << min(63, 8 * dtype.itemsize - dtype.is_signed)


METHODS = {
    "bernoulli_": bernoulli_,
    "exponential_": exponential_,
    "multinomial": multinomial,
    "normal_": normal_,
    "random_": random_,
    "uniform_": uniform_,
}
