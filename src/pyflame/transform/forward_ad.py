"""torch.autograd.forward_ad: dual numbers, a tensor with the direction in which it changes.

The tape runs backwards only, so a dual tensor is one on the tape whose tangent is remembered, and the tangent of a
result comes from two backward passes (jacobians.py) when `unpack_dual` asks for it. What runs under `no_grad` has none.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from pyflame.core.errors import ArgumentError, DTypeError, GradientError, ShapeError, type_name
from pyflame.core.state import mode
from pyflame.tensor import Tensor
from pyflame.tensor.creation import zeros_like
from pyflame.tensor.gradients import grad_of

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class _Here(threading.local):
    duals: list[tuple[Tensor, Tensor]] | None = None  # dual tensors of the thread's level, with their tangents


_here = _Here()


class UnpackedDualTensor(NamedTuple):
    """What a dual tensor is made of. `tangent` is None where it has none."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begin a level, in which tensors can be dual; gives its number. A thread has one at a time."""
    if _here.duals is not None:
        raise GradientError("[enter_dual_level] expected no level within another but one is open; exit it first")
    _here.duals = []
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level. Its tensors have no tangents any more."""
    if _here.duals is None or level not in (None, 0):
        raise GradientError(f"[exit_dual_level] expected an open level but got {level}; enter_dual_level opens one")
    _here.duals = None


class dual_level:
    """Within a `with` block tensors can be dual.

    >>> from pyflame.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(pf.tensor([0.0, 1.0]), pf.ones(2))
    ...     forward_ad.unpack_dual(x.sin()).tangent.detach()
    tensor([1.0000, 0.5403])
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the same value that changes by `tangent`."""
    if _here.duals is None or level not in (None, 0):
        raise GradientError("[make_dual] expected an open level but there is none; use `with dual_level():`")
    if not isinstance(tensor, Tensor) or not isinstance(tangent, Tensor):
        given = next(v for v in (tensor, tangent) if not isinstance(v, Tensor))
        raise ArgumentError(f"[make_dual] expected tensors but got {type_name(given)}")
    if not tensor.dtype.has_gradient or tangent.dtype is not tensor.dtype:
        raise DTypeError(
            f"[make_dual] expected a floating-point tensor and a tangent of its dtype but got {tensor.dtype.name} and "
            f"{tangent.dtype.name}"
        )
    if tangent.shape != tensor.shape:
        raise ShapeError(f"[make_dual] expected a tangent of shape {tensor.shape} but got {tangent.shape}")
    with mode(grad_enabled=True):
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    _here.duals.append((dual, tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor's value, and how it changes with the dual tensors it was computed from."""
    if not (duals := _here.duals) or not isinstance(tensor, Tensor) or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    with mode(grad_enabled=True):
        seed = zeros_like(tensor).requires_grad_()
        found = grad_of([tensor], [dual for dual, _ in duals], [seed], True, True, allow_unused=True)
        pulled = [(g, tangent) for g, (_, tangent) in zip(found, duals, strict=True) if g is not None]
        if not pulled:
            return UnpackedDualTensor(tensor, None)
        used = [(g, tangent) for g, tangent in pulled if g.requires_grad]
        pushed: Any = [None]
        if used:
            pushed = grad_of([g for g, _ in used], [seed], [t for _, t in used], True, True, allow_unused=True)
    return UnpackedDualTensor(tensor, zeros_like(tensor) if pushed[0] is None else pushed[0])
