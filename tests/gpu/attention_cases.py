"""Attention and its gradients at awkward shapes, views, masks and dtypes, with what NumPy makes of them in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine import reference
from pyflame.engine.pending import PendingGraph
from pyflame.kernels import attention_decode_gpu
from tests.gpu.gemm_cases import Array, Build, Case, numbers

ONE_HIDDEN = (np.arange(40)[:, None] + np.arange(45)) % 3 > 0
ONE_HIDDEN[7] = False  # a query that sees nothing


def seen(array: Array, view: str) -> pf.Tensor:
    """(B, H, T, D) as it lies in memory after a projection ("rows"), with D slowest ("turned"), or as it is."""
    order = {"rows": (0, 2, 1, 3), "turned": (0, 1, 3, 2)}.get(view)
    if order is None:
        return pf.tensor(array)
    return pf.tensor(np.ascontiguousarray(array.transpose(order))).permute(*order)


def attention(
    queries: tuple[int, int, int, int],
    keys: tuple[int, int],
    width: int,
    dtype: pf.DType = pf.float32,
    view: str = "",
    mask: Array | None = None,
    causal: bool = False,
    gradient: bool = True,
    **options: Any,
) -> Build:
    """`queries` (B, H, T, D), `keys` (G, S)."""

    def run(arrays: list[Array], tracked: list[pf.Tensor]) -> list[pf.Tensor]:
        given = None if mask is None else pf.tensor(mask)
        query, key, value = tracked
        more = {name: pf.tensor(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
        out = pf.scaled_dot_product_attention(query, key, value, given, is_causal=causal, enable_gqa=True, **more)
        return _with_gradients(out, arrays[3], tracked) if gradient else [out]

    batch, _, _, depth = queries
    shapes = queries, (batch, *keys, depth), (batch, *keys, width), (*queries[:3], width)
    return _built(run, shapes, dtype, view, gradient)


def packed(
    queries: tuple[int, int, int],
    keys: tuple[int, int],
    width: int,
    counts: tuple[tuple[int, int], ...],
    dtype: pf.DType = pf.float32,
    **options: Any,
) -> Build:
    """`queries` (T, H, D), `keys` (S, G), and how many of both each sequence has; some of both may be left."""

    def run(arrays: list[Array], tracked: list[pf.Tensor]) -> list[pf.Tensor]:
        ends = [pf.tensor(np.cumsum([0, *side]).astype(np.int32)) for side in zip(*counts, strict=True)]
        more = {name: pf.tensor(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
        query, key, value = tracked
        return _with_gradients(pf.varlen_attn(query, key, value, *ends, **more), arrays[3], tracked)

    (rows, heads, depth), (lines, shared) = queries, keys
    shapes = (rows, heads, depth), (lines, shared, depth), (lines, shared, width), (rows, heads, width)
    return _built(run, shapes, dtype, "", True)


def _with_gradients(out: pf.Tensor, slope: Array, tracked: list[pf.Tensor]) -> list[pf.Tensor]:
    (out * pf.tensor(slope)).sum().backward()
    grads: list[Any] = [t.grad for t in tracked]
    return [out, *grads]


def _built(
    run: Callable[[list[Array], list[pf.Tensor]], list[pf.Tensor]],
    shapes: Sequence[tuple[int, ...]],
    dtype: pf.DType,
    view: str,
    gradient: bool,
) -> Build:
    """What `run` makes of numbers of these shapes, query, key, value and slope, beside what it is in float64."""

    def build() -> Case:
        arrays = [numbers(shape, dtype, seed) for seed, shape in enumerate(shapes)]
        outputs = run(arrays, [seen(a, view).requires_grad_(gradient) for a in arrays[:3]])
        exact = [a.astype(np.float64) for a in arrays]
        with pf.device("cpu"):
            twins = run(exact, [pf.tensor(a).requires_grad_(gradient) for a in exact[:3]])
            found = reference.compute(PendingGraph([t._node for t in twins], keep_held=False).order)
        return Case(outputs, [found[t._node].astype(dtype.numpy) for t in twins])

    return build


def added(*shape: int) -> Array:
    """A mask to add, with some who see nothing of some."""
    mask = np.sin(np.arange(np.prod(shape), dtype=np.float32) * 1.7).reshape(shape)
    return np.where(mask > 0.9, -np.inf, mask).astype(np.float32)


COUNTS = ((3, 70), (0, 5), (128, 64), (34, 0), (0, 55))  # queries and keys of sequences
USED = np.array([60, 2, 64, 0, 9])

# On matrix tiles, where there are any: each has other numbers of chunks, tiles and own lines.
TILED: dict[str, Build] = {
    "bfloat16": attention((1, 2, 35, 16), (2, 35), 16, pf.bfloat16, causal=True),
    "bfloat16 odd": attention((1, 2, 9, 15), (2, 35), 3, pf.bfloat16, mask=added(9, 35)),
    "float16": attention((1, 2, 9, 12), (1, 35), 8, pf.float16, view="rows"),
    "two tiles, causal": attention((1, 1, 130, 64), (1, 140), 48, pf.bfloat16, causal=True),
    "two tiles, grouped": attention((1, 4, 70, 40), (2, 70), 40, pf.float16, causal=True),
    "long lines": attention((1, 1, 70, 128), (1, 66), 128, pf.bfloat16),
    "long values": attention((1, 1, 20, 24), (1, 70), 100, pf.float16),
    "turned, added": attention((1, 2, 20, 33), (2, 70), 65, pf.float16, view="turned", mask=added(2, 20, 70)),
    "16 bits, hidden": attention((2, 2, 40, 72), (1, 45), 32, pf.bfloat16, mask=ONE_HIDDEN),
    "16 bits, lengths": attention(
        (2, 2, 70, 40),
        (1, 90),
        24,
        pf.bfloat16,
        causal=True,
        lengths=np.array([50, 90]),
        query_offset=np.array([-20, 15]),
    ),
    "16 bits, packed": packed((170, 2, 24), (200, 1), 40, COUNTS, pf.float16, window_size=(-1, 0)),
    "192 numbers": attention((1, 2, 40, 192), (1, 70), 180, pf.float16, causal=True),
    "256 numbers": attention((1, 1, 35, 256), (1, 40), 256, pf.bfloat16, mask=ONE_HIDDEN[:35, :40]),
    "256 numbers, forward": attention((1, 1, 70, 250), (1, 66), 256, pf.bfloat16, causal=True, gradient=False),
    "16 bits, window": attention((1, 2, 140, 24), (1, 150), 40, pf.bfloat16, causal=True, window=30),
    "16 bits, capped": attention((1, 2, 70, 40), (2, 66), 24, pf.float16, window=(20, 5), softcap=1.5),
}


def grown(queries: tuple[int, int, int, int], heads: int) -> Build:
    """Three sequences that have come to different places in their keys, and see 400 back."""
    rules = dict(causal=True, query_offset=np.array([3, 70, 598]), window=400)
    return attention(queries, (heads, 600), 64, pf.bfloat16, gradient=False, **rules)


# Few queries over many keys: classes of lines, rows of a block, splits and masks.
DECODED: dict[str, Build] = {
    "one query": attention((1, 1, 1, 64), (1, 70), 64, gradient=False),
    "grouped, last": attention(
        (2, 8, 1, 128), (2, 300), 128, pf.bfloat16, gradient=False, causal=True, query_offset=299
    ),
    "two, odd": attention((1, 2, 2, 20), (2, 130), 33, gradient=False, softcap=1.0, view="turned"),
    "behind a window": attention(
        (1, 4, 2, 72), (1, 700), 40, pf.float16, gradient=False, causal=True, query_offset=650, window=300
    ),
    "grown": grown((3, 4, 2, 64), 1),
    "lengths": attention((2, 2, 1, 24), (2, 300), 16, gradient=False, lengths=np.array([0, 299])),
    "sees nothing": attention((1, 2, 1, 8), (1, 40), 8, gradient=False, causal=True, query_offset=-1),
    "wide, added": attention((1, 6, 4, 256), (2, 260), 200, gradient=False, mask=added(4, 260)),
    "wide, hidden": attention((1, 2, 5, 256), (1, 260), 250, pf.bfloat16, gradient=False, mask=np.arange(260) % 3 > 0),
    "eight": attention(
        (1, 2, 8, 48), (2, 300), 64, pf.bfloat16, view="rows", gradient=False, causal=True, query_offset=292
    ),
}


@contextmanager
def tiles_for_few_bytes() -> Iterator[None]:
    """Matrix tiles for decoding whatever is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_decode_gpu, "_MANY_BYTES", 0)
        yield


