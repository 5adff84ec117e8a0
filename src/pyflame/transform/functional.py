"""torch.autograd.functional: products with Jacobians and Hessians of a function at a point.

`pf.func` has the same as functions of functions. Here each call runs the function once, and all rows of a Jacobian are
one graph, so `vectorize` changes nothing. Forward mode comes from two backward passes, as in jacobians.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    GradientError,
    NotSupportedError,
    ShapeError,
    type_name,
)
from pyflame.core.state import mode
from pyflame.tensor import Tensor
from pyflame.tensor.creation import zeros_like
from pyflame.tensor.gradients import grad_of
from pyflame.transform.jacobians import _joined, _moved, _one_by_one

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = Tensor | tuple[Tensor, ...]
_Found = Sequence[Tensor | None]


@dataclass(frozen=True)
class _Call:
    """One call of a function on the tape, and how its caller wants to see results."""

    op: str
    inputs: list[Tensor]
    many_inputs: bool
    outputs: list[Tensor]
    many_outputs: bool
    create_graph: bool
    strict: bool

    def seen(self, tensors: Sequence[Tensor], many: bool) -> Any:
        """Tensors on the tape only with create_graph; a single one where a single one was given."""
        out = tuple(t if self.create_graph else t.detach() for t in tensors)
        return out if many else out[0]

    def filled(self, found: _Found, like: Sequence[Tensor], what: str) -> list[Tensor]:
        """Zeros for what does not depend on the inputs, which is an error if strict."""
        if self.strict:
            for i, g in enumerate(found):
                if g is None or (self.create_graph and not g.requires_grad):
                    raise self.independent(f"the {what}", i)
        return [zeros_like(t) if g is None else g for g, t in zip(found, like, strict=True)]

    def depend(self, found: _Found, what: str) -> None:
        """Raise, if strict, for a result that has no gradient."""
        for i, g in enumerate(found):
            if self.strict and (g is None or not g.requires_grad):
                raise self.independent(what, i)

    def independent(self, what: str, i: int) -> GradientError:
        return GradientError(
            f"[{self.op}] expected {what} to depend on the inputs, since strict, but number {i} does not; pass "
            "strict=False to take zeros for it"
        )


def _tensors(op: str, what: str, given: Any) -> tuple[bool, list[Tensor]]:
    """Whether it is a tuple, and the tensors."""
    many = isinstance(given, tuple)
    for t in given if many else (given,):
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"[{op}] expected a tensor or a tuple of tensors as {what} but got {type_name(t)}")
    return many, list(given) if many else [given]


def _fresh(t: Tensor, create_graph: bool, needed: bool) -> Tensor:
    """A tensor that stands for another: connected to it with create_graph, a leaf of its own without."""
    return t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_(needed)


def _called(op: str, func: Callable[..., Any], inputs: Any, create_graph: bool, strict: bool) -> _Call:
    many, given = _tensors(op, "inputs", inputs)
    fresh = [_fresh(t, create_graph, True) for t in given]
    many_outputs, outputs = _tensors(op, "results of the function", func(*fresh))
    call = _Call(op, fresh, many, outputs, many_outputs, create_graph, strict)
    call.depend(outputs, "all results")
    return call


def _one_number(call: _Call) -> None:
    if call.many_outputs or call.outputs[0].numel() != 1:
        raise GradientError(
            f"[{call.op}] expected a function that gives one tensor of one element but got "
            f"{[t.shape for t in call.outputs]}"
        )


def _vector(call: _Call, v: Any, like: Sequence[Tensor], what: str) -> list[Tensor | None]:
    """The tensors that a product is taken with; none is needed where there is one number."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradientError(
                f"[{call.op}] expected a v of the shapes of the {what}, since there is more than one number"
            )
        return [None]
    given = [_fresh(t, call.create_graph, False) for t in _tensors(call.op, "v", v)[1]]
    if [t.shape for t in given] != [t.shape for t in like]:
        raise ShapeError(
            f"[{call.op}] expected a v of the shapes {[t.shape for t in like]}, as the {what}, but got "
            f"{[t.shape for t in given]}"
        )
    return list(given)


def _pull(
    outputs: _Found, inputs: Sequence[Tensor], seeds: _Found, create_graph: bool, retain: bool | None = None
) -> _Found:
    """Gradients of outputs, weighted with seeds; None where there is none."""
    used = [(out, s) for out, s in zip(outputs, seeds, strict=True) if out is not None and out.requires_grad]
    if not used:
        return [None] * len(inputs)
    weights = [s for _, s in used]
    return grad_of([out for out, _ in used], inputs, weights, retain, create_graph, allow_unused=True)


