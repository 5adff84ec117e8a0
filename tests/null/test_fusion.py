"""How many launches a graph takes: counted on plans, without running anything."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.codegen import gpu
from pyflame.core.targets import TARGETS
from tests.plans import launches, plan_of


def leaf(*shape: int, dtype: object = np.float32) -> pf.Tensor:
    return pf.tensor(np.ones(shape, dtype))


def drawn(*shape: int) -> pf.Tensor:
    return pf.tensor(np.random.default_rng(0).random(shape, np.float32))


@pytest.fixture
def x() -> pf.Tensor:
    return leaf(64, 128)


def test_twenty_op_chain_with_broadcasts_casts_and_views_is_one_launch(x: pf.Tensor) -> None:
    y = x
    bias = leaf(128)
    for i in range(4):
        y = (y * 0.5 + bias).to(pf.float64).to(pf.float32)
        y = pf.tanh(y.reshape(64, 2, 64)).reshape(64, 128)
        y = y.permute(1, 0).permute(1, 0) + float(i)
    assert launches(y[1:, ::2]) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: pf.softmax(x, axis=-1),
        lambda x: pf.softmax(x, axis=0),
        lambda x: pf.log_softmax(x, axis=-1),
        lambda x: pf.layer_norm(x, (128,), leaf(128), leaf(128)),
        lambda x: pf.rms_norm(x, (128,), leaf(128)),
        lambda x: pf.cross_entropy(x, pf.tensor(np.zeros(64, np.int64))),
        lambda x: pf.cross_entropy(x, pf.tensor(np.zeros(64, np.int64)), reduction="none"),
        lambda x: (pf.exp(x) * 2.0).sum(axis=1) + 1.0,
        lambda x: pf.sqrt((x * x).mean(axis=0)) * 3.0,
        lambda x: (x - 1.0).sum(),
        lambda x: pf.argmax(x, axis=1),
        lambda x: pf.logsumexp(x, axis=1),
        lambda x: pf.embedding(x, pf.tensor(np.zeros((3, 4), np.int64))) * 2.0,
    ],
)
def test_one_launch(fn: object, x: pf.Tensor) -> None:
    assert launches(fn(x)) == 1  # type: ignore[operator]


@pytest.mark.parametrize("activation", [pf.relu, pf.gelu, pf.silu])
def test_matmul_takes_bias_and_activation(activation: object, x: pf.Tensor) -> None:
    plan = plan_of(activation(x @ leaf(128, 32) + leaf(32)))  # type: ignore[operator]
    assert [launch.implementation for launch in plan.launches] == ["gemm"]


def test_conv_takes_bias_and_relu() -> None:
    y = pf.relu(pf.conv2d(leaf(2, 3, 8, 8), leaf(4, 3, 3, 3), leaf(4), padding=1))
    assert launches(y) == 1


@pytest.mark.parametrize("rows", [(4, 16), (2, 2, 16), (64, 1)])
def test_a_product_takes_what_reads_it_reshaped(rows: tuple[int, ...], x: pf.Tensor) -> None:
    """The rows of its result are several loops of what is behind it; two of its values are stored."""
    weight, bias, other = (drawn(*shape) for shape in ((128, 32), (32,), (*rows, 32)))
    product = (x @ weight).reshape(*rows, 32)
    before = product + bias
    after = pf.gelu(before) * other
    assert launches(before, after) == 1
    wanted = x.numpy() @ weight.numpy() + bias.numpy()
    np.testing.assert_allclose(before.numpy().reshape(64, 32), wanted, rtol=1e-5)
    wanted = pf.gelu(pf.tensor(wanted)).numpy() * other.numpy().reshape(64, 32)
    np.testing.assert_allclose(after.numpy().reshape(64, 32), wanted, rtol=1e-5)


def test_products_of_a_batch_and_convolutions_take_what_reads_them_reshaped() -> None:
    a, b, bias = drawn(6, 8, 4), drawn(6, 4, 9), drawn(2, 3, 8, 9)
    y = (a @ b).reshape(2, 3, 8, 9) + bias
    assert launches(y) == 1
    np.testing.assert_allclose(y.numpy().reshape(6, 8, 9), a.numpy() @ b.numpy() + bias.numpy().reshape(6, 8, 9), 1e-5)
    columns = (a @ b).reshape(6, 2, 4, 3, 3) * drawn(3, 3)
    assert launches(columns) == 1
    images, weight, scale = drawn(4, 3, 6, 8), drawn(6, 3, 3, 3), drawn(2, 2, 2, 3, 3, 2, 8)
    z = pf.nn.functional.conv2d(images, weight, padding=1)
    scaled = z.reshape(2, 2, 2, 3, 3, 2, 8) * scale
    assert launches(scaled) == 1
    wanted = z.numpy().reshape(scale.shape) * scale.numpy()
    np.testing.assert_allclose(scaled.numpy(), wanted, rtol=1e-5)


def test_what_rows_read_and_others_too_is_computed_behind_its_product() -> None:
    """A bias's sum is stored in the place of the product, not beside it; what is reduced stays a launch of its own."""
    x, weight, bias = leaf(16, 32), leaf(32, 32), leaf(32)
    y = x @ weight + bias
    product, norm = plan_of(y, pf.layer_norm(y, (32,), bias, bias)).launches
    assert product.ops == ("matmul", "add") and "matmul" not in norm.ops and len(norm.buffers) == 3
    scaled = x @ weight * x.sum(-1, keepdim=True)  # the sum that only an epilogue reads is made apart
    assert plan_of(scaled, pf.softmax(scaled, -1)).launches[-2].ops == ("matmul", "mul")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.reshape(128, 64),
        lambda x: x.permute(1, 0),
        lambda x: x[3:9, ::-2],
        lambda x: x.reshape(64, 1, 128).expand(64, 5, 128),
        lambda x: x.T.reshape(128, 8, 8)[:, 1],
    ],
)
def test_views_launch_nothing(fn: object, x: pf.Tensor) -> None:
    assert launches(fn(x)) == 0  # type: ignore[operator]


