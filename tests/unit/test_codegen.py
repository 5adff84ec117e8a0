"""Generated C: the shapes of text that samples of single ops do not reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pyflame as pf
from pyflame.codegen import c, reuse
from pyflame.engine.devices import cpu
from pyflame.engine.texts import c_source
from tests.plans import plan_of


def test_tile_with_a_reduction_that_is_the_same_in_every_lane() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((5, 1)), rng.random((5, 300))
    a, b = pf.tensor(x), pf.tensor(y)
    got = b.sum(axis=0) * pf.sqrt((a * a).expand(5, 300).sum(axis=0)) + pf.exp(a).sum()
    np.testing.assert_allclose(got.numpy(), y.sum(0) * np.sqrt((x * x).sum()) + np.exp(x).sum(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 1), (64, 65), (257, 3), (2, 70_000), (70_000, 2), (300, 300)])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_of_every_layout(shape: tuple[int, int], axis: int | None) -> None:
    """Rows, tiles and chunks, with producers, consumers and a second reduction of the first."""
    array = np.random.default_rng(1).standard_normal(shape)
    for data, t in ((array, pf.tensor(array)), (array.T, pf.tensor(array).T)):
        centred = t - t.mean(axis=axis, keepdims=True)
        got = pf.sqrt((centred * centred).sum(axis=axis)) + t.amax(axis=axis)
        want = np.sqrt(((data - data.mean(axis=axis, keepdims=True)) ** 2).sum(axis=axis)) + data.max(axis=axis)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-9)


def texts_of(*results: pf.Tensor) -> str:
    return "".join(c_source(launch, cpu().target).text for launch in plan_of(*results).launches)


TILED = "const int64_t tiles"


def test_values_of_rows_do_not_say_along_what_a_reduction_runs() -> None:
    """As a norm's weight gradient: memory runs along the columns that are summed, and along the values for each row."""
    x, g, mean, scale = (pf.tensor(np.ones(s, np.float32)) for s in ((100, 300), (100, 300), (100, 1), (100, 1)))
    shift, more = (pf.tensor(np.ones((1, 300), np.float32)) for _ in range(2))
    turned = pf.tensor(np.ones((300, 100), np.float32)).T
    assert TILED in texts_of(((x - mean) * scale * g).sum(0))
    assert TILED not in texts_of(((turned - shift) * more).sum(0))
    array = np.random.default_rng(4).standard_normal((100, 40)).astype(np.float32)
    rows = np.linspace(0, 1, 100, dtype=np.float32)[:, None]
    for data, t in ((array, pf.tensor(array)), (array, pf.tensor(array.T.copy()).T)):
        got = ((t - pf.tensor(rows)) * pf.tensor(rows) * t).sum(0)
        np.testing.assert_allclose(got.numpy(), ((data - rows) * rows * data).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [63, 64, 257, 600])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 31, 32, 33])
def test_short_rows(count: int, length: int) -> None:
    """Many of them are taken side by side, whichever way memory runs."""
    array = np.random.default_rng(5).standard_normal((count, length))
    short = length <= 32 and count >= 64
    for data, x in ((array, pf.tensor(array)), (array.T, pf.tensor(array).T)):
        axis = 1 if data is array else 0
        out = pf.softmax(x, axis), x.argmax(axis), (x * x).mean(axis)
        powers = np.exp(data - data.max(axis, keepdims=True))
        np.testing.assert_allclose(out[0].numpy(), powers / powers.sum(axis, keepdims=True), rtol=1e-12)
        np.testing.assert_array_equal(out[1].numpy(), data.argmax(axis))
        np.testing.assert_allclose(out[2].numpy(), (data * data).mean(axis), rtol=1e-12)
    assert (TILED in texts_of(pf.tensor(array).sum(1))) == (short and length > 1)


@pytest.mark.parametrize("shape", [(40, 50, 60), (7, 130, 9), (300, 2, 200)])
def test_copies_in_every_order(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(2).standard_normal(shape)
    for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        got = pf.tensor(array).permute(order).contiguous() * 2.0
        np.testing.assert_array_equal(got.numpy(), array.transpose(order) * 2)


def test_text_does_not_depend_on_sizes() -> None:
    def texts(rows: int, columns: int) -> list[str]:
        x = pf.tensor(np.ones((rows, columns), np.float32))
        plan = plan_of(pf.softmax(x, axis=-1), x.sum(axis=0), x * 2.0 + x.sum())
        return [c_source(launch, cpu().target).text for launch in plan.launches]

    assert texts(100, 200) == texts(77, 233)


def test_argmax_of_a_fused_chain_finds_its_own_maximum() -> None:
    """Equality with the maximum must hold although the compared values never were in memory."""
    array = np.random.default_rng(3).standard_normal((64, 1001)).astype(np.float32)
    t = pf.tensor(array)
    chain = pf.tanh(t * 1.7 + 0.3) * t - t * 0.1
    index = pf.argmax(chain, axis=1).numpy()
    values = chain.numpy()
    np.testing.assert_array_equal(values[np.arange(64), index], values.max(axis=1))


def test_positions_along_memory_are_no_products() -> None:
    """Vectors of aarch64 have no product of 64-bit integers: with one the loop over a row of logits is scalar."""
    logits, labels = pf.tensor(np.ones((4, 300), np.float32)), pf.tensor(np.array([1, 0, 299, 7]))
    plan = plan_of(pf.where(pf.arange(300) == labels.unsqueeze(1), pf.exp(logits), 0.0))
    assert not any("+ l) * arg[" in c_source(launch, cpu().target).text for launch in plan.launches)


def test_equal_numbers_that_are_written_differently_are_different_text() -> None:
    """Texts are kept by kernel, and kernels compare their attributes as numbers: 0.0 is -0.0 and 1 is True."""
    kernel = plan_of(pf.tanh(pf.ones(5) + 1)).launches[0].kernel
    instrs = [i for i in kernel.instrs if i.op is not None]

    def text(value: object) -> str:
        changed = instrs[-1]._replace(attrs=(value,))
        return reuse._attributes(replace(kernel, instrs=(*kernel.instrs[:-1], changed)))

    assert len({text(0.0), text(-0.0), text(0), text(False)}) == 4
    assert c.generate(kernel) is c.generate(replace(kernel))
