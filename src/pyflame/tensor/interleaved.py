"""Encoded weights in the order that the CPU of this machine multiplies with fastest: a copy beside the weight."""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.core.device import CPU
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.interleaving import interleaved
from pyflame.engine.devices import get_device
from pyflame.kernels.encoded import lanes
from pyflame.tensor.creation import from_numpy
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.encoded import EncodedTensor
from pyflame.tensor.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Interleaved:
    """The bytes of a weight (outputs, width), `lines` rows together: see core/interleaving.py."""

    data: Tensor
    encoding: str
    lines: int
    outputs: int
    width: int

    def linear(self, x: Tensor, bias: Tensor | None = None, activation_bits: int = 16) -> Tensor:
        """x @ W.T + bias"""
        sizes = {"width": self.width, "lines": self.lines, "outputs": self.outputs}
        options = {"encoding": self.encoding, "activation_bits": activation_bits, **sizes}
        return FUNCTIONS["interleaved_linear"](x, self.data, bias, **options)  # type: ignore[no-any-return]


def interleave(weight: EncodedTensor) -> Interleaved:
    """The weight for products on this machine's CPU. It is computed on the host, in one pass over the bytes.

    >>> interleave(pf.quantize(pf.ones(5, 32), "q4_0")).outputs
    5
    """
    kind = weight.encoding
    if weight.ndim != 2:
        raise ShapeError(f"[interleave] expected a weight (out, width) but got shape {weight.shape}")
    if not kind.interleaves:
        raise ArgumentError(f"[interleave] expected an encoding that can be interleaved but got {kind.name}")
    lines = lanes(get_device(CPU).target)
    data = from_numpy(interleaved(weight.data.numpy(), kind, lines))
    return Interleaved(data, kind.name, lines, *weight.shape)
