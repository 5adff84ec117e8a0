"""Self-attention over the cache, of whole heads or of latent vectors (MLA).

`Where` says at which positions a call's tokens stand and what they see; all of it is data but the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyflame.core.dtype import float32
from pyflame.core.state import state
from pyflame.llm.cache import Cache, Pages, pages_of
from pyflame.llm.config import ModelConfig, Rope
from pyflame.llm.joined import Joined
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
    lengths: Tensor | None = None  # (B): how many keys of each row count; with a cache the call's are the last
    cache: Cache | None = None
    slots: Tensor | None = None  # (B * T): where the cache keeps their lines
    bucket: int = 0  # how many positions of the cache are looked at, at most
    rows: Tensor | None = None  # (B): which rows of the cache these are; all unless given

    def to(self, device: object) -> Where:
        """The same for layers on a device."""
        first, lengths, rows = self.first, self.lengths, self.rows
        return replace(
            self,
            positions=self.positions.to(device),
            first=first.to(device) if isinstance(first, Tensor) else first,
            lengths=None if lengths is None else lengths.to(device),
            slots=None if self.slots is None else self.slots.to(device),
            rows=None if rows is None else rows.to(device),
        )


class Rotary(Module):
    """Turns queries and keys (B, heads, T, size) by their positions."""

    def __init__(self, rope: Rope, size: int, device: object) -> None:
        super().__init__()
        self.dims, self.interleaved, self.factor = rope.dims, rope.interleaved, rope.attention_factor
        self.register_buffer("frequencies", tensor(frequencies(rope), dtype=float32, device=device), False)
        factors = np.where(np.arange(size) < rope.dims, rope.attention_factor, 1.0)
        self.register_buffer("factors", tensor(factors, dtype=float32, device=device), False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        y = F["rope"](x, positions, 1.0, self.interleaved, self.dims, self.frequencies)
        return y if self.factor == 1.0 else y * self.factors.to(x.dtype)


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
        self.joined: Joined | None = None

    def join(self) -> None:
        """Let q, k and v be rows of one matrix on a GPU: its product is one launch instead of three."""
        if not self.config.fused_qkv and (self.joined is None or self.joined.stale()):
            self.joined = Joined.of([self.layers[name] for name in _QKV])

    def _norm_shape(self, name: str, size: int, count: int) -> tuple[int, ...]:
        """One weight for all heads at once, the same for each head, or for each its own (StableLM 2)."""
        one = self.config.head_size
        return {"all": (size,), "head": (one,), "each": (count, one)}[self.config.qk_norm]

    def __call__(self, x: Tensor, where: Where) -> Tensor:
        q, k, v = self._projected(x, where)
        if where.cache is not None and where.slots is not None:
            where.cache.write(self.layer, where.slots, k, v)
        sinks = self.attn_sinks() if self.config.sinks else None
        out = attend(self.config, q.transpose(1, 2), k, v, where, self.layer, self.window, sinks)
        return self.attn_output(out.transpose(1, 2).reshape(*x.shape[:2], -1))  # type: ignore[no-any-return]

    def _projected(self, x: Tensor, where: Where) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (B, T, heads, size), turned by their positions."""
        heads, shared, norm = self.config.heads, self.config.kv_heads, self.config.qk_norm
        whole = self._whole(x, where)
        if whole is None:
            q, k, v = self.attn_q(x), self.attn_k(x), self.attn_v(x)
        else:
            q, k, v = whole.split(list(self.sizes), -1)
        if norm == "all":
            q, k = self.attn_q_norm(q), self.attn_k_norm(k)
        q, k, v = _heads(q, heads), _heads(k, shared), _heads(v, shared)
        if norm in ("head", "each"):
            q, k = self.attn_q_norm(q), self.attn_k_norm(k)
        return self._turned(q, where), self._turned(k, where), v

    def _whole(self, x: Tensor, where: Where) -> Tensor | None:
        """q, k and v of one product, where there is one: training and what has no cache has the layers' own."""
        if self.config.fused_qkv:
            return self.attn_qkv(x)  # type: ignore[no-any-return]
        if where.cache is None:
            return None
        if state.tracer is not None:
            state.tracer.guard(self, "joined")  # others, another plan
        return None if self.joined is None else self.joined.products(x)

    def _turned(self, x: Tensor, where: Where) -> Tensor:
        return x if self.rotary is None else self.rotary(x.transpose(1, 2), where.positions).transpose(1, 2)


_QKV = ("attn_q", "attn_k", "attn_v")


def attend(
    config: ModelConfig, q: Tensor, keys: Tensor, values: Tensor, where: Where, layer: int, window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """softmax(q k^T) v, (B, H, T, D), of what these positions see. A window of n: the token itself and n - 1 before.

    keys and values, (B, T, heads, size), are those of this call; with a cache they are in it already.
    """
    left = None if window is None else (window - 1, -1)
    rule = {"scale": config.attention_scale, "softcap": config.attention_softcap, "window": left}
    if where.cache is not None:
        return _attend_cached(q, where, layer, values.shape[-1], sinks, rule)
    if sinks is not None:  # the keys of a row are one page
        table, lengths = arange(q.shape[0]).unsqueeze(1), arange(q.shape[0]) * 0 + q.shape[2]
        return F["paged_attention"](q, keys, values, table.to(q.device), lengths.to(q.device), sinks=sinks, **rule)
    return F["scaled_dot_product_attention"](
        q, keys.transpose(1, 2), values.transpose(1, 2), is_causal=config.causal, query_offset=where.first,
        lengths=where.lengths, enable_gqa=True, **rule,
    )  # fmt: skip


def _attend_cached(
    q: Tensor, where: Where, layer: int, width: int, sinks: Tensor | None, rule: dict[str, Any]
) -> Tensor:
    """Over the pages of the cache. Values that it does not keep are the first numbers of keys."""
    assert where.cache is not None and where.lengths is not None
    keys, *rest = where.cache.read(layer)
    values = rest[0] if rest else Pages(keys.lines[..., :width], keys.scales)
    table = where.cache.table(layer, where.rows)[:, : pages_of(where.bucket)]
    return F["paged_attention"](
        q, keys.lines, values.lines, table, where.lengths, key_scale=keys.scales, value_scale=values.scales,
        sinks=sinks, **rule,
    )  # fmt: skip


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
        if where.cache is not None and where.slots is not None:
            where.cache.write(self.layer, where.slots, line)
        mixed = attend(self.config, q, line, line[..., : part.kv_rank], where, self.layer)
        out = mixed @ self.attn_v_b().transpose(1, 2)
        return self.attn_output(out.transpose(1, 2).reshape(*x.shape[:2], -1))  # type: ignore[no-any-return]

    def _turned(self, x: Tensor, where: Where) -> Tensor:
        return x if self.rotary is None else self.rotary(x, where.positions)
