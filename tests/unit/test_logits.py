"""Cross-entropy of a linear layer in chunks of rows (passes/logits.py): the same numbers, without the logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.engine.evaluate import clear_plans
from tests.needs import needs_torch, torch

F = pf.nn.functional
DEVICES = ("cpu", "sim:gfx942", "sim:gfx1100")
N, D, V = 37, 8, 23
RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((N, D)), RNG.standard_normal((V, D)), RNG.standard_normal(V)
CLASSES = RNG.uniform(0.5, 2, V)
TARGET = RNG.integers(0, V, N)
TARGET[3] = -100
SETTINGS: list[dict[str, Any]] = [
    {"reduction": "mean"},
    {"reduction": "sum", "label_smoothing": 0.1},
    {"reduction": "none", "weight": CLASSES},
    {"reduction": "mean", "weight": CLASSES, "label_smoothing": 0.3, "ignore_index": int(TARGET[0])},
]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets above how many bytes logits are computed in chunks."""

    def set_to(nbytes: int) -> None:
        monkeypatch.setenv("PYFLAME_MAX_LOGITS", str(nbytes))
        clear_plans()

    set_to(8 * V * 4)
    yield set_to
    clear_plans()


def fused(x: Any, w: Any, b: Any, t: Any, **settings: Any) -> Any:
    return F.linear_cross_entropy(x, w, t, linear_bias=b, **settings)


def composed(x: Any, w: Any, b: Any, t: Any, **settings: Any) -> Any:
    return F.cross_entropy(F.linear(x, w, b), t, **settings)


def viewed(x: Any, w: Any, b: Any, t: Any, **settings: Any) -> Any:
    """As GPT programs have it."""
    logits = x.view(1, -1, x.shape[-1]) @ w.T + b
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), t.view(-1), **settings)


WAYS = {"fused": fused, "composed": composed, "viewed": viewed}


def with_gradients(way: Callable[..., Any], **settings: Any) -> Any:
    """Loss and gradients, jitted."""

    @pf.jit
    def run(x: pf.Tensor, w: pf.Tensor, b: pf.Tensor, t: pf.Tensor) -> Any:
        given = [v.requires_grad_() for v in (x, w, b)]
        loss = way(*given, t, **settings)
        return loss, *pf.autograd.grad(loss.sum(), given)

    return run


def target(settings: dict[str, Any]) -> Any:
    return np.where(TARGET < 0, settings.get("ignore_index", -100), TARGET)


def tensors(dtype: Any = pf.float64, **settings: Any) -> list[pf.Tensor]:
    return [*[pf.tensor(v, dtype=dtype) for v in (X, W, B)], pf.tensor(target(settings))]


def expected(settings: dict[str, Any]) -> list[Any]:
    """torch's, in float64."""
    x, w, b = (torch.tensor(v, requires_grad=True) for v in (X, W, B))
    given = {k: torch.tensor(v) if k == "weight" else v for k, v in settings.items()}
    functional = torch.nn.functional
    loss = functional.cross_entropy(functional.linear(x, w, b), torch.tensor(target(settings)), **given)
    loss.sum().backward()
    return [v.detach().numpy() for v in (loss, x.grad, w.grad, b.grad)]


def of(settings: dict[str, Any], dtype: Any = pf.float64) -> dict[str, Any]:
    return {k: pf.tensor(v, dtype=dtype) if k == "weight" else v for k, v in settings.items()}


@needs_torch
@pytest.mark.parametrize("settings", SETTINGS, ids=[s["reduction"] for s in SETTINGS])
@pytest.mark.parametrize("way", WAYS)
def test_loss_and_gradients_are_those_of_float64(bound: Any, way: str, settings: dict[str, Any]) -> None:
    run = with_gradients(WAYS[way], **of(settings))
    assert pf.explain(run, *tensors(), run=False).notes == [
        f"{N}x{V} logits of a cross-entropy are computed in 10 chunks of rows"
    ]
    for got, want in zip(run(*tensors(**settings)), expected(settings), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("device", DEVICES[1:])
def test_simulated_gpus_compute_the_same(bound: Any, device: str) -> None:
    bound(4 * V * 16)  # three chunks, the last one smaller
    with pf.device(device):
        for way, settings in (("fused", SETTINGS[0]), ("viewed", SETTINGS[3])):
            run = with_gradients(WAYS[way], **of(settings, pf.float32))
            assert "in 3 chunks" in str(pf.explain(run, *tensors(pf.float32), run=False))
            for got, want in zip(run(*tensors(pf.float32, **settings)), expected(settings), strict=True):
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def test_the_knob_switches_it_off_and_options_say_how_many_rows(bound: Any) -> None:
    bound(0)
    assert pf.explain(with_gradients(composed), *tensors(), run=False).notes == []
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=20)
    told = pf.explain(with_gradients(fused, options=options), *tensors(), run=False).notes
    assert told == [f"{N}x{V} logits of a cross-entropy are computed in 2 chunks of rows"]
    with pytest.raises(pf.ArgumentError, match="at least 1 but got 0"):
        nn.LinearCrossEntropyOptions(batch_chunk_size=0)


