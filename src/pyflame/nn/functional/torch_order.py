"""Losses and softmaxes whose arguments PyTorch has in another order than the ops here, and with its older words.

`size_average` and `reduce` are what `reduction` was called. Programs still give them by position, where an op would
take them for something else: in `cross_entropy(x, target, None, False)` False is `size_average`, not `ignore_index`.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.nn.functional.losses import reduce as reduced
from pyflame.nn.ops import F
from pyflame.tensor import Tensor

_OLD = frozenset(("size_average", "reduce"))


def in_torch_order(op: Callable[..., Tensor], order: str) -> Callable[..., Tensor]:
    """A loss that takes its arguments in this order; size_average and reduce among them say what `reduction` does."""
    names, have = order.split(), inspect.signature(op).parameters
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(n, kind, default=have[n].default if n in have else None) for n in names]
    rest = [p.replace(kind=p.KEYWORD_ONLY) for n, p in have.items() if n not in names]
    signature = inspect.Signature([*parameters, *rest])
    alike = next((i for i, pair in enumerate(zip(names, have, strict=False)) if pair[0] != pair[1]), len(have))

    @functools.wraps(op)
    def function(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) <= alike and _OLD.isdisjoint(kwargs):
            return op(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        average, each = given.pop("size_average", None), given.pop("reduce", None)
        if average is not None or each is not None:
            given["reduction"] = "none" if each is False else "sum" if average is False else "mean"
        return op(**given)

    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def weighted(op: Callable[..., Tensor], by_weights: bool) -> Callable[..., Tensor]:
    """A loss that takes a weight for each element. `by_weights`: the mean divides by their sum."""
    have = inspect.signature(op)
    weights = inspect.Parameter("weight", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = have.replace(parameters=[*have.parameters.values(), weights])

    @functools.wraps(op)
    def function(*args: Any, **kwargs: Any) -> Tensor:
        if "weight" not in kwargs and len(args) <= len(have.parameters):
            return op(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        weight = given.pop("weight")
        if weight is None:
            return op(**given)
        if weight.shape != given["input"].shape:
            raise ArgumentError(
                f"[{op.__name__}] expected weights of the input's shape {tuple(given['input'].shape)} but got "
                f"{tuple(weight.shape)}"
            )
        reduction = given.pop("reduction", "mean")
        each = op(**given, reduction="none") * weight
        if by_weights and reduction == "mean":
            return each.sum() / weight.sum()  # type: ignore[no-any-return]
        return reduced(op.__name__, each, reduction)

    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def softmax_dim(name: str, ndim: int) -> int:
    """The axis that PyTorch takes where a program names none, with its warning."""
    warnings.warn(
        f"[{name}] the axis is guessed from the number of axes, as in PyTorch's oldest programs; give dim=",
        stacklevel=4,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _with_guessed_dim(name: str) -> Callable[..., Tensor]:
    op, negative = F[name.replace("min", "max")], name == "softmin"

    def function(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
        axis = softmax_dim(name, input.ndim) if dim is None else dim
        return op(-input if negative else input, axis, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "softmax(-x): the smallest element gets the most." if negative else op.__doc__
    return function


softmax = _with_guessed_dim("softmax")
log_softmax = _with_guessed_dim("log_softmax")
softmin = _with_guessed_dim("softmin")
