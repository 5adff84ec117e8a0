"""Layers whose weight is encoded blocks (core/encoding.py): bytes that are read as they are, and not learned."""

from __future__ import annotations

from pyflame.core.dtype import as_dtype, uint8
from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.errors import ShapeError
from pyflame.nn.embedding import Embedding
from pyflame.nn.linear import Linear
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.creation import zeros
from pyflame.tensor.encoded import EncodedTensor, quantize


class _Encoded(Module):
    """What both layers share: rows of encoded blocks as a buffer, so that a state dict holds the bytes."""

    weight: Tensor

    def __init__(self, rows: int, width: int, encoding: object, device: object, dtype: object) -> None:
        super().__init__()
        self.encoding = encoding_of(encoding, type(self).__name__).name
        self.dtype = as_dtype(dtype if dtype is not None else "float32")
        row_bytes = encoding_of(encoding).row_bytes(width, type(self).__name__)
        self.register_buffer("weight", zeros(rows, row_bytes, dtype=uint8, device=device))

    def _take(self, weight: EncodedTensor) -> None:
        if weight.ndim != 2:
            raise ShapeError(f"[{type(self).__name__}] expected a weight (rows, width) but got shape {weight.shape}")
        self.weight = weight.data

    def encoded(self) -> EncodedTensor:
        """The weight as an EncodedTensor, over the same bytes."""
        return EncodedTensor(self.weight, self.encoding, self.dtype)


class EncodedLinear(_Encoded):
    """y = x W^T + b over the last axis, with W encoded. Gradients go to x and b. A new one is 0: load or take a weight.

    `activation_bits` says how many bits of x count, 8, 16 or 32: see `pf.encoded_linear`.

    >>> layer = nn.EncodedLinear.from_linear(nn.Linear(64, 8), "q8_0")
    >>> layer(pf.ones(3, 64)).shape, layer.weight.shape
    ((3, 8), (8, 68))
    """

    bias: Parameter | None
    activation_bits: int = 16

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        encoding: object = "q8_0",
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__(out_features, in_features, encoding, device, dtype)
        self.in_features, self.out_features = in_features, out_features
        self.register_parameter("bias", None)
        if bias:
            self.bias = Parameter(zeros(out_features, dtype=self.dtype, device=device))

    @classmethod
    def from_encoded(cls, weight: EncodedTensor, bias: Tensor | None = None) -> EncodedLinear:
        """A layer over a weight (out, in), whose bytes are shared."""
        layer = cls(0, 0, False, weight.encoding, dtype=weight.dtype)
        layer._take(weight)
        layer.out_features, layer.in_features = weight.shape
        if bias is not None:
            if bias.shape != (layer.out_features,):
                raise ShapeError(f"[EncodedLinear] expected a bias ({layer.out_features},) but got {bias.shape}")
            layer.bias = Parameter(bias.detach(), requires_grad=bias.requires_grad)
        return layer

    @classmethod
    def from_linear(cls, layer: Linear, encoding: object) -> EncodedLinear:
        """The layer with its weight quantised."""
        return cls.from_encoded(quantize(layer.weight, encoding), layer.bias)

    def forward(self, input: Tensor) -> Tensor:
        bias: Tensor | None = self.bias
        if bias is not None and bias.dtype is not input.dtype:
            bias = bias.to(input.dtype)
        options = {"encoding": self.encoding, "width": self.in_features, "activation_bits": self.activation_bits}
        return F["encoded_linear"](input, self.weight, bias, **options)

    def extra_repr(self) -> str:
        shown = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{shown}, encoding={self.encoding}"


class EncodedEmbedding(_Encoded):
    """Rows of an encoded table at indices: (...) -> (..., embedding_dim). Only the rows that are asked for are decoded.

    >>> nn.EncodedEmbedding.from_embedding(nn.Embedding(10, 32), "q4_0")(pf.tensor([[1, 2, 3]])).shape
    (1, 3, 32)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        encoding: object = "q8_0",
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, encoding, device, dtype)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim

    @classmethod
    def from_encoded(cls, weight: EncodedTensor) -> EncodedEmbedding:
        """A layer over a table (rows, width), whose bytes are shared."""
        layer = cls(0, 0, weight.encoding, dtype=weight.dtype)
        layer._take(weight)
        layer.num_embeddings, layer.embedding_dim = weight.shape
        return layer

    @classmethod
    def from_embedding(cls, layer: Embedding, encoding: object) -> EncodedEmbedding:
        """The layer with its table quantised."""
        return cls.from_encoded(quantize(layer.weight, encoding))

    def forward(self, input: Tensor) -> Tensor:
        rows = F["embedding"](self.weight, input)
        return F["dequantize"](rows, encoding=self.encoding, dtype=self.dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, encoding={self.encoding}"