def not_rewritten(bound: Any, run: Any) -> None:
    """What is left as it is, and has the same values as without the pass."""
    assert pf.explain(run, *tensors(), run=False).notes == []
    got = [v.numpy() for v in run(*tensors())]
    bound(0)
    for a, b in zip(got, pf.jit(run.__wrapped__)(*tensors()), strict=True):
        np.testing.assert_array_equal(a, b.numpy())


def test_logits_that_somebody_else_reads_stay(bound: Any) -> None:
    @pf.jit
    def run(x: pf.Tensor, w: pf.Tensor, b: pf.Tensor, t: pf.Tensor) -> Any:
        logits = F.linear(x.requires_grad_(), w, b)
        loss = F.cross_entropy(logits, t)
        return loss, logits.argmax(1), *pf.autograd.grad(loss, [x])

    not_rewritten(bound, run)


def test_a_loss_that_its_own_gradient_depends_on_needs_the_logits_twice(bound: Any) -> None:
    @pf.jit
    def run(x: pf.Tensor, w: pf.Tensor, b: pf.Tensor, t: pf.Tensor) -> Any:
        loss = F.linear_cross_entropy(x.requires_grad_(), w, t, linear_bias=b)
        return pf.autograd.grad(loss.exp(), [x])

    not_rewritten(bound, run)


