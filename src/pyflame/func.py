"""torch.func by its path: functions made of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyflame.nn.functional_call import functional_call, stack_module_state
from pyflame.transform import grad, value_and_grad
from pyflame.transform.jacobians import hessian, jacfwd, jacrev, jvp, linearize, vjp
from pyflame.transform.vmap import vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
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
