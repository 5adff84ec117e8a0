"""Products with Jacobians and Jacobians themselves: vjp, jvp, linearize, jacrev, jacfwd, hessian.

The tape runs backwards only. A product J v of forward mode comes from it too: the backward pass g = u J is linear in u,
and its gradient with respect to u, weighted with v, is J v. A Jacobian is one pass for each of its rows (jacrev) or
columns (jacfwd), all in one graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import ArgumentError, GradientError, ShapeError
from pyflame.core.state import mode
from pyflame.tensor import Tensor
from pyflame.tensor.creation import eye, zeros_like
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import grad_of
from pyflame.transform.grad import called_on, chosen_leaves, described, is_leaf, nested
from pyflame.transform.tree import flatten, is_tensor, rebuild

_Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class _Run:
    """One call of a function on the tape: what it was differentiated by, and what it gave."""

    chosen: Any  # the arguments, in their structure
    inputs: list[Tensor]
    value: Any
    outputs: list[Tensor]
    aux: Any
    outer: bool

    def seen(self, value: Any) -> Any:
        """A value as the caller sees it: on a tape only where there is an outer one."""
        if self.outer:
            return value
        leaves: list[Tensor] = []
        flatten(value, leaves, is_tensor)
        return rebuild(value, is_tensor, iter([t._snapshot() for t in leaves]))

    def pull(self, seeds: _Tensors, create_graph: bool, retain_graph: bool = True) -> list[Tensor]:
        """u J for each input, with u in seeds, one for each output."""
        return _grad(self.outputs, self.inputs, seeds, create_graph, retain_graph)

    def linear(self) -> Callable[[_Tensors], list[Tensor]]:
        """The function v -> J v for each output, with v given for each input."""
        with mode(grad_enabled=True):
            seeds = [zeros_like(out).requires_grad_() for out in self.outputs]
            pulled = self.pull(seeds, create_graph=True)
        return lambda tangents: _grad(pulled, seeds, tangents, self.outer, retain_graph=True)


def _grad(outputs: _Tensors, inputs: _Tensors, seeds: _Tensors, create_graph: bool, retain_graph: bool) -> list[Tensor]:
    used = [(out, seed) for out, seed in zip(outputs, seeds, strict=True) if out.requires_grad]
    if not used:
        return [zeros_like(t) for t in inputs]
    found = grad_of(
        [out for out, _ in used], inputs, [s for _, s in used], retain_graph, create_graph, allow_unused=True
    )
    return [zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]


def _run(
    op: str, fn: Callable[..., Any], args: Sequence[Any], wanted: Sequence[int], kwargs: Any, has_aux: bool
) -> _Run:
    if not callable(fn):
        raise ArgumentError(f"[{op}] expected a function but got {type(fn).__name__}")
    chosen, leaves = chosen_leaves(op, getattr(fn, "__name__", "the function"), args, wanted)
    if not leaves:
        raise ArgumentError(f"[{op}] expected tensors to differentiate by but got none")
    outer = nested(leaves)
    with mode(grad_enabled=True):
        inputs, value = called_on(leaves, fn, args, kwargs, wanted)
    aux = None
    if has_aux:
        if not isinstance(value, tuple) or len(value) != 2:
            raise GradientError(f"[{op}] expected a pair (result, aux) with has_aux but got {described(value)}")
        value, aux = value
    outputs: list[Any] = []
    flatten(value, outputs, lambda v: not isinstance(v, (list, tuple, dict)))
    for out in outputs:
        if not isinstance(out, Tensor):
            raise GradientError(f"[{op}] expected a function that gives tensors but got {described(out)}")
    return _Run(chosen, inputs, value, outputs, aux, outer)


def _seeds(op: str, what: str, given: Any, like: _Tensors) -> list[Tensor]:
    """The tensors of a structure, one for each of others."""
    leaves: list[Tensor] = []
    flatten(given, leaves, is_tensor)
    if [t.shape for t in leaves] != [t.shape for t in like]:
        raise ShapeError(
            f"[{op}] expected {what} of the shapes {[t.shape for t in like]} but got {[t.shape for t in leaves]}"
        )
    return leaves


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """func's results, and a function that gives the gradients of the arguments from those of the results.

    With has_aux func gives a pair, whose second part comes third.

    >>> value, pull = pf.func.vjp(pf.sin, pf.tensor([0.0, 1.0]))
    >>> pull(pf.ones(2))
    (tensor([1.0000, 0.5403]),)
    """
    run = _run("vjp", func, primals, range(len(primals)), {}, has_aux)

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        keep = run.outer or nested(()) if create_graph is None else create_graph
        found = run.pull(_seeds("vjp", "gradients of results", cotangents, run.outputs), keep, retain_graph)
        return tuple(rebuild(run.chosen, is_leaf, iter(found)))

    return (run.seen(run.value), pull, run.seen(run.aux)) if has_aux else (run.seen(run.value), pull)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """func's results, and how they change where the arguments change by tangents.

    >>> pf.func.jvp(pf.sin, (pf.tensor([0.0, 1.0]),), (pf.ones(2),))
    (tensor([0.0000, 0.8415]), tensor([1.0000, 0.5403]))
    """
    run = _checked_run("jvp", func, primals, has_aux)
    found = run.linear()(_seeds("jvp", "tangents", tangents, run.inputs))
    out = run.seen(rebuild(run.value, is_tensor, iter(found)))
    if strict and not all(t.requires_grad for t in run.outputs):
        raise GradientError("[jvp] expected results that depend on the arguments, since strict, but one does not")
    return (run.seen(run.value), out, run.seen(run.aux)) if has_aux else (run.seen(run.value), out)


def _checked_run(op: str, func: Callable[..., Any], primals: Any, has_aux: bool = False) -> _Run:
    if not isinstance(primals, tuple) or not primals:
        raise ArgumentError(f"[{op}] expected a tuple of arguments as primals but got {described(primals)}")
    return _run(op, func, primals, range(len(primals)), {}, has_aux)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """func's results, and the function that gives their changes from those of the arguments.

    >>> value, push = pf.func.linearize(pf.square, pf.tensor([1.0, 2.0]))
    >>> push(pf.ones(2))
    tensor([2., 4.])
    """
    run = _checked_run("linearize", func, primals)
    linear = run.linear()

    def push(*tangents: Any) -> Any:
        found = linear(_seeds("linearize", "tangents", tangents, run.inputs))
        return run.seen(rebuild(run.value, is_tensor, iter(found)))

    return run.seen(run.value), push


def _one_by_one(like: _Tensors, position: int) -> list[list[Tensor]]:
    """For each element of one of the tensors: zeros for all of them, and a one there."""
    at = like[position]
    ones = eye(at.numel(), dtype=at.dtype, device=at.device).reshape(at.numel(), *at.shape)
    rest = [zeros_like(t) for t in like]
    return [[*rest[:position], ones[i], *rest[position + 1 :]] for i in range(at.numel())]


def _joined(parts: list[Tensor], shape: Sequence[int], like: Tensor) -> Tensor:
    """Rows of one shape below each other, as an axis for each of `like`'s."""
    if not parts:
        return zeros_like(like).reshape(*like.shape, *(1,) * len(shape)).expand(*like.shape, *shape).clone()
    stacked: Tensor = FUNCTIONS["stack"](parts)
    return stacked.reshape(*like.shape, *shape)


