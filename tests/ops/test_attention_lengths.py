"""Attention over padded and packed sequences, and at offsets, against float64 sequence by sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import PyFlameError
from pyflame.nn.attention.varlen import varlen_attn
from tests.ops.test_attention_kernel import NUMPY, Array, close, exact, implementations, run

QUERIES, KEYS = (3, 0, 300, 34, 0, 1), (70, 5, 290, 0, 55, 1)
LEFT = 7, 9  # queries and keys of no sequence
WINDOWS: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"window_size": (-1, 0)},
    "window": {"window_size": (150, 20), "softcap": 1.5},
    "used": {"seqused_k": np.array([70, 0, 150, 0, 9, 1]), "window_size": (-1, 3)},
}


def numbers(*shape: int, seed: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).astype(NUMPY[dtype])


def by_sequence(arrays: list[Array], scale: float, options: dict[str, Any]) -> list[Array]:
    """out and the gradients of packed sequences, of attention without any."""
    left, right = options.get("window_size", (-1, -1))
    found = [np.zeros((a.shape[0], a.shape[1], w), np.float64) for a, w in zip(
        (arrays[0], *arrays[:3]), (arrays[2].shape[2], *(a.shape[2] for a in arrays[:3])), strict=True)]  # fmt: skip
    first = start = 0
    for n, (rows, keys) in enumerate(zip(QUERIES, KEYS, strict=True)):
        live = int(options["seqused_k"][n]) if "seqused_k" in options else keys
        if rows and live:
            own, other = slice(first, first + rows), slice(start, start + live)
            q, k, v, g = (a[s].swapaxes(0, 1)[None] for a, s in zip(arrays, (own, other, other, own), strict=True))
            offset = live - rows
            low, high = (None if left < 0 else offset - left), (None if right < 0 else offset + right)
            got = exact(q, k, v, g, None, False, scale, (low, high, options.get("softcap", 0.0)))
            for to, lines, x in zip(found, (own, own, other, other), got, strict=True):
                to[lines] = x[0].swapaxes(0, 1)
        first, start = first + rows, start + keys
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WINDOWS)
def test_packed_sequences(name: str, dtype: str) -> None:
    """Empty ones among them, more queries than keys, and lines behind the last, which get zeros, and zero gradients."""
    options, (rows, keys) = WINDOWS[name], (sum(n) + left for n, left in zip((QUERIES, KEYS), LEFT, strict=True))
    shapes = (rows, 4, 24), (keys, 2, 24), (keys, 2, 12), (rows, 4, 12)
    arrays = [numbers(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]
    q, k, v, g = (pf.tensor(a) for a in arrays)
    for x in (q, k, v):
        x.requires_grad_()
    ends = [pf.tensor(np.cumsum([0, *counts]).astype(np.int32)) for counts in (QUERIES, KEYS)]
    given = {n: pf.tensor(x) if isinstance(x, np.ndarray) else x for n, x in options.items()}
    out = varlen_attn(q, k, v, *ends, max(QUERIES), max(KEYS), scale=0.4, **given)
    assert [way for op, way in implementations(out) if op == "attention"] == ["flash"]
    out.backward(g)
    got = [x.numpy() for x in (out.detach(), q.grad, k.grad, v.grad)]
    for a, b in zip(got, by_sequence(arrays, 0.4, options), strict=True):
        close(a, b, dtype)


@pytest.mark.parametrize("queries", [3, 40])
def test_padded_batches(queries: int) -> None:
    """Decomposed and by the kernel; keys that do not count may hold anything finite, and get no gradient."""
    lengths, offsets = np.array([0, 17, 60]), np.array([5, 10, -2])
    arrays = [numbers(3, n, rows, 8, seed=rows + n) for n, rows in ((4, queries), (2, 60), (2, 60), (4, queries))]
    got = run(arrays, None, is_causal=True, lengths=pf.tensor(lengths), query_offset=pf.tensor(offsets))
    for n, (length, offset) in enumerate(zip(lengths, offsets, strict=True)):
        one = [a[n : n + 1, :, :length] if a.shape[2] == 60 else a[n : n + 1] for a in arrays]
        if not length:
            assert all(not x[n].any() for x in got)
            continue
        for a, b in zip(got, exact(*one, None, False, 8**-0.5, (None, int(offset), 0.0)), strict=True):
            close(a[n : n + 1, :, : b.shape[2]], b, "float32")
            assert not a[n, :, b.shape[2] :].any()


def test_one_offset_for_all_and_as_a_number() -> None:
    arrays = [numbers(2, 2, rows, 8, seed=rows) for rows in (9, 30, 30, 9)]
    wanted = run(arrays, None, is_causal=True, query_offset=21)
    for offset in (pf.tensor(21), pf.tensor([21, 21], dtype=pf.int32)):
        for a, b in zip(run(arrays, None, is_causal=True, query_offset=offset), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(wanted, exact(*arrays, None, False, 8**-0.5, (None, 21, 0.0)), strict=True):
        close(a, b, "float32")


def test_a_growing_cache_is_one_plan() -> None:
    """Where a jitted step stands is data."""
    q, k = (pf.tensor(numbers(1, 2, rows, 8, seed=rows)) for rows in (1, 64))
    step = pf.jit(lambda at: pf.scaled_dot_product_attention(q, k, k, is_causal=True, query_offset=at))
    for at in (0, 5, 63):
        alone = pf.scaled_dot_product_attention(q, k[:, :, : at + 1], k[:, :, : at + 1])
        np.testing.assert_allclose(step(pf.tensor(at)).numpy(), alone.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"lengths": [3]}, {"lengths": pf.ones(2)}, {"lengths": pf.tensor([1, 2, 3])}, {"query_offset": 0.5}],
    ids=str,
)
def test_what_are_no_lengths(options: dict[str, Any]) -> None:
    with pytest.raises(PyFlameError, match=r"lengths|query_offset"):
        pf.scaled_dot_product_attention(*[pf.ones(2, 1, 9, 4)] * 3, **options)


def test_what_is_not_packed() -> None:
    x, ends = pf.ones(9, 2, 4), pf.tensor([0, 4, 9])
    for given in (
        (x[None], x, x, ends, ends), (x, x, x[:8], ends, ends), (x, pf.ones(9, 3, 4), pf.ones(9, 3, 4), ends, ends),
        (x, x, x, ends, ends[:2]), (x, x, x, ends.to(pf.float32), ends), (x, x, x, ends, pf.tensor(9)),
    ):  # fmt: skip
        with pytest.raises(PyFlameError, match="varlen_attn"):
            pf.varlen_attn(*given)


def test_queries_of_no_numbers() -> None:
    """Scores are 0, whatever they would be scaled by."""
    q, v = pf.ones(3, 2, 0), pf.tensor(np.arange(12.0).reshape(3, 2, 2))
    ends = pf.tensor([0, 3])
    np.testing.assert_allclose(varlen_attn(q, q, v, ends, ends).numpy(), np.broadcast_to(v.numpy().mean(0), (3, 2, 2)))
