"""Names that libraries import from torch's private files, and what they mean here."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, Union

from pyflame import __version__
from pyflame.core.errors import ArgumentError
from pyflame.tensor import printing
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor
from pyflame.tensor.torch_names import set_printoptions  # noqa: F401  what programs import

Fn = TypeVar("Fn", bound=Callable[..., Any])

# torch.nn.common_types
_scalar_or_tuple_any_t = _size_any_t = Union[int, tuple[int, ...]]  # noqa: UP007  programs ask for its arguments
_size_1_t = Union[int, tuple[int]]  # noqa: UP007
_size_2_t = Union[int, tuple[int, int]]  # noqa: UP007
_size_3_t = Union[int, tuple[int, int, int]]  # noqa: UP007
_size_4_t = Union[int, tuple[int, int, int, int]]  # noqa: UP007
_size_5_t = Union[int, tuple[int, int, int, int, int]]  # noqa: UP007
_size_6_t = Union[int, tuple[int, int, int, int, int, int]]  # noqa: UP007
_size_any_opt_t = Union[int, None, tuple[int | None, ...]]  # noqa: UP007
_size_2_opt_t = Union[int, None, tuple[int | None, int | None]]  # noqa: UP007
_size_3_opt_t = Union[int, None, tuple[int | None, int | None, int | None]]  # noqa: UP007
_ratio_any_t = Union[float, tuple[float, ...]]  # noqa: UP007
_ratio_2_t = Union[float, tuple[float, float]]  # noqa: UP007
_ratio_3_t = Union[float, tuple[float, float, float]]  # noqa: UP007

_scalar_or_tuple_1_t = _size_1_t
_scalar_or_tuple_2_t = _size_2_t
_scalar_or_tuple_3_t = _size_3_t
_scalar_or_tuple_4_t = _size_4_t
_scalar_or_tuple_5_t = _size_5_t
_scalar_or_tuple_6_t = _size_6_t
_tensor_list_t = Union[Tensor, list[Tensor]]  # noqa: UP007
_maybe_indices_t = Union[Tensor, tuple[Tensor, Tensor]]  # noqa: UP007

# torch._six
string_classes, int_classes, container_abcs, inf = (str, bytes), int, collections.abc, float("inf")

# torch.nn._reduction
_REDUCTIONS = ("none", "mean", "sum")


class TorchVersion(str):
    """A version that compares with others by its numbers: `TorchVersion("1.10.0") > "1.9"`."""

    def _numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.split("+")[0].split(".") if part.isdigit())

    def __lt__(self, other: Any) -> bool:
        return self._numbers() < _numbers_of(other)

    def __le__(self, other: Any) -> bool:
        return self._numbers() <= _numbers_of(other)

    def __gt__(self, other: Any) -> bool:
        return self._numbers() > _numbers_of(other)

    def __ge__(self, other: Any) -> bool:
        return self._numbers() >= _numbers_of(other)


def _numbers_of(version: Any) -> tuple[int, ...]:
    return tuple(version) if isinstance(version, tuple) else TorchVersion(version)._numbers()


_version = TorchVersion(__version__)


PRINT_OPTS = printing.OPTIONS


def _tensor_str(self: Tensor, indent: int = 0) -> str:
    """A tensor as `print` shows it."""
    return printing.format_tensor(self)


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one axis."""
    return FUNCTIONS["cat"]([t.reshape(-1) for t in tensors])  # type: ignore[no-any-return]


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of what `_flatten_dense_tensors` gave, in the shapes of these tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.reshape(t.shape) for part, t in zip(parts, tensors, strict=True))


def record(fn: Fn) -> Fn:
    """The function itself: a process that ends by an error prints it."""
    return fn


class TransformGetItemToIndex(nullcontext[None]):
    """Within it `x[i]` takes tensors of `vmap` for i: they are taken everywhere."""


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether `vmap` has made it stand for a batch: never, it runs the function for each example."""
    return False


def is_fake(x: object) -> bool:
    """Whether it is a tensor of shapes and no values that a mode made: never, those are of the device meta."""
    return False


def unset_fake_temporarily() -> nullcontext[None]:
    """A `with` block without such a mode: there is none."""
    return nullcontext()


def get_proxy_mode() -> None:
    """What traces ops below Python: nothing does."""


def get_enum(reduction: str) -> int:
    """The number that torch._C has for a reduction.

    >>> get_enum("mean")
    1
    """
    if reduction not in _REDUCTIONS:
        raise ArgumentError(f"[reduction] expected one of {', '.join(_REDUCTIONS)} but got {reduction!r}")
    return _REDUCTIONS.index(reduction)


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that arguments of old losses mean.

    >>> legacy_get_string(False, None)
    'sum'
    """
    return "none" if reduce is False else "sum" if size_average is False else "mean"