# As above, of 16-bit numbers and with three rows or more that share their keys, for matrix tiles.
DECODED_TILES: dict[str, Build] = {
    **{name: DECODED[name] for name in ("grouped, last", "behind a window", "wide, hidden", "eight")},
    "sixteen": attention((2, 16, 1, 128), (1, 300), 128, pf.bfloat16, gradient=False, softcap=2.0),
    "many rows": attention((1, 6, 8, 64), (1, 330), 64, pf.float16, gradient=False, causal=True, query_offset=322),
    "five of 256": attention((1, 10, 1, 256), (2, 333), 256, pf.bfloat16, gradient=False, mask=added(1, 333)),
    "grown": grown((3, 8, 1, 96), 2),
    "seven, turned": attention((1, 14, 1, 40), (2, 290), 33, pf.float16, gradient=False, view="turned"),
}
MANY_HIDDEN = (np.arange(150)[:, None] + np.arange(80)) % 3 > 0
MANY_HIDDEN[[7, 149]] = False


def hidden_numbers() -> Case:
    """What a boolean mask hides may be anything; the gradients of others are as if it were 0."""
    arrays = [numbers((1, 1, n, 16), pf.bfloat16, n) for n in (20, 30, 30, 20)]
    mask = np.arange(30) < 28

    def run(key: Array) -> list[pf.Tensor]:
        q, k, v = (pf.tensor(a).requires_grad_() for a in (arrays[0], key, arrays[2]))
        out = pf.scaled_dot_product_attention(q, k, v, pf.tensor(np.broadcast_to(mask, (20, 30)).copy()))
        (out * pf.tensor(arrays[3])).sum().backward()
        return [out, *(t.grad for t in (k, v) if t.grad is not None)]

    seen, unseen = arrays[1].copy(), arrays[1].copy()
    seen[..., 28:, :], unseen[..., 28:, :] = 0, [[np.inf], [np.nan]]
    with pf.device("cpu"):
        expected = [t.numpy() for t in run(seen)]
    return Case(run(unseen), expected)


