"""How a model is divided among devices for tensor parallelism: which heads, columns, experts and tokens each one has.

Rows of the matrices of queries, keys, values, gate and up are divided, and columns of those that take their results
(attention's output, down): each device then has whole heads, and gives a summand of the layer's result. Keys and values
that more devices need than there are lie on several. Experts are divided by their number, embeddings and the head by
tokens, so that a table that serves as both is one share. All else is small, and lies on every device: norms, routers,
positions, and what latent attention makes of a token before there are heads.

Shares are whole blocks of encoded weights, and as equal as these and the heads allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import lcm
from typing import NamedTuple

import numpy as np

from pyflame.core.encoding import Encoding
from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.llm.architectures.base import Array
from pyflame.llm.config import ModelConfig

Span = tuple[int, int]
_VECTORS = ("attn_sinks",)  # numbers whose only axis is divided


@dataclass(frozen=True)
class Cut:
    """Parts of an axis, counted from the end, that has `size` elements; several go one behind the other."""

    axis: int
    size: int
    spans: tuple[Span, ...]

    @property
    def count(self) -> int:
        return sum(end - first for first, end in self.spans)

    def of(self, name: str, x: Array, encoding: Encoding | None = None) -> Array:
        """This part of a tensor: of numbers, or of the bytes of blocks."""
        block, nbytes = (encoding.block, encoding.nbytes) if encoding is not None and self.axis == -1 else (1, 1)
        size = x.shape[self.axis] // nbytes * block if x.ndim >= -self.axis else 0
        if size != self.size:
            raise FileFormatError(f"[load] expected {name} to have {self.size} elements along its axis but got {size}")
        parts = []
        for first, end in self.spans:
            assert first % block == end % block == 0, "shares are whole blocks"
            span = slice(first // block * nbytes, end // block * nbytes)
            parts.append(x.swapaxes(0, self.axis)[span].swapaxes(0, self.axis))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)


@dataclass(frozen=True)
class Share:
    """One device's part. `config` is what its decoder is made with, `cuts` are by names of layers without the block."""

    config: ModelConfig
    cuts: dict[str, Cut]

    def cut(self, name: str) -> Cut | None:
        """What the device has of a tensor; None: all of it."""
        layer, kind = _split(name)
        found = self.cuts.get(layer)
        if found is None or kind == "weight" or layer in _VECTORS:
            return found
        return None if found.axis == -1 else replace(found, axis=found.axis + 1)  # a bias has no columns

    def part(self, name: str) -> float:
        """How much of a tensor the device has, from 0 to 1."""
        layer, kind = _split(name)
        if kind == "bias" and layer in _SUMMED and layer not in self.config.biases:
            return 0.0
        cut = self.cut(name)
        return 1.0 if cut is None else cut.count / cut.size


def _split(name: str) -> tuple[str, str]:
    """blk.3.attn_q.weight -> attn_q, weight"""
    layer, _, kind = (name.split(".", 2)[2] if name.startswith("blk.") else name).rpartition(".")
    return layer, kind


_SUMMED = frozenset({"attn_output", "ffn_down", "ffn_down_shexp"})  # a bias of theirs is added by the first device


def shares(config: ModelConfig, count: int, block: Callable[[str], int]) -> list[Share]:
    """The parts of so many devices. `block` gives the elements of a block of a tensor that is there: 1 for a plain one.

    >>> [share.config.heads for share in shares(config, 2, lambda name: 1)]
    [16, 16]
    """
    if config.qk_norm == "all":
        raise _refused(config, count, "a norm over all heads of q and k, which no device has alone")
    moe, nothing = config.experts, [(0, 0)] * count

    def columns(layer: str, size: int) -> list[Span]:
        return _spans(config, count, size, _block_of(config, layer, size, block), f"columns of {layer}")

    found = zip(
        _head_spans(config, count, block),
        columns("ffn_down", config.ffn) if moe is None or moe.leading_dense else nothing,
        columns("ffn_down_shexp", moe.shared_ffn) if moe is not None and moe.shared_ffn else nothing,
        _spans(config, count, moe.count, 1, "experts") if moe is not None else nothing,
        _spans(config, count, config.vocab, 1, "tokens"),
        strict=True,
    )
    return [_share(config, n, _Spans(*heads, *others)) for n, (heads, *others) in enumerate(found)]


class _Spans(NamedTuple):
    """What a device has: empty where the model has none of it."""

    heads: Span
    kv: Span
    mlp: Span
    shared: Span
    experts: Span
    tokens: Span