def vjp(
    func: Callable[..., Any],
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func's results, and v times its Jacobian. v may be left out where the result is one number.

    >>> pf.autograd.functional.vjp(pf.sin, pf.tensor([0.0, 1.0]), pf.ones(2))
    (tensor([0.0000, 0.8415]), tensor([1.0000, 0.5403]))
    """
    with mode(grad_enabled=True):
        call = _called("vjp", func, inputs, create_graph, strict)
        found = _pull(call.outputs, call.inputs, _vector(call, v, call.outputs, "results"), create_graph)
        product = call.filled(found, call.inputs, "Jacobian")
        return call.seen(call.outputs, call.many_outputs), call.seen(product, call.many_inputs)


def jvp(
    func: Callable[..., Any],
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func's results, and its Jacobian times v. v may be left out where the input is one number.

    >>> pf.autograd.functional.jvp(pf.sin, pf.tensor([0.0, 1.0]), pf.ones(2))
    (tensor([0.0000, 0.8415]), tensor([1.0000, 0.5403]))
    """
    with mode(grad_enabled=True):
        call = _called("jvp", func, inputs, create_graph, strict)
        vector = _vector(call, v, call.inputs, "inputs")
        product = call.filled(_push(call, call.outputs, vector), call.outputs, "Jacobian")
        return call.seen(call.outputs, call.many_outputs), call.seen(product, call.many_outputs)


def _push(call: _Call, outputs: Sequence[Tensor], vector: _Found) -> _Found:
    """J v: the backward pass is linear in its seeds, and its gradient with respect to them, weighted with v, is J v."""
    seeds = [zeros_like(out).requires_grad_() for out in outputs]
    pulled = _pull(outputs, call.inputs, seeds, True)
    call.depend(pulled, "all gradients")
    return _pull(pulled, seeds, vector, call.create_graph)


def jacobian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """func's Jacobian: for each result and each input a tensor with the axes of the one, then of the other.

    A function with more results than inputs is faster with strategy="forward-mode".

    >>> pf.autograd.functional.jacobian(pf.sin, pf.tensor([0.0, 1.0]))
    tensor([[1.0000, 0.0000],
            [0.0000, 0.5403]])
    """
    _check_strategy("jacobian", strategy, strict)
    with mode(grad_enabled=True):
        call = _called("jacobian", func, inputs, create_graph, strict)
        table = _rows(call) if strategy == "reverse-mode" else _columns(call)
        rows = tuple(call.seen(row, call.many_inputs) for row in table)
        return rows if call.many_outputs else rows[0]


def _check_strategy(op: str, strategy: str, strict: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError(f"[{op}] expected the strategy 'reverse-mode' or 'forward-mode' but got {strategy!r}")
    if strict and strategy == "forward-mode":
        raise NotSupportedError(f"[{op}] expected strict=False with forward mode; use strategy='reverse-mode'")


def _rows(call: _Call) -> list[list[Tensor]]:
    """[result][input], from a backward pass for each element of the results."""
    table = []
    for out in call.outputs:
        rows = []
        for (seed,) in _one_by_one([out], 0):
            found = _pull([out], call.inputs, [seed], call.create_graph, retain=True)
            rows.append(call.filled(found, call.inputs, "Jacobian"))
        table.append([_joined([row[j] for row in rows], t.shape, out) for j, t in enumerate(call.inputs)])
    return table


def _columns(call: _Call) -> list[list[Tensor]]:
    """[result][input], from a product J v for each element of the inputs."""
    seeds = [zeros_like(out).requires_grad_() for out in call.outputs]
    pulled = _pull(call.outputs, call.inputs, seeds, True)
    by_input = []
    for j, t in enumerate(call.inputs):
        columns = []
        for vector in _one_by_one(call.inputs, j):
            found = _pull(pulled, seeds, vector, call.create_graph, retain=True)
            columns.append(call.filled(found, call.outputs, "Jacobian"))
        turned = [_joined([column[i] for column in columns], out.shape, t) for i, out in enumerate(call.outputs)]
        by_input.append([_moved(x, t.ndim) for x in turned])
    return [list(row) for row in zip(*by_input, strict=True)]


def hessian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function that gives one number: for two inputs a tuple of two tuples.

    >>> pf.autograd.functional.hessian(lambda x: (x ** 3).sum(), pf.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    _check_strategy("hessian", outer_jacobian_strategy, strict)
    many, given = _tensors("hessian", "inputs", inputs)

    def gradient(*inner: Tensor) -> tuple[Tensor, ...]:
        call = _called("hessian", func, inner, True, strict)
        _one_number(call)
        found = _pull(call.outputs, call.inputs, [None], True)
        call.depend(found, "all first derivatives")
        return tuple(call.filled(found, call.inputs, "Jacobian"))

    table = jacobian(gradient, tuple(given), create_graph, strict, vectorize, outer_jacobian_strategy)
    return table if many else table[0][0]


def _curved(op: str, func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool) -> tuple[_Call, _Found, _Found]:
    """A call of a function that gives one number, its gradient, and the vector of a product."""
    call = _called(op, func, inputs, create_graph, strict)
    _one_number(call)
    vector = _vector(call, v, call.inputs, "inputs")
    gradient = _pull(call.outputs, call.inputs, [None], True)
    call.depend(gradient, "all first derivatives")
    return call, gradient, vector


def vhp(
    func: Callable[..., Any],
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function that gives one number, and v times its second derivatives.

    >>> pf.autograd.functional.vhp(lambda x: (x ** 3).sum(), pf.tensor([1.0, 2.0]), pf.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with mode(grad_enabled=True):
        call, gradient, vector = _curved("vhp", func, inputs, v, create_graph, strict)
        product = call.filled(_pull(gradient, call.inputs, vector, create_graph), call.inputs, "Hessian")
        return call.seen(call.outputs, call.many_outputs), call.seen(product, call.many_inputs)


def hvp(
    func: Callable[..., Any],
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function that gives one number, and its second derivatives times v. `vhp` costs less.

    >>> pf.autograd.functional.hvp(lambda x: (x ** 3).sum(), pf.tensor([1.0, 2.0]), pf.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with mode(grad_enabled=True):
        call, gradient, vector = _curved("hvp", func, inputs, v, create_graph, strict)
        dense = [zeros_like(t) if g is None else g for g, t in zip(gradient, call.inputs, strict=True)]
        product = call.filled(_push(call, dense, vector), call.inputs, "Hessian")
        return call.seen(call.outputs, call.many_outputs), call.seen(product, call.many_inputs)
