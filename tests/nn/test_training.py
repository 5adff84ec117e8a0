"""Layers that act in training: dropout draws, running statistics move, and jit sees which mode it was traced in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn

# --- dropout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "axes"),
    [
        ("Dropout", (40, 50), ()),
        ("Dropout1d", (40, 50, 3), (2,)),
        ("Dropout1d", (400, 3), (1,)),
        ("Dropout2d", (40, 50, 3, 2), (2, 3)),
        ("Dropout3d", (40, 50, 2, 2, 2), (2, 3, 4)),
        ("Dropout3d", (400, 2, 2, 2), (1, 2, 3)),
    ],
)
def test_dropout(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """A share of p is 0, whole channels at once, the rest is scaled; the gradient passes where the value did."""
    pf.manual_seed(0)
    layer = getattr(nn, name)(0.3)
    x = pf.ones(shape, requires_grad=True)
    y = layer(x)
    out = y.numpy()
    assert set(np.unique(out).round(4)) == {0.0, np.float32(1 / 0.7).round(4)}
    channels = out.min(axis=axes) if axes else out
    np.testing.assert_array_equal(channels, out.max(axis=axes) if axes else out)
    assert abs((channels == 0.0).mean() - 0.3) < 0.07
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out)
    assert not np.array_equal(layer(x).numpy(), out)
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())


@pytest.mark.parametrize(("name", "shape"), [("AlphaDropout", (200, 300)), ("FeatureAlphaDropout", (200, 300, 2))])
def test_alpha_dropout_keeps_mean_and_variance(name: str, shape: tuple[int, ...]) -> None:
    pf.manual_seed(0)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    layer = getattr(nn, name)(0.4)
    out = layer(pf.tensor(x)).numpy()
    assert abs(out.mean()) < 0.03 and abs(out.std() - 1.0) < 0.03
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(0.4)(torch.from_numpy(x)).numpy()
    # both replace an element by the same number
    assert np.float32(out.min()) < -1.0
    dropped = np.unique(theirs.round(4), return_counts=True)
    value = dropped[0][dropped[1].argmax()]
    assert abs((np.abs(out - value) < 1e-3).mean() - 0.4) < 0.03
    np.testing.assert_array_equal(layer.eval()(pf.tensor(x)).numpy(), x)


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_a_probability_is_wanted(p: float) -> None:
    with pytest.raises(pf.ArgumentError, match=r"\[Dropout\] expected a probability in \[0, 1\]"):
        nn.Dropout(p)


def test_dropout_inside_jit_draws_anew() -> None:
    layer = nn.Dropout(0.5)
    step = pf.jit(lambda x: layer(x))
    first, second = step(pf.ones(100)).numpy(), step(pf.ones(100)).numpy()
    assert step.traces == 1 and not np.array_equal(first, second)


# --- train and eval inside jit ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_jitted_function_follows_train_and_eval() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    step = pf.jit(lambda x: model(x))
    x = pf.randn(64, 3)
    step(x)
    model.eval()
    quiet = step(x).numpy()
    np.testing.assert_allclose(quiet, model(x).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(step(x).numpy(), quiet)
    assert step.traces == 2
    assert "training" in step.reasons[-1]
    model.train()
    assert not np.allclose(step(x).numpy(), quiet)
    assert step.traces == 2  # both traces are kept
    model[1].eval()
    step(x)
    assert step.traces == 3


def test_a_module_is_jitted_as_it_is() -> None:
    model = nn.Linear(3, 2)
    x = pf.randn(4, 3)
    np.testing.assert_allclose(pf.jit(model)(x).numpy(), model(x).numpy(), rtol=1e-6)


# --- running statistics -----------------------------------------------------------------------------------------------


def batches(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [(rng.standard_normal((6, 3, 4)) * (i + 1) + i).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("BatchNorm1d", {}),
        ("BatchNorm1d", {"momentum": None}),
        ("InstanceNorm1d", {"track_running_stats": True}),
    ],
)
def test_running_statistics(name: str, settings: dict[str, Any], jit: bool) -> None:
    ours, theirs = getattr(nn, name)(3, **settings), getattr(torch.nn, name)(3, **settings)
    cells = list(ours.buffers())
    step = pf.jit(lambda x: ours(x)) if jit else ours
    for x in batches(4):
        np.testing.assert_allclose(
            step(pf.tensor(x)).numpy(), theirs(torch.from_numpy(x)).detach(), rtol=1e-4, atol=1e-5
        )
    for a, b in zip(ours.buffers(), cells, strict=True):
        assert a is b and a.is_leaf and not a.requires_grad
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-5, err_msg=key)
    x = batches(1)[0]
    want = theirs.eval()(torch.from_numpy(x)).detach()
    np.testing.assert_allclose(ours.eval()(pf.tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
    if jit:
        assert step.traces == 1
    ours.reset_running_stats()
    assert ours.running_mean.tolist() == [0.0] * 3 and ours.running_var.tolist() == [1.0] * 3
    assert ours.num_batches_tracked.item() == 0


def test_running_statistics_keep_no_activations_alive() -> None:
    layer = nn.BatchNorm1d(3)
    layer(pf.randn(8, 3) * 2.0)
    assert all(b._node.op.kind == "leaf" for b in layer.buffers())


def test_a_state_dict_follows_jitted_steps_and_its_clone_does_not() -> None:
    layer = nn.BatchNorm1d(3)
    step = pf.jit(lambda x: layer(x).sum())
    step(pf.tensor(batches(1)[0]))
    state = layer.state_dict()
    before = {name: value.tolist() for name, value in state.items()}
    kept = {name: value.clone() for name, value in state.items()}
    for x in batches(3):
        step(pf.tensor(x))
    assert {name: value.tolist() for name, value in kept.items()} == before
    assert state["running_mean"].tolist() == layer.running_mean.tolist() != before["running_mean"]
    assert state["num_batches_tracked"].item() == 4


@pytest.mark.slow
def test_one_jitted_step_of_a_model_is_the_eager_step() -> None:
    def model() -> nn.Module:
        pf.manual_seed(3)
        return nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.GELU(), nn.Flatten(), nn.Linear(8, 2))

    def step(m: nn.Module, x: pf.Tensor) -> pf.Tensor:
        loss = (m(x) ** 2).mean()
        m.zero_grad()
        loss.backward()
        with pf.no_grad():
            for p in m.parameters():
                p.sub_(p.grad * 0.1)
        return loss

    a, b = model(), model()
    jitted = pf.jit(lambda x: step(b, x))
    for x in batches(3):
        np.testing.assert_allclose(jitted(pf.tensor(x)).item(), step(a, pf.tensor(x)).item(), rtol=1e-4)
    for (name, p), (_, q) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)


# --- functional -------------------------------------------------------------------------------------------------------


def test_functional_batch_norm_moves_the_statistics_given() -> None:
    x = batches(1)[0]
    mean, var = pf.zeros(3), pf.ones(3)
    theirs = torch.zeros(3), torch.ones(3)
    nn.functional.batch_norm(pf.tensor(x), mean, var, training=True, momentum=0.4)
    torch.nn.functional.batch_norm(torch.from_numpy(x), *theirs, training=True, momentum=0.4)
    for got, want in zip((mean, var), theirs, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_functional_names_are_torchs() -> None:
    ours_alone = {"swiglu"}
    for name in nn.functional.__all__:
        assert callable(getattr(nn.functional, name))
        assert name in ours_alone or hasattr(torch.nn.functional, name), name


def test_modules_are_torchs() -> None:
    ours_alone = {"EncodedEmbedding", "EncodedLinear", "GPT", "GPTConfig", "GPTDecoder"}
    for name in nn.__all__:
        assert name in ours_alone or hasattr(torch.nn, name), name


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.BatchNorm2d(3)(pf.ones(2, 3)), r"\[BatchNorm2d\] expected \(4,\) axes but got shape \(2, 3\)"),
        (lambda: nn.BatchNorm1d(3)(pf.ones(2, 4)), "expected 3 channels but got 4"),
        (lambda: nn.BatchNorm1d(3)(pf.ones(1, 3)), "expected more than one value per channel when training"),
        (lambda: nn.GroupNorm(2, 3), "expected num_channels to be a multiple of num_groups"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "expected groups that divide"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "expected kernel_size to be a number or 2 of them"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), "expected padding 'same', 'valid' or numbers"),
        (lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2), "expected stride 1 with padding='same'"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "expected padding_mode to be one of"),
        (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "expected padding_mode to be one of"),
        (lambda: nn.Embedding(3, 4, padding_idx=3), "expected padding_idx to be one of 3 rows"),
        (lambda: nn.Embedding(3, 4, sparse=True)(pf.tensor([1])), "expected sparse=False"),
        (lambda: nn.Embedding.from_pretrained(pf.ones(3)), "expected a table"),
        (lambda: nn.EmbeddingBag(3, 4, mode="min")(pf.tensor([[1]])), "expected mode 'sum', 'mean' or 'max'"),
        (lambda: nn.EmbeddingBag(3, 4)(pf.tensor([1])), r"expected indices of shape \(bags, n\) without offsets"),
        (lambda: nn.Upsample(scale_factor=2, mode="bilinear")(pf.ones(1, 1, 2)), "expected mode to be one of"),
        (lambda: nn.Upsample()(pf.ones(1, 1, 2)), "expected either size or scale_factor"),
        (lambda: nn.Upsample(size=0)(pf.ones(1, 1, 2)), "expected sizes of at least 1 but 0 makes"),
        (lambda: nn.Upsample(size=-1)(pf.ones(1, 1, 2)), "expected a size of 0 or more but got -1"),
        (lambda: nn.Upsample(size=1.5)(pf.ones(1, 1, 2)), "expected a size, a whole number"),
        (lambda: nn.Upsample(scale_factor=0)(pf.ones(1, 1, 2)), "expected a scale_factor above 0 but got 0"),
        (lambda: nn.Upsample(scale_factor=float("nan"))(pf.ones(1, 1, 2)), "expected a scale_factor above 0"),
        (lambda: nn.Upsample(scale_factor=0.4)(pf.ones(1, 1, 2)), "expected sizes of at least 1 but 0.4 makes"),
        (lambda: nn.Upsample(size=2)(pf.ones(1, 1, 0)), "expected channels and spatial axes with elements"),
        (lambda: nn.PixelShuffle("2")(pf.ones(1, 4, 2, 2)), "expected upscale_factor, a whole number"),
        (lambda: nn.PixelShuffle(2)(pf.ones(1, 3, 2, 2)), "expected "),
        (lambda: nn.ZeroPad2d((1, 2)), "expected a number or 4 of them"),
        (lambda: nn.Dropout1d()(pf.ones(3)), "expected 2 or 3 axes"),
        (lambda: nn.Bilinear(0, 1, 1), "expected in1_features of at least 1"),
        (lambda: nn.Linear(3, 2)(pf.ones(2, 4)), "expected"),
    ],
)
def test_mistakes_are_named(call: Any, message: str) -> None:
    with pytest.raises(pf.PyFlameError, match=message):
        call()


def test_transposed_convolution_to_a_size() -> None:
    ours, theirs = (lib.ConvTranspose2d(2, 3, 3, stride=2, padding=1) for lib in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    want = theirs(torch.from_numpy(x), output_size=(6, 7)).detach().numpy()
    got = ours(pf.tensor(x), output_size=(6, 7)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    with pytest.raises(pf.ShapeError, match=r"expected output_size between \(5, 7\) and \(6, 8\)"):
        ours(pf.tensor(x), output_size=(7, 7))


def test_pretrained_embedding() -> None:
    table = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad and layer(pf.tensor([2])).tolist() == [[4.0, 5.0]]
    assert nn.Embedding.from_pretrained(table, freeze=False, padding_idx=0).weight.requires_grad


def test_weighted_bags() -> None:
    ours, theirs = (lib.EmbeddingBag(4, 2, mode="sum") for lib in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    indices, weights = np.array([[0, 1], [3, 3]]), np.array([[0.5, 2.0], [1.0, -1.5]], np.float32)
    got = ours(pf.tensor(indices), per_sample_weights=pf.tensor(weights)).numpy()
    want = theirs(torch.from_numpy(indices), per_sample_weights=torch.from_numpy(weights)).detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6)
