"""PyTorch's and NumPy's names of arguments: a function is declared with one of them and takes any."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyflame.core.parameters import parameters, positional

# Each stands for the other where a function has but one of them.
_EITHER = (
    ("axis", "dim"), ("axis", "dims"), ("axes", "dims"), ("keepdims", "keepdim"), ("x", "input"), ("y", "other"),
    ("dim0", "axis0"), ("dim1", "axis1"), ("shape", "size"), ("reps", "dims"), ("sizes", "repeats"),
    ("y", "mat2"), ("y", "vec"), ("y", "vec2"), ("y", "tensor1"), ("z", "tensor2"), ("y", "divisor"),
    ("dim", "dimension"), ("split_size_or_sections", "split_size"), ("x", "a"), ("y", "b"),
    ("src", "value"), ("a", "A"), ("b", "B"), ("y", "tensor"), ("training", "train"),
)  # fmt: skip

_PARTS = dict.fromkeys(("indices", "sections", "tensor_indices_or_sections"), "indices_or_sections")
# What a word means to one function only.
_OF_ONE: dict[str, dict[str, str]] = {
    "cholesky_solve": {"input2": "L"},
    "copy_": {"other": "src"},
    "dsplit": _PARTS,
    "hsplit": _PARTS,
    "igamma": {"other": "x"},
    "igammac": {"other": "x"},
    "isin": {"element": "elements", "test_element": "test_elements"},
    "max": {"other": "axis"},
    "min": {"other": "axis"},
    "orgqr": {"input2": "tau"},
    "ormqr": {"input2": "tau", "input3": "other"},
    "pow": {"self": "x"},
    "promote_types": {"type1": "a", "type2": "b"},
    "random_": {"from": "low", "to": "high"},
    "requires_grad_": {"requires_grad": "wanted"},
    "resize_as_": {"the_template": "other"},
    "result_type": {"tensor": "tensor1", "other": "tensor2", "scalar1": "tensor1", "scalar2": "tensor2"},
    "split": {"tensor": "x", "split_sizes": "split_size_or_sections"},
    "tensor_split": _PARTS,
    "tensorsolve": {"other": "B"},
    "uniform_": {"from": "a", "to": "b"},
    "vsplit": _PARTS,
    "where": {"input": "x", "self": "x", "other": "y"},
    "zeta": {"other": "q"},
}


@functools.cache
def torch_names(fn: Callable[..., Any], name: str) -> dict[str, str]:
    """Keyword -> the parameter of fn that it means, for keywords that fn itself does not have. `input` is its first.

    >>> torch_names(pf.linalg.det.__wrapped__, "det")["input"]
    'a'
    """
    have = parameters(fn)
    pairs = [pair for a, b in _EITHER for pair in ((a, b), (b, a))]
    names = {word: own for own, word in pairs if own in have and word not in have}
    order = positional(fn)
    if order and "input" not in have:
        names["input"] = order[0]
    if len(order) > 1 and names.get("other") == order[0]:  # atan2(y, x)
        names["other"] = order[1]
    return {**names, **_OF_ONE.get(name, {})}


def by_position(
    order: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those given by name that come next in the order put behind those given by position."""
    kwargs = dict(kwargs)
    while len(args) < len(order) and order[len(args)] in kwargs:
        args = (*args, kwargs.pop(order[len(args)]))
    return args, kwargs
