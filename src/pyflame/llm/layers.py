"""The layers of a decoder, made of a checkpoint's weights: linear, embedding and norm.

`Weights` hands tensors out by GGUF's names, checks their shapes, and knows in the end which were left over. A matrix is
a Tensor, or an EncodedTensor whose blocks are decoded where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pyflame.core.device import parse_device
from pyflame.core.dtype import DType, float32
from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.errors import FileFormatError
from pyflame.core.state import state
from pyflame.llm.config import ModelConfig
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.encoded import EncodedTensor
from pyflame.tensor.interleaved import Interleaved, interleave

Weight = Tensor | EncodedTensor


class Weights:
    """A checkpoint's tensors by GGUF's names. `read` gives one, placed on the model's device."""

    def __init__(
        self,
        names: Collection[str],
        read: Callable[[str], Weight],
        dtype: DType = float32,
        activation_bits: int = 16,
        interleave: bool = True,
    ) -> None:
        self.names = frozenset(names)
        self.read = read
        self.dtype, self.activation_bits, self.interleave = dtype, activation_bits, interleave
        self.taken: set[str] = set()

    def take(self, name: str, *shape: int) -> Weight:
        """The tensor of this name, which must have this shape."""
        if name not in self.names:
            raise FileFormatError(f"[load] expected a tensor {name} of shape {shape} but the checkpoint has none")
        weight = self.read(name)
        if isinstance(weight, Tensor) and tuple(weight.shape) == (1, *shape):  # a row, as some converters write vectors
            weight = weight[0]
        if tuple(weight.shape) != shape:
            raise FileFormatError(f"[load] expected {name} to have shape {shape} but got {tuple(weight.shape)}")
        self.taken.add(name)
        return weight

    def parameter(self, name: str, *shape: int) -> Parameter:
        """As `take`, as plain numbers."""
        weight = self.take(name, *shape)
        plain = weight.dequantize(self.dtype) if isinstance(weight, EncodedTensor) else weight.to(self.dtype)
        return Parameter(plain, requires_grad=False)

    def left_over(self) -> list[str]:
        """What the model had no use for."""
        return sorted(self.names - self.taken)


def interleaved_bytes(encoding: str | None, activation_bits: int, weight: Tensor) -> int:
    """What a copy of this weight for products in integers on a CPU takes; 0: there is none."""
    on_host = parse_device(weight.device).kind == "cpu"
    if (
        encoding is None
        or activation_bits > 16
        or weight.ndim != 2
        or not on_host
        or not encoding_of(encoding).interleaves
    ):
        return 0
    return weight.nbytes


class Matrix(Module):
    """A layer whose weight is a parameter, or bytes of an encoding."""

    def __init__(self, weights: Weights, name: str, *shape: int, bias: bool = False) -> None:
        super().__init__()
        weight = weights.take(f"{name}.weight", *shape)
        self.encoding: str | None = None
        self.dtype, self.activation_bits = weights.dtype, weights.activation_bits
        if isinstance(weight, EncodedTensor):
            self.encoding = weight.encoding.name
            self.register_buffer("weight", weight.data)
        else:
            self.weight = Parameter(weight.to(weights.dtype), requires_grad=False)
        self.bias = weights.parameter(f"{name}.bias", *shape[:-1]) if bias else None
        self.inputs = shape[-1]
        self.may_interleave = weights.interleave
        self._interleaved: tuple[Interleaved, Any] | None = None  # with the node of its weight

    @property
    def interleaved(self) -> Interleaved | None:
        """The copy that `interleave` made, unless the layer has another weight since."""
        kept = self._interleaved
        if kept is None:
            return None
        weight = self._buffers["weight"]  # not self.weight, which takes 2 us: every step asks every layer
        return kept[0] if weight is not None and kept[1] is weight._node else None

    def interleave(self) -> None:
        """On a CPU, keep a copy of the weight in the order that products are fastest with; once for a weight."""
        if self.interleaved is None:
            wanted = self.may_interleave and interleaved_bytes(self.encoding, self.activation_bits, self.weight) > 0
            encoded = EncodedTensor(self.weight, self.encoding) if wanted else None
            self._interleaved = None if encoded is None else (interleave(encoded), self.weight._node)

    def decoded(self, lines: Tensor) -> Tensor:
        """What these lines of the weight stand for."""
        return lines if self.encoding is None else F["dequantize"](lines, encoding=self.encoding, dtype=self.dtype)

    def product(self, x: Tensor) -> Tensor:
        """x W^T + b"""
        if state.tracer is not None:
            state.tracer.guard(self, "interleaved")  # another copy, another plan
        copy = self.interleaved
        if copy is not None:
            return copy.linear(x, self.bias, self.activation_bits)
        return self.multiply(x, self.weight, self.bias)

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """As `product`, with a weight of the same kind."""
        if self.encoding is None:
            return F["linear"](x, weight, bias)
        kind = {"encoding": self.encoding, "width": self.inputs, "activation_bits": self.activation_bits}
        return F["encoded_linear"](x, weight, bias, **kind)