@pytest.mark.slow
def test_of_frozen_parts_no_gradient_is_made(bound: Any) -> None:
    want = [v.numpy() for v in with_gradients(composed)(*tensors())]
    for at in range(3):

        @pf.jit
        def run(*given: pf.Tensor, at: int = at) -> Any:
            given[at].requires_grad_()
            return pf.autograd.grad(composed(*given), [given[at]])[0]

        assert pf.explain(run, *tensors(), run=False).notes
        np.testing.assert_allclose(run(*tensors()).numpy(), want[1 + at], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_two_losses_of_the_same_logits(bound: Any) -> None:
    def both(x: Any, w: Any, b: Any, t: Any) -> Any:
        logits = F.linear(x, w, b)
        other = pf.where(t < 0, t, (t + 1) % V)
        return F.cross_entropy(logits, t) + F.cross_entropy(logits.float().double(), other, reduction="sum")

    run = with_gradients(both)
    assert len(pf.explain(run, *tensors(), run=False).notes) == 1
    got = [v.numpy() for v in run(*tensors())]
    bound(0)
    for a, b in zip(got, with_gradients(both)(*tensors()), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fused", "composed"])
def test_no_logits_are_in_memory(bound: Any, way: str) -> None:
    rows, classes = 2048, 4096
    bound(1 << 20)
    x, w = pf.randn(rows, 16), pf.randn(classes, 16)
    b, t = pf.zeros(classes), pf.randint(0, classes, (rows,))
    run = with_gradients(WAYS[way])
    pf.eval(x, w, b, t)
    assert pf.explain(run, x, w, b, t, run=False).arena_bytes < rows * classes  # a quarter of the logits
    if way == "fused":  # nor are they on the tape, where the loss is wanted before the gradients
        pf.reset_peak_memory_stats()
        before = pf.memory_allocated()
        x.requires_grad_()
        loss = fused(x, w, b, t)
        assert 0 < float(loss) < 100
        loss.backward()
        assert x.grad is not None and np.isfinite(x.grad.numpy()).all()
        assert pf.max_memory_allocated() - before < rows * classes


@pytest.mark.slow
@needs_torch
def test_second_derivatives_and_products_with_the_jacobian(bound: Any) -> None:
    def twice(lib: Any, x: Any, w: Any, t: Any) -> list[Any]:
        loss = lib.nn.functional.linear_cross_entropy(x, w, t, label_smoothing=0.1)
        (slope,) = lib.autograd.grad(loss, [x], create_graph=True)
        (slope * slope).sum().backward()
        return [x.grad, w.grad]

    x, w, _, t = tensors()
    got = twice(pf, x.requires_grad_(), w.requires_grad_(), t)
    tx, tw = (torch.tensor(v, requires_grad=True) for v in (X, W))
    for a, b in zip(got, twice(torch, tx, tw, torch.tensor(TARGET)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)
    x, w, _, t = tensors()
    direction = pf.tensor(RNG.standard_normal((N, D)))
    _, along = pf.func.jvp(lambda x: F.linear_cross_entropy(x, w, t), (x,), (direction,))
    (slope,) = pf.autograd.grad(F.linear_cross_entropy(x.requires_grad_(), w, t), [x])
    np.testing.assert_allclose(float(along), float((slope * direction).sum()), rtol=1e-9)


@pytest.mark.slow
def test_autocast_casts_as_for_the_layer_and_the_loss(bound: Any) -> None:
    def run(way: Callable[..., Any]) -> list[pf.Tensor]:
        x, w, b, t = tensors(pf.float32)
        given = [v.requires_grad_() for v in (x, w, b)]
        with pf.autocast(pf.bfloat16):
            loss = way(*given, t)
        return [loss, *pf.autograd.grad(loss, given)]

    ours = run(fused)
    bound(0)
    for a, b in zip(ours, run(composed), strict=True):
        assert a.dtype is b.dtype is pf.float32
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-2, atol=2e-3)
    half = [v.to(pf.float16) if v.dtype is pf.float64 else v for v in tensors()]
    assert fused(*half).dtype is composed(*half).dtype is pf.float16


def test_other_lengths_have_other_chunks(bound: Any) -> None:
    w, b = (pf.tensor(v) for v in (W, B))
    for rows in (37, 36, 20, 37, 5, 3, 36):  # the second of a structure is traced, to serve the others (resize.py)
        x, t = pf.tensor(X[:rows]).requires_grad_(), pf.tensor(TARGET[:rows])
        loss = composed(x, w, b, t)
        loss.backward()
        logits = X[:rows] @ W.T + B
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        valid = TARGET[:rows] >= 0
        want = np.where(valid[:, None], p - np.eye(V)[np.maximum(TARGET[:rows], 0)], 0) @ W / valid.sum()
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-9, atol=1e-12)


def test_a_target_out_of_range_is_found_in_its_chunk(bound: Any) -> None:
    x, w, b, t = tensors()
    t = pf.where(pf.arange(N) == 30, V, t)
    with pytest.raises(IndexError, match=r"test_logits\.py"):
        pf.eval(composed(x, w, b, t))


def test_checkpoint_computes_the_chunks_again(bound: Any) -> None:
    def run(x: pf.Tensor, w: pf.Tensor, b: pf.Tensor, t: pf.Tensor) -> Any:
        loss = pf.checkpoint(composed, x.requires_grad_(), w.requires_grad_(), b, t)
        return loss, *pf.autograd.grad(loss, [x, w])

    assert len(pf.explain(run, *tensors(), run=False).notes) == 2  # forward, and both passes together
    want = with_gradients(composed)(*tensors())
    for a, b in zip(pf.jit(run)(*tensors()), want[:3], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)


def trained(tied: bool, device: str = "cpu", steps: int = 3) -> list[Any]:
    """A small GPT's losses and weights after some steps; its head and embedding may share their weight."""
    with pf.device(device):
        pf.manual_seed(0)
        config = nn.GPTConfig(vocab_size=61, context=8, layers=1, heads=2, width=16, tie_weights=tied)
        model = nn.GPT(config)
        optimizer = pf.optim.AdamW(model.parameters(), lr=1e-2)

        @pf.jit
        def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
            loss = model.loss(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        tokens = np.random.default_rng(1).integers(0, 61, (4, 9))
        x, y = pf.tensor(tokens[:, :-1].copy()), pf.tensor(tokens[:, 1:].copy())
        told = pf.explain(step, x, y, run=False).notes
        losses = [float(step(x, y)) for _ in range(steps)]
        return [told, np.array(losses), *[p.detach().numpy() for p in model.parameters()]]


@pytest.mark.slow
@pytest.mark.parametrize(("tied", "device"), [(True, "cpu"), (False, "cpu"), (True, "sim:gfx942")])
def test_training_steps_are_the_same(bound: Any, tied: bool, device: str) -> None:
    bound(61 * 4 * 8)
    told, *got = trained(tied, device)
    assert told == ["32x61 logits of a cross-entropy are computed in 4 chunks of rows"]
    bound(0)
    plain, *want = trained(tied)
    assert plain == []
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_plan_for_a_gpu_has_room_for_one_chunk(bound: Any, target: str) -> None:
    bound(1 << 20)
    rows, classes = 4096, 8192
    with pf.device(f"null:{target}"):
        x, w = pf.zeros(rows, 64, dtype=pf.bfloat16), pf.zeros(classes, 64, dtype=pf.bfloat16)
        t = pf.zeros(rows, dtype=pf.int64)

        @pf.jit
        def run(x: pf.Tensor, w: pf.Tensor, t: pf.Tensor) -> Any:
            loss = F.linear_cross_entropy(x.requires_grad_(), w.requires_grad_(), t)
            return pf.autograd.grad(loss, [x, w])

        report = pf.explain(run, x, w, t, run=False)
    # two chunks of 64 rows, logits and slopes; two sums of 8192x64 in float32; the rest is small
    assert report.arena_bytes < 2 * (1 << 20) + 3 * classes * 64 * 4 + rows * 64 * 4


def test_rows_may_have_further_axes_and_other_dtypes() -> None:
    rows = 6
    x, w, t = X[: rows * rows].reshape(rows, rows, D), W[:rows], np.maximum(TARGET[: rows * rows], 0) % rows
    want = F.cross_entropy(pf.tensor(x.reshape(-1, D) @ w.T), pf.tensor(t), reduction="none").numpy()
    target = pf.tensor(t.reshape(rows, rows))
    for dtype in (pf.float64, pf.float32):  # the second promotes: by way of logits
        got = F.linear_cross_entropy(pf.tensor(x), pf.tensor(w, dtype=dtype), target, reduction="none")
        assert got.shape == (rows, rows) and got.dtype is pf.float64
        np.testing.assert_allclose(got.numpy().reshape(-1), want, rtol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    x, w, b, t = tensors()
    with pytest.raises(pf.ShapeError, match=r"linear_weight \(C, in\) but got"):
        F.linear_cross_entropy(x, w.T, t)
    with pytest.raises(pf.ShapeError, match=r"linear_bias of shape \(23,\)"):
        F.linear_cross_entropy(x, w, t, linear_bias=b[:-1])
    with pytest.raises(pf.ShapeError, match=r"a target of shape \(37,\)"):
        F.linear_cross_entropy(x, w, t[1:])
    with pytest.raises(pf.ShapeError, match=r"a weight of shape \(23,\)"):
        F.linear_cross_entropy(x, w, t, weight=b[:-1])
    with pytest.raises(pf.ArgumentError, match=r"label_smoothing in \[0, 1\]"):
        F.linear_cross_entropy(x, w, t, label_smoothing=1.5)
    with pytest.raises(pf.ArgumentError, match="no ignore_index"):
        F.linear_cross_entropy(x, w, pf.ones(N, V), ignore_index=1)
    with pytest.raises(pf.DTypeError, match="integers or probabilities"):
        F.linear_cross_entropy(x, w, t > 3)


@pytest.mark.slow
@needs_torch
def test_the_module_is_pytorchs(bound: Any) -> None:
    for out_features in ((), (3, 2)):
        how = {"out_features": out_features, "bias": True, "ignore_index": 2, "label_smoothing": 0.1}
        theirs = torch.nn.LinearCrossEntropyLoss(D, V, dtype=torch.float64, **how)
        ours = nn.LinearCrossEntropyLoss(D, V, dtype=pf.float64, **how)
        ours.load_state_dict(theirs.state_dict())
        t = np.random.default_rng(3).integers(0, V, (N, *out_features))
        loss = theirs(torch.tensor(X), torch.tensor(t))
        loss.backward()
        got = ours(pf.tensor(X), pf.tensor(t))
        got.backward()
        np.testing.assert_allclose(float(got), float(loss), rtol=1e-12)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-10, atol=1e-14)
