"""Gradients of jitted functions: results of a replay get a place on the tape, and the backward pass computes the
function again, recorded op by op, from the same arguments. A replay that nobody asks for gradients costs nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyflame.autograd import Leaf
from pyflame.core.errors import GradientError
from pyflame.core.state import mode, state
from pyflame.tensor import Tensor
from pyflame.tensor.custom import attach
from pyflame.tensor.gradients import grad_of
from pyflame.transform.replay import Replay
from pyflame.transform.tree import flatten, is_tensor, rebuild

if TYPE_CHECKING:
    from pyflame.transform.jit import Jitted


def with_gradient(jitted: Jitted, traced: Replay, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a replay, on the tape: their gradient goes to arguments and to tensors that the function read."""
    given: list[Tensor] = []
    flatten([args, kwargs], given, is_tensor)
    wanted = [t for t in given if t._entry is not None]
    captured = [cell for cell in traced.cells if isinstance(cell._entry, Leaf)]
    results: list[Tensor] = []
    flatten(out, results, is_tensor)
    live = [r for r, taped in zip(results, traced.taped, strict=True) if taped]

    def backward(*gradients: Tensor) -> list[Tensor | None]:
        if state.grad_enabled:
            raise GradientError(
                "[jit] expected first derivatives of a jitted function but got create_graph=True; call the function "
                "without pf.jit for higher ones"
            )
        # leaves of their own: the walk ends here, and goes on from the tape of the arguments
        fresh = [t.detach().requires_grad_() if t._entry is not None else t for t in given]
        new_args, new_kwargs = rebuild([args, kwargs], is_tensor, iter(fresh))
        with mode(grad_enabled=True):
            again: list[Tensor] = []
            flatten(jitted.fn(*new_args, **new_kwargs), again, is_tensor)
        outputs = [r for r, taped in zip(again, traced.taped, strict=True) if taped]
        inputs = [f for f, t in zip(fresh, given, strict=True) if t._entry is not None] + captured
        return list(grad_of(outputs, inputs, list(gradients), allow_unused=True))

    recorded = iter(attach("jit", live, [*wanted, *captured], backward))
    return rebuild(
        out, is_tensor, iter([next(recorded) if t else r for r, t in zip(results, traced.taped, strict=True)])
    )