class Linear(Matrix):
    """y = x W^T + b, and what a low-rank adapter (lora.py) adds to that."""

    def __init__(self, weights: Weights, name: str, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(weights, name, outputs, inputs, bias=bias)
        self.lora: Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.product(x)
        return y if self.lora is None else self.lora(x, y)


class Embedding(Matrix):
    """Rows of a table; its `product` makes logits, where the head is tied. `own`: the ids whose rows it has; others
    give zeros, so that the sum over all devices is the row."""

    def __init__(self, weights: Weights, name: str, count: int, width: int, own: tuple[int, int] | None = None) -> None:
        first, end = own or (0, count)
        super().__init__(weights, name, end - first, width)
        self.first, self.is_part = first, own is not None

    def forward(self, ids: Tensor) -> Tensor:
        if not self.is_part:
            return self._rows(ids)
        row = ids - self.first
        here = (row >= 0) & (row < self.weight.shape[0])
        return self._rows(row * here).masked_fill(~here.unsqueeze(-1), 0.0)

    def _rows(self, ids: Tensor) -> Tensor:
        if self.encoding is None:
            return F["embedding"](self.weight, ids)
        rows = self.weight.index_select(0, ids.reshape(-1))
        return self.decoded(rows).reshape(*ids.shape, self.inputs)


class StackedLinear(Matrix):
    """Linear layers of one shape, stacked: weight (count, outputs, inputs)."""

    def __init__(self, weights: Weights, name: str, count: int, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__(weights, name, count, outputs, inputs, bias=bias)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """(N, inputs) or (N, used, inputs) -> (N, used, outputs): line n, or each of its parts, by the layers ids[n]"""
        return F["expert_linear"](
            x, self.weight, ids, self.bias, encoding=self.encoding, activation_bits=self.activation_bits
        )


class Norm(Module):
    """The config's norm over the last axis, with weights (size), or (heads, size) for inputs (.., heads, size)."""

    def __init__(self, weights: Weights, name: str, config: ModelConfig, *shape: int, bias: bool | None = None) -> None:
        super().__init__()
        self.kind, self.eps = config.norm, config.norm_eps
        shape = shape or (config.width,)
        self.weight = weights.parameter(f"{name}.weight", *shape)
        biased = config.norm_bias if bias is None else bias
        self.bias = weights.parameter(f"{name}.bias", *shape) if biased else None

    def forward(self, x: Tensor) -> Tensor:
        size = (x.shape[-1],)
        affine = self.weight.ndim == 1
        weight, bias = (self.weight, self.bias) if affine else (None, None)
        if self.kind == "rms":
            y = F["rms_norm"](x, size, weight, self.eps)
        else:
            y = F["layer_norm"](x, size, weight, bias, self.eps)
        if not affine:
            y = y * self.weight if self.bias is None else y * self.weight + self.bias
        return y


class Numbers(Module):
    """Numbers that are used as they are, stored as `weight` or as `bias`."""

    def __init__(self, weights: Weights, name: str, *shape: int) -> None:
        super().__init__()
        self.kind = "weight" if f"{name}.weight" in weights.names else "bias"
        setattr(self, self.kind, weights.parameter(f"{name}.{self.kind}", *shape))

    def forward(self) -> Tensor:
        return getattr(self, self.kind)  # type: ignore[no-any-return]


class Part:
    """A part of a block, such as its attention. Its layers are the block's own, so that names stay GGUF's."""

    def __init__(self, block: Module, weights: Weights, layer: int) -> None:
        self.block, self.weights, self.prefix = block, weights, f"blk.{layer}."
        self.layers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        layers = self.__dict__.get("layers", {})
        if name not in layers:
            raise AttributeError(f"{type(self).__name__} has no layer {name!r}")
        return layers[name]

    def add(self, name: str, layer: Module) -> None:
        """Make this layer one of the part's and a child of the block."""
        self.layers[name] = layer
        self.block.add_module(name, layer)

    def linear(self, name: str, inputs: int, outputs: int, bias: bool = False) -> None:
        self.add(name, Linear(self.weights, self.prefix + name, inputs, outputs, bias))

    def norm(self, name: str, config: ModelConfig, *shape: int) -> None:
        """A norm inside of attention: without a bias."""
        self.add(name, Norm(self.weights, self.prefix + name, config, *shape, bias=False))

    def numbers(self, name: str, *shape: int) -> None:
        self.add(name, Numbers(self.weights, self.prefix + name, *shape))
