"""Every loss as a module against torch, in each reduction."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from tests.chosen import chosen
from tests.nn.compare import Batches, Case, Fixed, case, made

RNG = np.random.default_rng(5)
X = (4, 5)
TARGET = Fixed(RNG.standard_normal(X), np.float32)
PROBABILITIES = Fixed(RNG.dirichlet(np.ones(5), 4), np.float32)
ZERO_ONE = Fixed(RNG.integers(0, 2, X), np.float32)
SIGNS = Fixed(RNG.integers(0, 2, X) * 2 - 1, np.float32)
ROW_SIGNS = Fixed([1, -1, -1, 1], np.float32)
CLASSES = Fixed([0, 4, 2, 2])
WEIGHT = Fixed(np.linspace(0.5, 1.5, 5), np.float32)
LABELS = Fixed([[3, 0, -1, 1, 1], [2, -1, 0, 0, 0], [0, 1, 2, 3, 4], [-1] * 5])
COUNTS = Fixed(RNG.integers(0, 6, X), np.float32)


def both(name: str, *args: object, inputs: list[object], **kwargs: object) -> list[Case]:
    """The mean, and the loss of each sample. Sums differ from means in one op only, which has a test below."""
    return [case(name, *args, inputs=inputs, reduction=r, **kwargs) for r in ("mean", "none")]


LOSSES = [
    case("MSELoss", inputs=[X, TARGET]),
    case("L1Loss", inputs=[X, TARGET], reduction="sum"),
    case("SmoothL1Loss", inputs=[X, TARGET], beta=0.5),
    case("HuberLoss", inputs=[X, TARGET], reduction="none", delta=0.7),
    case("CrossEntropyLoss", inputs=[X, CLASSES], reduction="none"),
    case("CrossEntropyLoss", inputs=[X, CLASSES], weight=WEIGHT, label_smoothing=0.1, ignore_index=2),
    case("CrossEntropyLoss", inputs=[X, PROBABILITIES]),
    case("CrossEntropyLoss", inputs=[(2, 3, 4), Fixed([[0, 1, 2, 1], [2, 2, -100, 0]])]),
    case("NLLLoss", inputs=[X, CLASSES], weight=WEIGHT),
    case("BCEWithLogitsLoss", inputs=[X, ZERO_ONE], weight=WEIGHT, pos_weight=WEIGHT),
    case("KLDivLoss", inputs=[X, PROBABILITIES], reduction="batchmean"),
    case("KLDivLoss", inputs=[X, TARGET], log_target=True, reduction="sum"),
    *both("MultiLabelSoftMarginLoss", inputs=[X, ZERO_ONE]),
    case("MultiLabelSoftMarginLoss", inputs=[X, ZERO_ONE], weight=WEIGHT),
    *both("PoissonNLLLoss", inputs=[X, COUNTS]),
    case("PoissonNLLLoss", inputs=[X, COUNTS], full=True),
    *both("CosineEmbeddingLoss", 0.2, inputs=[X, X, ROW_SIGNS]),
    case("CosineEmbeddingLoss", inputs=[(5,), (5,), Fixed(1)]),
    *both("MarginRankingLoss", 0.3, inputs=[X, X, SIGNS]),
    *both("HingeEmbeddingLoss", 0.6, inputs=[X, SIGNS]),
    *both("HingeEmbeddingLoss", inputs=[X, COUNTS]),  # other targets than 1 and -1 count as both
    *both("SoftMarginLoss", inputs=[X, SIGNS]),
    case("MultiMarginLoss", inputs=[X, CLASSES], reduction="none"),
    case("MultiMarginLoss", 2, 0.5, inputs=[X, CLASSES], weight=WEIGHT),
    *both("MultiLabelMarginLoss", inputs=[X, LABELS]),
    *both("TripletMarginLoss", inputs=[X, X, X]),
    case("TripletMarginLoss", 0.5, p=1.0, swap=True, inputs=[X, X, X]),
    case("TripletMarginWithDistanceLoss", inputs=[X, X, X], swap=True),
    case("CosineSimilarity", 0, 1e-3, inputs=[X, X]),
    case("PairwiseDistance", inputs=[X, X]),
    case("PairwiseDistance", 1.0, keepdim=True, inputs=[X, X]),
]


@pytest.fixture(scope="module")
def batches(request: pytest.FixtureRequest) -> Batches:
    return Batches(chosen(request, test_loss, "c"))


@pytest.mark.parametrize("c", LOSSES, ids=lambda c: c.id)
def test_loss(c: Case, batches: Batches) -> None:
    batches.check(c)


@pytest.mark.parametrize("c", LOSSES, ids=lambda c: c.id)
def test_repr(c: Case) -> None:
    assert repr(made(nn, pf.tensor, c)) == repr(made(torch.nn, torch.from_numpy, c))


@pytest.mark.parametrize(("weight", "reduction"), [(None, "mean"), (WEIGHT, "none")])
def test_bce_of_probabilities(weight: Fixed | None, reduction: str) -> None:
    p = np.array([[0.1, 0.5, 1.0, 0.0, 0.9]] * 4, np.float32)
    got_in, want_in = pf.tensor(p, requires_grad=True), torch.tensor(p, requires_grad=True)
    ours = nn.BCELoss(None if weight is None else pf.tensor(weight.array), reduction=reduction)
    theirs = torch.nn.BCELoss(None if weight is None else torch.from_numpy(weight.array), reduction=reduction)
    got, want = ours(got_in, pf.tensor(ZERO_ONE.array)), theirs(want_in, torch.from_numpy(ZERO_ONE.array))
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-5)
    got.sum().backward()
    want.sum().backward()
    np.testing.assert_allclose(got_in.grad.numpy(), want_in.grad.numpy(), rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "full", "reduction"), [(X, False, "mean"), ((4, 1), True, "none"), ((4,), True, "none")]
)
def test_gaussian(shape: tuple[int, ...], full: bool, reduction: str) -> None:
    var = np.abs(np.random.default_rng(2).standard_normal(shape)).astype(np.float32)
    var.reshape(-1)[0] = 0.0  # counts as eps
    x = np.random.default_rng(3).standard_normal(X).astype(np.float32)
    results = []
    for library, tensor in ((nn, pf.tensor), (torch.nn, torch.tensor)):
        inputs = [tensor(a, requires_grad=True) for a in (x, var)]
        loss = library.GaussianNLLLoss(full=full, reduction=reduction, eps=1e-2)
        out = loss(inputs[0], tensor(TARGET.array), inputs[1])
        out.sum().backward()
        results.append([out.detach().numpy(), *(i.grad.numpy() for i in inputs)])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_poisson_of_rates() -> None:
    rates = np.array([0.5, 2.0, 4.0], np.float32)
    target = np.array([0.0, 1.0, 5.0], np.float32)
    ours = nn.PoissonNLLLoss(log_input=False, full=True)(pf.tensor(rates), pf.tensor(target))
    theirs = torch.nn.PoissonNLLLoss(log_input=False, full=True)(torch.from_numpy(rates), torch.from_numpy(target))
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-5)


def test_a_distance_of_ones_own() -> None:
    loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().amax(-1), margin=0.5)
    a, p, n = pf.tensor([[0.0, 0.0]]), pf.tensor([[1.0, 2.0]]), pf.tensor([[0.5, 1.5]])
    assert loss(a, p, n).item() == pytest.approx(2.0 - 1.5 + 0.5)


def test_sum() -> None:
    x, y = pf.tensor([1.0, -2.0]), pf.tensor([1.0, 1.0])
    none = nn.SoftMarginLoss(reduction="none")(x, y).numpy()
    assert nn.SoftMarginLoss(reduction="sum")(x, y).item() == pytest.approx(none.sum())


def test_soft_margin_does_not_overflow() -> None:
    assert nn.SoftMarginLoss()(pf.tensor([-1000.0]), pf.tensor([1.0])).item() == 1000.0


def test_an_unknown_reduction_is_named() -> None:
    with pytest.raises(pf.ArgumentError, match=r"\[soft_margin_loss\] expected reduction 'mean', 'sum' or 'none'"):
        nn.SoftMarginLoss(reduction="avg")(pf.ones(2), pf.ones(2))


def test_weights_are_buffers() -> None:
    loss = nn.CrossEntropyLoss(pf.ones(3))
    assert list(loss.state_dict()) == ["weight"]
    assert not list(nn.CrossEntropyLoss().state_dict())


@pytest.mark.parametrize("name", ["multi_margin_loss", "multilabel_margin_loss"])
def test_of_one_number(name: str) -> None:
    got = getattr(nn.functional, name)(pf.tensor(0.5), pf.tensor(0), reduction="none")
    want = getattr(torch.nn.functional, name)(torch.tensor(0.5), torch.tensor(0), reduction="none")
    assert got.shape == tuple(want.shape) and got.item() == want.item()
