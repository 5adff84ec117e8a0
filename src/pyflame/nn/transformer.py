"""Transformer layers of "Attention is all you need", with PyTorch's names and options."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pyflame.core.dtype import as_dtype, bool_, float32
from pyflame.core.errors import ArgumentError, ArgumentTypeError, ShapeError, suggest
from pyflame.nn.attention import MultiheadAttention
from pyflame.nn.containers import ModuleList
from pyflame.nn.dropout import Dropout
from pyflame.nn.init import xavier_uniform_
from pyflame.nn.linear import Linear
from pyflame.nn.module import Module
from pyflame.nn.norm import LayerNorm
from pyflame.tensor import Tensor
from pyflame.tensor.creation import ones
from pyflame.tensor.dispatch import FUNCTIONS as F

Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS = ("relu", "gelu")


def _activation(op: str, wanted: Activation) -> Callable[[Tensor], Tensor]:
    if callable(wanted):
        return wanted
    if wanted not in _ACTIVATIONS:
        raise ArgumentError(
            f"[{op}] expected 'relu', 'gelu' or a function as activation but got {wanted!r}"
            f"{suggest(str(wanted), _ACTIVATIONS)}"
        )
    return F[wanted]


class _Layer(Module):
    """What encoder and decoder layers share: self-attention, the two linear layers, and where the norms stand."""

    attentions: tuple[str, ...]  # names of the attention blocks, in their order
    self_attn: MultiheadAttention
    dropout1: Dropout
    dropout2: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = dict(device=device, dtype=dtype)
        for name in self.attentions:
            block = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
            self.register_module(name, block)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        count = len(self.attentions) + 1
        for i in range(1, count + 1):
            self.register_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        for i in range(1, count + 1):
            self.register_module(f"dropout{i}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)

    def _around(self, number: int, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """x + block(x) with the norm of this number, which comes first or last."""
        norm = self._modules[f"norm{number}"]
        assert norm is not None
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    # The blocks have PyTorch's names and arguments: subclasses put their own in their place.

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        out = self.self_attn(x, x, x, key_padding_mask, False, attn_mask, is_causal=is_causal)[0]
        return self.dropout1(out)  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        last = self._modules[f"dropout{len(self.attentions) + 1}"]
        assert last is not None
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # type: ignore[no-any-return]


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a norm.

    `norm_first` puts the norms before the blocks. Masks are those of MultiheadAttention: a boolean one is True where
    attention is not allowed. `activation` is "relu", "gelu" or a function.

    >>> layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    >>> layer(pf.randn(2, 5, 16)).shape
    (2, 5, 16)
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The sequence after one layer, in the shape of `src`."""

        def attend(x: Tensor) -> Tensor:
            return self._sa_block(x, src_mask, src_key_padding_mask, is_causal=is_causal)

        return self._around(2, self._around(1, src, attend), self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output (`memory`) and a feed-forward network.

    >>> layer = nn.TransformerDecoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    >>> layer(pf.randn(2, 3, 16), pf.randn(2, 5, 16), tgt_is_causal=True).shape
    (2, 3, 16)
    """

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The sequence after one layer, in the shape of `tgt`."""

        def attend(x: Tensor) -> Tensor:
            return self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def look_up(x: Tensor) -> Tensor:
            return self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = self._around(2, self._around(1, tgt, attend), look_up)
        return self._around(3, x, self._ff_block)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        out = self.multihead_attn(x, mem, mem, key_padding_mask, False, attn_mask, is_causal=is_causal)[0]
        return self.dropout2(out)  # type: ignore[no-any-return]


class _Stack(Module):
    """Copies of one layer, and a norm behind them."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        if not isinstance(layer, Module):
            raise ArgumentTypeError(f"[{type(self).__name__}] expected a layer to copy but got {type(layer).__name__}")
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """`num_layers` copies of an encoder layer, then `norm`. The copies start with the same weights, as in PyTorch.

    `enable_nested_tensor` and `mask_check` choose among PyTorch's ways to compute the same; here they change nothing.

    >>> layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    >>> nn.TransformerEncoder(layer, 2)(pf.randn(2, 5, 16)).shape
    (2, 5, 16)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The sequence after all layers, in the shape of `src`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """`num_layers` copies of a decoder layer, then `norm`. The copies start with the same weights, as in PyTorch.

    >>> layer = nn.TransformerDecoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    >>> nn.TransformerDecoder(layer, 2)(pf.randn(2, 3, 16), pf.randn(2, 5, 16)).shape
    (2, 3, 16)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The sequence after all layers, in the shape of `tgt`."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder, each a stack of layers with a norm behind it.

    >>> model = nn.Transformer(16, 4, 1, 1, dim_feedforward=32, batch_first=True)
    >>> model(pf.randn(2, 5, 16), pf.randn(2, 3, 16)).shape
    (2, 3, 16)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = dict(device=device, dtype=dtype)
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, **place)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, **place), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, **place), num_decoder_layers, norm()
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Xavier's uniform numbers for all that has more than one axis."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's output in the shape of `tgt`."""
        for name, x in (("src", src), ("tgt", tgt)):
            if x.ndim not in (2, 3) or x.shape[-1] != self.d_model:
                raise ShapeError(f"[Transformer] expected {name} with a last axis of {self.d_model} but got {x.shape}")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)  # type: ignore[no-any-return]

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: object = None, dtype: object = None) -> Tensor:
        """A mask to add: -inf where a position would see a later one, else 0.

        >>> nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[0., -inf],
                [0., 0.]])
        """
        later = ones(sz, sz, dtype=bool_, device=device).triu(1)
        return F["where"](later, float("-inf"), 0.0).to(as_dtype(dtype or float32))  # type: ignore[no-any-return]
