"""torch.func by its path: functions made of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.nn.functional_call import functional_call, stack_module_state
from pyflame.nn.module import Module
from pyflame.nn.norm import _BatchNorm
from pyflame.transform import grad, value_and_grad
from pyflame.transform.jacobians import hessian, jacfwd, jacrev, jvp, linearize, vjp
from pyflame.transform.vmap import vmap

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def grad_and_value(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func` and its value, in this order.

    >>> pf.func.grad_and_value(lambda x: x * x)(pf.tensor(3.0))
    (tensor(6.), tensor(9.))
    """
    both = value_and_grad(func, argnums, has_aux)

    def function(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return function


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function itself: what it writes to its own tensors is no write to memory here, but another value.

    >>> pf.func.functionalize(lambda x: x.clone().add_(1))(pf.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ArgumentError(f"[functionalize] expected 'mutations' or 'mutations_and_views' but got {remove!r}")
    return func


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let all batch norms of a module use the statistics of their batch, and carry none along: vmap cannot write them.

    >>> net = pf.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    >>> list(net.buffers())
    []
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
