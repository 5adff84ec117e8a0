"""Attention whose scores and mask are functions of positions, with PyTorch's names.

A function gets the scores (batch, heads, queries, keys) and the four positions as tensors that broadcast with them: it
is called once and becomes part of the graph. A mask alone goes to `scaled_dot_product_attention`. Blocks are kept for
programs that slice them; nothing is skipped by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.torch_paths import refused
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange
from pyflame.tensor.dispatch import FUNCTIONS as F

__all__ = ["BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_BLOCK = _DEFAULT_SPARSE_BLOCK_SIZE = 128
AuxRequest = refused("AuxRequest", "return_lse=True gives the logarithms of the sums, too")


def noop_mask(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Every query sees every key."""
    return (query * 0 + key * 0 + batch * 0 + head * 0) == 0


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Where all of them are true."""

    def both(*at: Tensor) -> Tensor:
        out = noop_mask(*at)
        for mod in mask_mods:
            out = out & mod(*at)
        return out

    return both


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Where one of them is true."""

    def either(*at: Tensor) -> Tensor:
        out = ~noop_mask(*at)
        for mod in mask_mods:
            out = out | mod(*at)
        return out

    return either


def _positions(sizes: tuple[int, int, int, int], device: object) -> list[Tensor]:
    """Batch, head, query and key, each along an axis of its own."""
    return [arange(n, device=device).reshape([n if a == axis else 1 for a in range(4)]) for axis, n in enumerate(sizes)]


def _of_a_part(*at: Tensor) -> Tensor:
    raise ArgumentError(
        "[flex_attention] expected a mask_mod but got a part of a BlockMask, whose positions begin anew; set its "
        "mask_mod"
    )


@dataclass
class BlockMask:
    """A mask as a function of positions. `mask[:, :, i]` is that of the i-th block of queries, which needs a `mask_mod`
    of its own: positions begin anew there.
    """

    mask_mod: MaskMod
    shape: tuple[int, int, int, int]
    BLOCK_SIZE: tuple[int, int] = (_BLOCK, _BLOCK)

    @property
    def seq_lengths(self) -> tuple[int, int]:
        return self.shape[2], self.shape[3]

    def __getitem__(self, index: Any) -> BlockMask:
        return replace(self, mask_mod=_of_a_part)

    def to(self, *args: Any, **kwargs: Any) -> BlockMask:
        return self


def create_mask(
    mask_mod: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: object = None
) -> Tensor:
    """The mask as a tensor (batch, heads, queries, keys), True where a query may see a key.

    >>> create_mask(lambda b, h, q, k: q >= k, None, None, 2, 3)
    tensor([[[[ True, False, False],
              [ True,  True, False]]]])
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    return F["expand"](mask_mod(*_positions(sizes, device)), sizes)  # type: ignore[no-any-return]


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: object = None,
    BLOCK_SIZE: int | tuple[int, int] = _BLOCK,
    _compile: bool = False,
) -> BlockMask:
    """A mask for `flex_attention`, as a function `mask_mod(batch, head, query, key)` of positions.

    >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256).shape
    (1, 1, 256, 256)
    """
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
) -> Any:
    """softmax(score_mod(q kᵀ * scale)) v over the keys that the mask allows. A query that sees none gets 0.

    >>> q = pf.randn(1, 2, 4, 8)
    >>> flex_attention(q, q, q, lambda score, b, h, i, j: score - (i - j).abs()).shape
    (1, 2, 4, 8)
    """
    if not (query.ndim == key.ndim == value.ndim == 4):
        raise ShapeError(
            "[flex_attention] expected (batch, heads, time, features) but got "
            f"{query.shape}, {key.shape}, {value.shape}"
        )
    heads = query.shape[1]
    if heads != key.shape[1]:
        if not enable_gqa or heads % key.shape[1]:
            raise ShapeError(
                f"[flex_attention] expected {heads} heads of keys, or a divisor with enable_gqa=True, but got "
                f"{key.shape[1]}"
            )
        key, value = (F["repeat_interleave"](t, heads // key.shape[1], 1) for t in (key, value))
    at = _positions((query.shape[0], heads, query.shape[2], key.shape[2]), query.device)
    mask = None if block_mask is None else block_mask.mask_mod(*at)
    if score_mod is None and not return_lse:
        return F["scaled_dot_product_attention"](query, key, value, attn_mask=mask, scale=scale)
    scores = (query @ key.transpose(-2, -1)).float() * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if score_mod is None else score_mod(scores, *at)
    scores = scores if mask is None else F["where"](mask, scores, -math.inf)
    lse = F["logsumexp"](scores, -1, keepdim=True)
    weights = F["where"](lse == -math.inf, 0.0, (scores - lse).exp())
    out = weights.to(query.dtype) @ value
    return (out, lse.squeeze(-1)) if return_lse else out