def _refused(config: ModelConfig, count: int, why: str) -> NotSupportedError:
    return NotSupportedError(
        f"[tensor_parallel] expected a model that {count} devices can share but {config.architecture} has {why}; "
        "device_map spreads whole layers"
    )


def _block_of(config: ModelConfig, layer: str, size: int, block: Callable[[str], int]) -> int:
    """What the columns of this layer are divided by. Rows that are no whole blocks stay plain (`quantize`)."""
    found = [block(f"blk.{n}.{layer}.weight") for n in range(config.layers)]
    return lcm(*[one for one in found if size % one == 0])


def _spans(config: ModelConfig, count: int, size: int, unit: int, what: str) -> list[Span]:
    """So many parts of `size`, each of whole units."""
    units = size // unit
    if units < count:
        blocks = f" in blocks of {unit}" if unit > 1 else ""
        raise _refused(config, count, f"{size} {what}{blocks}")
    ends = [units * n // count * unit for n in range(count)] + [size]
    return list(pairwise(ends))


def _head_spans(config: ModelConfig, count: int, block: Callable[[str], int]) -> list[tuple[Span, Span]]:
    """The heads of queries and those of keys and values. Where these are fewer than devices, some lie on several."""
    size = config.latent.value_size if config.latent is not None else config.head_size
    group = config.heads // config.kv_heads
    whole = _block_of(config, "attn_output", config.heads * size, block)
    if config.kv_heads >= count:
        columns = group * size
        unit = lcm(columns, whole) // columns
        found = _spans(config, count, config.kv_heads, unit, "heads of keys and values")
        return [((first * group, end * group), (first, end)) for first, end in found]
    own = config.heads // count
    if config.heads % count or group % own or own * size % whole:
        raise _refused(config, count, f"{config.heads} heads of size {size}, {config.kv_heads} of keys and values")
    return [((n * own, (n + 1) * own), (n * own // group, n * own // group + 1)) for n in range(count)]


def _share(config: ModelConfig, number: int, own: _Spans) -> Share:
    cuts = _attention_cuts(config, own.heads, own.kv) | _mlp_cuts(config, "", config.ffn, own.mlp)
    moe = config.experts
    if moe is not None:
        stack = Cut(-3, moe.count, (own.experts,))
        cuts |= {f"ffn_{part}_exps": stack for part in ("gate", "up", "down")}
        cuts |= _mlp_cuts(config, "_shexp", moe.shared_ffn, own.shared)
        moe = replace(moe, own=own.experts, shared_ffn=_count(own.shared))
    cuts |= dict.fromkeys(("token_embd", "output"), Cut(-2, config.vocab, (own.tokens,)))
    part = replace(
        config, heads=_count(own.heads), kv_heads=_count(own.kv), ffn=_count(own.mlp), experts=moe,
        own_tokens=own.tokens, biases=config.biases if number == 0 else config.biases - _SUMMED,
    )  # fmt: skip
    return Share(part, cuts)


def _count(span: Span) -> int:
    return span[1] - span[0]


def _times(span: Span, size: int, start: int = 0) -> Span:
    return start + span[0] * size, start + span[1] * size


def _attention_cuts(config: ModelConfig, heads: Span, kv: Span) -> dict[str, Cut]:
    one, q, k = config.head_size, config.heads * config.head_size, config.kv_heads * config.head_size
    value = one if config.latent is None else config.latent.value_size
    queries, keys = Cut(-2, q, (_times(heads, one),)), Cut(-2, k, (_times(kv, one),))
    all_three = (_times(heads, one), _times(kv, one, q), _times(kv, one, q + k))
    cuts = {
        "attn_q": queries,
        "attn_q_b": queries,
        "attn_k": keys,
        "attn_v": keys,
        "attn_qkv": Cut(-2, q + 2 * k, all_three),
        "attn_output": Cut(-1, config.heads * value, (_times(heads, value),)),
        "attn_sinks": Cut(-1, config.heads, (heads,)),
        "attn_k_b": Cut(-3, config.heads, (heads,)),
        "attn_v_b": Cut(-3, config.heads, (heads,)),
    }
    if config.qk_norm == "each":
        cuts |= {"attn_q_norm": Cut(-2, config.heads, (heads,)), "attn_k_norm": Cut(-2, config.kv_heads, (kv,))}
    return cuts


def _mlp_cuts(config: ModelConfig, suffix: str, size: int, span: Span) -> dict[str, Cut]:
    rows = Cut(-2, size, (span,))
    up = Cut(-2, 2 * size, (span, _times(span, 1, size))) if config.mlp == "fused" else rows
    return {f"ffn_gate{suffix}": rows, f"ffn_up{suffix}": up, f"ffn_down{suffix}": Cut(-1, size, (span,))}