# Lines in aligned pieces, which are copied asynchronously where a GPU has wgmma: several blocks and turns, and edges.
ASYNC: dict[str, Build] = {
    "pieces, causal": attention((1, 2, 130, 64), (1, 140), 64, pf.bfloat16, causal=True),
    "pieces, more queries": attention((1, 1, 270, 16), (1, 70), 16, pf.float16, causal=True),
    "pieces, more keys": attention((1, 1, 9, 32), (1, 270), 24, pf.bfloat16, causal=True),
    "pieces, window": attention((1, 2, 300, 32), (1, 290), 32, pf.bfloat16, window=(20, 70)),
    "pieces, behind a window": attention((1, 1, 270, 16), (1, 70), 16, pf.float16, window=3),
    "pieces, lengths": attention(
        (3, 2, 150, 16),
        (1, 300),
        24,
        pf.bfloat16,
        gradient=False,
        causal=True,
        lengths=np.array([0, 151, 290]),
        query_offset=np.array([0, 1, 140]),
    ),
    "pieces, lengths and a window": attention(
        (2, 4, 130, 64),
        (2, 400),
        64,
        pf.float16,
        gradient=False,
        lengths=np.array([137, 400]),
        window=(90, 0),
        query_offset=np.array([7, 270]),
    ),
    "pieces, lengths and a mask": attention(
        (2, 2, 40, 16), (2, 60), 16, pf.bfloat16, gradient=False, lengths=np.array([50, 9]), mask=added(40, 60)
    ),
    "pieces, window, grouped": attention((1, 4, 140, 16), (2, 200), 24, pf.bfloat16, window=(5, 0), query_offset=60),
    "pieces, grouped": attention((1, 4, 70, 40), (2, 140), 72, pf.float16),
    "pieces, hidden": attention((1, 2, 150, 24), (1, 80), 32, pf.bfloat16, mask=MANY_HIDDEN),
    "pieces, added": attention((2, 2, 20, 32), (1, 70), 64, pf.float16, mask=added(2, 1, 20, 70)),
    "pieces, rows": attention((1, 2, 20, 96), (2, 70), 128, pf.bfloat16, view="rows"),
    "pieces, hidden numbers": hidden_numbers,
    "pieces, wide": attention((1, 1, 20, 256), (1, 70), 200, pf.float16, gradient=False),
}
CASES: dict[str, Build] = {
    **TILED,
    **ASYNC,
    "plain": attention((2, 2, 40, 20), (2, 45), 12),
    "grouped": attention((1, 6, 9, 8), (2, 37), 16),
    "causal": attention((1, 2, 35, 20), (1, 35), 16, causal=True),
    "causal, more keys": attention((1, 2, 10, 8), (2, 70), 8, causal=True),
    "causal, more queries": attention((1, 2, 70, 8), (2, 10), 8, causal=True),
    "odd": attention((2, 3, 11, 5), (3, 13), 7),
    "odd, turned": attention((1, 2, 33, 17), (1, 34), 3, view="turned"),
    "rows": attention((2, 2, 9, 24), (2, 9), 24, view="rows", causal=True),
    "hidden": attention((1, 2, 40, 8), (2, 45), 8, mask=ONE_HIDDEN),
    "hidden keys of heads": attention((2, 2, 8, 8), (1, 45), 8, mask=ONE_HIDDEN[:4].reshape(2, 2, 1, 45)),
    "added, grouped": attention((2, 2, 12, 9), (1, 35), 8, mask=added(2, 1, 12, 35)),
    "added, turned": attention((1, 4, 40, 8), (2, 33), 5, mask=added(4, 40, 33), view="turned"),
    "window": attention((1, 2, 200, 8), (1, 190), 5, window=(20, 70)),
    "window, added": attention((1, 2, 40, 8), (2, 33), 8, mask=added(40, 33), window=(4, 9), softcap=2.0),
    "behind a window": attention((1, 1, 200, 4), (1, 70), 4, window=3),
    "capped": attention((1, 2, 70, 20), (1, 70), 12, causal=True, softcap=0.7),
    "lengths": attention(
        (2, 2, 70, 8), (1, 80), 5, lengths=np.array([3, 70]), window=(9, 20), query_offset=np.array(7)
    ),
    "lengths, hidden": attention((3, 1, 40, 8), (1, 45), 8, mask=ONE_HIDDEN, lengths=np.array([0, 30, 99])),
    "packed": packed((170, 2, 8), (200, 2), 12, COUNTS),
    "packed, window": packed((165, 4, 5), (194, 2), 7, COUNTS, window_size=(30, 5), softcap=1.5, seqused_k=USED),
    "wide": attention((1, 1, 8, 100), (1, 9), 132),
    "widest": attention((1, 1, 8, 256), (1, 65), 200),
    "widest odd": attention((1, 1, 66, 201), (1, 8), 129),
    "forward": attention((1, 1, 8, 4), (1, 130), 4, gradient=False),
    "long": attention((1, 2, 67, 4), (2, 69), 4, causal=True),
}