def _rows(run: _Run) -> list[list[Tensor]]:
    """Jacobians, [output][input], from a backward pass for each element of the outputs."""
    table = []
    for i, out in enumerate(run.outputs):
        rows = [run.pull(seeds, run.outer) for seeds in _one_by_one(run.outputs, i)]
        table.append([_joined([row[j] for row in rows], t.shape, out) for j, t in enumerate(run.inputs)])
    return table


def _columns(run: _Run) -> list[list[Tensor]]:
    """Jacobians, [output][input], from a product J v for each element of the inputs."""
    linear = run.linear()
    by_input = []
    for j, t in enumerate(run.inputs):
        columns = [linear(seeds) for seeds in _one_by_one(run.inputs, j)]
        turned = [_joined([column[i] for column in columns], out.shape, t) for i, out in enumerate(run.outputs)]
        by_input.append([_moved(x, t.ndim) for x in turned])
    return [list(row) for row in zip(*by_input, strict=True)]


def _moved(x: Tensor, count: int) -> Tensor:
    """The first axes, moved to the end."""
    return x.permute(*range(count, x.ndim), *range(count))


def _jacobian(op: str, table: Callable[[_Run], list[list[Tensor]]], func: Any, argnums: Any, has_aux: bool) -> Any:
    single = isinstance(argnums, int)
    wanted: list[int] = [argnums] if single else list(argnums)

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        run = _run(op, func, args, wanted, kwargs, has_aux)
        by_output = []
        for row in table(run):
            parts = rebuild(run.chosen, is_leaf, iter(row))
            by_output.append(parts[0] if single else tuple(parts))
        out = run.seen(rebuild(run.value, is_tensor, iter(by_output)))
        return (out, run.seen(run.aux)) if has_aux else out

    return jacobian


def jacrev(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that gives func's Jacobian: the axes of the result, then those of the argument.

    It takes a backward pass for each element of the result. chunk_size is taken and without effect.

    >>> pf.func.jacrev(pf.sin)(pf.tensor([0.0, 1.0]))
    tensor([[1.0000, 0.0000],
            [0.0000, 0.5403]])
    """
    return _jacobian("jacrev", _rows, func, argnums, has_aux)  # type: ignore[no-any-return]


def jacfwd(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """As jacrev, with a pass for each element of the argument: for functions with more results than arguments.

    >>> pf.func.jacfwd(lambda x: x * pf.tensor([1.0, 2.0, 3.0]))(pf.tensor(2.0))
    tensor([1., 2., 3.])
    """
    return _jacobian("jacfwd", _columns, func, argnums, has_aux)  # type: ignore[no-any-return]


def hessian(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that gives func's second derivatives: the Jacobian of its Jacobian.

    >>> pf.func.hessian(lambda x: (x ** 3).sum())(pf.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
