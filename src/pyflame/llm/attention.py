"""Self-attention over the cache, of whole heads or of latent vectors (MLA).

`Where` says at which positions a call's tokens stand and what they see; all of it is data but the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyflame.core.dtype import float32
from pyflame.llm.cache import Cache
from pyflame.llm.config import ModelConfig, Rope
from pyflame.llm.layers import Part, Weights
from pyflame.llm.rope import frequencies
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, tensor


@dataclass(frozen=True)
class Where:
    """Token t of row b stands at positions[b, t]. Without a cache, keys are those of the same call."""

    positions: Tensor  # (B, T)
    first: Tensor | int = 0  # (B): the position of each row's first token
    lengths: Tensor | None = None  # (B): how many keys of each row count
    cache: Cache | None = None
    bucket: int = 0  # how many lines of the cache are read


class Rotary(Module):
    """Turns queries and keys (B, heads, T, size) by their positions."""

    def __init__(self, rope: Rope, device: object) -> None:
        super().__init__()
        self.dims, self.interleaved, self.factor = rope.dims, rope.interleaved, rope.attention_factor
        self.register_buffer("frequencies", tensor(frequencies(rope), dtype=float32, device=device), False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        y = F["rope"](x, positions, 1.0, self.interleaved, self.dims, self.frequencies)
        if self.factor == 1.0:
            return y
        turned = np.where(np.arange(x.shape[-1]) < self.dims, self.factor, 1.0)
        return y * tensor(turned, dtype=x.dtype, device=x.device)


def _heads(x: Tensor, count: int) -> Tensor:
    """(B, T, H * D) -> (B, T, H, D)"""
    return x.reshape(*x.shape[:2], count, -1)


class Attention(Part):
    """Queries, keys and values of heads, which may share keys and values in groups."""

    def __init__(self, block: Module, config: ModelConfig, layer: int, weights: Weights, rotary: Rotary | None) -> None:
        super().__init__(block, weights, layer)
        self.config, self.layer, self.window, self.rotary = config, layer, config.windows[layer], rotary
        inner, outer = config.heads * config.head_size, config.kv_heads * config.head_size
        self.sizes = (inner, outer, outer)
        parts = {"attn_qkv": inner + 2 * outer} if config.fused_qkv else dict(zip(_QKV, self.sizes, strict=True))
        for name, size in parts.items():
            self.linear(name, config.width, size, name in config.biases)
        for name, size, count in (("attn_q_norm", inner, config.heads), ("attn_k_norm", outer, config.kv_heads)):
            if config.qk_norm != "none":
                self.norm(name, config, *self._norm_shape(name, size, count))
        if config.sinks:
            self.numbers("attn_sinks", config.heads)
        self.linear("attn_output", inner, config.width, "attn_output" in config.biases)

    def _norm_shape(self, name: str, size: int, count: int) -> tuple[int, ...]:
        """One weight for all heads at once, the same for each head, or for each its own (StableLM 2)."""
        one = self.config.head_size
        return {"all": (size,), "head": (one,), "each": (count, one)}[self.config.qk_norm]

    def __call__(self, x: Tensor, where: Where) -> Tensor:
        q, k, v = self._projected(x)
        if self.rotary is not None:
            q, k = (self.rotary(y.transpose(1, 2), where.positions).transpose(1, 2) for y in (q, k))
        if where.cache is not None:
            where.cache.write(self.layer, where.positions, k, v)
            keys, values = where.cache.read(self.layer, where.bucket)
        else:
            keys, values = k.transpose(1, 2), v.transpose(1, 2)
        sinks = self.attn_sinks() if self.config.sinks else None
        out = attend(self.config, q.transpose(1, 2), keys, values, where, self.window, sinks)
        return self.attn_output(out.transpose(1, 2).reshape(*x.shape[:2], -1))  # type: ignore[no-any-return]

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        config = self.config
        if config.fused_qkv:
            q, k, v = self.attn_qkv(x).split(list(self.sizes), -1)
        else:
            q, k, v = self.attn_q(x), self.attn_k(x), self.attn_v(x)
        if config.qk_norm == "all":
            q, k = self.attn_q_norm(q), self.attn_k_norm(k)
        q, k, v = _heads(q, config.heads), _heads(k, config.kv_heads), _heads(v, config.kv_heads)
        if config.qk_norm in ("head", "each"):
            q, k = self.attn_q_norm(q), self.attn_k_norm(k)
        return q, k, v


_QKV = ("attn_q", "attn_k", "attn_v")


def attend(
    config: ModelConfig, q: Tensor, keys: Tensor, values: Tensor, where: Where, window: int | None, sinks: Tensor | None
) -> Tensor:
    """softmax(q k^T) v, (B, H, T, D), of what these positions see. A window of n: the token itself and n - 1 before."""
    keys, values = keys.to(q.dtype), values.to(q.dtype)
    if sinks is not None:
        return _with_sinks(config, q, keys, values, where, window, sinks)
    left = -1 if window is None else window - 1
    return F["scaled_dot_product_attention"](
        q, keys, values, is_causal=config.causal, scale=config.attention_scale,
        window=None if window is None else (left, -1), softcap=config.attention_softcap,
        query_offset=where.first, lengths=where.lengths,
    )  # fmt: skip


def _with_sinks(
    config: ModelConfig, q: Tensor, keys: Tensor, values: Tensor, where: Where, window: int | None, sinks: Tensor
) -> Tensor:
    """As if each head saw one more key, of this score and without a value."""
    batch, heads, time, size = q.shape
    shared = heads // keys.shape[1]
    ahead = arange(keys.shape[2], device=q.device) - where.positions.reshape(-1, 1, time, 1)
    seen = (ahead <= 0) if window is None else (ahead <= 0) & (ahead > -window)
    # (B, H, T, D) -> (B, KH, G * T, D): query heads that share a key are rows of one product
    grouped = q.reshape(batch, keys.shape[1], shared * time, size)
    scores = (grouped @ keys.transpose(2, 3)).to(float32) * (config.attention_scale or size**-0.5)
    scores = scores.reshape(batch, heads, time, -1).masked_fill(~seen, float("-inf"))
    rest = sinks.to(float32).reshape(1, -1, 1, 1)
    top = scores.amax(-1, True).maximum(rest)
    raised = (scores - top).exp()
    weights = raised / (raised.sum(-1, True) + (rest - top).exp())
    mixed = weights.to(values.dtype).reshape(batch, keys.shape[1], shared * time, -1) @ values
    return mixed.reshape(batch, heads, time, -1)


class LatentAttention(Part):
    """DeepSeek's: the cache keeps one latent vector and one rotary key per token, shared by all heads.

    A head's keys are latent k_b and its values latent v_b, so we multiply queries with k_b and results with v_b
    instead: the same numbers, and nothing of a head's width is ever made of the cached lines.
    """

    def __init__(self, block: Module, config: ModelConfig, layer: int, weights: Weights, rotary: Rotary | None) -> None:
        super().__init__(block, weights, layer)
        assert config.latent is not None
        self.config, self.layer, self.latent, self.rotary = config, layer, config.latent, rotary
        part, heads = config.latent, config.heads
        size = part.nope_dims + part.rope_dims
        if part.q_rank:
            self.linear("attn_q_a", config.width, part.q_rank)
            self.norm("attn_q_a_norm", config, part.q_rank)
            self.linear("attn_q_b", part.q_rank, heads * size)
        else:
            self.linear("attn_q", config.width, heads * size)
        self.linear("attn_kv_a_mqa", config.width, part.kv_rank + part.rope_dims)
        self.norm("attn_kv_a_norm", config, part.kv_rank)
        self.numbers("attn_k_b", heads, part.kv_rank, part.nope_dims)
        self.numbers("attn_v_b", heads, part.value_size, part.kv_rank)
        self.linear("attn_output", heads * part.value_size, config.width)

    def __call__(self, x: Tensor, where: Where) -> Tensor:
        part = self.latent
        q = self.attn_q_b(self.attn_q_a_norm(self.attn_q_a(x))) if part.q_rank else self.attn_q(x)
        q = _heads(q, self.config.heads).transpose(1, 2)
        plain, turned = q.split([part.nope_dims, part.rope_dims], -1)
        latent, key = self.attn_kv_a_mqa(x).split([part.kv_rank, part.rope_dims], -1)
        key = self._turned(key.unsqueeze(1), where)
        # (B, H, T, nope) (H, rank, nope)^T -> (B, H, T, rank)
        q = F["cat"]([plain @ self.attn_k_b().transpose(1, 2), self._turned(turned, where)], -1)
        line = F["cat"]([self.attn_kv_a_norm(latent).unsqueeze(2), key.transpose(1, 2)], -1)
        if where.cache is not None:
            where.cache.write(self.layer, where.positions, line)
            (keys,) = where.cache.read(self.layer, where.bucket)
        else:
            keys = line.transpose(1, 2)
        mixed = attend(self.config, q, keys, keys[..., : part.kv_rank], where, None, None)
        out = mixed @ self.attn_v_b().transpose(1, 2)
        return self.attn_output(out.transpose(1, 2).reshape(*x.shape[:2], -1))  # type: ignore[no-any-return]

    def _turned(self, x: Tensor, where: Where) -> Tensor:
        return x if self.rotary is None else self.rotary(x, where.positions)
