"""einops' layers as modules: Rearrange, Reduce and EinMix, found under `einops.layers.pyflame`.

A program that imports them from `einops.layers.torch` needs no change where torch is installed: such a layer becomes
one of these when it is put into a module. Imported when einops is (core/when_imported.py), never before.
"""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.creation import empty, tensor
from pyflame.tensor.dispatch import FUNCTIONS as F


class Rearrange(RearrangeMixin, Module):
    """`einops.rearrange` as a layer.

    >>> Rearrange("b c h w -> b (h w) c")(pf.ones(2, 3, 4, 4)).shape
    (2, 16, 3)
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_recipe(input)  # type: ignore[no-any-return,no-untyped-call]


class Reduce(ReduceMixin, Module):
    """`einops.reduce` as a layer.

    >>> Reduce("b c h w -> b c", "mean")(pf.ones(2, 3, 4, 4)).shape
    (2, 3)
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_recipe(input)  # type: ignore[no-any-return,no-untyped-call]


class EinMix(_EinmixMixin, Module):
    """A linear layer over named axes.

    >>> EinMix("t b i -> t b o", weight_shape="i o", bias_shape="o", i=4, o=6)(pf.ones(5, 2, 4)).shape
    (5, 2, 6)
    """

    def _create_parameters(
        self, weight_shape: list[int], weight_bound: float, bias_shape: list[int] | None, bias_bound: float
    ) -> None:
        def uniform(shape: list[int], bound: float) -> Parameter:
            return Parameter(empty(*shape).uniform_(-bound, bound))

        self.weight = uniform(weight_shape, weight_bound)
        self.bias = None if bias_shape is None else uniform(bias_shape, bias_bound)

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, int] | None,
    ) -> None:
        before, after = pre_reshape_pattern, post_reshape_pattern
        self.pre_rearrange = None if before is None else Rearrange(before, **(pre_reshape_lengths or {}))
        self.post_rearrange = None if after is None else Rearrange(after, **(post_reshape_lengths or {}))

    def forward(self, input: Tensor) -> Tensor:
        x = input if self.pre_rearrange is None else self.pre_rearrange(input)
        out = F["einsum"](self.einsum_pattern, x, self.weight)
        out = out if self.bias is None else out + self.bias
        return out if self.post_rearrange is None else self.post_rearrange(out)  # type: ignore[no-any-return]


def from_torch(layer: Any) -> Module:
    """The same layer as one of ours, with the weights it has."""
    if isinstance(layer, _EinmixMixin):
        made = EinMix(layer.pattern, layer.weight_shape, layer.bias_shape, **layer.axes_lengths)
        weights: Any = layer
        made.load_state_dict({name: tensor(v.detach().numpy()) for name, v in weights.state_dict().items()})
        return made
    if isinstance(layer, ReduceMixin):
        return Reduce(layer.pattern, layer.reduction, **layer.axes_lengths)
    return Rearrange(layer.pattern, **layer.axes_lengths)
