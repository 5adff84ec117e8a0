"""Matrices of one input as rows of one matrix, so that a GPU multiplies once where it would several times."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.core.device import parse_device
from pyflame.llm.layers import Linear
from pyflame.nn.ops import F
from pyflame.nn.parameter import replace
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate


class Joined:
    """The rows of several layers in one tensor. The layers' own weights are parts of it, so it takes no memory."""

    def __init__(self, layers: Sequence[Linear], weight: Tensor, bias: Tensor | None) -> None:
        self.layers, self.weight, self.bias = layers, weight, bias
        self.parts = [layer.weight._node for layer in layers]

    @classmethod
    def of(cls, layers: Sequence[Linear]) -> Joined | None:
        """None where they differ in kind, have adapters, or lie on a CPU, in a mapped file perhaps."""
        kinds = {(n.encoding, n.weight.dtype, n.bias is None, str(n.weight.device), n.activation_bits) for n in layers}
        if (
            len(kinds) > 1
            or any(n.lora is not None for n in layers)
            or parse_device(layers[0].weight.device).kind == "cpu"
        ):
            return None
        with no_grad():
            weight = F["cat"]([n.weight for n in layers])
            biases = [n.bias for n in layers if n.bias is not None]
            bias = F["cat"](biases) if biases else None
            evaluate(weight, bias)
            parts = weight.split([n.weight.shape[0] for n in layers])
            for layer, part in zip(layers, parts, strict=True):
                replace(layer.weight, part)
        return cls(layers, weight, bias)

    def stale(self) -> bool:
        """Whether a layer has another weight since, or an adapter."""
        return any(n.lora is not None or n.weight._node is not p for n, p in zip(self.layers, self.parts, strict=True))

    def products(self, x: Tensor) -> Tensor:
        """The results of all layers, one behind the other."""
        return self.layers[0].multiply(x, self.weight, self.bias)
