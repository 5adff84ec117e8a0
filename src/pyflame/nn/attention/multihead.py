"""Attention with several heads."""

from __future__ import annotations

from pyflame.core.dtype import bool_
from pyflame.core.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError
from pyflame.ir import OPS
from pyflame.nn.init import xavier_normal_, xavier_uniform_, zeros_
from pyflame.nn.linear import Linear, NonDynamicallyQuantizableLinear
from pyflame.nn.module import Module, hooked
from pyflame.nn.parameter import Parameter, new_parameter
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.dispatch import public

_multihead = public(OPS["multihead"])


class MultiheadAttention(Module):
    """softmax(q kᵀ / sqrt(d)) v in `num_heads` parts of the last axis, between linear projections.

    Inputs are (time, batch, features), (batch, time, features) with `batch_first`, or (time, features).
    `forward` gives the output and, with `need_weights`, the weights (batch, queries, keys), averaged over the heads.
    As in PyTorch a boolean mask is True where attention is *not* allowed, any other mask is added to the scores.
    `need_weights=False` is faster: attention then is one op. A query that may see no key gets 0 from that op, and NaN,
    as in PyTorch, where the weights are asked for.

    >>> attention = nn.MultiheadAttention(16, 4, batch_first=True)
    >>> x = pf.randn(2, 5, 16)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    ((2, 5, 16), (2, 5, 5))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(
                f"[MultiheadAttention] expected an embed_dim that num_heads divides but got embed_dim={embed_dim}, "
                f"num_heads={num_heads}"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        together = self.kdim == self.vdim == embed_dim
        shapes = {
            "q_proj_weight": None if together else (embed_dim, embed_dim),
            "k_proj_weight": None if together else (embed_dim, self.kdim),
            "v_proj_weight": None if together else (embed_dim, self.vdim),
            "in_proj_weight": (3 * embed_dim, embed_dim) if together else None,
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        for name, shape in shapes.items():
            made = None if shape is None else new_parameter(*shape, device=device, dtype=dtype)
            self.register_parameter(name, made)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Xavier's uniform numbers for the projections, 0 for their biases."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output in the shape of the query, and the weights or None.

        `key_padding_mask` is (batch, keys); `attn_mask` is (queries, keys) or (batch * heads, queries, keys).
        `is_causal` without an attn_mask lets each query see the keys up to its own position; with one it says that
        the mask is that, as in PyTorch.
        """
        self._check(query, key, value)
        batched = query.ndim == 3
        if is_causal and attn_mask is not None and not need_weights and key_padding_mask is None:
            attn_mask = None
        batch, rows, columns = self._sizes(query, key)
        extra = (self.bias_k is not None) + self.add_zero_attn
        p = self.dropout if self.training else 0.0
        plain = attn_mask is None and key_padding_mask is None and not extra
        if is_causal and attn_mask is None and not (plain and not need_weights):
            attn_mask, plain = query.new_ones(rows, columns, dtype=bool_).triu(1), False
        mask = None if plain else self._mask(attn_mask, key_padding_mask, (batch, rows, columns), extra)
        out = self.out_proj
        usual = type(out) in (Linear, NonDynamicallyQuantizableLinear) and not hooked(out)
        if usual and not (need_weights or extra or self.in_proj_weight is None):
            given = query, key, value, self.in_proj_weight, out.weight, self.in_proj_bias, out.bias, mask
            return _multihead(*given, self.num_heads, self.batch_first, is_causal and plain, p), None
        q, k, v = self._projected(query, key, value)
        k, v = self._extended(k, v)
        if mask is not None and mask.dtype is not bool_:
            mask = mask.to(q.dtype)
        if not need_weights:
            return self._joined(F["scaled_dot_product_attention"](q, k, v, mask, p, is_causal and plain), batched), None
        scores = (q * self.head_dim**-0.5) @ k.mT
        if mask is not None:
            scores = F["where"](mask, scores, float("-inf")) if mask.dtype is bool_ else scores + mask
        weights = scores.softmax(-1).dropout(p)
        shown = weights.mean(1) if average_attn_weights else weights
        return self._joined(weights @ v, batched), shown if batched else shown[0]

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        sizes = (self.embed_dim, self.kdim, self.vdim)
        shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            raise ShapeError(f"[MultiheadAttention] expected three tensors with 2 or 3 axes but got {shapes}")
        if tuple(x.shape[-1] for x in (query, key, value)) != sizes:
            raise ShapeError(f"[MultiheadAttention] expected last axes of sizes {sizes} but got {shapes}")
        batch = 0 if self.batch_first else 1
        alike = key.shape[:-1] == value.shape[:-1]
        if not alike or (query.ndim == 3 and query.shape[batch] != key.shape[batch]):
            raise ShapeError(
                f"[MultiheadAttention] expected key and value of one length and one batch size, on axis {batch}, but "
                f"got {shapes}; batch_first is {self.batch_first}"
            )

    def _sizes(self, query: Tensor, key: Tensor) -> tuple[int, int, int]:
        """Batch, queries and keys."""
        if query.ndim == 2:
            return 1, query.shape[0], key.shape[0]
        batch, time = (0, 1) if self.batch_first else (1, 0)
        return query.shape[batch], query.shape[time], key.shape[time]

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Queries, keys and values as (batch, heads, time, head_dim)."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is not None and query is key and key is value:
            parts = F["linear"](query, weight, bias).chunk(3, -1)
        else:
            own = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = own if weight is None else weight.chunk(3)
            biases = (None, None, None) if bias is None else bias.chunk(3)
            parts = [F["linear"](x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
        return [self._heads(x) for x in parts]

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, time, embed) in the layout of the inputs -> (batch, heads, time, head_dim)."""
        split = x.reshape(*x.shape[:-1], self.num_heads, self.head_dim)
        if x.ndim == 2:
            return split.transpose(0, 1).unsqueeze(0)
        return split.permute(0, 2, 1, 3) if self.batch_first else split.permute(1, 2, 0, 3)

    def _joined(self, x: Tensor, batched: bool) -> Tensor:
        """(batch, heads, time, head_dim) -> the layout of the inputs, projected."""
        if not batched:
            x = x[0].transpose(0, 1)
        else:
            x = x.permute(0, 2, 1, 3) if self.batch_first else x.permute(2, 0, 1, 3)
        return self.out_proj(x.reshape(*x.shape[:-2], self.embed_dim))  # type: ignore[no-any-return]

    def _extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values with the learned and the zero position behind them, where there are such."""
        one = (k.shape[0], self.num_heads, 1, self.head_dim)
        if self.bias_k is not None and self.bias_v is not None:
            learned = [b.reshape(1, *one[1:]).expand(one) for b in (self.bias_k, self.bias_v)]
            k, v = F["cat"]([k, learned[0]], 2), F["cat"]([v, learned[1]], 2)
        if self.add_zero_attn:
            zero = k.new_zeros(one)
            k, v = F["cat"]([k, zero], 2), F["cat"]([v, zero], 2)
        return k, v

    def _mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, sizes: tuple[int, int, int], extra: int
    ) -> Tensor | None:
        """Both masks as one over (batch, heads, queries, keys): True where a key is seen, or numbers to add."""
        (batch, rows, columns), heads = sizes, self.num_heads
        parts = []
        if attn_mask is not None:
            if attn_mask.shape not in ((rows, columns), (batch * heads, rows, columns)):
                raise ShapeError(
                    f"[MultiheadAttention] expected an attn_mask of shape {(rows, columns)} or "
                    f"{(batch * heads, rows, columns)} but got {attn_mask.shape}"
                )
            parts.append(attn_mask if attn_mask.ndim == 2 else attn_mask.reshape(batch, heads, rows, columns))
        if key_padding_mask is not None:
            if key_padding_mask.shape != (batch, columns) and (batch, *key_padding_mask.shape) != (1, columns):
                raise ShapeError(
                    f"[MultiheadAttention] expected a key_padding_mask of shape {(batch, columns)} but got "
                    f"{key_padding_mask.shape}"
                )
            parts.append(key_padding_mask.reshape(batch, 1, 1, columns))
        for part in parts:
            if part.dtype is not bool_ and not part.dtype.is_float:
                raise DTypeError(
                    f"[MultiheadAttention] expected masks of bools or floating-point numbers but got {part.dtype.name}"
                )
        if extra:  # the positions behind the keys are seen by all
            parts = [part.pad((0, extra)) for part in parts]
        if not parts:
            return None
        if all(part.dtype is bool_ for part in parts):
            return ~parts[0] if len(parts) == 1 else ~(parts[0] | parts[1])
        added = [F["where"](part, float("-inf"), 0.0) if part.dtype is bool_ else part for part in parts]
        return sum(added[1:], added[0])


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """nn.MultiheadAttention over given weights, of (time, batch, features) or (time, features).

    >>> layer, x = nn.MultiheadAttention(8, 2), pf.randn(3, 1, 8)
    >>> out, weights = nn.functional.multi_head_attention_forward(
    ...     x, x, x, 8, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
    ...     layer.out_proj.weight, layer.out_proj.bias)
    >>> out.shape, weights.shape
    ((3, 1, 8), (1, 3, 3))
    """
    if static_k is not None or static_v is not None:
        raise NotSupportedError(
            "[multi_head_attention_forward] expected keys and values to be projected but got static_k or static_v; use "
            "scaled_dot_product_attention"
        )
    if 0 in (query.ndim, key.ndim, value.ndim):
        raise ShapeError(
            "[multi_head_attention_forward] expected tensors of (time, batch, features) or (time, features) but got "
            f"shapes {query.shape}, {key.shape} and {value.shape}"
        )
    if query.shape[-1] != embed_dim_to_check or embed_dim_to_check % num_heads:
        raise ShapeError(
            f"[multi_head_attention_forward] expected {embed_dim_to_check} features that {num_heads} heads divide but "
            f"got shape {query.shape}"
        )
    layer = MultiheadAttention.__new__(MultiheadAttention)
    Module.__init__(layer)
    layer.__dict__.update(
        embed_dim=embed_dim_to_check, num_heads=num_heads, head_dim=embed_dim_to_check // num_heads,
        kdim=key.shape[-1], vdim=value.shape[-1], dropout=dropout_p, batch_first=False, add_zero_attn=add_zero_attn,
        in_proj_weight=None if use_separate_proj_weight else in_proj_weight, in_proj_bias=in_proj_bias,
        q_proj_weight=q_proj_weight, k_proj_weight=k_proj_weight, v_proj_weight=v_proj_weight,
        bias_k=bias_k, bias_v=bias_v, out_proj=lambda x: F["linear"](x, out_proj_weight, out_proj_bias),
        training=training,
    )  # fmt: skip
    return layer.forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
