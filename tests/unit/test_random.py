"""Random numbers: equal to the NumPy twin bit for bit, and distributed as they should be."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core import philox

N = 1 << 16


def seeded(seed: int = 7) -> pf.Generator:
    return pf.Generator().manual_seed(seed)


# --- bits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1, -5])
def test_uniforms_are_the_twins(seed: int) -> None:
    g = seeded(seed)
    unsigned = seed % 2**64
    first, second = pf.rand(5, 7, generator=g), pf.rand(11, generator=g, dtype=pf.float64)
    np.testing.assert_array_equal(first.numpy().ravel(), philox.random_uniform_f32(unsigned, 0, 35))
    np.testing.assert_array_equal(second.numpy(), philox.random_uniform_f64(unsigned, 1, 11))


def test_normals_are_within_4_ulp_of_the_twin() -> None:
    g = seeded()
    single, double = pf.randn(N, generator=g).numpy(), pf.randn(N, generator=g, dtype=pf.float64).numpy()
    want = philox.random_normal_f32(7, 0, N)
    assert np.max(np.abs(single - want) / np.spacing(np.abs(want))) <= 4
    want64 = philox.random_normal_f64(7, 1, N)
    assert np.max(np.abs(double - want64) / np.spacing(np.abs(want64))) <= 4


def test_integers_are_the_twins() -> None:
    got = pf.randint(-3, 10, (100,), generator=seeded())
    want = [int(word) * 13 // 2**64 - 3 for word in philox.random_u64(7, 0, 100)]
    assert got.tolist() == want
    for low, high in ((0, 2**40 + 7), (-(2**63), 2**63 - 1), (-(2**63), 2**63), (5, 6)):
        got = pf.randint(low, high, (50,), generator=seeded())
        assert got.tolist() == [low + int(word) * (high - low) // 2**64 for word in philox.random_u64(7, 0, 50)]
    assert got.dtype is pf.int64


def test_numbers_do_not_depend_on_how_they_are_used() -> None:
    whole = pf.rand(6, 8, generator=seeded()).numpy()
    fused = (pf.rand(6, 8, generator=seeded()) * 2.0 + 1.0).numpy()
    np.testing.assert_array_equal(fused, whole * np.float32(2) + 1)
    np.testing.assert_array_equal(pf.rand(6, 8, generator=seeded())[::2, 1:5].T.numpy(), whole[::2, 1:5].T)
    np.testing.assert_array_equal(pf.rand(8, 6, generator=seeded()).reshape(6, 8).numpy(), whole)


def test_offset_is_taken_at_the_call_not_at_evaluation() -> None:
    g = seeded()
    a, b = pf.rand(4, generator=g), pf.rand(4, generator=g)
    late = b.numpy()
    np.testing.assert_array_equal(a.numpy(), philox.random_uniform_f32(7, 0, 4))
    np.testing.assert_array_equal(late, philox.random_uniform_f32(7, 1, 4))
    both = pf.rand(4, generator=seeded()) - pf.rand(4, generator=seeded(8))
    assert np.abs(both.numpy()).max() > 0


def test_another_draw_neither_plans_nor_compiles() -> None:
    def step(p: float) -> None:
        x = pf.randn(33) * 0.5 + pf.rand(33)
        pf.eval(pf.dropout(x, p), pf.randint(0, 9, (5,)), pf.bernoulli(pf.full((4,), 0.3)))

    step(0.5)
    before = pf.compile_stats()
    pf.manual_seed(99)
    for p in (0.5, 0.1, 0.9):
        step(p)
    after = pf.compile_stats()
    assert (after.compiles, after.plan_misses) == (before.compiles, before.plan_misses)
    assert after.plan_hits > before.plan_hits


def test_jit_draws_anew_at_each_call() -> None:
    @pf.jit
    def noise(x: pf.Tensor) -> pf.Tensor:
        return x + pf.rand(3)

    x = pf.zeros(3)
    pf.eval(x)
    pf.manual_seed(7)
    for offset in range(3):
        np.testing.assert_array_equal(noise(x).numpy(), philox.random_uniform_f32(7, offset, 3))
    pf.manual_seed(8)
    np.testing.assert_array_equal(noise(x).numpy(), philox.random_uniform_f32(8, 0, 3))


# --- distributions ----------------------------------------------------------------------------------------------------


def near(value: float, want: float, deviation: float, n: int = N) -> bool:
    """Within five standard errors."""
    return abs(value - want) < 5 * deviation / math.sqrt(n)


def test_uniform_and_normal_moments() -> None:
    u, z = pf.rand(N, generator=seeded()).numpy(), pf.randn(N, generator=seeded()).numpy().astype(np.float64)
    assert 0 <= u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    assert near(u.mean(), 0.5, math.sqrt(1 / 12))
    assert near(z.mean(), 0, 1)
    assert near(z.var(), 1, math.sqrt(2))
    assert near((z**3).mean(), 0, math.sqrt(15))
    assert near((z**4).mean(), 3, math.sqrt(96))
    assert near((z[:-1] * z[1:]).mean(), 0, 1)
    counts, _ = np.histogram(u, 64, (0, 1))
    assert ((counts - N / 64) ** 2 / (N / 64)).sum() < 63 + 5 * math.sqrt(126)


def test_small_floats_stay_below_one() -> None:
    for dtype, steps in ((pf.float16, 2**11), (pf.bfloat16, 2**8)):
        x = pf.rand(N, dtype=dtype, generator=seeded()).numpy().astype(np.float64)
        assert x.max() == 1 - 1 / steps
        assert near(x.mean(), 0.5 - 0.5 / steps, math.sqrt(1 / 12))
        assert pf.randn(8, dtype=dtype).dtype is dtype


def test_integers_are_even() -> None:
    counts = np.bincount(pf.randint(10, (N,), generator=seeded()).numpy())
    assert len(counts) == 10
    assert ((counts - N / 10) ** 2 / (N / 10)).sum() < 9 + 5 * math.sqrt(18)
    assert pf.randint(0, 2, (4,), dtype=pf.uint8).dtype is pf.uint8
    wide = pf.randint(-(2**63), 2**63, (1000,), generator=seeded()).numpy()
    assert wide.min() < -(2**61)
    assert wide.max() > 2**61


def test_permutations() -> None:
    p = pf.randperm(1000, generator=seeded())
    assert sorted(p.tolist()) == list(range(1000))
    assert p.tolist() != list(range(1000))
    assert pf.randperm(0).tolist() == []
    assert pf.randperm(5, dtype=pf.int32).dtype is pf.int32
    first = np.array([pf.randperm(3).tolist() for _ in range(300)])
    assert set(map(tuple, first)) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}


def test_bernoulli() -> None:
    x = pf.bernoulli(pf.full((N,), 0.3), generator=seeded())
    assert near(x.numpy().mean(), 0.3, math.sqrt(0.21))
    assert set(x.tolist()) == {0.0, 1.0}
    assert pf.bernoulli(pf.tensor([0.0, 1.0, 0.0])).tolist() == [0, 1, 0]
    assert pf.zeros(3).bernoulli_(1.0).tolist() == [1, 1, 1]
    assert pf.bernoulli(pf.zeros(3, dtype=pf.int64), 1.0).dtype is pf.int64
    for p in (-0.1, 1.5, float("nan"), "a"):
        with pytest.raises(pf.ArgumentError, match="probability"):
            pf.bernoulli(pf.zeros(2), p)


def test_multinomial() -> None:
    weights = pf.tensor([0.0, 1.0, 3.0, 0.0, 4.0])
    drawn = pf.multinomial(weights, N, replacement=True, generator=seeded()).numpy()
    share = np.bincount(drawn, minlength=5) / N
    for got, want in zip(share, [0, 1 / 8, 3 / 8, 0, 1 / 2], strict=True):
        assert near(got, want, math.sqrt(want * (1 - want)) + 1e-9)
    rows = pf.multinomial(pf.tensor([[1.0, 0.0], [0.0, 2.0]]), 3, replacement=True)
    assert rows.tolist() == [[0, 0, 0], [1, 1, 1]]
    once = pf.multinomial(pf.rand(50, 6) + 0.1, 6).numpy()
    assert (np.sort(once, axis=1) == np.arange(6)).all()
    first = pf.multinomial(pf.tensor([[1.0, 3.0]]).expand(N // 8, 2), 1, generator=seeded()).numpy()
    assert near(first.mean(), 0.75, math.sqrt(3) / 4, N // 8)
    assert set(pf.multinomial(weights, 3).tolist()) == {1, 2, 4}


@pytest.mark.parametrize(
    ("weights", "k", "replacement"),
    [([0.0, 0.0], 1, True), ([1.0, -1.0], 1, True), ([1.0, float("nan")], 1, True), ([1.0, float("inf")], 1, True),
     ([1.0, 0.0], 2, False), ([1.0, 1.0], 3, False), ([1.0, 1.0], 0, True)],
)  # fmt: skip
def test_bad_multinomial(weights: Any, k: int, replacement: bool) -> None:
    with pytest.raises(pf.ArgumentError, match=r"\[multinomial\] expected"):
        pf.multinomial(pf.tensor(weights), k, replacement)


def test_normal_with_mean_and_std() -> None:
    x = pf.normal(2.0, 0.5, (N,), generator=seeded()).numpy()
    assert near(x.mean(), 2, 0.5)
    assert near(x.std(), 0.5, 0.5)
    mean = pf.tensor([0.0, 100.0])
    y = pf.normal(mean, pf.tensor([[1.0], [0.0]]))
    assert y.shape == (2, 2)
    assert y[1].tolist() == [0, 100]
    with pytest.raises(pf.ArgumentError, match="standard deviation"):
        pf.normal(0.0, -1.0, (2,))
    with pytest.raises(pf.ShapeError, match="size"):
        pf.normal(0.0, 1.0)


def test_in_place_fills() -> None:
    x = pf.empty(N)
    node = x._node
    assert x.uniform_(-2.0, 3.0) is x
    assert x._node is not node
    assert near(x.numpy().mean(), 0.5, 5 * math.sqrt(1 / 12))
    assert near(x.normal_(1.0, 2.0).numpy().mean(), 1, 2)
    assert near(x.exponential_(4.0).numpy().mean(), 0.25, 0.25)
    assert set(pf.zeros(100, dtype=pf.int16).random_(0, 3).tolist()) == {0, 1, 2}
    with pytest.raises(pf.GradientError, match="no_grad"):
        pf.zeros(2, requires_grad=True).normal_()
    with pf.no_grad():
        w = pf.zeros(2, requires_grad=True).normal_()
    assert w.is_leaf
    assert w.requires_grad


def test_likes() -> None:
    x = pf.zeros(2, 3, dtype=pf.float64)
    assert pf.rand_like(x).dtype is pf.float64
    assert pf.randn_like(x, dtype=pf.float32).shape == (2, 3)
    assert pf.randint_like(x, 5).dtype is pf.float64
    assert pf.randint_like(x, 4, 5).tolist() == [[4.0] * 3] * 2


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_scales_and_its_gradient_has_the_same_mask() -> None:
    x = pf.ones(N, requires_grad=True)
    y = pf.dropout(x, 0.25, generator=seeded())
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    kept = (y.numpy() != 0).mean()
    assert near(kept, 0.75, math.sqrt(3) / 4)
    np.testing.assert_array_equal(np.unique(y.numpy()), np.float32([0, 1 / 0.75]))
    mask = philox.random_uniform_f32(7, 0, N) < np.float32(0.75)
    np.testing.assert_array_equal(y.numpy() != 0, mask)


def test_dropout_keeps_no_mask() -> None:
    x = pf.ones(8, requires_grad=True)
    y = pf.dropout(x, 0.5)
    kept = [s for s in y._entry.srcs if s is not None]  # type: ignore[union-attr]
    assert {s.op.name for s in kept} == {"iota", "const"}


def test_dropout_edges() -> None:
    x = pf.tensor([1.0, float("nan"), float("inf")])
    assert pf.dropout(x, 1.0).tolist() == [0, 0, 0]
    assert pf.dropout(x, 0.0)._node is not None
    assert pf.dropout(pf.ones(3), 0.9, training=False).tolist() == [1, 1, 1]
    assert pf.dropout(pf.zeros(0, 2)).shape == (0, 2)
    for dtype in (pf.float64, pf.float16, pf.bfloat16):
        assert set(pf.dropout(pf.ones(64, dtype=dtype), 0.5).tolist()) == {0.0, 2.0}
    with pytest.raises(pf.ArgumentError, match="probability"):
        pf.dropout(x, 1.1)
    with pytest.raises(pf.DTypeError, match="floating-point"):
        pf.dropout(pf.zeros(2, dtype=pf.int64))


# --- generators -------------------------------------------------------------------------------------------------------


def test_manual_seed_and_state() -> None:
    pf.manual_seed(3)
    a = pf.randn(5).tolist()
    saved = pf.get_rng_state()
    b = pf.rand(5).tolist()
    pf.set_rng_state(saved)
    assert pf.rand(5).tolist() == b
    pf.manual_seed(3)
    assert pf.randn(5).tolist() == a
    assert pf.initial_seed() == 3
    assert pf.seed() == pf.initial_seed()
    assert pf.rand(5).tolist() != b


def test_generators_are_independent_and_pickle() -> None:
    pf.manual_seed(3)
    want = pf.rand(3).tolist()
    pf.manual_seed(3)
    g = seeded(1)
    pf.rand(3, generator=g)
    assert pf.rand(3).tolist() == want
    twin = pickle.loads(pickle.dumps(g))
    assert pf.rand(3, generator=twin).tolist() == pf.rand(3, generator=g).tolist()
    assert repr(seeded(1)) == "Generator(seed=1, offset=0)"


def test_bad_arguments() -> None:
    for seed in (1.5, "a", None, 2**64, -(2**63) - 1, True):
        with pytest.raises(pf.ArgumentError, match="manual_seed"):
            pf.manual_seed(seed)  # type: ignore[arg-type]
    with pytest.raises(pf.ArgumentError, match=r"pf\.Generator"):
        pf.rand(2, generator=np.random.default_rng())  # type: ignore[arg-type]
    with pytest.raises(pf.ArgumentError, match="low < high"):
        pf.randint(5, 5, (2,))
    with pytest.raises(pf.DTypeError, match="whole numbers"):
        pf.randint(0, 2.5, (2,))
    with pytest.raises(pf.ShapeError, match="shape"):
        pf.randint(0, 3)
    with pytest.raises(pf.DTypeError, match="float"):
        pf.rand(2, dtype=pf.int64)
    with pytest.raises(pf.ShapeError, match="at least 0"):
        pf.randperm(-1)