def test_reshape_that_is_no_view_copies_once(x: pf.Tensor) -> None:
    assert launches(x.T.reshape(-1)) == 1


def test_reshape_without_common_factors_splits_the_kernel() -> None:
    y = pf.exp(leaf(4, 6)).reshape(3, 8) + leaf(8)
    assert launches(y) == 2


def test_cat_writes_straight_into_the_result(x: pf.Tensor) -> None:
    assert launches(pf.cat([x * 2.0, x + 1.0], axis=0)) == 2


def test_optimiser_like_update_is_one_launch() -> None:
    p, m, v, g = (leaf(1000) for _ in range(4))
    m2 = m * 0.9 + g * 0.1
    v2 = v * 0.99 + g * g * 0.01
    p2 = p - 0.001 * m2 / (pf.sqrt(v2) + 1e-8)
    assert launches(p2, m2, v2) == 1


def test_long_rows_are_not_one_worker() -> None:
    """A single row too long for one worker is reduced in chunks, then used by a second launch."""
    v = leaf(1 << 20)
    assert launches(v / v.sum()) == 2


def test_plans_for_gpus_split_the_mean_of_a_row_kernel(x: pf.Tensor) -> None:
    loss = pf.cross_entropy(x, pf.tensor(np.zeros(64, np.int64)))
    assert launches(loss, target="gfx942") == 2
    assert launches(pf.softmax(x, axis=-1), target="gfx1100") == 1


def test_scratch_is_reused(x: pf.Tensor) -> None:
    y = x
    for _ in range(6):
        y = pf.softmax(y @ leaf(128, 128), axis=-1)
    plan = plan_of(y)
    assert plan.arena_bytes <= 2 * x.nbytes < plan.intermediate_bytes


def test_outputs_that_share_costly_work_are_one_launch(x: pf.Tensor) -> None:
    shared = pf.sigmoid(x * 2.0)
    a, b = shared * x, shared * (1.0 - shared)
    del shared
    assert launches(a, b) == 1


def test_kernels_of_many_readers_stay_small() -> None:
    shared = pf.exp(leaf(8))
    outputs = [shared * leaf(8) + float(i) for i in range(300)]
    assert max(len(launch.ops) for launch in plan_of(*outputs).launches) <= 128


def test_kernels_declare_no_more_lds_than_nvidia_allows() -> None:
    x = leaf(257, 9, dtype=np.float64)
    sums = [pf.tanh(x * float(i)).sum(0) for i in range(9)]
    (launch,) = plan_of(*sums, target="sm_90").launches
    phases = gpu.generate(launch.kernel, TARGETS["sm_90"]).phases
    assert 0 < max(phase.lds_bytes for phase in phases) <= 48 * 1024


def test_what_is_small_beside_its_readers_is_computed_once() -> None:
    """Rates of an optimiser: every thread of every update would compute them."""
    steps, weights = leaf(6), [leaf(64, 64 + n) for n in range(6)]
    rates = 0.1 / (1.0 - steps)
    plan = plan_of(*[w - w * rates[n] for n, w in enumerate(weights)], target="sm_90")
    assert sum("true_divide" in launch.name for launch in plan.launches) == 1
