"""Layers that learn the size of their input from the first one they see: LazyLinear(8) becomes Linear(n, 8).

Until then such a layer has no parameters: call the model once before an optimiser is made.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyflame.core.errors import ShapeError
from pyflame.nn import conv, linear, norm
from pyflame.nn.module import Module


class LazyModule(Module):
    """Base of the layers below. `becomes`: the class it turns into; `axis`: of the input, that has the size."""

    becomes: ClassVar[type[Module]]
    axis: ClassVar[int] = 1
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._given = args, kwargs

    def has_uninitialized_params(self) -> bool:
        """Whether it has seen no input yet."""
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = args[0] if args else kwargs["input"]
        if found.ndim <= self.axis:
            raise ShapeError(
                f"[{type(self).__name__}] expected an input with more than {self.axis} axes but got {found.shape}"
            )
        self._become(found.shape[self.axis])
        return self(*args, **kwargs)

    def _become(self, size: int) -> None:
        """Turn into the layer itself, with this size, in the mode and with the hooks that it has."""
        args, kwargs = self.__dict__.pop("_given")
        kept = {name: self.__dict__[name] for name in ("_training", "_forward_hooks", "_forward_pre_hooks")}
        kind: Any = self.becomes
        usual = self.defaults
        self.__class__ = kind
        kind.__init__(self, size, *args, **{**usual, **kwargs})
        self.__dict__.update(kept)


class LazyLinear(LazyModule):
    """Linear whose in_features come from the first input.

    >>> layer = nn.LazyLinear(3)
    >>> layer(pf.ones(2, 5)).shape, layer
    ((2, 3), Linear(in_features=5, out_features=3, bias=True))
    """

    becomes = linear.Linear
    axis = -1


def _lazy(kind: type[Module], example: str, shape: str, **defaults: Any) -> type[LazyModule]:
    name = f"Lazy{kind.__name__}"
    text = f"""{kind.__name__} whose number of input channels comes from the first input.

    >>> nn.{name}{example}.shape
    {shape}
    """
    return type(name, (LazyModule,), {"becomes": kind, "defaults": defaults, "__doc__": text, "__module__": __name__})


LazyConv1d = _lazy(conv.Conv1d, "(3, 2)(pf.ones(1, 4, 5))", "(1, 3, 4)")
LazyConv2d = _lazy(conv.Conv2d, "(3, 2)(pf.ones(1, 4, 5, 5))", "(1, 3, 4, 4)")
LazyConv3d = _lazy(conv.Conv3d, "(3, 2)(pf.ones(1, 4, 5, 5, 5))", "(1, 3, 4, 4, 4)")
LazyConvTranspose1d = _lazy(conv.ConvTranspose1d, "(3, 2)(pf.ones(1, 4, 5))", "(1, 3, 6)")
LazyConvTranspose2d = _lazy(conv.ConvTranspose2d, "(3, 2)(pf.ones(1, 4, 5, 5))", "(1, 3, 6, 6)")
LazyConvTranspose3d = _lazy(conv.ConvTranspose3d, "(3, 2)(pf.ones(1, 4, 5, 5, 5))", "(1, 3, 6, 6, 6)")
LazyBatchNorm1d = _lazy(norm.BatchNorm1d, "()(pf.ones(2, 4))", "(2, 4)")
LazyBatchNorm2d = _lazy(norm.BatchNorm2d, "()(pf.ones(2, 4, 5, 5))", "(2, 4, 5, 5)")
LazyBatchNorm3d = _lazy(norm.BatchNorm3d, "()(pf.ones(2, 4, 2, 2, 2))", "(2, 4, 2, 2, 2)")
# unlike instance norms that are not lazy, PyTorch's lazy ones learn and track by default
_LEARNS = dict(affine=True, track_running_stats=True)
LazyInstanceNorm1d = _lazy(norm.InstanceNorm1d, "()(pf.ones(2, 4, 5))", "(2, 4, 5)", **_LEARNS)
LazyInstanceNorm2d = _lazy(norm.InstanceNorm2d, "()(pf.ones(2, 4, 5, 5))", "(2, 4, 5, 5)", **_LEARNS)
LazyInstanceNorm3d = _lazy(norm.InstanceNorm3d, "()(pf.ones(2, 4, 2, 2, 2))", "(2, 4, 2, 2, 2)", **_LEARNS)
