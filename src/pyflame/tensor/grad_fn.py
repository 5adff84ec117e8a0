"""`tensor.grad_fn`: the tape as programs look at it, to print it or to walk along it."""

from __future__ import annotations

import functools
from typing import Any

from pyflame.autograd import Entry, Joint, Leaf, Part


class GradFn:
    """The op that gave a tensor, and through `next_functions` those that gave what it was made of.

    >>> x = pf.ones(2, requires_grad=True)
    >>> y = x.exp()
    >>> y.grad_fn.name(), y.grad_fn.next_functions[0][0].variable
    ('ExpBackward0', tensor([1., 1.], requires_grad=True))
    """

    def __init__(self, place: Entry | Leaf) -> None:
        self._place = place

    def name(self) -> str:
        """What PyTorch calls it, or would: the op's name and `Backward0`."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        parents: tuple[Any, ...] = getattr(self._place, "parents", ())
        return tuple((None if parent is None else grad_fn(parent), 0) for parent in parents)

    @property
    def variable(self) -> Any:
        if not isinstance(self._place, Leaf):
            raise AttributeError(f"{self.name()!r} has no attribute 'variable'; only leaves have")
        return self._place.cell()

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other._place is self._place

    def __hash__(self) -> int:
        return id(self._place)


# What PyTorch calls ops that have another name here.
_TORCH_NAMES = {
    "batch_norm_train": "native_batch_norm", "cast": "to_copy", "integer_pow": "pow", "layer_norm": "native_layer_norm",
    "reduce_logsumexp": "logsumexp", "reduce_norm": "linalg_vector_norm", "reduce_prod": "prod", "reduce_std": "std",
    "reduce_sum": "sum", "reduce_var": "var", "reshape": "view", "running_sum": "cumsum", "square": "pow",
    "true_divide": "div",
}  # fmt: skip


def _torch_name(place: Entry) -> str:
    """The name of an entry of the tape in PyTorch's manner."""
    if isinstance(place, Part):
        return _torch_name(place.parents[0])  # type: ignore[arg-type]
    if isinstance(place, Joint):
        return f"{place.name}Backward"
    words = _TORCH_NAMES.get(place.op.name, place.op.name)
    if words == "matmul":
        words = "mm" if all(len(meta.shape) == 2 for meta in place.metas) else "bmm"
    elif words == "linear":
        words = "addmm" if len(place.metas) == 3 else "mm"
    return "".join(word.capitalize() for word in words.split("_")) + "Backward0"


@functools.cache
def _named(name: str) -> type[GradFn]:
    return type(name, (GradFn,), {})  # programs ask for type(fn).__name__


def grad_fn(place: Entry | Leaf) -> GradFn:
    """What stands for a place on the tape."""
    if isinstance(place, Leaf):
        return _named("AccumulateGrad")(place)
    return _named(_torch_name(place))(place)
