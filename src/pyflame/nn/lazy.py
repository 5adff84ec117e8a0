"""Layers that learn the size of their input from the first one they see: LazyLinear(8) becomes Linear(n, 8).

Until then their parameters are uninitialised ones, which keep their identity: make an optimiser after the
first call.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn import conv, linear, norm
from pyflame.nn.module import Module
from pyflame.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.random import get_rng_state, set_rng_state


class LazyModuleMixin:
    """Makes a layer lazy: `class LazyScale(LazyModuleMixin, Scale)` with parameters that are uninitialised.

    Before the first forward `initialize_parameters` is called with its arguments and gives them shapes; then the module
    becomes one of `cls_to_become`.

    >>> class LazyScale(nn.modules.lazy.LazyModuleMixin, nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = nn.UninitializedParameter()
    ...     def initialize_parameters(self, x):
    ...         self.scale.materialize(x.shape[-1:])
    ...         nn.init.ones_(self.scale)
    ...     def forward(self, x):
    ...         return x * self.scale
    >>> LazyScale()(pf.ones(3))
    tensor([1., 1., 1.], grad_fn=<MulBackward0>)
    """

    cls_to_become: ClassVar[type[Module] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(  # type: ignore[attr-defined]
            type(self)._infer_parameters, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialise the parameters for these arguments of forward. Every lazy module defines its own."""
        raise NotImplementedError(f"[initialize_parameters] expected {type(self).__name__} to define it")

    def has_uninitialized_params(self) -> bool:
        """Whether it has parameters or buffers without a shape."""
        own: Any = self
        return any(is_lazy(cell) for cell in (*own._parameters.values(), *own._buffers.values()))

    def _infer_parameters(self, args: Any, kwargs: Any = None) -> None:
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise ArgumentError(
                f"[{type(self).__name__}] expected initialize_parameters to materialise all parameters but some have "
                "no shape yet"
            )
        self._initialize_hook.remove()
        del self._initialize_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]


class _Lazy(LazyModuleMixin):
    """What the layers below have in common. `axis`: of the input, that has the size; `size_name`: what it is called."""

    axis: ClassVar[int] = 1
    size_name: ClassVar[str] = "in_channels"
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs = {**self.defaults, **kwargs}
        kind: Any = self.cls_to_become
        given = inspect.signature(kind).bind(0, *args, **kwargs).arguments
        before = get_rng_state()
        super().__init__(given.get("groups", 1), *args, **kwargs)  # any size that it takes, for all but the parameters
        set_rng_state(before)
        self._given = args, kwargs
        setattr(self, self.size_name, 0)
        own: Any = self
        for group, lazy in ((own._parameters, UninitializedParameter), (own._buffers, UninitializedBuffer)):
            for name, cell in group.items():
                if cell is not None and cell.ndim:  # the number of batches seen has its shape
                    group[name] = lazy(cell.requires_grad, given.get("device"), cell.dtype)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Give parameters the shapes for this input, and their first values."""
        if input.ndim <= self.axis:
            raise ShapeError(
                f"[{type(self).__name__}] expected an input with more than {self.axis} axes but got {input.shape}"
            )
        size = input.shape[self.axis]
        if self.has_uninitialized_params():
            positional, named = self._given
            kind: Any = self.cls_to_become
            own, made = self.__dict__, kind(size, *positional, **named).__dict__
            for group in ("_parameters", "_buffers"):
                for name, cell in own[group].items():
                    if is_lazy(cell):
                        cell.materialize(made[group][name].shape)
                        with no_grad():
                            cell.copy_(made[group][name])
        del self._given
        setattr(self, self.size_name, size)


class LazyLinear(_Lazy, linear.Linear):
    """Linear whose in_features come from the first input.

    >>> layer = nn.LazyLinear(3)
    >>> layer(pf.ones(2, 5)).shape, layer
    ((2, 3), Linear(in_features=5, out_features=3, bias=True))
    """

    cls_to_become = linear.Linear
    axis = -1
    size_name = "in_features"


def _lazy(
    kind: type[Module], example: str, shape: str, size_name: str = "in_channels", **defaults: Any
) -> type[Module]:
    name = f"Lazy{kind.__name__}"
    text = f"""{kind.__name__} whose number of input channels comes from the first input.

    >>> nn.{name}{example}.shape
    {shape}
    """
    own = {"cls_to_become": kind, "size_name": size_name, "defaults": defaults}
    return type(name, (_Lazy, kind), {**own, "__doc__": text, "__module__": __name__})


LazyConv1d = _lazy(conv.Conv1d, "(3, 2)(pf.ones(1, 4, 5))", "(1, 3, 4)")
LazyConv2d = _lazy(conv.Conv2d, "(3, 2)(pf.ones(1, 4, 5, 5))", "(1, 3, 4, 4)")
LazyConv3d = _lazy(conv.Conv3d, "(3, 2)(pf.ones(1, 4, 5, 5, 5))", "(1, 3, 4, 4, 4)")
LazyConvTranspose1d = _lazy(conv.ConvTranspose1d, "(3, 2)(pf.ones(1, 4, 5))", "(1, 3, 6)")
LazyConvTranspose2d = _lazy(conv.ConvTranspose2d, "(3, 2)(pf.ones(1, 4, 5, 5))", "(1, 3, 6, 6)")
LazyConvTranspose3d = _lazy(conv.ConvTranspose3d, "(3, 2)(pf.ones(1, 4, 5, 5, 5))", "(1, 3, 6, 6, 6)")
LazyBatchNorm1d = _lazy(norm.BatchNorm1d, "()(pf.ones(2, 4))", "(2, 4)", "num_features")
LazyBatchNorm2d = _lazy(norm.BatchNorm2d, "()(pf.ones(2, 4, 5, 5))", "(2, 4, 5, 5)", "num_features")
LazyBatchNorm3d = _lazy(norm.BatchNorm3d, "()(pf.ones(2, 4, 2, 2, 2))", "(2, 4, 2, 2, 2)", "num_features")
# unlike instance norms that are not lazy, PyTorch's lazy ones learn and track by default
_LEARNS: dict[str, Any] = dict(size_name="num_features", affine=True, track_running_stats=True)
LazyInstanceNorm1d = _lazy(norm.InstanceNorm1d, "()(pf.ones(2, 4, 5))", "(2, 4, 5)", **_LEARNS)
LazyInstanceNorm2d = _lazy(norm.InstanceNorm2d, "()(pf.ones(2, 4, 5, 5))", "(2, 4, 5, 5)", **_LEARNS)
LazyInstanceNorm3d = _lazy(norm.InstanceNorm3d, "()(pf.ones(2, 4, 2, 2, 2))", "(2, 4, 2, 2, 2)", **_LEARNS)
